package failsafex_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	fsbudget "github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests called TestUpstream… pin what docs/explanation/failsafe-go.md says about
// failsafe-go itself. One that fails after an upgrade is good news: the reason for
// something of ours may be gone, and the page is out of date.

func fail() (string, error) { return "", errBoom }

func TestUpstreamBulkheadLosesPermitsToPanics(t *testing.T) {
	t.Parallel()
	b := bulkhead.New[string](1)
	assert.Panics(t, func() { _, _ = failsafe.With(b).Get(func() (string, error) { panic("x") }) })
	assert.False(t, b.TryAcquirePermit(), "nothing runs, and nothing can")
}

func TestUpstreamLateSuccessClosesTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := circuitbreaker.NewBuilder[string]().WithDelay(5 * time.Second).Build() // one failure opens it
		e := failsafe.With(b)
		go func() {
			_, _ = e.Get(func() (string, error) { time.Sleep(10 * time.Second); return "late", nil }) // begun while closed
		}()
		synctest.Wait()
		_, err := e.Get(fail)
		require.ErrorIs(t, err, errBoom)
		require.True(t, b.IsOpen())
		time.Sleep(6 * time.Second)
		require.True(t, b.TryAcquirePermit(), "a probe, which does not return")
		require.True(t, b.IsHalfOpen())
		time.Sleep(5 * time.Second)
		assert.True(t, b.IsClosed(), "by a call that began before it opened")
	})
}

func TestUpstreamCancelledCallersOpenTheBreaker(t *testing.T) {
	t.Parallel()
	b := circuitbreaker.NewBuilder[string]().WithFailureThreshold(3).Build()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		_, err := failsafe.With(b).WithContext(ctx).Get(func() (string, error) { cancel(); return "", ctx.Err() })
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.True(t, b.IsOpen())
}

func TestUpstreamCancelledWaitsKeepTheirReservation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := ratelimiter.NewSmooth[any](1, time.Second)
		require.True(t, l.TryAcquirePermit())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Error(t, l.AcquirePermitWithMaxWait(ctx, time.Minute))
		time.Sleep(1500 * time.Millisecond)
		assert.False(t, l.TryAcquirePermit(), "a second has passed, and nobody else has called")
	})
}

func TestUpstreamZeroAttemptsAreUnlimited(t *testing.T) {
	t.Parallel()
	calls := 0
	r := retrypolicy.NewBuilder[string]().WithMaxAttempts(0).Build()
	_, err := failsafe.With(r).Get(func() (string, error) {
		if calls++; calls < 1000 {
			return "", errBoom
		}
		return "at last", nil
	})
	require.NoError(t, err)
	assert.Equal(t, 1000, calls)
}

func TestUpstreamJitterExceedsTheMaximum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var longest time.Duration
		r := retrypolicy.NewBuilder[string]().WithMaxAttempts(100).
			WithBackoff(time.Second, 2*time.Second).WithJitterFactor(0.5).
			OnRetryScheduled(func(e failsafe.ExecutionScheduledEvent[string]) { longest = max(longest, e.Delay) }).
			Build()
		_, err := failsafe.With(r).Get(fail)
		require.Error(t, err)
		assert.Greater(t, longest, 2*time.Second)
	})
}

func TestUpstreamRetriesAgainstAnOpenBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := circuitbreaker.NewBuilder[string]().WithDelay(time.Hour).Build()
		b.Open()
		refused := 0
		r := retrypolicy.NewBuilder[string]().WithMaxAttempts(3).WithDelay(time.Second).
			OnFailure(func(failsafe.ExecutionEvent[string]) { refused++ }).Build()
		start := time.Now()
		_, err := failsafe.With(r, b).Get(fail)
		require.ErrorIs(t, err, circuitbreaker.ErrOpen)
		assert.Equal(t, 3, refused)
		assert.Equal(t, 2*time.Second, time.Since(start), "slept in front of an open breaker")
	})
}

func TestUpstreamRateOfZeroPanics(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { ratelimiter.NewSmooth[any](0, time.Second) })
}

func TestUpstreamFallbackIsSkippedAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answered := false
		f := fallback.NewWithFunc(func(failsafe.Execution[string]) (string, error) { answered = true; return "stale", nil })
		_, err := failsafe.With(f).WithContext(ctx).Get(func() (string, error) { <-ctx.Done(); return "", ctx.Err() })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, answered)
	})
}

func TestUpstreamCancelledContextStillCalls(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	called := false
	_, _ = failsafe.With(retrypolicy.NewWithDefaults[string]()).WithContext(ctx).Get(func() (string, error) { called = true; return "", nil })
	assert.True(t, called)
}

// Its budget looks at what is in flight at one moment. Calls that fail fast are
// never in flight together, so all of them may retry.
func TestUpstreamBudgetDoesNotBoundFastFailures(t *testing.T) {
	t.Parallel()
	calls := 0
	r := retrypolicy.NewBuilder[string]().WithMaxAttempts(3).
		WithBudget(fsbudget.NewBuilder().WithMaxRate(0.1).WithMinConcurrency(1).Build()).Build()
	for range 1000 {
		_, _ = failsafe.With(r).Get(func() (string, error) { calls++; return "", errBoom })
	}
	assert.Equal(t, 3000, calls)
}

func TestUpstreamBudgetHidesTheError(t *testing.T) {
	t.Parallel()
	r := retrypolicy.NewBuilder[string]().WithBudget(fsbudget.NewBuilder().WithMaxRate(-1).WithMinConcurrency(0).Build()).Build()
	_, err := failsafe.With(r).Get(fail)
	require.ErrorIs(t, err, fsbudget.ErrExceeded)
	assert.NotErrorIs(t, err, errBoom)
}
