package bulkhead_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// The caller goes when its context ends, the worker stays until the function returns.
func TestWorkersAbandon(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user has closed the tab")
	tests := []struct {
		name     string
		timeouts policy.Timeouts
		ctx      func(context.Context) (context.Context, context.CancelFunc)
		want     error
		kind     policy.Kind
	}{
		{
			name: "caller's deadline", want: context.DeadlineExceeded, kind: policy.Timeout,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Second)
			},
		},
		{name: "attempt timeout", timeouts: policy.Timeouts{Attempt: time.Second}, want: context.DeadlineExceeded, kind: policy.Timeout},
		{name: "total timeout", timeouts: policy.Timeouts{Total: time.Second}, want: context.DeadlineExceeded, kind: policy.Timeout},
		{
			name: "cancelled with a cause", want: cause, kind: policy.Canceled,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			},
		},
		{
			name: "both timeouts", timeouts: policy.Timeouts{Attempt: 30 * time.Second}, want: cause, kind: policy.Canceled,
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Second, func() { cancel(cause) })
				return ctx, func() { cancel(nil) }
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue})
				p := newPipeline(t, w, tt.timeouts)
				ctx := t.Context()
				if tt.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tt.ctx(ctx)
					defer cancel()
				}
				start := time.Now()
				_, err := policy.Do(ctx, p, deaf(time.Minute))
				require.ErrorIs(t, err, tt.want)
				assert.Equal(t, time.Second, time.Since(start), "the caller does not wait for the function")
				assert.EqualValues(t, 1, p.Snapshot().Attempts[tt.kind])
				b := state(w)
				assert.Equal(t, 1, b.InFlight, "the slot stays taken")
				assert.Equal(t, 1, b.Orphans)
				assert.EqualValues(t, 1, b.Abandoned)
				assert.Zero(t, b.Completed)
				_, err = policy.Do(t.Context(), p, hold(0))
				assert.Equal(t, policy.ReasonConcurrency, reasonOf(t, err), "and is nobody else's")

				time.Sleep(59 * time.Second)
				synctest.Wait()
				assert.Equal(t, time.Minute, state(w).Run.Sum, "the function is timed, its caller there or not")
				atRest(t, w)
				_, err = policy.Do(t.Context(), p, hold(0))
				require.NoError(t, err, "the slot is free again")
			})
		})
	}
}

// A result and the end of the context at one instant: the caller gets the one or the
// other, and the slot is free in either case.
func TestWorkersResultWhileLeaving(t *testing.T) {
	t.Parallel()
	done := 0
	const rounds = 200
	for i := range rounds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue})
			policies := []policy.Policy{w}
			ctx := t.Context()
			if i%2 == 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			} else {
				policies = append(policies, policy.Timeouts{Attempt: time.Second})
			}
			p := newPipeline(t, policies...)
			_, err := policy.Do(ctx, p, deaf(time.Second))
			if err == nil {
				done++
			} else {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
			synctest.Wait()
			atRest(t, w)
			_, err = policy.Do(t.Context(), p, hold(0))
			require.NoError(t, err)
		})
	}
	t.Logf("%d of %d got the result", done, rounds)
}

func TestWorkersDiscardLateValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 2})
		p := newPipeline(t, w, policy.Timeouts{Attempt: time.Second})
		var discarded []int
		call := func(fn func() int, discard func(int)) {
			_, err := policy.DoAttempt(t.Context(), p, nil, 0, func(context.Context, int, *policy.Attempt) (int, error) {
				time.Sleep(time.Minute)
				return fn(), nil
			}, discard)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			synctest.Wait()
			atRest(t, w)
		}
		call(func() int { return 7 }, func(v int) { discarded = append(discarded, v) })
		assert.Equal(t, []int{7}, discarded)

		// What nobody is there to be told of is counted, and does no harm.
		call(func() int { panic("late") }, func(int) { t.Error("there is no value") })
		assert.EqualValues(t, 1, state(w).OrphanPanics)
		call(func() int { return 8 }, func(int) { panic("in the discard function") })
		assert.EqualValues(t, 2, state(w).OrphanPanics)
		call(func() int { runtime.Goexit(); return 0 }, func(int) { t.Error("there is no value") })
		call(func() int { return 9 }, func(int) { runtime.Goexit() })
		assert.EqualValues(t, 2, state(w).OrphanPanics)
		assert.EqualValues(t, 5, state(w).Abandoned)
		_, err := policy.Do(t.Context(), p, hold(0))
		require.NoError(t, err)
	})
}

// deepInTheFunction is looked for in the stack of a panic.
//
//go:noinline
func deepInTheFunction(context.Context) (int, error) { panic("deep") }

func TestWorkersPanic(t *testing.T) {
	t.Parallel()
	w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue})
	p := newPipeline(t, w)
	raised := func(fn func(context.Context) (int, error)) (pe *policy.PanicError) {
		defer func() {
			var ok bool
			pe, ok = recover().(*policy.PanicError)
			assert.True(t, ok, "the caller's panic is a PanicError")
		}()
		_, _ = policy.Do(t.Context(), p, fn)
		t.Error("the panic did not reach the caller")
		return nil
	}
	pe := raised(deepInTheFunction)
	require.NotNil(t, pe)
	assert.Equal(t, "deep", pe.Value)
	assert.Contains(t, string(pe.Stack), "deepInTheFunction", "it says where")
	boom := errors.New("boom")
	pe = raised(func(context.Context) (int, error) { panic(boom) })
	require.ErrorIs(t, pe, boom)
	assert.Equal(t, 1, state(w).Workers, "a panic does not end the worker")
	assert.EqualValues(t, 2, p.Snapshot().Panics)
	atRest(t, w)
}

// angry is a gate that panics when it is asked again.
type angry struct{ spy }

func (g *angry) Recheck(*policy.Attempt, int) error { panic("recheck") }
func (g *angry) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "angry", Gate: g, Place: policy.PlaceBreaker}, nil
}

func TestWorkersPanicOfAGate(t *testing.T) {
	t.Parallel()
	w, g := newWorkers(t, bulkhead.Pool{Workers: 1}), &angry{}
	p := newPipeline(t, w, g)
	assert.Panics(t, func() { _, _ = policy.Do(t.Context(), p, hold(0)) }, "it goes on in the caller")
	assert.Len(t, g.durations, 1, "the gate was left")
	atRest(t, w)
}

func TestWorkersGoexit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: 3, MinWorkers: 1, MaxWait: time.Hour})
		p := newPipeline(t, w)
		quit := func(context.Context) (int, error) { time.Sleep(time.Second); runtime.Goexit(); return 0, nil }
		var wg sync.WaitGroup
		for range 4 { // one runs, three are in the queue
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, quit)
				assert.ErrorIs(t, err, policy.ErrGoexit)
				assert.NotErrorIs(t, err, policy.ErrRejected)
			})
		}
		wg.Wait()
		assert.Equal(t, 1, state(w).Workers, "the worker was replaced each time")
		_, err := policy.Do(t.Context(), p, hold(0))
		require.NoError(t, err)
		atRest(t, w)
	})
}

// pensive is a gate that takes a second to be asked again.
type pensive struct{ spy }

func (g *pensive) Recheck(*policy.Attempt, int) error { time.Sleep(time.Second); return nil }
func (g *pensive) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "pensive", Gate: g, Place: policy.PlaceBreaker}, nil
}

// A caller that wants to leave while a worker asks the gates again waits for that,
// since they use its attempt; the function is not begun.
func TestWorkersLeaveBeforeTheFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorkers(t, bulkhead.Pool{Workers: 1}), &pensive{}
		p := newPipeline(t, w, g)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := policy.Do(ctx, p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Len(t, g.durations, 1, "the gate was left")
		b := state(w)
		assert.EqualValues(t, 1, b.Expired)
		assert.Zero(t, b.Completed)
		assert.Zero(t, b.Abandoned)
		atRest(t, w)
	})
}
