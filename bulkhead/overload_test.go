package bulkhead_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// A queue that does not empty is shed, and serves the newest first.
func TestWorkersOverload(t *testing.T) {
	t.Parallel()
	const (
		service  = 10 * time.Millisecond
		target   = 15 * time.Millisecond
		interval = 100 * time.Millisecond
	)
	// run offers a call each gap for a second and returns the longest and the mean
	// wait of those that were served, and how many that were.
	run := func(t *testing.T, cfg bulkhead.Pool, gap time.Duration) (longest, mean time.Duration, served int, overloaded bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w := newWorkers(t, cfg)
			p := newPipeline(t, w)
			var mu sync.Mutex
			var waits []time.Duration
			var wg sync.WaitGroup
			begin := time.Now()
			for time.Since(begin) < time.Second {
				wg.Go(func() {
					came := time.Now()
					_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
						mu.Lock()
						waits = append(waits, time.Since(came))
						mu.Unlock()
						time.Sleep(service)
						return 0, nil
					})
					if err != nil {
						assert.Contains(t, []policy.Reason{policy.ReasonWait, policy.ReasonWaiters}, reasonOf(t, err))
					}
				})
				time.Sleep(gap)
			}
			overloaded = state(w).Overloaded
			wg.Wait()
			assert.False(t, state(w).Overloaded, "an empty queue is not overloaded")
			atRest(t, w)
			slices.Sort(waits)
			var sum time.Duration
			for _, d := range waits {
				sum += d
			}
			longest, mean, served = waits[len(waits)-1], sum/time.Duration(len(waits)), len(waits)
		})
		return longest, mean, served, overloaded
	}
	plain := bulkhead.Pool{Workers: 1, Queue: 40, MaxWait: 300 * time.Millisecond}
	shed := plain
	shed.CoDel = bulkhead.CoDel{Target: target, Interval: interval}

	const twice = 4_700 * time.Microsecond // a bit more than twice what can be served
	_, meanPlain, servedPlain, over := run(t, plain, twice)
	assert.False(t, over, "off is off")
	longest, mean, served, over := run(t, shed, twice)
	assert.True(t, over)
	assert.Less(t, 4*mean, meanPlain, "with CoDel those that are served have hardly waited: %s, without %s", mean, meanPlain)
	assert.LessOrEqual(t, longest, plain.MaxWait)
	assert.InDelta(t, servedPlain, served, 35, "and as many are served, but for those the plain queue still holds at the end")

	// A burst that the pool can work off is left alone.
	_, _, calm, over := run(t, shed, 11*time.Millisecond)
	assert.False(t, over)
	assert.Equal(t, 91, calm, "all were served")
}

func TestWorkersLIFOUnderOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{
			Workers: 1, Queue: 10, MaxWait: time.Hour,
			CoDel: bulkhead.CoDel{Target: 5 * time.Second, Interval: 10 * time.Second},
		})
		p := newPipeline(t, w)
		var served []string
		told := map[string]error{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		call := func(name string, d time.Duration) {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
					served = append(served, name)
					time.Sleep(d)
					return 0, nil
				})
				mu.Lock()
				defer mu.Unlock()
				told[name] = err
			})
			synctest.Wait()
		}
		call("first", 12*time.Second)
		call("old", 0)              // at 0 s: makes the queue cease to be empty
		time.Sleep(8 * time.Second) // the queue has not been empty for 8 s
		assert.False(t, state(w).Overloaded)
		call("b", 0)                // may stay for an hour, it is told
		time.Sleep(3 * time.Second) // 11 s: overloaded
		assert.True(t, state(w).Overloaded)
		call("c", 0) // may stay for 5 s
		assert.Equal(t, policy.ReasonWait, reasonOf(t, told["old"]), "11 s is too long now, and it makes room at once")
		call("d", 0)
		wg.Wait()
		assert.Equal(t, []string{"first", "d", "c", "b"}, served, "the newest first")
		for _, name := range []string{"b", "c", "d"} {
			assert.NoError(t, told[name])
		}
	})
}

// Calls that come at the given times and want a second each, behind one that keeps the
// only worker: who is told what, and when.
func TestWorkersOverloadBoundsTheWait(t *testing.T) {
	t.Parallel()
	type waiting struct {
		come, told time.Duration
		reason     policy.Reason // 0 is none: it was served
	}
	tests := []struct {
		name  string
		busy  time.Duration
		calls []waiting
	}{
		{name: "a burst", busy: 9 * time.Second, calls: []waiting{
			{come: 0, told: 10 * time.Second},
			{come: 8 * time.Second, told: 12 * time.Second}, // the youngest by then
			{come: 9500 * time.Millisecond, told: 11 * time.Second},
		}},
		{name: "shed before it is served", busy: 20 * time.Second, calls: []waiting{
			{come: 0, told: 20 * time.Second, reason: policy.ReasonWait},
		}},
		{name: "shed by a newcomer", busy: time.Minute, calls: []waiting{
			{come: 0, told: 12 * time.Second, reason: policy.ReasonWait},
			{come: 9 * time.Second, told: time.Minute, reason: policy.ReasonWait}, // was promised an hour, and nobody came past
			{come: 12 * time.Second, told: 17 * time.Second, reason: policy.ReasonWait},
		}},
		{name: "a queue that was empty is a new one", busy: time.Minute, calls: []waiting{
			{come: 0, told: 30 * time.Second, reason: policy.ReasonWait},
			{come: 30 * time.Second, told: 58 * time.Second, reason: policy.ReasonWait}, // more than Target
			{come: 58 * time.Second, told: 61 * time.Second},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorkers(t, bulkhead.Pool{
					Workers: 1, Queue: 10, MaxWait: time.Hour,
					CoDel: bulkhead.CoDel{Target: 5 * time.Second, Interval: 10 * time.Second},
				})
				p := newPipeline(t, w)
				start := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = policy.Do(t.Context(), p, hold(tt.busy)) })
				synctest.Wait()
				for i, c := range tt.calls {
					wg.Go(func() {
						time.Sleep(c.come)
						_, err := policy.Do(t.Context(), p, hold(time.Second))
						if c.reason == 0 {
							assert.NoError(t, err, "call %d", i)
						} else {
							assert.Equal(t, c.reason, reasonOf(t, err), "call %d", i)
						}
						assert.Equal(t, c.told, time.Since(start), "call %d is told", i)
					})
				}
				wg.Wait()
				atRest(t, w)
			})
		})
	}
}
