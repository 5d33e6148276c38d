package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// door is a gate behind the limiter that refuses, panics or lets in.
type door struct {
	waits   bool
	entered int
	enter   func() error
}

func (d *door) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "door", Gate: d, Place: policy.PlaceBreaker, Waits: d.waits}, nil
}

func (d *door) Peek(*policy.Attempt) error { return nil }

func (d *door) Enter(context.Context, *policy.Attempt, int) error {
	d.entered++
	return d.enter()
}

func (d *door) Leave(*policy.Attempt, int, policy.Outcome) {}

var errShut = errors.New("shut")

func refuse() error { return &policy.RejectedError{Reason: policy.ReasonConcurrency, Err: errShut} }

func succeed(context.Context) (int, error) { return 1, nil }

func newPipeline(t *testing.T, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New("inventory", policies...)
	require.NoError(t, err)
	return p
}

func limiterOf(t *testing.T, p *policy.Pipeline) policy.PolicySnapshot {
	t.Helper()
	for _, ps := range p.Snapshot().Policies {
		if ps.Kind == "ratelimit" {
			require.NotNil(t, ps.Limiter)
			return ps
		}
	}
	require.Fail(t, "no limiter")
	return policy.PolicySnapshot{}
}

func TestGateRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, ratelimit.TokenBucket{Name: "quota", Rate: ratelimit.PerSecond(4), Burst: 2})
		for range 2 {
			_, err := policy.Do(t.Context(), p, succeed)
			require.NoError(t, err)
		}
		start := time.Now()
		_, err := policy.Do(t.Context(), p, succeed)
		assert.Equal(t, start, time.Now(), "it never waits")
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, &policy.RejectedError{
			Dependency: "inventory", Policy: "quota", Reason: policy.ReasonRate,
			RetryAfter: 250 * ms, Err: ratelimit.ErrLimited,
		}, re)
		require.ErrorIs(t, err, policy.ErrRejected)
		require.ErrorIs(t, err, ratelimit.ErrLimited)

		_, err = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 3}), p, succeed)
		require.ErrorAs(t, err, &re)
		assert.Equal(t, policy.ReasonCost, re.Reason)
		assert.Equal(t, policy.Never, re.RetryAfter)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)

		ps := limiterOf(t, p)
		assert.Equal(t, "quota", ps.Name)
		assert.Equal(t, &policy.LimiterSnapshot{Tokens: 0, Burst: 2, Rate: 4, MaxWaiters: 100, Delay: 250 * ms}, ps.Limiter)
		assert.Equal(t, uint64(1), ps.Rejected[policy.ReasonRate])
		assert.Equal(t, uint64(1), ps.Rejected[policy.ReasonCost])
	})
}

func TestGateTakesTheCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 10})
		for _, cost := range []int{4, 0, -3} { // 1 at least
			_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: cost}), p, succeed)
			require.NoError(t, err)
		}
		assert.InDelta(t, 4, limiterOf(t, p).Limiter.Tokens, 0)
	})
}

// An attempt that never ran gives its tokens back; one that ran does not, however it
// ended.
func TestGateRefunds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &door{enter: refuse}
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 10})
		p := newPipeline(t, d, b)
		ctx := policy.WithCall(t.Context(), policy.Call{Cost: 3})
		for range 20 {
			_, err := policy.Do(ctx, p, succeed)
			require.ErrorIs(t, err, errShut)
		}
		assert.Equal(t, 20, d.entered)
		assert.InDelta(t, 10, b.Tokens(time.Now()), 0)

		d.enter = func() error { panic("broken gate") }
		assert.Panics(t, func() { _, _ = policy.Do(ctx, p, succeed) })
		assert.InDelta(t, 10, b.Tokens(time.Now()), 0)

		d.enter = func() error { return nil }
		_, err := policy.Do(ctx, p, func(context.Context) (int, error) { return 0, errShut })
		require.ErrorIs(t, err, errShut)
		assert.InDelta(t, 7, b.Tokens(time.Now()), 0)
		assert.Panics(t, func() {
			_, _ = policy.Do(ctx, p, func(context.Context) (int, error) { panic("broken call") })
		})
		assert.InDelta(t, 4, b.Tokens(time.Now()), 0)
	})
}

// A refund must not fail because somebody has reserved ahead.
func TestGateRefundsBesideAReservation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &door{}
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2})
		p := newPipeline(t, d, b)
		d.enter = func() error {
			reserve(t, b, time.Now(), 2, time.Second)
			return refuse()
		}
		_, err := policy.Do(t.Context(), p, succeed)
		require.ErrorIs(t, err, errShut)
		// Two are there again; the reservation needs as many in a second, when one
		// more has come.
		assert.InDelta(t, 1, b.Tokens(time.Now()), 0)
		assert.True(t, b.Allow())
		wait, ok := b.Take(time.Now(), 1)
		assert.False(t, ok)
		assert.Equal(t, 2*time.Second, wait)
		time.Sleep(2*time.Second - 1)
		assert.False(t, b.Allow())
		time.Sleep(time.Nanosecond)
		assert.True(t, b.Allow())
	})
}

// Nobody is sent to a gate that waits while the limit is sure to refuse.
func TestGatePeeks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &door{waits: true, enter: func() error { return nil }}
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(2), Burst: 1})
		p := newPipeline(t, policy.Ordered(d, b))
		_, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		_, err = policy.Do(t.Context(), p, succeed)
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, policy.ReasonRate, re.Reason)
		assert.Equal(t, 500*ms, re.RetryAfter)
		_, err = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 2}), p, succeed)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		assert.Equal(t, 1, d.entered)
		time.Sleep(500 * ms)
		_, err = policy.Do(t.Context(), p, succeed)
		require.NoError(t, err, "a peek takes nothing")

		// Also while reservations have gaps.
		reserve(t, b, time.Now(), 1, 500*ms).Cancel(time.Now())
		gap := reserve(t, b, time.Now(), 1, 500*ms)
		reserve(t, b, time.Now(), 1, time.Second)
		gap.Cancel(time.Now())
		_, err = policy.Do(t.Context(), p, succeed)
		require.ErrorAs(t, err, &re)
		assert.Equal(t, 500*ms, re.RetryAfter)
		time.Sleep(500 * ms)
		_, err = policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
	})
}

func TestGateInShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2, Shadow: true})
		for range 5 {
			_, err := policy.Do(t.Context(), p, succeed)
			require.NoError(t, err)
		}
		ps := limiterOf(t, p)
		assert.True(t, ps.Shadow)
		assert.Equal(t, uint64(3), ps.Rejected[policy.ReasonRate])
		assert.InDelta(t, 0, ps.Limiter.Tokens, 0, "those it would refuse take nothing")
	})
}

func TestSharedByPipelines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2}
		b := newBucket(t, cfg)
		for _, tt := range []struct {
			shared policy.Policy
			want   bool
		}{{b, false}, {cfg, true}} {
			p, q := newPipeline(t, tt.shared), newPipeline(t, tt.shared)
			for range 2 {
				_, err := policy.Do(t.Context(), p, succeed)
				require.NoError(t, err)
			}
			_, err := policy.Do(t.Context(), q, succeed)
			assert.Equal(t, tt.want, err == nil, "%T: a Bucket is shared, a TokenBucket is not", tt.shared)
		}
	})
}

func TestGateWarns(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1)})
	assert.Len(t, p.Warnings(), 1)
	p = newPipeline(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2})
	assert.Empty(t, p.Warnings())
}
