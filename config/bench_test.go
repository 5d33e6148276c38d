package config_test

import (
	"context"
	"log/slog"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
)

// latencies counts durations in buckets that are at most 1/64 wide.
type latencies [64 * 64]uint32

func (l *latencies) add(d time.Duration) {
	n := uint64(max(d, 64))
	shift := bits.Len64(n) - 7
	l[shift*64+int(n>>shift)-64]++
}

func (l *latencies) join(other *latencies) {
	for i, n := range other {
		l[i] += n
	}
}

func (l *latencies) quantile(q float64) float64 {
	total := uint64(0)
	for _, n := range l {
		total += uint64(n)
	}
	left := uint64(q * float64(total))
	for i, n := range l {
		if left < uint64(n) {
			return float64(uint64(i%64+64) << (i / 64))
		}
		left -= uint64(n)
	}
	return 0
}

// BenchmarkCallsDuringReloads measures what reloads cost the calls that go on meanwhile. Each
// iteration is a pair of rounds in this process, one with a hundred reloads, each of which
// changes something, and one without; the order changes from pair to pair. It reports the
// quantiles of both and the ratio of the p99s, and asserts nothing.
func BenchmarkCallsDuringReloads(b *testing.B) {
	const reloads, every = 100, 4 * time.Millisecond
	texts := []string{
		one("ratelimit: {Rate: 1000000000/s, Burst: 1000000000}, bulkhead: {Limit: 100}, breaker: {}, retry: {}, timeout: {Total: 1m}"),
		one("ratelimit: {Rate: 2000000000/s, Burst: 1000000000}, bulkhead: {Limit: 200}, breaker: {OpenFor: 3s}, retry: {MaxAttempts: 2}, timeout: {Total: 2m}"),
	}
	for _, bm := range []struct {
		name    string
		callers int
		work    time.Duration
	}{
		{"busy", max(1, runtime.GOMAXPROCS(0)-1), 0}, // one processor is left for the reloads
		{"full", runtime.GOMAXPROCS(0), 0},           // they compete with the calls
		{"waiting", 100, time.Millisecond},           // calls as of a network
	} {
		b.Run(bm.name, func(b *testing.B) {
			src := &store{text: texts[0]}
			var reg policy.Registry
			m, err := config.NewManager(b.Context(), config.ManagerConfig{Registry: &reg, Sources: []config.Source{src}, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			defer m.Close()
			p, _ := reg.Get("a")
			round := func(reload bool) *latencies {
				var stop atomic.Bool
				var wg sync.WaitGroup
				all := make([]latencies, bm.callers)
				for i := range all {
					wg.Go(func() {
						for !stop.Load() {
							start := time.Now()
							if err := policy.Run(b.Context(), p, func(context.Context) error {
								if bm.work > 0 {
									time.Sleep(bm.work)
								}
								return nil
							}); err != nil {
								b.Error(err)
							}
							all[i].add(time.Since(start))
						}
					})
				}
				for i := range reloads {
					if reload {
						src.set(texts[(i+1)%2], nil)
						_, err := m.Reload(b.Context())
						require.NoError(b, err)
					}
					time.Sleep(every)
				}
				stop.Store(true)
				wg.Wait()
				for i := range all[1:] {
					all[0].join(&all[i+1])
				}
				return &all[0]
			}
			round(true) // warms up
			var with, without latencies
			var ratios []float64
			for i := 0; b.Loop(); i++ {
				pair := [2]*latencies{}
				for j := range 2 {
					reload := (i+j)%2 == 0
					l := round(reload)
					if reload {
						pair[1] = l
						with.join(l)
					} else {
						pair[0] = l
						without.join(l)
					}
				}
				ratios = append(ratios, pair[1].quantile(0.99)/pair[0].quantile(0.99))
			}
			slices.Sort(ratios)
			b.ReportMetric(without.quantile(0.99), "p99-ns")
			b.ReportMetric(with.quantile(0.99), "p99-reloads-ns")
			b.ReportMetric(with.quantile(0.99)/without.quantile(0.99), "p99-ratio")
			b.ReportMetric(ratios[len(ratios)/2], "p99-ratio-median")
			b.ReportMetric(with.quantile(0.5)/without.quantile(0.5), "p50-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
