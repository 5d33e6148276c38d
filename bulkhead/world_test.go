package bulkhead_test

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// servers is a heap of the times at which each is free.
type servers []time.Time //nolint:recvcheck // as container/heap has it

func (s servers) Len() int           { return len(s) }
func (s servers) Less(i, j int) bool { return s[i].Before(s[j]) }
func (s servers) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *servers) Push(x any)        { *s = append(*s, x.(time.Time)) }
func (s *servers) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// backend is a dependency that serves so many calls at a time, each for a time around
// service; the others stand in its own queue, first come, first served.
type backend struct {
	mu      sync.Mutex
	free    servers
	service time.Duration
	rnd     *rand.Rand
}

func newBackend(n int, service time.Duration) *backend {
	return &backend{free: make(servers, n), service: service, rnd: rand.New(rand.NewPCG(1, 2))}
}

func (b *backend) set(n int, service time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.free) < n {
		heap.Push(&b.free, time.Time{})
	}
	for len(b.free) > n {
		heap.Pop(&b.free)
	}
	b.service = service
}

func (b *backend) call(ctx context.Context) (int, error) {
	b.mu.Lock()
	begin := time.Now()
	if b.free[0].After(begin) {
		begin = b.free[0]
	}
	end := begin.Add(time.Duration(float64(b.service) * (0.8 + 0.4*b.rnd.Float64())))
	b.free[0] = end
	heap.Fix(&b.free, 0)
	b.mu.Unlock()
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// phase is a stretch of time with one offered load and one state of the backend.
type phase struct {
	length  time.Duration
	rate    float64 // calls a second
	servers int
	service time.Duration
}

// stretch is what was seen in a part of a phase.
type stretch struct {
	served, refused int
	latency         time.Duration // mean of the served
	limit           int
}

// offer plays phases, with random arrivals, against a pipeline around a backend, and
// returns what was seen in each tenth of each phase.
func offer(t *testing.T, cfg bulkhead.Adaptive, phases []phase) (seen [][]stretch, end policy.BulkheadSnapshot) {
	t.Helper()
	if testing.Short() {
		t.Skip("plays minutes of load")
	}
	synctest.Test(t, func(t *testing.T) {
		live, err := bulkhead.NewAdaptive("", cfg)
		require.NoError(t, err)
		p := newPipeline(t, live)
		b := newBackend(phases[0].servers, phases[0].service)
		arrivals := rand.New(rand.NewPCG(3, 4))
		var wg sync.WaitGroup
		for _, ph := range phases {
			b.set(ph.servers, ph.service)
			var parts []stretch
			for range 10 {
				var served, refused, took atomic.Int64
				until := time.Now().Add(ph.length / 10)
				for {
					time.Sleep(time.Duration(arrivals.ExpFloat64() / ph.rate * float64(time.Second)))
					if !time.Now().Before(until) {
						break
					}
					wg.Go(func() {
						start := time.Now()
						if _, err := policy.Do(t.Context(), p, b.call); err != nil {
							refused.Add(1)
							return
						}
						served.Add(1)
						took.Add(int64(time.Since(start)))
					})
				}
				s := stretch{served: int(served.Load()), refused: int(refused.Load()), limit: live.Limit()}
				s.latency = time.Duration(took.Load() / max(served.Load(), 1))
				parts = append(parts, s)
			}
			seen = append(seen, parts)
		}
		wg.Wait()
		end = *live.Snapshot(time.Now()).Bulkhead
		assert.Zero(t, end.InFlight)
	})
	return seen, end
}
