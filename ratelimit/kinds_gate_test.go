package ratelimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// An attempt that never ran gives its tokens back; one that ran does not, however it
// ended.
func TestKindsGateRefunds(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 3, per: time.Hour})
		d := &door{enter: refuse}
		p := newPipeline(t.T, d, l)
		before := l.Snapshot(time.Now()).Limiter.Tokens
		for range 20 {
			_, err := policy.Do(t.Context(), p, succeed)
			require.ErrorIs(t, err, errShut)
		}
		assert.Equal(t, 20, d.entered)
		d.enter = func() error { panic("broken gate") }
		assert.Panics(t, func() { _, _ = policy.Do(t.Context(), p, succeed) })
		assert.InDelta(t, before, l.Snapshot(time.Now()).Limiter.Tokens, 0)

		d.enter = func() error { return nil }
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errShut })
		require.ErrorIs(t, err, errShut)
		assert.InDelta(t, before-1, l.Snapshot(time.Now()).Limiter.Tokens, 0)
		assert.Equal(t, t.kind.burst(limit{tokens: 3})-1, drain(t, l))
	})
}

// Calls that are refused further down one after the other, each 10 ms after it took its
// token. Windows lose nothing by it; where tokens arrive, those are lost that arrive while
// others are away, as they may have overflowed.
func TestKindsGateRefundsLoseWhatArrivesMeanwhile(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, l policy.Policy) {
		t.Helper()
		p := newPipeline(t, l, &door{enter: func() error {
			time.Sleep(10 * ms)
			return refuse()
		}})
		for range 100 {
			_, err := policy.Do(t.Context(), p, succeed)
			require.ErrorIs(t, err, errShut)
		}
	}
	eachKindOf(t, []string{"pacer with a burst", "fixed window", "sliding log", "sliding counter", "warm-up with a burst", "lane"}, func(t trial) {
		l := t.new(limit{tokens: 50, per: 50 * time.Second})
		require.True(t, l.AllowN(30))
		run(t.T, l)
		assert.InDelta(t, 20, l.Snapshot(time.Now()).Limiter.Tokens, 1e-6)
		time.Sleep(time.Hour)
		run(t.T, l)
		assert.InDelta(t, 50, l.Snapshot(time.Now()).Limiter.Tokens, 1e-6, "a full one is full again")
	})
	t.Run("bucket", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 50, Initial: 20})
			run(t, b)
			assert.InDelta(t, 20, b.Tokens(time.Now()), 1e-6)
			time.Sleep(time.Hour)
			run(t, b)
			assert.InDelta(t, 50, b.Tokens(time.Now()), 1e-6)
			// A call that is refused only when all that it took has come again.
			d := make(chan struct{})
			slow := newPipeline(t, b, &door{enter: func() error {
				<-d
				return refuse()
			}})
			go func() { _, _ = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 50}), slow, succeed) }()
			time.Sleep(50 * time.Second)
			require.True(t, b.AllowN(50))
			close(d)
			synctest.Wait()
			assert.False(t, b.Allow(), "the burst does not pass a second time")
		})
	})
}

// What a call that did not run gives back lets those in who wait, and one that waited
// gives its own back too.
func TestKindsGateRefundLetsWaitersIn(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Minute, wait: time.Hour})
		late := errors.New("late")
		first := make(chan struct{})
		d := &door{waits: true, enter: func() error { return nil }}
		p := newPipeline(t.T, d, l)
		d.enter = func() error {
			<-first
			return refuse()
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := policy.Do(t.Context(), p, succeed)
			assert.ErrorIs(t, err, errShut)
		})
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		wg.Go(func() { assert.ErrorIs(t, l.Wait(ctx, 1), late) })
		synctest.Wait()
		wg.Go(func() {
			assert.NoError(t, l.Wait(t.Context(), 1))
			assert.Equal(t, start, time.Now())
		})
		synctest.Wait()
		cancel(late)
		close(first)
		wg.Wait()
		assert.Equal(t, start, time.Now(), "in no time")
		assert.False(t, l.Allow())
	})
}

// A limiter that waits does so in its place, and tells the attempt.
func TestKindsGateWaits(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: 1500 * ms, waiters: 1})
		p := newPipeline(t.T, l)
		start := time.Now()
		_, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := policy.Do(t.Context(), p, succeed)
			assert.NoError(t, err)
			assert.Equal(t, time.Second, time.Since(start))
		})
		synctest.Wait()
		_, err = policy.Do(t.Context(), p, succeed)
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonWaiters, re.Reason)
		assert.Equal(t, time.Second, re.RetryAfter)
		assert.Equal(t, start, time.Now())
		wg.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 900*ms)
		defer cancel()
		_, err = policy.Do(ctx, p, succeed)
		assert.Equal(t, policy.ReasonDeadline, rejected(t, err).Reason)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start), "refused before it waits")
		latency := p.Snapshot().Latency
		assert.Zero(t, latency.Sum, "a wait is not the dependency's time")
	})
}

// Nobody is sent to a gate that waits while the limit is sure to refuse.
func TestKindsGatePeeks(t *testing.T) {
	eachKind(t, func(t trial) {
		d := &door{waits: true, enter: func() error { return nil }}
		l := t.new(limit{tokens: 1, per: time.Second})
		p := newPipeline(t.T, policy.Ordered(d, l))
		_, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		_, err = policy.Do(t.Context(), p, succeed)
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonRate, re.Reason)
		assert.Equal(t, time.Second, re.RetryAfter)
		assert.Equal(t, 1, d.entered)
		time.Sleep(time.Second)
		_, err = policy.Do(t.Context(), p, succeed)
		require.NoError(t, err, "a peek takes nothing")
		assert.Equal(t, 2, d.entered)
	})
}

func TestKindsGatePeeksAtTheLine(t *testing.T) {
	eachKind(t, func(t trial) {
		d := &door{waits: true, enter: func() error { return nil }}
		l := t.new(limit{tokens: 1, per: time.Second, wait: 1500 * ms, waiters: 2})
		p := newPipeline(t.T, policy.Ordered(d, l))
		enter := func() { _, _ = policy.Do(t.Context(), p, succeed) }
		enter()
		var wg sync.WaitGroup
		wg.Go(enter) // waits
		synctest.Wait()
		assert.Equal(t, 2, d.entered)
		_, err := policy.Do(t.Context(), p, succeed)
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonWait, re.Reason)
		assert.Equal(t, 500*ms, re.RetryAfter)
		assert.Equal(t, 2, d.entered, "it did not come to the other gate")
		wg.Wait()
		time.Sleep(time.Second)

		l = t.new(limit{tokens: 1, per: time.Second, wait: 2500 * ms, waiters: 1})
		p = newPipeline(t.T, policy.Ordered(d, l))
		enter()
		wg.Go(enter)
		synctest.Wait()
		entered := d.entered
		_, err = policy.Do(t.Context(), p, succeed)
		re = rejected(t, err)
		assert.Equal(t, policy.ReasonWaiters, re.Reason)
		assert.Equal(t, time.Second, re.RetryAfter)
		assert.Equal(t, entered, d.entered)
		wg.Wait()
	})
}

func TestKindsGateInShadow(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: time.Minute, shadow: true})
		p := newPipeline(t.T, l)
		start := time.Now()
		for range 5 {
			_, err := policy.Do(t.Context(), p, succeed)
			require.NoError(t, err)
		}
		assert.Equal(t, start, time.Now(), "it does not wait")
		ps := p.Snapshot().Policies[0]
		assert.True(t, ps.Shadow)
		assert.Equal(t, uint64(4), ps.Rejected[policy.ReasonRate])
		assert.InDelta(t, 0, ps.Limiter.Tokens, 0, "those it would refuse take nothing")
		time.Sleep(time.Second)
		assert.True(t, l.Allow())
	})
}

func TestKindsGateCost(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 10, per: time.Hour, name: "quota"})
		p := newPipeline(t.T, l)
		before := l.Snapshot(time.Now()).Limiter.Tokens
		for _, cost := range []int{4, 0, -3} { // 1 at least
			_, _ = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: cost}), p, succeed)
		}
		taken := before - l.Snapshot(time.Now()).Limiter.Tokens
		if t.kind.burst(limit{tokens: 10}) == 1 {
			assert.InDelta(t, 4, taken, 0, "the first is let in, and those after it pay for it")
		} else {
			assert.InDelta(t, 6, taken, 0)
		}
		_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 1 << 30}), p, succeed)
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonCost, re.Reason)
		assert.Equal(t, policy.Never, re.RetryAfter)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		assert.Contains(t, re.Policy, "quota")
		err = l.Wait(t.Context(), 1<<30)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		r := l.Reserve(time.Now(), 1<<30)
		assert.False(t, r.OK())
		assert.Equal(t, policy.Never, r.Delay())
	})
}

// A call whose context is done is not let in where it would have to wait.
func TestKindsGateDeadContext(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: time.Minute})
		p := newPipeline(t.T, l)
		require.True(t, l.Allow())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := policy.Do(ctx, p, succeed)
			assert.ErrorIs(t, err, context.Canceled)
			assert.NotErrorIs(t, err, policy.ErrRejected)
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		assert.Zero(t, l.Snapshot(time.Now()).Limiter.Waiting)
		time.Sleep(time.Second)
		assert.True(t, l.Allow(), "it took nothing")
	})
}

func TestKindsSharedByPipelines(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second})
		p, q := newPipeline(t.T, l), newPipeline(t.T, l)
		_, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		_, err = policy.Do(t.Context(), q, succeed)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
	})
}

// A configuration makes a limit for each pipeline.
func TestKindsConfigIsAPolicy(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]policy.Policy{
		"pacer":          ratelimit.Pacer{Rate: ratelimit.Every(time.Hour)},
		"fixed_window":   ratelimit.FixedWindow{Limit: 1, Window: time.Hour},
		"sliding_window": ratelimit.SlidingWindow{Limit: 1, Window: time.Hour},
		"warm_up":        ratelimit.WarmUp{Rate: ratelimit.Every(time.Hour)},
		"lanes":          ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: ratelimit.Every(time.Hour)}}},
	} {
		for range 2 {
			p := newPipeline(t, cfg)
			_, err := policy.Do(t.Context(), p, succeed)
			require.NoError(t, err)
			_, err = policy.Do(t.Context(), p, succeed)
			require.ErrorIs(t, err, ratelimit.ErrLimited)
			ps := p.Snapshot().Policies[0]
			assert.Equal(t, name, ps.Name)
			assert.Equal(t, name, ps.Kind)
		}
	}
	for _, cfg := range []policy.Policy{ratelimit.Pacer{}, ratelimit.FixedWindow{}, ratelimit.SlidingWindow{}, ratelimit.WarmUp{}, ratelimit.Lanes{}} {
		_, err := policy.New("inventory", cfg)
		var fault *policy.ConfigError
		require.ErrorAs(t, err, &fault)
		assert.Equal(t, "inventory", fault.Dependency)
	}
}
