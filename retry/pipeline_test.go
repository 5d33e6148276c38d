package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// dependency fails with each of errs in turn, then answers.
type dependency struct {
	start time.Time
	errs  []error
	calls []time.Duration // when each attempt began
}

func newDependency(errs ...error) *dependency { return &dependency{start: time.Now(), errs: errs} }

func (d *dependency) call(context.Context) (string, error) {
	n := len(d.calls)
	d.calls = append(d.calls, time.Since(d.start))
	if n < len(d.errs) {
		return "", d.errs[n]
	}
	return "fine", nil
}

func newPipeline(t *testing.T, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New("inventory", policies...)
	require.NoError(t, err)
	return p
}

func stopped(p *policy.Pipeline, s policy.Stop) uint64 {
	for _, ps := range p.Snapshot().Policies {
		if ps.Retry != nil {
			return ps.Retry.Stopped[s]
		}
	}
	return 0
}

func TestCaseB08FirstDelayIsBase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Config{BaseDelay: 2 * time.Second, Jitter: retry.NoJitter})
		d := newDependency(errDown, errDown, errDown, errDown)
		_, err := policy.Do(t.Context(), p, d.call)
		require.Equal(t, errDown, err, "the last error, as it is")
		assert.Equal(t, []time.Duration{0, 2 * time.Second, 6 * time.Second}, d.calls)
		assert.EqualValues(t, 1, stopped(p, policy.StopAttempts))
	})
}

func TestCaseB08UnlimitedAttemptsStayCapped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Config{
			MaxAttempts: retry.Unlimited, BaseDelay: 2 * time.Second, MaxDelay: 5 * time.Minute, Jitter: retry.NoJitter,
			MaxDuration: 24 * time.Hour,
		})
		errs := make([]error, 200)
		for i := range errs {
			errs[i] = errDown
		}
		d := newDependency(errs...)
		v, err := policy.Do(t.Context(), p, d.call)
		require.NoError(t, err)
		assert.Equal(t, "fine", v)
		require.Len(t, d.calls, 201)
		assert.Equal(t, 5*time.Minute, d.calls[200]-d.calls[199], "delay before retry 200")
	})
}

func TestPipelineHonoursPushback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Config{BaseDelay: time.Millisecond})
		d := newDependency(policy.AsThrottled(errDown, 7*time.Second), policy.AsBusy(errDown, 3*time.Second))
		_, err := policy.Do(t.Context(), p, d.call)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 7 * time.Second, 10 * time.Second}, d.calls)
	})
}

func TestPipelineStops(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  retry.Config
		err  error
		call policy.Call
		stop policy.Stop
	}{
		{name: "permanent", err: policy.AsPermanent(errDown), stop: policy.StopOutcome},
		{name: "call", err: errDown, call: policy.Call{NoRetry: true}, stop: policy.StopCall},
		{name: "pushback", err: policy.AsBusy(errDown, time.Hour), stop: policy.StopPushback},
		{name: "max duration", cfg: retry.Config{MaxDuration: time.Second, BaseDelay: time.Minute, MaxDelay: time.Minute, Jitter: retry.NoJitter}, err: errDown, stop: policy.StopMaxDuration},
		{name: "deadline", cfg: retry.Config{BaseDelay: time.Hour, Jitter: retry.NoJitter}, err: errDown, stop: policy.StopDeadline},
		{name: "budget", cfg: retry.Config{Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}}, err: errDown, stop: policy.StopBudget},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(policy.WithCall(t.Context(), tt.call), time.Minute)
				defer cancel()
				p := newPipeline(t, tt.cfg)
				d := newDependency(tt.err, tt.err)
				_, err := policy.Do(ctx, p, d.call)
				require.ErrorIs(t, err, errDown)
				assert.Equal(t, []time.Duration{0}, d.calls, "one attempt")
				assert.Zero(t, time.Since(d.start), "and no wait")
				assert.EqualValues(t, 1, stopped(p, tt.stop))
			})
		})
	}
}

// A caller that gives up during the backoff costs the budget nothing.
func TestPipelineUndo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRetrier(t, retry.Config{
			BaseDelay: time.Second, Jitter: retry.NoJitter, Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off},
		})
		p := newPipeline(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		d := newDependency(errDown)
		_, err := policy.Do(ctx, p, d.call)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errDown)
		assert.Equal(t, 300*time.Millisecond, time.Since(d.start))
		s := r.Snapshot(time.Now()).Retry
		assert.EqualValues(t, 1, s.BudgetFirsts)
		assert.Zero(t, s.BudgetRetries)
	})
}

// turnstile refuses the first n attempts.
type turnstile struct{ n int }

func (g *turnstile) Peek(*policy.Attempt) error { return nil }

func (g *turnstile) Enter(context.Context, *policy.Attempt, int) error {
	if g.n == 0 {
		return nil
	}
	g.n--
	return &policy.RejectedError{Reason: policy.ReasonRate, RetryAfter: 4 * time.Second}
}

func (g *turnstile) Leave(*policy.Attempt, int, policy.Outcome) {}

func (g *turnstile) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "turnstile", Gate: g, Place: policy.PlaceRateLimit}, nil
}

func TestPipelineRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDependency()
		p := newPipeline(t, &turnstile{n: 1}, retry.Config{})
		_, err := policy.Do(t.Context(), p, d.call)
		require.ErrorIs(t, err, policy.ErrRejected, "by default a refusal ends the call")
		assert.Empty(t, d.calls)
		assert.Zero(t, time.Since(d.start))
		assert.EqualValues(t, 1, stopped(p, policy.StopRejected))

		p = newPipeline(t, &turnstile{n: 2}, retry.Config{RetryRejected: true})
		_, err = policy.Do(t.Context(), p, d.call)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{8 * time.Second}, d.calls, "after the RetryAfter of each refusal")
	})
}

// A dependency that fails for everybody gets its load and a tenth, not three times
// its load.
func TestBudgetBoundsTheLoad(t *testing.T) {
	t.Parallel()
	load := func(t *testing.T, budget retry.BudgetSource) (calls int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, retry.Config{BaseDelay: time.Millisecond, Budget: budget})
			for range 1000 {
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { calls++; return 0, errDown })
				if !errors.Is(err, errDown) {
					t.Errorf("the dependency's own error is lost: %v", err)
				}
			}
		})
		return calls
	}
	assert.Equal(t, 3000, load(t, retry.NoBudget{}))
	// The window slides under 1,000 calls that take no time but their backoff, which
	// stays below a second in all: nothing leaves it.
	assert.Equal(t, 1100, load(t, retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}))
	assert.Equal(t, 1300, load(t, retry.BudgetConfig{}), "a fifth, and 10 per second over 10 s")
}

func TestMaxDurationIncludesTheFirstAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Config{MaxDuration: time.Second, BaseDelay: retry.Off})
		calls := 0
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
			calls++
			time.Sleep(2 * time.Second)
			return 0, errDown
		})
		require.ErrorIs(t, err, errDown)
		assert.Equal(t, 1, calls)
	})
}
