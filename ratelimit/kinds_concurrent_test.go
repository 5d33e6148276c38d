package ratelimit_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// At one instant no more is taken than there is, and all of it.
func TestKindsTakeConcurrentSafe(t *testing.T) {
	eachKind(t, func(t trial) {
		const tokens = 900
		l, now := t.new(limit{tokens: tokens, per: time.Second}), time.Now()
		most := t.kind.burst(limit{tokens: tokens})
		var total, calls atomic.Int64
		hammer(func(int) {
			for range 1000 {
				if _, ok := l.Take(now, 1); ok {
					total.Add(1)
				} else if calls.Add(1)%5 == 0 {
					// What is given back at once is there again.
					l.(interface{ Refund(time.Time, int) }).Refund(now, 0)
				}
			}
		})
		assert.Equal(t, int64(most), total.Load())
	})
}

// Calls whose times are not in order, since their goroutines were not: the windows and
// buckets move on meanwhile, and nothing is won or lost at an edge.
func TestKindsMoveOnConcurrentSafe(t *testing.T) {
	eachKind(t, func(t trial) {
		const tokens, windows = 50, 40
		l, start := t.new(limit{tokens: tokens, per: 50}), time.Now()
		var clock, total atomic.Int64
		hammer(func(int) {
			for {
				at := clock.Add(1)
				if at > 50*windows {
					return
				}
				if _, ok := l.Take(start.Add(time.Duration(at)), 1); ok {
					total.Add(1)
				}
			}
		})
		assert.LessOrEqual(t, total.Load(), int64(tokens*(windows+1)))
		// One call per nanosecond, as many as may: next to all of them.
		assert.Greater(t, total.Load(), int64(tokens*windows/2))
	})
}

// Everything at once: no token is made, and at the end none is missing and nobody waits.
func TestKindsEverythingConcurrentSafe(t *testing.T) {
	eachKind(t, func(t trial) {
		const tokens = 1000
		l := t.new(limit{tokens: tokens, per: time.Second, wait: 50 * ms, waiters: 20})
		refund := l.(interface{ Refund(time.Time, int) }).Refund
		start := time.Now()
		var ran atomic.Int64
		hammer(func(g int) {
			for i := range 400 {
				now := time.Now()
				switch (i + g) % 8 {
				case 0, 1:
					if _, ok := l.Take(now, 1); ok {
						ran.Add(1)
					}
				case 2:
					if _, ok := l.Take(now, 2); ok {
						refund(now, 2)
					}
				case 3:
					r := l.Reserve(now, 1)
					r.Cancel(now)
					if r.OK() && r.Delay() == 0 {
						ran.Add(1)
					}
				case 4, 5:
					ctx, cancel := context.WithCancel(t.Context())
					stop := time.AfterFunc(time.Duration(i%7)*ms, cancel)
					if l.Wait(ctx, 1) == nil {
						ran.Add(1)
					}
					stop.Stop()
					cancel()
				case 6:
					if i%40 == 0 {
						assert.NoError(t, l.SetRate(ratelimit.PerSecond(tokens)))
					}
				default:
					l.Snapshot(now)
					time.Sleep(time.Duration(i%3) * ms)
				}
			}
		})
		passed := time.Since(start)
		assert.LessOrEqual(t, ran.Load(), int64(2*tokens)+int64(passed.Seconds()*tokens)+1)
		assert.Positive(t, ran.Load())
		time.Sleep(time.Minute)
		s := l.Snapshot(time.Now()).Limiter
		assert.Zero(t, s.Waiting)
		assert.InDelta(t, t.kind.burst(limit{tokens: tokens}), s.Tokens, 0)
	})
}

// Those who wait are let in one by one, in the order in which they came, while others
// come and go.
func TestKindsWaitConcurrentSafe(t *testing.T) {
	t.Parallel()
	eachKindOf(t, []string{"pacer", "warm-up"}, func(t trial) {
		l := t.new(limit{tokens: 100, per: time.Second, wait: time.Minute, waiters: 1000})
		start := time.Now()
		var mu sync.Mutex
		var released []time.Duration
		var gone atomic.Int64
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%3 == 0 { // gives up somewhere in the line
					time.AfterFunc(time.Duration(i)*7*ms+1, cancel)
				}
				if err := l.Wait(ctx, 1); err != nil {
					gone.Add(1)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				released = append(released, time.Since(start))
			})
			time.Sleep(ms)
		}
		wg.Wait()
		require.Len(t, released, int(300-gone.Load()))
		assert.Positive(t, gone.Load())
		for i, at := range released {
			assert.InDelta(t, time.Duration(i)*10*ms, at, float64(i)+1, "those behind have moved up")
		}
	})
}

// Many who wait go away at the same moment.
func TestKindsLeaveTogetherConcurrentSafe(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: time.Hour, waiters: 2000})
		require.True(t, l.Allow())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { assert.ErrorIs(t, l.Wait(ctx, 1), context.Canceled) })
		}
		synctest.Wait()
		start := time.Now()
		wg.Go(func() {
			assert.NoError(t, l.Wait(t.Context(), 1))
			assert.Equal(t, time.Second, time.Since(start), "the first now")
		})
		synctest.Wait()
		assert.Equal(t, 1001, l.Snapshot(time.Now()).Limiter.Waiting)
		cancel()
		wg.Wait()
		assert.Zero(t, l.Snapshot(time.Now()).Limiter.Waiting)
	})
}

func TestLanesConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, err := ratelimit.NewLaneSet("", ratelimit.Lanes{
			Lanes: []ratelimit.LaneConfig{
				{Name: "a", Rate: ratelimit.PerSecond(60), Burst: 8, MaxWait: 200 * ms, MaxWaiters: 8, LendAbove: 4},
				{Name: "b", Priority: policy.PriorityLow, Rate: ratelimit.PerSecond(40), Burst: 10, MaxWait: time.Second, MaxWaiters: 16, YieldTo: "a", YieldBelow: 2},
			},
			Total: ratelimit.SlidingWindow{Limit: 100, Window: time.Second},
		})
		require.NoError(t, err)
		p := newPipeline(t, set)
		var ran atomic.Int64
		start := time.Now()
		hammer(func(g int) {
			for i := range 300 {
				ctx := policy.WithPriority(t.Context(), []policy.Priority{policy.PriorityLow, policy.PriorityHigh}[(i+g)%2])
				if i%5 == 0 {
					ctx = ratelimit.WithLane(ctx, "b")
				}
				if _, err := policy.Do(ctx, p, succeed); err == nil {
					ran.Add(1)
				}
				switch i % 50 {
				case 0:
					assert.NoError(t, set.Lane("a").SetLimit(ratelimit.PerSecond(60), 8))
				case 1:
					assert.NoError(t, set.SetTotal(100, time.Second))
				case 2:
					set.Config()
				default:
					time.Sleep(time.Duration(i%4) * ms)
				}
			}
		})
		assert.LessOrEqual(t, float64(ran.Load()), 100*(time.Since(start).Seconds()+1))
		assert.Positive(t, ran.Load())
		s := set.Snapshot(time.Now()).Limiter
		assert.Zero(t, s.Waiting)
		assert.Equal(t, uint64(ran.Load()), s.Lanes[0].Admitted+s.Lanes[1].Admitted)
	})
}
