package policy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

func TestFirstOutcomeIsHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, r, rec := &gate{}, &retrier{max: 3, delay: time.Second}, &recorder{}
		p := build(t, g, r, policy.Observe(rec))
		start, calls := time.Now(), 0
		v, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
			if calls++; calls < 3 {
				return 0, errBoom
			}
			return calls, nil
		})
		require.NoError(t, err)
		assert.Equal(t, 3, v)
		assert.Equal(t, 3, calls, "the first attempt is not run twice")
		assert.Equal(t, 2*time.Second, time.Since(start))
		assert.Equal(t, []string{"enter 1", "leave failure", "enter 2", "leave failure", "enter 3", "leave success"}, g.log)
		assert.Equal(t, []string{"retry", "retry"}, rec.kinds())
		assert.Equal(t, 1, r.firsts)
		assert.Zero(t, r.undos)
		require.Len(t, r.states, 2)
		assert.Equal(t, 2, r.states[1].Attempt)
		assert.Equal(t, time.Second, r.states[1].LastDelay)
		assert.Equal(t, time.Second, r.states[1].Now.Sub(r.states[1].Started))
		snap := p.Snapshot()
		assert.Equal(t, uint64(1), snap.Calls[policy.Success])
		assert.Equal(t, uint64(1), snap.Attempts[policy.Success])
		assert.Equal(t, uint64(2), snap.Attempts[policy.Failure])
		assert.Equal(t, uint64(2), snap.Retries)
		assert.Equal(t, uint64(3), snap.Latency.Count())
	})
}

func TestExhaustedReturnsTheLastErrorAsItIs(t *testing.T) {
	t.Parallel()
	p := build(t, &retrier{max: 3})
	_, err := policy.Do(t.Context(), p, fail)
	assert.Equal(t, errBoom, err) //nolint:testifylint // identity
	assert.Equal(t, uint64(1), p.Snapshot().Policies[0].Retry.Stopped[policy.StopAttempts])
}

func TestCaseB72_RefusalsAreNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Refused at once: no sleep, the function does not run.
		r := &retrier{max: 3, delay: time.Second}
		p := build(t, &gate{name: "breaker", limit: -1}, r)
		start := time.Now()
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		re, ok := err.(*policy.RejectedError) //nolint:errorlint // not wrapped
		require.True(t, ok, "got %v", err)
		assert.Equal(t, "breaker", re.Policy)
		assert.Zero(t, time.Since(start))

		// Opens on attempt 2 of 3: stops there, and says what the dependency said.
		attempts := 0
		g := &gate{name: "breaker"}
		p = build(t, g, r)
		_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) {
			if attempts++; attempts == 2 {
				g.limit = -1
			}
			return 0, errBoom
		})
		assert.Equal(t, 2, attempts)
		require.ErrorIs(t, err, errBoom)
		require.ErrorIs(t, err, policy.ErrRejected)
		gave, ok := errors.AsType[*policy.GaveUpError](err)
		require.True(t, ok)
		assert.Equal(t, policy.StopRejected, gave.Stop)
		assert.Equal(t, 2, gave.Attempts)
		assert.EqualError(t, err, "stock: gave up after 2 attempts (rejected by breaker (concurrency), retry after 1.5s): boom")
		assert.Equal(t, 1, r.undos, "the refused attempt gives its retry back")
		assert.Equal(t, uint64(1), p.Snapshot().Calls[policy.Failure], "the dependency's outcome is the call's")
	})
}

func TestRefusalsAreRetriedWhenAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{limit: 1}
		p := build(t, g, &retrier{max: 3, delay: time.Second, refused: true})
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		time.AfterFunc(1500*time.Millisecond, func() { h.Leave(nil) })
		v, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		assert.Equal(t, 42, v)
	})
}

func TestCaseB51_ContextAndUnlimitedAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := build(t, &retrier{delay: 300 * time.Millisecond})
		for name, run := range map[string]func(context.Context) (int, error){
			"fails at once": fail,
			"hides the context's error": func(ctx context.Context) (int, error) {
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
				return 0, errBoom
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			_, err := policy.Do(ctx, p, run)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, errBoom, name)
			assert.LessOrEqual(t, time.Since(start), time.Second, name)
		}

		// Permanent: one attempt.
		calls := 0
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { calls++; return 0, policy.AsPermanent(errBoom) })
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, 1, calls)

		// The caller cancels while the function runs: one attempt.
		ctx, cancel := context.WithCancel(t.Context())
		calls = 0
		_, err = policy.Do(ctx, p, func(ctx context.Context) (int, error) { calls++; cancel(); return 0, ctx.Err() })
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 1, calls)

		// The caller cancels during a long sleep: returns at once, and the retry
		// that never ran gives back what it cost.
		r := &retrier{delay: 10 * time.Second}
		p = build(t, r)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err = policy.Do(ctx, p, fail)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 1, r.undos)
		assert.Equal(t, uint64(1), p.Snapshot().Policies[0].Retry.Stopped[policy.StopCanceled])
	})
}

func TestCaseB62_NoSleepTowardsARetryThatCannotHappen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, p := range map[string]*policy.Pipeline{
			"caller's deadline": build(t, &retrier{delay: 10 * time.Second}),
			"total timeout":     build(t, &retrier{delay: 10 * time.Second}, policy.Timeouts{Total: 2 * time.Second}),
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if name == "caller's deadline" {
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
			}
			start, calls := time.Now(), 0
			_, err := policy.Do(ctx, p, func(context.Context) (int, error) { calls++; return 0, errBoom })
			cancel()
			assert.Zero(t, time.Since(start), name)
			assert.Equal(t, 1, calls, name)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, errBoom, name)
		}
	})
}

func TestCaseB52_Classification(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"marked":  policy.AsPermanent(errBoom),
		"wrapped": fmt.Errorf("outer: %w", policy.AsPermanent(errBoom)),
		"joined":  errors.Join(errors.New("other"), policy.AsPermanent(errBoom)),
	} {
		calls := 0
		_, got := policy.Do(t.Context(), build(t, &retrier{}), func(context.Context) (int, error) { calls++; return 0, err })
		assert.Equal(t, 1, calls, name)
		require.ErrorIs(t, got, errBoom, name)
	}

	// An error whose Is looks into its argument.
	_, err := policy.Do(t.Context(), build(t, &retrier{max: 2}), func(context.Context) (int, error) { return 0, nosyError{} })
	require.Error(t, err)

	// A nil error is a success, and nil to the caller.
	_, err = policy.Do(t.Context(), build(t, &retrier{}), succeed)
	assert.True(t, err == nil) //nolint:testifylint // not a typed nil
	require.NoError(t, policy.AsPermanent(nil))
	require.NoError(t, policy.AsBusy(nil, 1))
	require.NoError(t, policy.AsThrottled(nil, 1))

	// A typed nil is an error, as everywhere in Go.
	g := &gate{}
	p := build(t, g, &retrier{max: 2})
	_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { var e *quietError; return 0, e })
	require.Error(t, err)
	assert.Equal(t, []policy.Kind{policy.Failure, policy.Failure}, g.kinds())
	assert.Equal(t, uint64(1), p.Snapshot().Calls[policy.Failure])

	// A value that is retried, and cancelled during the sleep.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		typed := policy.For[int](build(t, &retrier{delay: time.Second})).Classify(func(int, error) policy.Kind { return policy.Busy })
		v, err := typed.Do(ctx, succeed)
		require.NoError(t, err, "the value is the answer that there is")
		assert.Equal(t, 42, v)
	})
}

type nosyError struct{}

func (nosyError) Error() string     { return "nosy" }
func (nosyError) Is(err error) bool { return err.Error() == "something else" }

type quietError struct{}

func (*quietError) Error() string { return "quiet" }

func TestCaseB42_CancellationIsNeutral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		p := build(t, g, policy.Timeouts{Attempt: time.Second})
		errs := []error{
			context.Canceled, fmt.Errorf("query: %w", context.Canceled),
			errors.New("driver: canceled by user"), errors.New("rpc error: code = Canceled"),
			policy.AsBusy(errBoom, 0),
		}
		for _, e := range errs {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := policy.Do(ctx, p, func(context.Context) (int, error) { cancel(); return 0, e })
			require.ErrorIs(t, err, e)
		}
		for _, k := range g.kinds() {
			assert.Equal(t, policy.Canceled, k)
		}

		// The pipeline's own timeout and the caller's deadline are timeouts, whatever
		// error the function makes of them.
		g.outcomes = nil
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for _, ctx := range []context.Context{ctx, t.Context()} {
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, errBoom })
			require.ErrorIs(t, err, errBoom)
		}
		assert.Equal(t, []policy.Kind{policy.Timeout, policy.Timeout}, g.kinds())
		assert.Equal(t, 100*time.Millisecond, g.outcomes[0].Duration)
		assert.Equal(t, time.Second, g.outcomes[1].Duration)
	})
}

func TestNestedRefusalIsNotTheDependencys(t *testing.T) {
	t.Parallel()
	outer := &gate{name: "outer"}
	po, pi := build(t, outer), build(t, &gate{name: "inner", limit: -1})
	_, err := policy.Do(t.Context(), po, func(ctx context.Context) (int, error) { return policy.Do(ctx, pi, succeed) })
	require.ErrorIs(t, err, policy.ErrRejected)
	assert.Equal(t, []policy.Kind{policy.NotRun}, outer.kinds())
}

func TestClassifyErrors(t *testing.T) {
	t.Parallel()
	g := &gate{}
	p := build(t, g, policy.ClassifyErrors(func(err error) policy.Kind {
		if errors.Is(err, errBoom) {
			return policy.Permanent
		}
		return policy.NotRun
	}), &retrier{max: 2})
	_, err := policy.Do(t.Context(), p, fail)
	require.ErrorIs(t, err, errBoom)
	_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, policy.AsThrottled(errLimit, time.Second) })
	require.ErrorIs(t, err, errLimit)
	require.Equal(t, []policy.Kind{policy.Permanent, policy.Throttled, policy.Throttled}, g.kinds())
	assert.Equal(t, time.Second, g.outcomes[1].Pushback)
}

func TestDiscardBeforeTheSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &retrier{max: 3, delay: time.Second}
		g := &gate{limit: 1, holds: true}
		p := build(t, g, r)
		var log []string
		start := time.Now()
		at := func(s string) { log = append(log, fmt.Sprintf("%v %s", time.Since(start), s)) }
		attempt := func(_ context.Context, _ int, a *policy.Attempt) (policy.Handle, error) {
			at(fmt.Sprintf("attempt %d", a.Number()))
			a.SetCode(1)
			a.SetOutcome(policy.Busy, 0)
			a.SetCode(uint16(500 + a.Number()))
			return a.Hold(), nil
		}
		h, err := policy.DoAttempt(t.Context(), p, nil, 0, attempt, func(h policy.Handle) { at("discard"); h.Release() })
		require.NoError(t, err)
		assert.Equal(t, []string{"0s attempt 1", "0s discard", "1s attempt 2", "1s discard", "2s attempt 3"}, log)
		assert.Equal(t, 1, g.held(), "the last value is the caller's, with its permit")
		h.Release()
		assert.Zero(t, g.held())

		// Discarded, and then no attempt follows: an error stands for the value.
		g.enter = func(_ context.Context, a *policy.Attempt) error {
			if a.Number() == 2 {
				return g.reject()
			}
			return nil
		}
		_, err = policy.DoAttempt(t.Context(), p, nil, 0, attempt, func(h policy.Handle) { h.Release() })
		ae, ok := errors.AsType[*policy.AnswerError](err)
		require.True(t, ok, "got %v", err)
		assert.Equal(t, policy.AnswerError{Dependency: "stock", Kind: policy.Busy, Code: 501}, *ae)
		require.ErrorIs(t, err, policy.ErrRejected)
		assert.Zero(t, g.held())

		// The code goes with what is said about the same answer only.
		_, err = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
			a.SetOutcome(policy.Busy, 0)
			return 0, nil
		}, func(int) {})
		ae, ok = errors.AsType[*policy.AnswerError](err)
		require.True(t, ok, "got %v", err)
		assert.Zero(t, ae.Code)
	})
}

func TestFallback(t *testing.T) {
	t.Parallel()
	var got []policy.FailedCall
	answer := func(v int, err error) func(context.Context, policy.FailedCall) (int, error) {
		return func(_ context.Context, f policy.FailedCall) (int, error) { got = append(got, f); return v, err }
	}
	errFall := errors.New("fallback failed")
	rec := &recorder{}
	first := &fallbackFunc[int]{name: "first", answer: answer(0, errFall)}
	skip := &fallbackFunc[int]{name: "skip", answer: answer(-1, nil), handles: func(policy.FailedCall) bool { return false }}
	second := &fallbackFunc[int]{name: "second", answer: answer(7, nil)}
	g := &gate{}
	p := build(t, g, first, skip, second, policy.Observe(rec))

	r, err := policy.DoResult(t.Context(), p, fail)
	require.NoError(t, err)
	assert.Equal(t, 7, r.Value)
	assert.True(t, r.Degraded)
	require.ErrorIs(t, r.Cause, errBoom)
	assert.Equal(t, time.Minute, r.Age)
	require.Len(t, got, 2)
	assert.Equal(t, policy.Failure, got[0].Outcome.Kind)
	assert.Equal(t, 1, got[0].Attempts)
	assert.Equal(t, []policy.Kind{policy.Failure}, g.kinds(), "the gates hear of the failure")
	assert.Equal(t, []string{"fallback", "fallback"}, rec.kinds())
	snap := p.Snapshot()
	assert.Equal(t, uint64(1), snap.Calls[policy.Failure], "a fallback hides nothing")
	assert.Equal(t, uint64(1), snap.Policies[0].Fallback.Failed)
	assert.Equal(t, uint64(1), snap.Policies[2].Fallback.Served)

	// Refused.
	g.limit = -1
	v, err := policy.Do(t.Context(), p, succeed)
	require.NoError(t, err)
	assert.Equal(t, 7, v)
	assert.Equal(t, policy.NotRun, got[3].Outcome.Kind)
	require.ErrorIs(t, got[3].Err, policy.ErrRejected)

	// Everything fails: the original error stays, the fallback's joins it.
	_, err = policy.Do(t.Context(), build(t, first), fail)
	require.ErrorIs(t, err, errBoom)
	require.ErrorIs(t, err, errFall)

	// The wrong type.
	_, err = policy.Do(t.Context(), build(t, second), func(context.Context) (string, error) { return "", errBoom })
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, ".second: answered with type int, where the call returns type string")

	// A success asks nobody.
	r, err = policy.DoResult(t.Context(), build(t, second), succeed)
	require.NoError(t, err)
	assert.Equal(t, policy.Result[int]{Value: 42}, r)
}

func TestFallbackNeverOnTheCallersOwnCancellation(t *testing.T) {
	t.Parallel()
	fb := &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { t.Error("asked"); return 0, nil }}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := policy.Do(ctx, build(t, fb), func(ctx context.Context) (int, error) { cancel(); return 0, ctx.Err() })
	require.ErrorIs(t, err, context.Canceled)
}

func TestFallbackAfterTheTotalTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var live error
		fb := &fallbackFunc[int]{answer: func(ctx context.Context, _ policy.FailedCall) (int, error) { live = ctx.Err(); return 9, nil }}
		p := build(t, fb, &retrier{}, policy.Timeouts{Total: time.Second})
		start := time.Now()
		v, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		require.NoError(t, err)
		assert.Equal(t, 9, v)
		require.NoError(t, live, "the fallback has the caller's context")
		assert.Equal(t, time.Second, time.Since(start))
	})
}

func TestTyped(t *testing.T) {
	t.Parallel()
	fb := &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return 9, nil }}
	own := &fallbackFunc[int]{name: "own", answer: func(context.Context, policy.FailedCall) (int, error) { return 1, nil }}
	p := build(t, own, &gate{})
	typed := policy.For(p, policy.Fallback[int](fb))
	require.NoError(t, typed.Err())
	v, err := typed.Do(t.Context(), fail)
	require.NoError(t, err)
	assert.Equal(t, 9, v, "the handle's fallback comes before the pipeline's")
	for range 2 { // handles of one fallback are counted together
		_, err = policy.For(p, policy.Fallback[int](fb)).Do(t.Context(), fail)
		require.NoError(t, err)
	}
	first := p.Snapshot().Policies[0]
	assert.Equal(t, "fallback", first.Name)
	assert.Equal(t, uint64(3), first.Fallback.Served)

	judged := policy.For[int](build(t, &retrier{max: 2})).Classify(func(v int, err error) policy.Kind {
		if err == nil && v < 0 {
			return policy.Busy
		}
		return policy.NotRun
	})
	calls := 0
	v, err = judged.Do(t.Context(), func(context.Context) (int, error) { calls++; return -calls, nil })
	require.NoError(t, err)
	assert.Equal(t, -2, v, "the last value, when no attempt does better")
	assert.Equal(t, uint64(1), judged.Pipeline().Snapshot().Calls[policy.Busy])

	var nilPipe *policy.Pipeline
	v, err = policy.For[int](nilPipe).Do(t.Context(), succeed)
	require.NoError(t, err)
	assert.Equal(t, 42, v)
}
