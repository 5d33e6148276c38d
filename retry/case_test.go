package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// Nobody sleeps towards a retry that cannot happen, whatever the delay comes from, and
// nothing is taken from a budget for it.
func TestCaseB62EveryKindOfDelay(t *testing.T) {
	t.Parallel()
	const long = 10 * time.Second
	tests := []struct {
		name string
		cfg  retry.Config
		err  error
	}{
		{name: "exponential", cfg: retry.Config{BaseDelay: long, Jitter: retry.NoJitter}, err: errDown},
		{name: "constant", cfg: retry.Config{Backoff: retry.Constant, BaseDelay: long, Jitter: retry.NoJitter}, err: errDown},
		{name: "equal jitter", cfg: retry.Config{BaseDelay: 2 * long, Jitter: retry.EqualJitter}, err: errDown},
		{name: "decorrelated", cfg: retry.Config{Backoff: retry.Decorrelated, BaseDelay: long}, err: errDown},
		{name: "a rule", cfg: retry.Config{Failure: retry.Rule{Delay: long}}, err: errDown},
		{name: "pushback", cfg: retry.Config{}, err: policy.AsBusy(errDown, long)},
		{name: "awaited pushback", cfg: retry.Config{Busy: retry.Rule{Retry: retry.AwaitPushback}}, err: policy.AsBusy(errDown, long)},
	}
	for _, tt := range tests {
		for kind, budget := range map[string]retry.BudgetSource{
			"ratio": retry.BudgetConfig{}, "tokens": retry.TokenBudgetConfig{}, "in flight": retry.InFlightBudgetConfig{},
		} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					cfg := tt.cfg
					cfg.Budget = budget
					p := newPipeline(t, cfg)
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					d := newDependency(tt.err, tt.err)
					_, err := policy.Do(ctx, p, d.call)
					assert.Zero(t, time.Since(d.start), "at once")
					assert.Len(t, d.calls, 1)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, errDown)
					assert.EqualValues(t, 1, stopped(p, policy.StopDeadline))
					s := budgetOf(p)
					assert.Zero(t, s.BudgetRetries)
					assert.Zero(t, s.BudgetInFlight)
				})
			})
		}
	}
}

// A caller who leaves during the wait ends it, and gets nothing from a budget that the
// retry did not use.
func TestCaseB62WaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for kind, budget := range map[string]retry.BudgetSource{
		"ratio": retry.BudgetConfig{}, "tokens": retry.TokenBudgetConfig{}, "in flight": retry.InFlightBudgetConfig{},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, retry.Config{Failure: retry.Rule{Delay: time.Hour}, Budget: budget})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				d := newDependency(errDown)
				_, err := policy.Do(ctx, p, d.call)
				assert.Equal(t, time.Second, time.Since(d.start))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, errDown)
				s := budgetOf(p)
				assert.Zero(t, s.BudgetRetries)
				assert.Zero(t, s.BudgetInFlight)
			})
		})
	}
}

// An empty budget of any kind stops a call before it waits, and the error is still the
// dependency's.
func TestCaseB53EmptyBudgetKeepsTheError(t *testing.T) {
	t.Parallel()
	for kind, budget := range map[string]retry.BudgetSource{
		"ratio":     retry.BudgetConfig{MinPerSecond: retry.Off},
		"tokens":    retry.TokenBudgetConfig{MaxTokens: 1},
		"in flight": retry.InFlightBudgetConfig{MinRetries: retry.Off},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, retry.Config{BaseDelay: time.Hour, MaxDelay: time.Hour, Budget: budget})
				d := newDependency(errDown, errDown)
				_, err := policy.Do(t.Context(), p, d.call)
				assert.Zero(t, time.Since(d.start), "before the wait")
				assert.Len(t, d.calls, 1)
				require.ErrorIs(t, err, errDown)
				var gave *policy.GaveUpError
				require.ErrorAs(t, err, &gave)
				assert.Equal(t, policy.StopBudget, gave.Stop)
			})
		})
	}
}

// Rules are about what the dependency said: what a gate refused is not retried by any of
// them, at once and without a sleep.
func TestCaseB72RulesDoNotRetryRefusals(t *testing.T) {
	t.Parallel()
	always := retry.Rule{Retry: retry.Always, Delay: time.Second}
	cfg := retry.Config{Failure: always, Timeout: always, Busy: always, Throttled: always}
	down := func(context.Context) (int, error) { return 0, errDown }
	tests := []struct {
		name string
		gate policy.Policy
		fill func(t *testing.T, p *policy.Pipeline) // until it refuses
	}{
		{name: "breaker", gate: breaker.Config{MinCalls: 1, OpenFor: time.Hour}, fill: func(t *testing.T, p *policy.Pipeline) {
			t.Helper()
			_, _ = policy.Do(policy.WithCall(t.Context(), policy.Call{NoRetry: true}), p, down)
		}},
		{name: "bulkhead", gate: bulkhead.Semaphore{Limit: 1}, fill: func(t *testing.T, p *policy.Pipeline) {
			t.Helper()
			h, err := p.Enter(t.Context())
			require.NoError(t, err)
			t.Cleanup(h.Release)
		}},
		{name: "ratelimit", gate: ratelimit.TokenBucket{Rate: ratelimit.PerSecond(0.001), Burst: 1}, fill: func(t *testing.T, p *policy.Pipeline) {
			t.Helper()
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 1, nil })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, cfg, tt.gate)
				tt.fill(t, p)
				start := time.Now()
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
					t.Error("the dependency was called")
					return 0, nil
				})
				require.ErrorIs(t, err, policy.ErrRejected)
				assert.Zero(t, time.Since(start))
				assert.EqualValues(t, 1, stopped(p, policy.StopRejected))
			})
		})
	}
}

// A breaker that opens at the second attempt ends the call there, rule or not, with what
// the dependency said last.
func TestCaseB72BreakerOpensBetweenAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t,
			retry.Config{MaxAttempts: 5, Failure: retry.Rule{Delay: retry.Off}},
			breaker.Config{MinCalls: 2, OpenFor: time.Hour},
		)
		d := newDependency(errDown, errDown, errDown)
		_, err := policy.Do(t.Context(), p, d.call)
		assert.Len(t, d.calls, 2)
		require.ErrorIs(t, err, errDown)
		require.ErrorIs(t, err, breaker.ErrOpen)
	})
}

// A call that must not reach the dependency twice does not, whatever the rules are.
func TestCaseB61RulesHeedTheCall(t *testing.T) {
	t.Parallel()
	always := retry.Rule{Retry: retry.Always, Delay: retry.Off}
	p := newPipeline(t, retry.Config{Failure: always, Timeout: always, Busy: always, Throttled: always})
	for _, err := range []error{errDown, errBusy, errQuota, context.DeadlineExceeded} {
		d := newDependency(err, err)
		_, got := policy.Do(policy.WithCall(t.Context(), policy.Call{NoRetry: true}), p, d.call)
		require.ErrorIs(t, got, err)
		assert.Len(t, d.calls, 1)
	}
	assert.EqualValues(t, 4, stopped(p, policy.StopCall))
}
