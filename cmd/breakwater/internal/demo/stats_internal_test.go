package demo

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

func TestTallyQuantilesAgainstSort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		latencies := rapid.SliceOfN(rapid.Int64Range(int64(time.Millisecond), int64(5*time.Second)), 1, 400).Draw(t, "latencies")
		a, b := newTally(), newTally() // merging must not matter
		for i, l := range latencies {
			[]*tally{a, b}[i%2].add(result{latency: time.Duration(l), ok: true})
		}
		sum := merge(a, b)
		slices.Sort(latencies)
		for _, p := range []float64{50, 99} {
			// The smallest value that at least p percent of the others do not exceed,
			// as the histogram counts them.
			rank := max(int(p/100*float64(len(latencies))+0.5), 1)
			want := float64(latencies[rank-1]) / 1e6
			got := sum.quantile(p)
			assert.InEpsilon(t, want, got, 0.002, "p%v of %d values", p, len(latencies))
		}
	})
}

func TestTallyCounts(t *testing.T) {
	t.Parallel()
	empty := newTally()
	assert.Zero(t, empty.quantile(99))
	assert.Zero(t, empty.share(empty.real))
	x := newTally()
	for _, r := range []result{
		{ok: true},
		{ok: true, degraded: true},
		{},
		{degraded: true},
		{ok: true, latency: time.Hour}, // beyond the histogram's range
	} {
		x.add(r)
	}
	assert.Equal(t, []int64{5, 2, 1, 2}, []int64{x.offered, x.real, x.fallbacks, x.failed})
	assert.InDelta(t, 0.4, x.share(x.real), 1e-9)
	assert.InEpsilon(t, 60000, x.quantile(100), 0.002)
}

func TestStatsSortsResults(t *testing.T) {
	t.Parallel()
	s, err := script.Incident(20*time.Second, 30*ms)
	require.NoError(t, err)
	st := newStats(s, settleTime(s))
	for _, r := range []result{
		{at: -ms, ok: true, route: routePrice}, // vegeta was a little early
		{at: 4999 * ms, ok: true},
		{at: 5 * time.Second, ok: true, degraded: true},                          // slow
		{at: 12999 * ms, latency: 3 * time.Second, route: routePrice},            // failing
		{at: 16499 * ms, ok: true},                                               // recovered, not settled
		{at: 16500 * ms, ok: true, route: routePrice},                            // settled
		{at: 20*time.Second + ms, ok: true, latency: 10 * ms, route: routeStock}, // the last one
	} {
		st.add(r)
	}
	assert.EqualValues(t, 2, st.all(script.HealthyPhase).real)
	assert.EqualValues(t, 1, st.of(routeStock, script.HealthyPhase).real)
	incident := st.all(incidentPhases()...)
	assert.Equal(t, []int64{2, 0, 1, 1}, []int64{incident.offered, incident.real, incident.fallbacks, incident.failed})
	assert.InEpsilon(t, 3000, st.of(routePrice, incidentPhases()...).quantile(99), 0.002)
	assert.EqualValues(t, 7, st.all(everyPhase()...).offered)
	assert.EqualValues(t, 1, st.afterSettle(routeStock).offered)
	assert.EqualValues(t, 1, st.afterSettle(routePrice).offered)

	seconds := st.timeline()
	require.Len(t, seconds, 20, "the last request does not begin a second of its own")
	assert.Equal(t, second{offered: 1, real: 1}, seconds[0])
	assert.Equal(t, second{offered: 1, fallbacks: 1}, seconds[5])
	assert.Equal(t, second{offered: 1, failed: 1}, seconds[12])
	assert.Equal(t, second{offered: 1, real: 1}, seconds[19])

	ended := st.tick()
	assert.EqualValues(t, 4, ended[routeStock].offered)
	assert.EqualValues(t, 3, ended[routePrice].offered)
	ended = st.tick()
	assert.Zero(t, ended[routeStock].offered+ended[routePrice].offered, "a tick tells only what is new")
}

func TestStatsConcurrentSafe(t *testing.T) {
	t.Parallel()
	s, err := script.Incident(6*time.Second, 30*ms)
	require.NoError(t, err)
	st := newStats(s, settleTime(s))
	const each = 500
	var ticked int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 0))
			for range each {
				st.add(result{at: time.Duration(rnd.Int64N(int64(6 * time.Second))), latency: ms, ok: true, route: g % routes})
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			e := st.tick()
			ticked += e[0].offered + e[1].offered
		}
	})
	wg.Wait()
	e := st.tick()
	assert.EqualValues(t, 4*each, ticked+e[0].offered+e[1].offered, "every result is in exactly one tick")
	assert.EqualValues(t, 4*each, st.all(everyPhase()...).real)
}

func TestSettleTime(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{
		12 * time.Second:  9900 * ms,
		20 * time.Second:  16500 * ms,
		100 * time.Second: 41 * time.Second, // 5 s after the recovery began
	} {
		s, err := script.Incident(d, 30*ms)
		require.NoError(t, err)
		assert.Equal(t, want, settleTime(s), "%s", d)
	}
}

func TestParseGoroutines(t *testing.T) {
	t.Parallel()
	assert.Equal(t, map[string]int{"protected": 15, "unprotected": 7}, parseGoroutines(bytes.NewBufferString(
		`goroutine profile: total 40
12 @ 0x1 0x2
# labels: {"world":"protected"}
#	0x1	net/http.(*conn).serve+0x1	/usr/lib/go/src/net/http/server.go:1

18 @ 0x3
#	0x3	main.main+0x1	/main.go:1

7 @ 0x4
# labels: {"other":"x", "world":"unprotected"}
3 @ 0x4
# labels: {"world":"protected"}
2 @ 0x5
# labels: {"other":"protected"}
`)))
}

// TestCountGoroutines holds the parser against the profile of this Go version.
func TestCountGoroutines(t *testing.T) {
	t.Parallel()
	const n = 5
	stop, started := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	pprof.Do(context.Background(), pprof.Labels(worldLabel, "test of counting"), func(context.Context) { //nolint:usetesting // t.Context has no labels either way
		for range n {
			wg.Go(func() {
				started <- struct{}{}
				<-stop
			})
		}
	})
	for range n {
		<-started
	}
	counts, err := countGoroutines()
	close(stop)
	wg.Wait()
	require.NoError(t, err)
	assert.Equal(t, n, counts["test of counting"])
}

func TestSequenceIsRepeatable(t *testing.T) {
	t.Parallel()
	const n = 10000
	a := sequence(7, n)
	assert.Equal(t, a, sequence(7, n))
	assert.NotEqual(t, a, sequence(8, n))
	stock := 0
	for _, r := range a {
		if r == routeStock {
			stock++
		}
	}
	assert.InDelta(t, n/2, stock, n/20, "half of the requests go to each route")
}

func TestTargeterHandsOutTheSequence(t *testing.T) {
	t.Parallel()
	next := targeter("http://service", []uint8{routeStock, routePrice, routePrice})
	var urls []string
	for range 4 {
		var target vegeta.Target
		require.NoError(t, next(&target))
		assert.Equal(t, "GET", target.Method)
		urls = append(urls, target.URL)
	}
	assert.Equal(t, []string{"http://service/stock", "http://service/price", "http://service/price", "http://service/stock"}, urls)
}

func TestPermits(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 37, permits(120, 30*ms))   // 3.6 in flight
	assert.Equal(t, 145, permits(120, 120*ms)) // 14.4 in flight
}
