package ratelimit_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func newLanes(tb testing.TB, cfg ratelimit.Lanes) *ratelimit.LaneSet {
	tb.Helper()
	s, err := ratelimit.NewLaneSet("", cfg)
	require.NoError(tb, err)
	return s
}

// laneOf returns the lane that an error names.
func laneOf(tb testing.TB, err error) string {
	tb.Helper()
	var part *ratelimit.PartError
	require.ErrorAs(tb, err, &part)
	return part.Part
}

func TestLanesChoose(t *testing.T) {
	t.Parallel()
	lane := func(name string, p policy.Priority) ratelimit.LaneConfig {
		return ratelimit.LaneConfig{Name: name, Priority: p, Rate: ratelimit.Every(time.Hour), Burst: 100}
	}
	for _, tt := range []struct {
		name  string
		lanes []ratelimit.LaneConfig
		want  [4]string // low, normal, high, critical
	}{
		{"one for all", []ratelimit.LaneConfig{lane("a", policy.PriorityHigh)}, [4]string{"a", "a", "a", "a"}},
		{"two", []ratelimit.LaneConfig{lane("a", 0), lane("b", policy.PriorityLow)}, [4]string{"b", "a", "a", "a"}},
		{"the lowest for those below", []ratelimit.LaneConfig{lane("a", policy.PriorityCritical), lane("b", policy.PriorityHigh)}, [4]string{"b", "b", "b", "a"}},
		{"the first of two equal ones", []ratelimit.LaneConfig{lane("a", 0), lane("b", 0)}, [4]string{"a", "a", "a", "a"}},
		{"in any order", []ratelimit.LaneConfig{lane("a", policy.PriorityLow), lane("b", policy.PriorityHigh), lane("c", 0)}, [4]string{"a", "c", "b", "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := newLanes(t, ratelimit.Lanes{Lanes: tt.lanes})
			p := newPipeline(t, set)
			for i, want := range tt.want {
				ctx := policy.WithPriority(t.Context(), policy.PriorityLow+policy.Priority(i))
				before := set.Lane(want).Snapshot(time.Now()).Limiter.Lanes[0].Admitted
				_, err := policy.Do(ctx, p, succeed)
				require.NoError(t, err)
				require.NoError(t, set.Wait(ctx, 1), "by hand too")
				assert.Equal(t, before+2, set.Lane(want).Snapshot(time.Now()).Limiter.Lanes[0].Admitted, "priority %d", i-1)
			}
			// A lane by name, and not if there is none of that name.
			last := tt.lanes[len(tt.lanes)-1].Name
			before := set.Lane(last).Snapshot(time.Now()).Limiter.Lanes[0].Admitted
			_, err := policy.Do(ratelimit.WithLane(t.Context(), last), p, succeed)
			require.NoError(t, err)
			assert.Equal(t, before+1, set.Lane(last).Snapshot(time.Now()).Limiter.Lanes[0].Admitted)
			_, err = policy.Do(ratelimit.WithLane(t.Context(), "none"), p, succeed)
			require.NoError(t, err)
			for _, p := range []policy.Priority{-100, 100} {
				_, err = policy.Do(policy.WithPriority(t.Context(), p), newPipeline(t, set), succeed)
				require.NoError(t, err)
			}
		})
	}
	assert.Nil(t, newLanes(t, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{lane("a", 0)}}).Lane("b"))
}

// A refusal names the lane, and why.
func TestLanesRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ratelimit.Lanes{
			Name: "quota",
			Lanes: []ratelimit.LaneConfig{
				{Name: "realtime", Rate: ratelimit.PerSecond(1), Burst: 3},
				{Name: "batch", Priority: policy.PriorityLow, Rate: ratelimit.PerSecond(1), Burst: 10, YieldTo: "realtime", YieldBelow: 2, Floor: ratelimit.Every(10 * time.Second)},
			},
			Total: ratelimit.SlidingWindow{Limit: 4, Window: 2 * time.Second},
		})
		p := newPipeline(t, set)
		batch := newPipeline(t, set.Lane("batch"))
		require.True(t, set.Lane("realtime").AllowN(3))
		_, err := policy.Do(t.Context(), p, succeed)
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonRate, re.Reason)
		assert.Equal(t, time.Second, re.RetryAfter)
		assert.Equal(t, "quota", re.Policy)
		assert.Equal(t, "realtime", laneOf(t, err))
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		assert.Contains(t, re.Err.Error(), "too few tokens")

		_, err = policy.Do(t.Context(), batch, succeed)
		require.NoError(t, err, "by its floor")
		_, err = policy.Do(t.Context(), batch, succeed)
		re = rejected(t, err)
		assert.Equal(t, policy.ReasonRate, re.Reason)
		assert.Equal(t, 2*time.Second, re.RetryAfter, "until the other lane has two")
		assert.Equal(t, "quota.batch", re.Policy)
		assert.Equal(t, "batch", laneOf(t, err))
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		assert.Contains(t, re.Err.Error(), "makes way")

		time.Sleep(time.Second)
		_, err = policy.Do(t.Context(), p, succeed)
		re = rejected(t, err)
		assert.Equal(t, time.Second, re.RetryAfter)
		assert.Contains(t, re.Err.Error(), "over all lanes")
		_, err = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 4}), p, succeed)
		re = rejected(t, err)
		assert.Equal(t, policy.ReasonCost, re.Reason)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		_, ok := set.Lane("batch").Take(time.Now(), 5)
		assert.False(t, ok, "more than the limit over all lanes")

		s := set.Snapshot(time.Now()).Limiter
		require.Len(t, s.Lanes, 2)
		assert.Equal(t, "realtime", s.Lanes[0].Name)
		assert.Equal(t, uint64(1), s.Lanes[0].Admitted)
		assert.Equal(t, uint64(2), s.Lanes[0].Rejected[policy.ReasonRate])
		assert.Equal(t, uint64(1), s.Lanes[0].Rejected[policy.ReasonCost])
		assert.Equal(t, uint64(1), s.Lanes[1].Admitted)
		assert.Equal(t, uint64(1), s.Lanes[1].Yielded)
		assert.Equal(t, time.Second, s.Lanes[0].Delay)
		assert.Equal(t, time.Second, s.Lanes[1].Delay)
		assert.Equal(t, time.Second, s.Delay, "the shortest of them")
		assert.Equal(t, time.Second, set.Lane("batch").Snapshot(time.Now()).Limiter.Delay)
		assert.InDelta(t, 0, s.Tokens, 0, "what is left of the limit over all lanes")
		assert.InDelta(t, 4, s.Burst, 0)
		assert.InDelta(t, 2, s.Rate, 0)
		assert.Equal(t, uint64(1), p.Snapshot().Policies[0].Rejected[policy.ReasonCost])
	})
}

func TestLanesLend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{
			{Name: "a", Rate: ratelimit.PerSecond(1), Burst: 10, LendAbove: 4, MaxWait: time.Hour},
			{Name: "b", Rate: ratelimit.Every(time.Hour), Burst: 5},
			{Name: "c", Rate: ratelimit.PerSecond(1), Burst: 7, LendAbove: 7},
		}})
		a, b := set.Lane("a"), set.Lane("b")
		require.True(t, b.AllowN(5))
		require.True(t, b.AllowN(4), "of what the first has above four")
		require.True(t, b.AllowN(2))
		assert.False(t, b.Allow())
		s := set.Snapshot(time.Now()).Limiter
		assert.InDelta(t, 4, s.Lanes[0].Tokens, 0)
		assert.Equal(t, uint64(6), s.Lanes[1].Borrowed)
		wait, _ := b.Take(time.Now(), 2)
		assert.Equal(t, 2*time.Second, wait)
		require.True(t, a.AllowN(4), "its own")
		wait, _ = b.Take(time.Now(), 1)
		assert.Equal(t, 5*time.Second, wait)

		// While somebody waits in a lane it lends nothing.
		time.Sleep(8 * time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, a.Wait(t.Context(), 9)) })
		synctest.Wait()
		assert.False(t, b.Allow())
		wg.Wait()
	})
}

// What did not run goes back to where it came from.
func TestLanesRefund(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ratelimit.Lanes{
			Lanes: []ratelimit.LaneConfig{
				{Name: "a", Rate: ratelimit.Every(time.Hour), Burst: 5, LendAbove: 1},
				{Name: "b", Rate: ratelimit.Every(time.Hour), Burst: 2, YieldTo: "a", YieldBelow: 5, Floor: ratelimit.Every(time.Hour)},
			},
			Total: ratelimit.SlidingWindow{Limit: 20, Window: time.Hour},
		})
		d := &door{enter: refuse}
		p := newPipeline(t, d, set)
		tokens := func() [3]float64 {
			s := set.Snapshot(time.Now()).Limiter
			return [3]float64{s.Lanes[0].Tokens, s.Lanes[1].Tokens, s.Tokens}
		}
		try := func(want error, lane string) {
			t.Helper()
			_, err := policy.Do(ratelimit.WithLane(t.Context(), lane), p, succeed)
			require.ErrorIs(t, err, want)
		}
		full := tokens()
		require.Equal(t, [3]float64{5, 2, 7}, full)
		for range 10 {
			try(errShut, "a")
			try(errShut, "b")
		}
		assert.Equal(t, full, tokens())
		require.True(t, set.Lane("b").AllowN(2))
		require.Equal(t, [3]float64{5, 0, 5}, tokens())
		for range 10 { // borrowed, and by the floor that was emptied: refused
			try(errShut, "a")
		}
		try(errShut, "b")
		assert.Equal(t, [3]float64{5, 0, 5}, tokens(), "what was lent went back to the lender")
		require.True(t, set.Lane("a").Allow()) // below five: from now on by the floor
		try(ratelimit.ErrLimited, "b")
		time.Sleep(time.Hour)
		require.True(t, set.Lane("a").Allow())
		for range 10 {
			try(errShut, "b")
		}
		d.enter = func() error { return nil }
		_, err := policy.Do(ratelimit.WithLane(t.Context(), "b"), p, succeed)
		require.NoError(t, err, "the floor was given back")
		try(ratelimit.ErrLimited, "b")

		now := time.Now()
		require.True(t, set.Lane("a").Allow())
		before := tokens()
		set.Refund(now, 1) // of the lane of normal priority, which is the first
		assert.Equal(t, before[0]+1, tokens()[0])
		set.Refund(now, 0)
		assert.Equal(t, before[0]+1, tokens()[0])

		// By hand, what was lent goes back to the lender too.
		time.Sleep(5 * time.Hour)
		require.True(t, set.Lane("b").AllowN(2))
		before = tokens()
		now = time.Now()
		require.True(t, set.Lane("b").Allow())
		require.Equal(t, before[0]-1, tokens()[0])
		set.Lane("b").Refund(now, 1)
		assert.Equal(t, before, tokens())
	})
}

// An earlier lane is served first, and a later one does not take what is left of the
// limit over all lanes from under it.
func TestLanesPrecedence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ratelimit.Lanes{
			Lanes: []ratelimit.LaneConfig{
				{Name: "a", Rate: ratelimit.PerSecond(100), Burst: 100, MaxWait: time.Minute},
				{Name: "b", Rate: ratelimit.PerSecond(100), Burst: 100, MaxWait: time.Minute},
			},
			Total: ratelimit.SlidingWindow{Limit: 3, Window: time.Second},
		})
		a, b := set.Lane("a"), set.Lane("b")
		start := time.Now()
		require.True(t, b.AllowN(2))
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		enter := func(l *ratelimit.Lane, name string, n int) {
			wg.Go(func() {
				assert.NoError(t, l.Wait(t.Context(), n))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name+" "+time.Since(start).String())
			})
			synctest.Wait()
		}
		enter(b, "b2", 2)
		time.Sleep(10 * ms)
		enter(a, "a2", 2)
		assert.False(t, b.Allow(), "one is left, but the first lane waits for two")
		assert.True(t, a.Snapshot(time.Now()).Limiter.Waiting == 1 && set.Snapshot(time.Now()).Limiter.Waiting == 2)
		wg.Wait()
		assert.Equal(t, []string{"a2 1s", "b2 2s"}, order)
	})
}

func TestLanesSetLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ratelimit.Lanes{
			Lanes: []ratelimit.LaneConfig{
				{Name: "a", Rate: ratelimit.PerSecond(6), Burst: 8},
				{Name: "b", Rate: ratelimit.PerSecond(4), Burst: 10, YieldTo: "a", YieldBelow: 8, LendAbove: 10},
				{Name: "c", Rate: ratelimit.PerSecond(math.Inf(1)), Burst: 1},
			},
			Total: ratelimit.SlidingWindow{Limit: 100, Window: time.Second},
		})
		a := set.Lane("a")
		require.True(t, a.AllowN(5))
		for range 50 {
			require.NoError(t, a.SetLimit(ratelimit.PerSecond(6), 8))
			require.NoError(t, set.SetRate(ratelimit.PerSecond(10)))
			require.NoError(t, set.SetTotal(100, time.Second))
		}
		assert.InDelta(t, 3, a.Snapshot(time.Now()).Limiter.Tokens, 0)
		require.NoError(t, a.SetLimit(ratelimit.PerSecond(6), 2))
		assert.InDelta(t, 2, a.Snapshot(time.Now()).Limiter.Tokens, 0)
		cfg := set.Config()
		assert.Equal(t, 2, cfg.Lanes[1].YieldBelow, "more than the other lane can hold would be for ever")
		require.NoError(t, set.Lane("b").SetLimit(ratelimit.PerSecond(4), 5))
		assert.Equal(t, 5, set.Config().Lanes[1].LendAbove)
		require.NoError(t, a.SetLimit(ratelimit.PerSecond(6), 0))
		assert.Equal(t, 6, set.Config().Lanes[0].Burst, "what arrives in a second")

		// Rates keep their proportion, and an infinite one stays.
		require.NoError(t, set.SetRate(ratelimit.PerSecond(5)))
		assert.InDelta(t, 3, a.Snapshot(time.Now()).Limiter.Rate, 1e-9)
		assert.InDelta(t, 2, set.Lane("b").Snapshot(time.Now()).Limiter.Rate, 1e-9)
		assert.True(t, math.IsInf(set.Lane("c").Snapshot(time.Now()).Limiter.Rate, 1))
		require.NoError(t, a.SetRate(ratelimit.PerSecond(7)))
		assert.InDelta(t, 7, a.Snapshot(time.Now()).Limiter.Rate, 1e-9)

		require.NoError(t, set.SetTotal(7, time.Minute))
		cfg = set.Config()
		assert.Equal(t, 7, cfg.Total.Limit)
		assert.Equal(t, time.Minute, cfg.Total.Window)
		_, err := ratelimit.NewLaneSet("", cfg)
		require.NoError(t, err)
		assert.False(t, set.Lane("c").AllowN(8))

		require.Error(t, set.SetRate(ratelimit.PerSecond(math.Inf(1))))
		require.Error(t, set.SetRate(ratelimit.Rate{}))
		require.Error(t, set.SetTotal(0, time.Second))
		require.Error(t, a.SetLimit(ratelimit.Rate{}, 1))
		require.Error(t, a.SetLimit(ratelimit.PerSecond(1), -1))
		require.Error(t, a.SetRate(ratelimit.Rate{}))
		require.Error(t, newLanes(t, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: ratelimit.PerSecond(1)}}}).SetTotal(1, time.Second))
		assert.Equal(t, cfg, set.Config(), "what is invalid changes nothing")
	})
}

// More tokens let in who waits for them.
func TestLanesSetLimitLetsWaitersIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: ratelimit.Every(time.Minute), Burst: 1, MaxWait: time.Hour, MaxWaiters: 5}}})
		a := set.Lane("a")
		require.True(t, a.Allow())
		start := time.Now()
		done := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				assert.NoError(t, a.Wait(t.Context(), 1))
				done <- time.Since(start)
			}()
		}
		synctest.Wait()
		require.NoError(t, a.SetRate(ratelimit.PerSecond(1)))
		assert.Equal(t, time.Second, <-done)
		require.NoError(t, a.SetRate(ratelimit.Every(time.Minute)))
		assert.Equal(t, 61*time.Second, <-done)
	})
}

// A wait that was begun ends when its time is up, if other lanes came in between.
func TestLanesWaitInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set := newLanes(t, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{
			{Name: "a", Rate: ratelimit.PerSecond(10), Burst: 10},
			{Name: "b", Rate: ratelimit.PerSecond(10), Burst: 10, MaxWait: 300 * ms, YieldTo: "a", YieldBelow: 2, Floor: ratelimit.Rate{Tokens: -1}},
		}})
		a, b := set.Lane("a"), set.Lane("b")
		require.True(t, a.AllowN(10))
		start := time.Now()
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for time.Since(start) < time.Second {
				time.Sleep(100 * ms)
				a.Allow()
			}
		}()
		err := b.Wait(t.Context(), 1)
		assert.Equal(t, 300*ms, time.Since(start))
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonWait, re.Reason)
		assert.Equal(t, "b", laneOf(t, err))
		assert.Positive(t, re.RetryAfter)
		ctx, cancel := context.WithTimeout(t.Context(), 250*ms)
		defer cancel()
		err = b.Wait(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		assert.Equal(t, policy.ReasonDeadline, rejected(t, err).Reason)
		assert.Equal(t, 550*ms-1, time.Since(start), "it does not wait for the context to end")
		<-stop
		assert.InDelta(t, 10, b.Snapshot(time.Now()).Limiter.Tokens, 0)
	})
}
