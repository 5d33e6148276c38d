package failsafex_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/cachepolicy"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/failsafex"
	"github.com/breakwater-go/breakwater/policy"
)

// retrier retries everything that it is allowed to, at once, up to n attempts.
type retrier struct {
	n                     int
	firsts, grants, undos int
	asked                 []policy.Outcome
}

func (r *retrier) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: r}, nil
}
func (r *retrier) First(*policy.Attempt) { r.firsts++ }
func (r *retrier) Undo(time.Time)        { r.undos++ }
func (r *retrier) Decide(s policy.RetryState) policy.Decision {
	r.asked = append(r.asked, s.Outcome)
	if s.Attempt >= r.n {
		return policy.Decision{Stop: policy.StopAttempts}
	}
	r.grants++
	return policy.Decision{}
}

// permits is a gate that counts what is in flight.
type permits struct {
	budget
	inFlight int
}

func (g *permits) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "permits", Gate: g, Holds: true}, nil
}
func (g *permits) Enter(context.Context, *policy.Attempt, int) error { g.inFlight++; return nil }
func (g *permits) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	g.inFlight--
	g.budget.Leave(a, slot, o)
}

func newPipeline(t *testing.T, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New("stock", policies...)
	require.NoError(t, err)
	return p
}

func boom(context.Context) (int, error) { return 0, errBoom }
func fine(context.Context) (int, error) { return 42, nil }

// A call whose context ends before anything ran has an error: it was none.
func TestForeignWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := bulkhead.NewBuilder[any](1).WithMaxWaitTime(time.Hour).Build()
		require.True(t, full.TryAcquirePermit())
		for name, policies := range map[string][]policy.Policy{
			"plain":   {failsafex.Policy("bulkhead", full)},
			"total":   {failsafex.Policy("bulkhead", full), policy.Timeouts{Total: time.Second}},
			"retried": {failsafex.Policy("bulkhead", full), thrice{}},
		} {
			p := newPipeline(t, policies...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := policy.Do(ctx, p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.Equal(t, uint64(1), p.Snapshot().Calls[policy.NotRun], name)

			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err = policy.Do(ctx, p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
			require.ErrorIs(t, err, context.Canceled, name)
			_, err = policy.Do(ctx, p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
			require.ErrorIs(t, err, context.Canceled, name)
		}
	})
}

// A deadline is a timeout, whoever set it: also a timeout policy of failsafe-go, which
// ends the attempt's context as if the caller had cancelled it.
func TestForeignTimeoutIsATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := timeout.New[any](time.Second)
		hang := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		for name, policies := range map[string][]policy.Policy{
			"plain":   nil,
			"bounded": {policy.Timeouts{Attempt: time.Minute}},
			"watched": {policy.Timeouts{Attempt: time.Minute, Total: time.Hour}},
		} {
			g := &permits{}
			p := newPipeline(t, append(policies, g, failsafex.Policy("to", to))...)
			_, err := policy.Do(t.Context(), p, hang)
			require.ErrorIs(t, err, timeout.ErrExceeded, name)
			assert.Equal(t, []policy.Kind{policy.Timeout}, g.outcomes, name)
			assert.Equal(t, uint64(1), p.Snapshot().Calls[policy.Timeout], name)

			// The caller's own end is none.
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err = policy.Do(ctx, p, hang)
			require.ErrorIs(t, err, context.Canceled, name)
			assert.Equal(t, policy.Canceled, g.outcomes[1], name)
		}

		// Gates inside it, and around it.
		for name, order := range map[string]func(to, gates failsafe.Policy[int]) failsafe.Executor[int]{
			"inside": func(to, gates failsafe.Policy[int]) failsafe.Executor[int] { return failsafe.With(to, gates) },
			"around": func(to, gates failsafe.Policy[int]) failsafe.Executor[int] { return failsafe.With(gates, to) },
		} {
			g := &permits{}
			gates, err := failsafex.Gates[int]("stock", g)
			require.NoError(t, err)
			_, err = order(timeout.New[int](time.Second), gates).WithContext(t.Context()).
				GetWithExecution(func(e failsafe.Execution[int]) (int, error) { return hang(e.Context()) })
			require.ErrorIs(t, err, timeout.ErrExceeded, name)
			assert.Equal(t, []policy.Kind{policy.Timeout}, g.outcomes, name)
		}
	})
}

// What a Handle holds outlives the attempt, and with it the attempt's context.
func TestForeignTimeoutSparesAHeldAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, r := &permits{}, &retrier{n: 2}
		p := newPipeline(t, g, r, failsafex.Policy("to", timeout.New[any](time.Second)))
		var ctxs []context.Context
		h, err := policy.DoAttempt(t.Context(), p, nil, 0, func(ctx context.Context, _ int, a *policy.Attempt) (policy.Handle, error) {
			ctxs = append(ctxs, ctx)
			if a.Number() == 1 {
				a.SetOutcome(policy.Busy, 0)
			}
			return a.Hold(), nil
		}, policy.Handle.Release)
		require.NoError(t, err)
		require.Len(t, ctxs, 2)
		time.Sleep(time.Minute)
		require.ErrorIs(t, ctxs[0].Err(), context.Canceled, "its value was given up")
		require.NoError(t, ctxs[1].Err())
		assert.Equal(t, 1, g.inFlight)
		h.Release()
		require.ErrorIs(t, ctxs[1].Err(), context.Canceled)
		assert.Zero(t, g.inFlight)
	})
}

// Attempts that a failsafe-go retry policy makes are attempts, and cost our budget
// nothing, so nothing is given back for them.
func TestForeignRetryPaysNoBudget(t *testing.T) {
	t.Parallel()
	r := &retrier{n: 1}
	b := &budget{n: 1}
	again := retrypolicy.NewBuilder[any]().WithMaxAttempts(3).ReturnLastFailure().Build()
	p := newPipeline(t, r, b, failsafex.Policy("again", again))
	_, err := policy.Do(t.Context(), p, boom)
	require.ErrorIs(t, err, policy.ErrRejected)
	require.ErrorIs(t, err, errBoom)
	assert.Zero(t, r.grants)
	assert.Zero(t, r.undos)
	snap := p.Snapshot()
	assert.Equal(t, uint64(2), snap.Retries)
	assert.Equal(t, uint64(2), snap.Attempts[policy.NotRun])
}

// Each refusal by a failsafe-go policy is an attempt, also when all of them are the same
// error, and gives back what it cost.
func TestForeignRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	cb := circuitbreaker.NewBuilder[any]().WithDelay(time.Hour).Build()
	r := &retrier{n: 5}
	p := newPipeline(t, r, failsafex.Policy("cb", cb))
	_, err := policy.Do(t.Context(), p, boom)
	require.ErrorIs(t, err, circuitbreaker.ErrOpen)
	require.ErrorIs(t, err, errBoom)
	assert.Len(t, r.asked, 5)
	assert.Equal(t, 4, r.grants)
	assert.Equal(t, 4, r.undos, "one attempt reached the dependency")
	snap := p.Snapshot()
	assert.Equal(t, uint64(4), snap.Retries)
	assert.Equal(t, uint64(4), snap.Attempts[policy.NotRun])
	assert.Equal(t, uint64(1), snap.Calls[policy.Failure])
}

// An attempt that ran has run, whatever error a failsafe-go policy puts in place of its own.
func TestForeignErrorInPlaceOfAnAttempts(t *testing.T) {
	t.Parallel()
	refusal := &policy.RejectedError{Dependency: "other", Policy: "gate"}
	for name, c := range map[string]struct {
		fn   func(context.Context) (int, error)
		err  error
		want policy.Kind
	}{
		"another error":          {boom, fmt.Errorf("no luck: %w", errBoom), policy.Failure},
		"the same":               {boom, errBoom, policy.Failure},
		"a refusal":              {boom, refusal, policy.NotRun},
		"a mark":                 {boom, policy.AsPermanent(errBoom), policy.Permanent},
		"an error for a success": {fine, errBoom, policy.Failure},
	} {
		fb := fallback.NewBuilderWithError[any](c.err).HandleIf(func(any, error) bool { return true }).Build()
		r := &retrier{n: 2}
		p := newPipeline(t, r, failsafex.Policy("fb", fb))
		calls := 0
		_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) { calls++; return c.fn(ctx) })
		require.ErrorIs(t, err, c.err, name)
		assert.Equal(t, 2, calls, name)
		assert.Zero(t, r.undos, name)
		for _, o := range r.asked {
			assert.Equal(t, c.want, o.Kind, name)
		}
		assert.Equal(t, uint64(1), p.Snapshot().Calls[c.want], name)
	}
}

// answer is a value that must be disposed of, like a response.
type answer struct {
	n    int
	gone *[]int
}

func (a *answer) dispose() { *a.gone = append(*a.gone, a.n) }

// A value that the caller does not get is discarded once, whoever decided that.
func TestForeignPoliciesGiveUpValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gone []int
		run := func(kind policy.Kind, policies ...policy.Policy) (*answer, error) {
			gone = nil
			n := 0
			return policy.DoAttempt(t.Context(), newPipeline(t, policies...), nil, 0,
				func(ctx context.Context, _ int, a *policy.Attempt) (*answer, error) {
					n++
					a.SetOutcome(kind, 0)
					if kind == policy.Timeout {
						<-ctx.Done()
					}
					return &answer{n, &gone}, nil
				}, (*answer).dispose)
		}
		other := &answer{n: -1, gone: &gone}
		always := func(any, error) bool { return true }

		v, err := run(policy.Busy, failsafex.Policy("again", retrypolicy.NewBuilder[any]().HandleIf(always).WithMaxAttempts(3).ReturnLastFailure().Build()))
		require.NoError(t, err)
		assert.Equal(t, 3, v.n)
		assert.Equal(t, []int{1, 2}, gone, "a failsafe-go retry")

		v, err = run(policy.Busy, failsafex.Policy("fb", fallback.NewBuilderWithResult[any](other).HandleIf(always).Build()))
		require.NoError(t, err)
		assert.Same(t, other, v)
		assert.Equal(t, []int{1}, gone, "a failsafe-go fallback's value")

		v, err = run(policy.Busy, failsafex.Policy("fb", fallback.NewBuilderWithError[any](errBoom).HandleIf(always).Build()))
		require.ErrorIs(t, err, errBoom)
		assert.Nil(t, v)
		assert.Equal(t, []int{1}, gone, "a failsafe-go fallback's error")

		v, err = run(policy.Timeout, failsafex.Policy("to", timeout.New[any](time.Second)))
		require.ErrorIs(t, err, timeout.ErrExceeded)
		assert.Nil(t, v)
		assert.Equal(t, []int{1}, gone, "a value that came too late for a failsafe-go timeout")

		v, err = run(policy.Busy, failsafex.Policy("fb", fallback.NewBuilderWithResult[any]("text").HandleIf(always).Build()))
		require.ErrorContains(t, err, "type string, where the call returns type *failsafex_test.answer")
		assert.Nil(t, v)
		assert.Equal(t, []int{1}, gone, "a failsafe-go fallback's value of another type")

		v, err = run(policy.Busy, failsafex.Policy("cb", circuitbreaker.NewBuilder[any]().HandleIf(always).Build()))
		require.NoError(t, err)
		assert.Equal(t, 1, v.n)
		assert.Empty(t, gone, "the attempt's own value")
	})
}

// cache is a failsafe-go cache.
type cache map[string]any

func (c cache) Get(key string) (any, bool) { v, ok := c[key]; return v, ok }
func (c cache) Set(key string, value any)  { c[key] = value }

func TestForeignPoliciesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, g := &retrier{n: 3}, &permits{}
		cb := circuitbreaker.NewBuilder[any]().WithFailureThreshold(3).WithDelay(time.Minute).Build()
		bh := bulkhead.New[any](1)
		p := newPipeline(t, r, g, policy.Timeouts{Total: time.Hour},
			failsafex.Policy("fallback", fallback.NewBuilderWithResult[any](7).HandleErrors(circuitbreaker.ErrOpen).Build()),
			failsafex.Policy("cache", cachepolicy.NewBuilder[any](cache{}).WithKey("k").Build()),
			failsafex.Policy("timeout", timeout.New[any](time.Second)),
			failsafex.Policy("breaker", cb),
			failsafex.Policy("bulkhead", bh),
		)
		v, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		require.ErrorIs(t, err, timeout.ErrExceeded)
		assert.Zero(t, v)
		assert.Equal(t, []policy.Kind{policy.Timeout, policy.Timeout, policy.Timeout}, g.outcomes)

		v, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		require.NoError(t, err)
		assert.Equal(t, 7, v, "the breaker is open, and its refusal falls back")

		time.Sleep(time.Minute)
		for range 2 {
			v, err = policy.Do(t.Context(), p, fine)
			require.NoError(t, err)
			assert.Equal(t, 42, v, "the second one comes from the cache")
		}
		assert.Len(t, g.outcomes, 4)
		assert.Zero(t, g.inFlight)
		assert.True(t, bh.TryAcquirePermit())
		snap := p.Snapshot()
		assert.Equal(t, uint64(3), snap.Calls[policy.Success])
		assert.Equal(t, uint64(1), snap.Calls[policy.Timeout])
		assert.Equal(t, uint64(1), snap.Attempts[policy.Success])
	})
}

func TestForeignConcurrentSafe(t *testing.T) {
	t.Parallel()
	cb := circuitbreaker.NewBuilder[any]().WithFailureThresholdRatio(50, 100).WithDelay(time.Millisecond).Build()
	p := newPipeline(t, policy.Timeouts{Total: time.Minute}, thriceAtOnce{},
		failsafex.Policy("cb", cb), failsafex.Policy("to", timeout.New[any](time.Minute)))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				fn := fine
				if (w+i)%3 == 0 {
					fn = boom
				}
				if v, err := policy.Do(t.Context(), p, fn); err == nil && v != 42 {
					t.Errorf("got %d", v)
				}
			}
		})
	}
	wg.Wait()
	snap := p.Snapshot()
	var calls uint64
	for _, n := range snap.Calls {
		calls += n
	}
	assert.Equal(t, uint64(8*200), calls)
}

// thriceAtOnce is thrice without a state and without a delay.
type thriceAtOnce struct{ thrice }

func (thriceAtOnce) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: thriceAtOnce{}}, nil
}

func (thriceAtOnce) Decide(s policy.RetryState) policy.Decision {
	d := thrice{}.Decide(s)
	d.Delay = 0
	return d
}

// counted is a spec that counts what is made of it.
type counted struct{ made *int }

func (c counted) BuildPolicy() (policy.Part, error) {
	*c.made++
	return policy.Part{Kind: "budget", Gate: &budget{n: 1}}, nil
}

func TestGatesAreBuiltOnce(t *testing.T) {
	t.Parallel()
	made := 0
	_, err := failsafex.Gates[int]("stock", counted{&made})
	require.NoError(t, err)
	assert.Equal(t, 1, made, "a second one would never be closed")

	_, err = failsafex.Gates[int]("stock", policy.Ordered(counted{&made}, &retrier{}))
	ce, ok := errors.AsType[*policy.ConfigError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, "retry", ce.Policy)

	var none *counted
	_, err = failsafex.Gates[int]("stock", none, nil)
	require.ErrorContains(t, err, "a nil *failsafex_test.counted is in the list")
	require.ErrorContains(t, err, "a nil policy is in the list")

	_, err = failsafex.Gates[int]("stock", policy.Timeouts{Total: -1}, &retrier{})
	require.ErrorContains(t, err, "stock.timeout.Total")
	require.ErrorContains(t, err, "stock.retry")
}
