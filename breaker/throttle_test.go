package breaker_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// fieldsOf returns the fields that a joined error is about.
func fieldsOf(t *testing.T, err error, kind string) (fields []string) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		require.NoError(t, err)
		return nil
	}
	for _, e := range joined.Unwrap() {
		ce, ok := errors.AsType[*policy.ConfigError](e)
		require.True(t, ok, "%v", e)
		assert.Equal(t, kind, ce.Policy)
		assert.NotEmpty(t, ce.Want)
		fields = append(fields, ce.Field)
	}
	return fields
}

func TestThrottleValidate(t *testing.T) {
	t.Parallel()
	type cfg = breaker.Throttle
	tests := []struct {
		name   string
		cfg    cfg
		fields []string
	}{
		{"zero", cfg{}, nil},
		{"smallest", cfg{K: 1, Window: ms, Buckets: 1, MinCalls: 1, MaxRejection: math.SmallestNonzeroFloat64}, nil},
		{"largest", cfg{K: 1000, Window: math.MaxInt64, Buckets: 1000, MinCalls: math.MaxInt, MaxRejection: 1}, nil},
		{"just below", cfg{K: math.Nextafter(1, 0), Window: ms - 1, Buckets: -1, MinCalls: -1, MaxRejection: -0.1}, []string{"K", "Window", "Buckets", "MinCalls", "MaxRejection"}},
		{"just above", cfg{K: 1001, Buckets: 1001, MaxRejection: math.Nextafter(1, 2)}, []string{"K", "Buckets", "MaxRejection"}},
		{"NaN", cfg{K: math.NaN(), MaxRejection: math.NaN()}, []string{"K", "MaxRejection"}},
		{"infinite", cfg{K: math.Inf(1), MaxRejection: math.Inf(1)}, []string{"K", "MaxRejection"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			assert.Equal(t, tt.fields, fieldsOf(t, err, "throttle"))
			th, newErr := breaker.NewThrottle("x", tt.cfg)
			assert.Equal(t, err == nil, newErr == nil)
			assert.Equal(t, err == nil, th != nil)
		})
	}
	_, err := policy.New("inventory", breaker.Throttle{Name: "shed", K: 0.5})
	require.Error(t, err)
	assert.Equal(t, "inventory.shed.K: 0.5: want from 1 to 1000 (0 means 2)", err.Error())
}

func TestThrottleConfig(t *testing.T) {
	t.Parallel()
	th, err := breaker.NewThrottle("", breaker.Throttle{})
	require.NoError(t, err)
	assert.Equal(t, breaker.Throttle{
		Name: "throttle", K: 2, Window: 10 * time.Second, Buckets: 10, MinCalls: 20, MaxRejection: 0.9,
	}, th.Config())
	th, err = breaker.NewThrottle("shed", breaker.Throttle{Name: "other"})
	require.NoError(t, err)
	assert.Equal(t, "shed", th.Config().Name)

	p := newPipeline(t, breaker.Throttle{MinCalls: 1, MaxRejection: 1})
	assert.Len(t, p.Warnings(), 2)
	assert.Empty(t, newPipeline(t, breaker.Throttle{}).Warnings())
	assert.Empty(t, newPipeline(t, breaker.Throttle{MaxRejection: 1, IgnoreRefusals: true}).Warnings())

	one, err := breaker.Throttle{Shadow: true}.BuildPolicy()
	require.NoError(t, err)
	two, err := breaker.Throttle{}.BuildPolicy()
	require.NoError(t, err)
	assert.Equal(t, "throttle", one.Kind)
	assert.Equal(t, policy.PlaceBreaker, one.Place)
	assert.True(t, one.Shadow)
	assert.NotSame(t, one.Gate, two.Gate, "a Throttle makes one for each pipeline")
	part, err := th.BuildPolicy()
	require.NoError(t, err)
	assert.Same(t, th, part.Gate, "a Throttler is shared")
}

// offer makes n calls, of which the dependency accepts one in every, and returns how
// many were let through.
func offer(ctx context.Context, t *testing.T, p *policy.Pipeline, n, every int) (passed int) {
	t.Helper()
	for range n {
		_, err := policy.Do(ctx, p, func(context.Context) (int, error) {
			passed++
			if passed%every > 0 {
				return 0, policy.AsThrottled(errDown, 0)
			}
			return 1, nil
		})
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			require.ErrorIs(t, err, breaker.ErrThrottled)
			require.NotErrorIs(t, err, breaker.ErrOpen)
			require.Equal(t, policy.ReasonThrottle, re.Reason)
			require.Zero(t, re.RetryAfter)
		}
	}
	return passed
}

func TestThrottleInPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var reg policy.Registry
		p, err := reg.New("inventory", breaker.Throttle{})
		require.NoError(t, err)
		look := func() policy.BreakerSnapshot { return *snapshot(t, p, "throttle").Breaker }
		want := policy.BreakerSnapshot{
			State: "closed", Since: begin, Generation: 1, Why: breaker.WhyStart,
			Share: 1, FailureThreshold: 0.5, MinCalls: 20,
		}
		assert.Equal(t, want, look(), "from the start")
		assert.Equal(t, 1000, offer(t.Context(), t, p, 1000, 1))
		time.Sleep(20 * time.Second)
		assert.Equal(t, 19, offer(t.Context(), t, p, 19, 1000))
		assert.Equal(t, "closed", look().State, "MinCalls")
		time.Sleep(time.Second)
		passed := offer(t.Context(), t, p, 1, 1000)
		s := look()
		assert.Equal(t, 1, passed)
		assert.Equal(t, "throttling", s.State)
		assert.Equal(t, breaker.WhyThrottled, s.Why)
		assert.Equal(t, begin.Add(21*time.Second), s.Since)
		assert.Equal(t, [2]uint64{20, 20}, [2]uint64{s.Calls, s.Failures})
		assert.Equal(t, [2]uint64{2, 1}, [2]uint64{s.Generation, s.Opened})
		assert.InDelta(t, 0.1, s.Share, 1e-9, "MaxRejection")
		_, why := reg.Ready()
		assert.Equal(t, "inventory: throttle is throttling for 0s because of throttled", why)

		passed = offer(t.Context(), t, p, 10_000, 1000)
		assert.InDelta(t, 1000, passed, 200)
		rejected := snapshot(t, p, "throttle").Rejected[policy.ReasonThrottle]
		assert.Equal(t, uint64(10_000-passed), rejected)
		assert.Equal(t, uint64(10_020), look().Calls, "refusals are requests")
		time.Sleep(10 * time.Second)
		assert.Equal(t, "closed", look().State, "without traffic")
		assert.Equal(t, 10, offer(t.Context(), t, p, 10, 1))
		s = look()
		assert.Equal(t, uint64(3), s.Generation)
		assert.Equal(t, breaker.WhyAccepted, s.Why)
	})
}

// With 40 % of the requests accepted, calls that matter are let through.
func TestThrottlePriorityInPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th, err := breaker.NewThrottle("", breaker.Throttle{IgnoreRefusals: true, Buckets: 1000})
		require.NoError(t, err)
		p := newPipeline(t, th)
		for i := range 1000 {
			_, _ = policy.Do(policy.WithPriority(t.Context(), policy.PriorityCritical), p, func(context.Context) (int, error) {
				if i%5 < 3 {
					return 0, policy.AsBusy(errDown, 0)
				}
				return 1, nil
			})
		}
		passed := make(map[policy.Priority]int)
		for i := range 4000 {
			prio := policy.Priority(i%4 - 1)
			_, _ = policy.Do(policy.WithPriority(t.Context(), prio), p, func(context.Context) (int, error) {
				passed[prio]++
				return 0, context.Canceled // which counts as nothing
			})
		}
		assert.Equal(t, 1000, passed[policy.PriorityCritical])
		assert.Equal(t, 1000, passed[policy.PriorityHigh])
		assert.InDelta(t, 800, passed[policy.PriorityNormal], 60, "(1000 - 2 × 400) / 1001 are refused")
		assert.InDelta(t, 600, passed[policy.PriorityLow], 60, "(1000 - 1.5 × 400) / 1001 are")
	})
}

func TestThrottleShadowAndAmend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, breaker.Throttle{MinCalls: 20, Shadow: true})
		assert.Equal(t, 1000, offer(t.Context(), t, p, 1000, 1000), "all of them run")
		s := snapshot(t, p, "throttle")
		assert.True(t, s.Shadow)
		assert.Greater(t, s.Rejected[policy.ReasonThrottle], uint64(700))
		assert.InDelta(t, 0.1, s.Breaker.Share, 1e-9)

		asked := 0
		p = newPipeline(t, breaker.Throttle{MinCalls: 1, MaxRejection: 1}, waiting{&asked})
		offer(t.Context(), t, p, 100, 1000)
		assert.Equal(t, 100, asked, "chance cannot be foretold, so every call waits")

		p = newPipeline(t, breaker.Throttle{MinCalls: 20})
		for i := range 20 {
			h, err := p.Enter(t.Context())
			require.NoError(t, err, "call %d", i)
			require.True(t, h.Settle(policy.Success, 0))
			require.True(t, h.Amend([]policy.Kind{policy.Failure, policy.Canceled}[i%2]))
			h.Release()
		}
		s = snapshot(t, p, "throttle")
		assert.Equal(t, [2]uint64{20, 10}, [2]uint64{s.Breaker.Calls, s.Breaker.Failures})
	})
}
