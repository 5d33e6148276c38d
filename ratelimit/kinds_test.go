package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// byHand is what all limiters of one process can do beside a ratelimit.Limiter.
type byHand interface {
	ratelimit.Limiter
	Allow() bool
	AllowN(n int) bool
}

// limit is what kinds have in common: so many tokens per time.
type limit struct {
	tokens     int
	per        time.Duration
	wait       time.Duration
	waiters    int
	shadow     bool
	name       string
	coldFactor float64
}

// kind makes limiters of one kind. burst is how many tokens are there at first.
type kind struct {
	name  string
	burst func(l limit) int
	make  func(l limit) (byHand, error)
}

func allOf(l limit) int { return l.tokens }
func one(limit) int     { return 1 }

func rateOf(l limit) ratelimit.Rate { return ratelimit.Per(float64(l.tokens), l.per) }

// kinds are those that this file tests together. Where a kind has a burst of its own it
// is the tokens of one period, so that all but the even ones agree.
var kinds = []kind{
	{"pacer", one, func(l limit) (byHand, error) {
		return ratelimit.NewPace("", ratelimit.Pacer{Name: l.name, Rate: rateOf(l), MaxWait: l.wait, MaxWaiters: l.waiters, Shadow: l.shadow})
	}},
	{"pacer with a burst", allOf, func(l limit) (byHand, error) {
		return ratelimit.NewPace("", ratelimit.Pacer{Name: l.name, Rate: rateOf(l), Burst: l.tokens, MaxWait: l.wait, MaxWaiters: l.waiters, Shadow: l.shadow})
	}},
	{"fixed window", allOf, func(l limit) (byHand, error) {
		return ratelimit.NewWindow("", ratelimit.FixedWindow{Name: l.name, Limit: l.tokens, Window: l.per, MaxWait: l.wait, MaxWaiters: l.waiters, Shadow: l.shadow})
	}},
	{"sliding log", allOf, func(l limit) (byHand, error) {
		return ratelimit.NewSliding("", ratelimit.SlidingWindow{Name: l.name, Limit: l.tokens, Window: l.per, MaxWait: l.wait, MaxWaiters: l.waiters, Shadow: l.shadow})
	}},
	{"sliding counter", allOf, func(l limit) (byHand, error) {
		window := l.per
		if l.tokens == 1 {
			window /= 2 // the call of a window is weighed until the end of the next
		}
		return ratelimit.NewSliding("", ratelimit.SlidingWindow{Name: l.name, Limit: l.tokens, Window: window, Approximate: true, MaxWait: l.wait, MaxWaiters: l.waiters, Shadow: l.shadow})
	}},
	{"warm-up", one, func(l limit) (byHand, error) {
		return ratelimit.NewRamp("", ratelimit.WarmUp{Name: l.name, Rate: rateOf(l), ColdFactor: max(l.coldFactor, 1), MaxWait: l.wait, MaxWaiters: l.waiters, Shadow: l.shadow})
	}},
	{"warm-up with a burst", allOf, func(l limit) (byHand, error) {
		return ratelimit.NewRamp("", ratelimit.WarmUp{Name: l.name, Rate: rateOf(l), ColdFactor: max(l.coldFactor, 1), Burst: l.tokens, MaxWait: l.wait, MaxWaiters: l.waiters, Shadow: l.shadow})
	}},
	{"lane", allOf, func(l limit) (byHand, error) {
		s, err := ratelimit.NewLaneSet("", ratelimit.Lanes{
			Name:   l.name,
			Shadow: l.shadow,
			Lanes: []ratelimit.LaneConfig{
				{Name: "first", Rate: rateOf(l), Burst: l.tokens, MaxWait: l.wait, MaxWaiters: l.waiters},
				{Name: "second", Priority: policy.PriorityLow, Rate: rateOf(l), Burst: l.tokens},
			},
		})
		if err != nil {
			return nil, err
		}
		return s.Lane("first"), nil
	}},
}

// trial is a test of one kind.
type trial struct {
	*testing.T

	kind kind
}

// eachKind runs a test for each kind, in virtual time.
func eachKind(t *testing.T, f func(t trial)) {
	t.Helper()
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(trial{t, k}) })
		})
	}
}

func (t trial) new(l limit) byHand {
	t.Helper()
	limiter, err := t.kind.make(l)
	require.NoError(t, err)
	return limiter
}

// drain takes all that is there.
func drain(tb testing.TB, l byHand) int {
	tb.Helper()
	n := 0
	for l.Allow() {
		n++
		require.Less(tb, n, 1000)
	}
	return n
}

func rejected(tb testing.TB, err error) *policy.RejectedError {
	tb.Helper()
	var re *policy.RejectedError
	require.ErrorAs(tb, err, &re)
	return re
}

// Sleeping exactly the advertised time succeeds, a nanosecond less does not.
func TestKindsRetryAfterIsExact(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 7, per: 10 * time.Second})
		for i := range 50 {
			n := drain(t, l)
			if i == 0 {
				assert.Equal(t, t.kind.burst(limit{tokens: 7}), n)
			}
			wait, ok := l.Take(time.Now(), 1)
			require.False(t, ok)
			require.Positive(t, wait)
			require.LessOrEqual(t, wait, 20*time.Second)
			time.Sleep(wait - 1)
			left, ok := l.Take(time.Now(), 1)
			require.False(t, ok, "round %d", i)
			require.Equal(t, time.Duration(1), left)
			time.Sleep(time.Nanosecond)
			wait, ok = l.Take(time.Now(), 1)
			require.True(t, ok, "round %d", i)
			require.Zero(t, wait)
			time.Sleep(time.Duration(i) * 123456789)
		}
	})
}

func TestKindsRefusalTakesNothing(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 5, per: 5 * time.Second})
		burst := t.kind.burst(limit{tokens: 5})
		before := l.Snapshot(time.Now()).Limiter.Tokens
		for _, n := range []int{0, -1, -1 << 62 >> 32} {
			assert.True(t, l.AllowN(n))
			wait, ok := l.Take(time.Now(), n)
			assert.True(t, ok)
			assert.Zero(t, wait)
			require.NoError(t, l.Wait(t.Context(), n))
			r := l.Reserve(time.Now(), n)
			assert.True(t, r.OK())
			assert.Zero(t, r.Delay())
		}
		assert.InDelta(t, before, l.Snapshot(time.Now()).Limiter.Tokens, 0)
		drain(t, l)
		wait, _ := l.Take(time.Now(), 1)
		for range 100 {
			_, ok := l.Take(time.Now(), burst)
			assert.False(t, ok)
			require.ErrorIs(t, l.Wait(t.Context(), 1), ratelimit.ErrLimited)
		}
		again, _ := l.Take(time.Now(), 1)
		assert.Equal(t, wait, again)
	})
}

func TestCaseB12WaitForADeadlineThatCannotBeMet(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: time.Minute})
		require.True(t, l.Allow())
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		for range 3 {
			err := l.Wait(ctx, 1)
			require.Equal(t, start, time.Now(), "at once")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, policy.ErrRejected)
			require.ErrorIs(t, err, ratelimit.ErrLimited)
			re := rejected(t, err)
			assert.Equal(t, policy.ReasonDeadline, re.Reason)
			assert.InDelta(t, time.Second, re.RetryAfter, float64(time.Second))
		}
		<-ctx.Done()
		err := l.Wait(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, policy.ErrRejected, "the context was done before")
		wait, _ := l.Take(time.Now(), 1)
		time.Sleep(wait)
		assert.True(t, l.Allow(), "nothing was reserved")
	})
}

func TestKindsWait(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: 2500 * ms, waiters: 2})
		require.True(t, l.Allow())
		start := time.Now()
		var wg sync.WaitGroup
		done := make([]time.Duration, 2)
		for i := range done {
			wg.Go(func() {
				assert.NoError(t, l.Wait(t.Context(), 1))
				done[i] = time.Since(start)
			})
			synctest.Wait() // one after the other
		}
		s := l.Snapshot(time.Now()).Limiter
		assert.Equal(t, 2, s.Waiting)
		assert.Equal(t, 2, s.MaxWaiters)
		re := rejected(t, l.Wait(t.Context(), 1))
		assert.Equal(t, policy.ReasonWaiters, re.Reason)
		require.ErrorIs(t, re, ratelimit.ErrLimited)
		assert.Positive(t, re.RetryAfter)
		assert.Equal(t, start, time.Now(), "refused at once")
		assert.False(t, l.Allow(), "nobody overtakes")
		wait, ok := l.Take(time.Now(), 1)
		assert.False(t, ok)
		assert.Positive(t, wait)
		wg.Wait()
		assert.Less(t, done[0], done[1])
		assert.LessOrEqual(t, done[1], 2500*ms)
		assert.Zero(t, l.Snapshot(time.Now()).Limiter.Waiting)
	})
}

func TestKindsWaitIsTooLong(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: 4 * time.Second, wait: 5 * time.Second, waiters: 10})
		require.True(t, l.Allow())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, l.Wait(t.Context(), 1)) })
		synctest.Wait()
		start := time.Now()
		err := l.Wait(t.Context(), 1)
		require.Equal(t, start, time.Now())
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonWait, re.Reason)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Positive(t, re.RetryAfter)
		// A retry just then may wait.
		time.Sleep(re.RetryAfter)
		require.NoError(t, l.Wait(t.Context(), 1))
		assert.LessOrEqual(t, time.Since(start), re.RetryAfter+5*time.Second)
		wg.Wait()
	})
}

func TestKindsNobodyWaitsByDefault(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second})
		p := newPipeline(t.T, l)
		_, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		start := time.Now()
		wait, ok := l.Take(time.Now(), 1)
		require.False(t, ok)
		err = l.Wait(t.Context(), 1)
		assert.Equal(t, policy.ReasonRate, rejected(t, err).Reason)
		assert.Equal(t, wait, rejected(t, err).RetryAfter)
		_, err = policy.Do(t.Context(), p, succeed)
		assert.Equal(t, policy.ReasonRate, rejected(t, err).Reason)
		assert.Equal(t, wait, rejected(t, err).RetryAfter)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		assert.Equal(t, start, time.Now())
		time.Sleep(wait)
		_, err = policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
	})
}

// Those behind a waiter who gives up move up.
func TestKindsCancelledWaiterGivesItsPlaceBack(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: time.Minute, waiters: 10})
		require.True(t, l.Allow())
		start := time.Now()
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		var order []string
		var mu sync.Mutex
		enter := func(ctx context.Context, name string, want error) {
			wg.Go(func() {
				err := l.Wait(ctx, 1)
				require.ErrorIs(t, err, want)
				if err == nil {
					mu.Lock()
					order = append(order, fmt.Sprintf("%s %v", name, time.Since(start).Truncate(time.Second)))
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		enter(t.Context(), "a", nil)
		enter(ctx, "b", cause)
		enter(t.Context(), "c", nil)
		enter(ctx, "d", context.Canceled)
		enter(t.Context(), "e", nil)
		time.Sleep(500 * ms)
		cancel(cause)
		synctest.Wait()
		assert.Equal(t, 3, l.Snapshot(time.Now()).Limiter.Waiting)
		wg.Wait()
		assert.Equal(t, []string{"a 1s", "c 2s", "e 3s"}, order)
		wait, ok := l.Take(time.Now(), 1)
		assert.False(t, ok)
		assert.LessOrEqual(t, wait, time.Second, "nothing is left of those who gave up")
	})
}

func TestKindsWaitOfADeadContext(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: time.Minute})
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := l.Wait(ctx, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, policy.ErrRejected)
		assert.True(t, l.Allow(), "it took nothing")
	})
}
