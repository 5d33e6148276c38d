package ratelimit_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// ocrLanes are those of the write-up, with the quota of 10 per second over both.
func ocrLanes() ratelimit.Lanes {
	return ratelimit.Lanes{
		Name: "ocr",
		Lanes: []ratelimit.LaneConfig{
			{Name: "realtime", Rate: ratelimit.PerSecond(6), Burst: 8, MaxWait: 200 * ms, MaxWaiters: 8},
			{
				Name: "batch", Priority: policy.PriorityLow, Rate: ratelimit.PerSecond(4), Burst: 10, MaxWait: time.Second, MaxWaiters: 16,
				YieldTo: "realtime", YieldBelow: 2,
			},
		},
		Total: ratelimit.SlidingWindow{Limit: 10, Window: time.Second},
	}
}

// vendor is the paid dependency: 0.8 s for each call, and a record of when they came.
type vendor struct {
	start time.Time
	mu    sync.Mutex
	calls []time.Duration
}

func (v *vendor) scan(context.Context) (int, error) {
	v.mu.Lock()
	v.calls = append(v.calls, time.Since(v.start))
	v.mu.Unlock()
	time.Sleep(800 * ms)
	return 1, nil
}

// most returns the largest number of calls in any second.
func (v *vendor) most() int {
	slices.Sort(v.calls)
	most := 0
	for i, from := 0, 0; i < len(v.calls); i++ {
		for v.calls[from] <= v.calls[i]-time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// lane is one kind of traffic and what became of it.
type traffic struct {
	p       *policy.Pipeline
	busy    *atomic.Int64 // workers
	peak    *atomic.Int64
	mu      sync.Mutex
	latency []time.Duration
	started []time.Duration
	reasons map[policy.Reason]int
}

func (tr *traffic) send(ctx context.Context, v *vendor) {
	n := tr.busy.Add(1)
	defer tr.busy.Add(-1)
	for {
		m := tr.peak.Load()
		if n <= m || tr.peak.CompareAndSwap(m, n) {
			break
		}
	}
	arrived := time.Now()
	_, err := policy.Do(ctx, tr.p, v.scan)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var re *policy.RejectedError
	if asRejected(err, &re) {
		tr.reasons[re.Reason]++
		return
	}
	tr.latency = append(tr.latency, time.Since(arrived))
	tr.started = append(tr.started, time.Since(v.start)-800*ms)
}

// ocr offers realtime and batch calls, each at an even spacing, none for a spacing of
// zero, for a time; batch calls from a while later on.
type ocr struct {
	realtime, batch traffic
	later           time.Duration
	vendor          vendor
	busy, peak      atomic.Int64
}

func (o *ocr) run(t *testing.T, realtime, batch policy.Policy, every, batchEvery, length time.Duration) {
	t.Helper()
	o.vendor.start = time.Now()
	for _, tr := range []struct {
		*traffic

		limit policy.Policy
	}{{&o.realtime, realtime}, {&o.batch, batch}} {
		tr.busy, tr.peak, tr.reasons = &o.busy, &o.peak, map[policy.Reason]int{}
		tr.p = newPipeline(t, tr.limit, bulkhead.Semaphore{Limit: 8})
	}
	var wg sync.WaitGroup
	for _, s := range []struct {
		tr            *traffic
		every, offset time.Duration
	}{{&o.realtime, every, 0}, {&o.batch, batchEvery, o.later + 7*ms}} {
		if s.every > 0 {
			wg.Go(func() {
				offer(s.every, s.offset, length, func() { wg.Go(func() { s.tr.send(t.Context(), &o.vendor) }) })
			})
		}
	}
	wg.Wait()
}

func (o *ocr) runLanes(t *testing.T, cfg ratelimit.Lanes, every, batchEvery, length time.Duration) *ratelimit.LaneSet {
	t.Helper()
	set := newLanes(t, cfg)
	o.run(t, set.Lane("realtime"), set.Lane("batch"), every, batchEvery, length)
	return set
}

// within counts the times in each second.
func within(at []time.Duration, seconds int) []int {
	perSecond := make([]int, seconds+2)
	for _, d := range at {
		perSecond[min(int(d.Seconds()), seconds+1)]++
	}
	return perSecond
}

func TestIncidentOCR(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t trial)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(trial{T: t}) })
		})
	}

	bubble("8 per second in the realtime lane for 3 min", func(t trial) {
		var o ocr
		o.runLanes(t.T, ocrLanes(), 125*ms, 0, 3*time.Minute)
		assert.InDelta(t, 1088, len(o.realtime.latency), 1)
		assert.Equal(t, 1440, len(o.realtime.latency)+sum(values(o.realtime.reasons)))
		assert.LessOrEqual(t, o.vendor.most(), 10)
		assert.LessOrEqual(t, percentile(o.realtime.latency, 0.99), 1100*ms)
	})

	bubble("30 at one instant", func(t trial) {
		for range 5 {
			var o ocr
			set := o.runLanes(t.T, ocrLanes(), 1, 0, 30)
			assert.Len(t, o.realtime.latency, 8, "exactly 8 start")
			// Nobody waits for a token while no slot is free for the call.
			assert.Equal(t, map[policy.Reason]int{policy.ReasonConcurrency: 22}, o.realtime.reasons)
			assert.InDelta(t, 6*0.8, set.Lane("realtime").Snapshot(time.Now()).Limiter.Tokens, 0.01)
		}
	})

	bubble("realtime 5 per second beside batch 8", func(t trial) {
		var o ocr
		set := o.runLanes(t.T, ocrLanes(), 200*ms, 125*ms, 3*time.Minute)
		assert.Len(t, o.realtime.latency, 900, "realtime does not notice")
		assert.LessOrEqual(t, percentile(o.realtime.latency, 0.99), 1100*ms)
		for s, n := range within(o.batch.started, 180)[3:179] {
			assert.InDelta(t, 4, n, 1, "second %d", s+3)
		}
		assert.InDelta(t, 4*180+10, len(o.batch.latency), 8, "steady 4 per second")
		assert.LessOrEqual(t, o.vendor.most(), 10, "the vendor sees no quota error")
		assert.LessOrEqual(t, o.peak.Load(), int64(8+8+8+16), "in flight and waiters")
		s := set.Snapshot(time.Now()).Limiter
		assert.Equal(t, uint64(len(o.batch.latency)), s.Lanes[1].Admitted-uint64(o.batch.reasons[policy.ReasonConcurrency]))
	})

	bubble("the same without a wait", func(t trial) {
		var o ocr
		cfg := ocrLanes()
		cfg.Lanes[0].MaxWait, cfg.Lanes[0].MaxWaiters = 0, 0
		o.runLanes(t.T, cfg, 200*ms, 125*ms, 3*time.Minute)
		assert.GreaterOrEqual(t, len(o.realtime.latency), 890, "but for the beginning, when batch has its burst")
		assert.LessOrEqual(t, percentile(o.realtime.latency, 0.99), 900*ms)
		assert.LessOrEqual(t, o.vendor.most(), 10)
	})

	// Realtime at 8 per second has used up what it had stored before batch comes.
	bubble("yield has a floor", func(t trial) {
		o := ocr{later: 10 * time.Second}
		set := o.runLanes(t.T, ocrLanes(), 125*ms, 125*ms, 3*time.Minute)
		assert.InDelta(t, 1088, len(o.realtime.latency), 1)
		assert.InDelta(t, 85, sum(within(o.batch.started, 180)[:180]), 1, "half a call per second for 170 s")
		assert.Positive(t, set.Lane("batch").Snapshot(time.Now()).Limiter.Lanes[0].Yielded)
		for s := 10; s < 176; s += 3 {
			assert.Positive(t, sum(within(o.batch.started, 180)[s:s+3]), "second %d", s)
		}

		without := ocr{later: 10 * time.Second}
		cfg := ocrLanes()
		cfg.Lanes[1].Floor = ratelimit.Rate{Tokens: -1}
		without.runLanes(t.T, cfg, 125*ms, 125*ms, 3*time.Minute)
		assert.Zero(t, sum(within(without.batch.started, 180)[:180]), "without one it starves, as long as realtime goes on")
	})

	// Both from the start: together they fill the quota, and each has its rate.
	bubble("both more than they may", func(t trial) {
		var o ocr
		o.runLanes(t.T, ocrLanes(), 125*ms, 125*ms, 3*time.Minute)
		assert.InDelta(t, 6*180, len(o.realtime.latency), 10)
		assert.InDelta(t, 4*180, len(o.batch.latency), 10)
		assert.LessOrEqual(t, o.vendor.most(), 10)
		assert.LessOrEqual(t, percentile(o.realtime.latency, 0.99), 1100*ms)
	})
}

func values(m map[policy.Reason]int) (ns []int) {
	for _, n := range m {
		ns = append(ns, n)
	}
	return ns
}

// Before: 28 calls could start in a second, since nothing was over both lanes.
func TestIncidentOCRWithoutATotal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := ocrLanes()
		cfg.Total = ratelimit.SlidingWindow{}
		cfg.Lanes[1].YieldTo, cfg.Lanes[1].YieldBelow = "", 0
		set := newLanes(t, cfg)
		n := 0
		start := time.Now()
		for at := time.Duration(0); at <= time.Second; at += ms {
			for _, name := range []string{"realtime", "batch"} {
				for {
					if _, ok := set.Lane(name).Take(start.Add(at), 1); !ok {
						break
					}
					n++
				}
			}
		}
		assert.Equal(t, 8+6+10+4, n)
	})
}

// Mistake (a): one limiter for both kinds of traffic, in which they wait: batch starves
// realtime.
func TestIncidentOCROneLimiterForBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(10), MaxWait: 5 * time.Second, MaxWaiters: 1000})
		var before ocr
		before.run(t, unbounded{shared}, unbounded{shared}, 200*ms, 50*ms, time.Minute)
		assert.Greater(t, percentile(before.realtime.latency, 0.99), 5*time.Second)

		var after ocr
		after.runLanes(t, ocrLanes(), 200*ms, 50*ms, time.Minute)
		assert.GreaterOrEqual(t, len(after.realtime.latency), 295, "but for the beginning, when batch has its burst")
		assert.LessOrEqual(t, percentile(after.realtime.latency, 0.99), 1100*ms)
	})
}

// unbounded is a limiter that stands behind any bulkhead: it lets calls wait outside it.
type unbounded struct{ ratelimit.Limiter }

// Mistake (b): waiters without a bound. The rate was never exceeded, and 600 of 800
// workers were parked in the limiter.
func TestIncidentOCRWaiters(t *testing.T) {
	t.Parallel()
	// A burst of 600 batch calls onto a server of 800 workers.
	run := func(t *testing.T, l ratelimit.Limiter) (parked int) {
		t.Helper()
		workers := newFrontend(800)
		for range 600 {
			workers.request(func() bool { return l.Wait(t.Context(), 1) == nil })
		}
		synctest.Wait()
		parked = len(workers.workers)
		workers.wg.Wait()
		return parked
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 10, MaxWaiters: 1 << 30})
		assert.Equal(t, 590, run(t, b))
		set := newLanes(t, ocrLanes())
		assert.Equal(t, 4, run(t, set.Lane("batch")), "as many as are served within the second")
		cfg := ocrLanes()
		cfg.Lanes[1].MaxWait = time.Hour
		assert.Equal(t, 16, run(t, newLanes(t, cfg).Lane("batch")))
		require.Equal(t, 16, newLanes(t, cfg).Config().Lanes[1].MaxWaiters)
	})
}
