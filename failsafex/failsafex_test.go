package failsafex_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/failsafex"
	"github.com/breakwater-go/breakwater/policy"
)

var errBoom = errors.New("boom")

// budget is a gate that lets n attempts in and remembers outcomes.
type budget struct {
	n        int
	outcomes []policy.Kind
}

func (b *budget) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "budget", Gate: b}, nil
}
func (b *budget) Peek(*policy.Attempt) error { return nil }
func (b *budget) Enter(context.Context, *policy.Attempt, int) error {
	if b.n == 0 {
		return &policy.RejectedError{Reason: policy.ReasonRate}
	}
	b.n--
	return nil
}

func (b *budget) Leave(_ *policy.Attempt, _ int, o policy.Outcome) {
	b.outcomes = append(b.outcomes, o.Kind)
}

// thrice is a retry policy: up to three attempts, a second apart.
type thrice struct{}

func (thrice) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: thrice{}}, nil
}
func (thrice) First(*policy.Attempt) {}
func (thrice) Undo(time.Time)        {}
func (thrice) Decide(s policy.RetryState) policy.Decision {
	switch {
	case s.Outcome.Kind == policy.NotRun:
		return policy.Decision{Stop: policy.StopOutcome}
	case s.Attempt >= 3:
		return policy.Decision{Stop: policy.StopAttempts}
	}
	return policy.Decision{Delay: time.Second}
}

func TestGatesInsideFailsafeRetry(t *testing.T) {
	t.Parallel()
	b := &budget{n: 2}
	gates, err := failsafex.Gates[string]("stock", b)
	require.NoError(t, err)
	retry := retrypolicy.NewBuilder[string]().WithMaxAttempts(5).AbortOnErrors(policy.ErrRejected).ReturnLastFailure().Build()
	calls := 0
	_, err = failsafe.With(retry, gates).Get(func() (string, error) { calls++; return "", errBoom })
	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, "stock", re.Dependency)
	assert.Equal(t, 2, calls)
	assert.Equal(t, []policy.Kind{policy.Failure, policy.Failure}, b.outcomes)
}

func TestGatesUnwindAPanic(t *testing.T) {
	t.Parallel()
	b := &budget{n: 1}
	gates, err := failsafex.Gates[string]("stock", b)
	require.NoError(t, err)
	assert.PanicsWithValue(t, "x", func() {
		_, _ = failsafe.With(gates).Get(func() (string, error) { panic("x") })
	})
	assert.Equal(t, []policy.Kind{policy.Failure}, b.outcomes)
}

func TestGatesRefuseWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := failsafex.Gates[string]("stock", policy.Timeouts{Total: time.Second})
	ce, ok := errors.AsType[*policy.ConfigError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, "timeout", ce.Policy)
	_, err = policy.New("stock", failsafex.Policy("cb", nil))
	require.ErrorContains(t, err, "stock.cb.Policy: is nil")
	_, err = policy.New("stock", failsafex.Policy("hedge", hedgepolicy.NewWithDelay[any](time.Second)))
	require.ErrorContains(t, err, "stock.hedge.Policy: a hedge policy runs attempts of one call at the same time")
}

func TestForeignBreakerInAPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cb := circuitbreaker.NewBuilder[any]().WithFailureThreshold(2).WithDelay(time.Minute).Build()
		gate := &budget{n: 10}
		p, err := policy.New("stock", thrice{}, gate, failsafex.Policy("cb", cb))
		require.NoError(t, err)
		calls := 0
		_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { calls++; return 0, errBoom })
		assert.Equal(t, 2, calls, "the third attempt meets an open breaker")
		require.ErrorIs(t, err, circuitbreaker.ErrOpen)
		require.ErrorIs(t, err, errBoom, "the dependency's own error is not lost")
		assert.Equal(t, []policy.Kind{policy.Failure, policy.Failure}, gate.outcomes)
		snap := p.Snapshot()
		assert.Equal(t, uint64(1), snap.Calls[policy.Failure])
		assert.Equal(t, uint64(2), snap.Retries, "a refused attempt is an attempt")
	})
}

func TestForeignFallbackAndTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("stock", failsafex.Policy("fb", fallback.NewWithResult[any](7)))
		require.NoError(t, err)
		v, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errBoom })
		require.NoError(t, err)
		assert.Equal(t, 7, v)

		// A value of another type is an error, not a zero.
		_, err = policy.Do(t.Context(), p, func(context.Context) (string, error) { return "", errBoom })
		require.ErrorContains(t, err, "type int, where the call returns type string")

		p, err = policy.New("stock", thrice{}, failsafex.Policy("to", timeout.New[any](100*time.Millisecond)))
		require.NoError(t, err)
		calls := 0
		v, err = policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
			if calls++; calls < 3 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 8, nil
		})
		require.NoError(t, err)
		assert.Equal(t, 8, v)
		assert.Equal(t, 3, calls)
	})
}
