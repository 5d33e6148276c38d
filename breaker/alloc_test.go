//go:build !race

package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

func TestAllocAdmitted(t *testing.T) {
	b := newBreaker(t, breaker.Config{SlowAfter: time.Second, MinCalls: 1 << 30})
	for _, kind := range []policy.Kind{policy.Success, policy.Failure, policy.Canceled, policy.NotRun} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			permit, err := b.Acquire()
			if err == nil {
				permit.Done(kind)
			}
		}), kind)
	}
}

func TestAllocInPipeline(t *testing.T) {
	p := newPipeline(t, breaker.Config{SlowAfter: time.Second})
	ctx := context.Background() //nolint:usetesting // that of the test is cancelled at its end, which is beside the point here
	fn := func(_ context.Context, v int) (int, error) { return v, nil }
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, fn); err != nil {
			t.Error(err)
		}
	}))
}

// A refusal is one allocation: the error.
func TestAllocRefused(t *testing.T) {
	b := newBreaker(t, breaker.Config{MinCalls: 2, OpenFor: time.Hour})
	for range 2 {
		permit, err := b.Acquire()
		require.NoError(t, err)
		permit.Done(policy.Failure)
	}
	assert.InDelta(t, 1, testing.AllocsPerRun(1000, func() { _, _ = b.Acquire() }), 0)
}

// With every rule, and a window of calls.
func TestAllocAdmittedByManyRules(t *testing.T) {
	b := newBreaker(t, breaker.Config{
		FailureRatio: 1, SlowAfter: time.Second, SlowRatio: 1, FailureCount: 90, ConsecutiveFailures: 90, LastCalls: 100,
	})
	for _, kind := range []policy.Kind{policy.Success, policy.Canceled, policy.NotRun} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			permit, err := b.Acquire()
			if err == nil {
				permit.Done(kind)
			}
		}), kind)
	}
}

func TestAllocThrottled(t *testing.T) {
	p := newPipeline(t, breaker.Throttle{})
	ctx := context.Background() //nolint:usetesting // that of the test is cancelled at its end, which is beside the point here
	fn := func(_ context.Context, v int) (int, error) { return v, nil }
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, fn); err != nil {
			t.Error(err)
		}
	}))
}

func TestAllocKeyed(t *testing.T) {
	p := newPipeline(t, breaker.Keyed{})
	ctx := policy.WithCall(context.Background(), policy.Call{Key: "host-1"}) //nolint:usetesting // that of the test is cancelled at its end, which is beside the point here
	fn := func(_ context.Context, v int) (int, error) { return v, nil }
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, fn); err != nil {
			t.Error(err)
		}
	}))
}
