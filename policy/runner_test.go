package policy_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// worker is a Runner with one worker and a queue.
type worker struct {
	busy chan struct{}
	wg   sync.WaitGroup
	full bool
}

func newWorker() *worker { return &worker{busy: make(chan struct{}, 1)} }

func (w *worker) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "worker", Runner: w, Waits: true}, nil
}

func (w *worker) Peek(*policy.Attempt) error {
	if w.full {
		return &policy.RejectedError{Reason: policy.ReasonWaiters}
	}
	return nil
}

func (w *worker) Run(ctx context.Context, _ *policy.Attempt, t policy.Task) policy.RunResult {
	select {
	case w.busy <- struct{}{}:
	case <-ctx.Done():
		return policy.RunResult{Err: ctx.Err()}
	}
	var (
		mu       sync.Mutex
		left     bool
		began    = make(chan context.Context, 1)
		finished = make(chan policy.RunResult, 1)
	)
	w.wg.Go(func() {
		defer func() { <-w.busy }()
		if err := t.Look(); err != nil {
			finished <- policy.RunResult{Err: err}
			return
		}
		res := policy.RunResult{State: policy.RunDone, Err: policy.ErrGoexit}
		defer func() {
			if v := recover(); v != nil {
				res.Err = &policy.PanicError{Value: v, Stack: debug.Stack()}
			}
			mu.Lock()
			defer mu.Unlock()
			if left {
				t.Late()
			} else {
				finished <- res
			}
		}()
		began <- t.Begin()
		t.Run()
		res.Err = nil
	})
	select {
	case res := <-finished:
		return res
	case bound := <-began:
		select {
		case res := <-finished:
			return res
		case <-bound.Done():
			mu.Lock()
			defer mu.Unlock()
			select {
			case res := <-finished:
				return res
			default:
				left = true
				return policy.RunResult{State: policy.RunAbandoned, Err: bound.Err()}
			}
		}
	}
}

func TestRunnerRunsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorker(), &gate{}
		p := build(t, w, g, &retrier{max: 2}, policy.Timeouts{Attempt: time.Second})
		v, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		assert.Equal(t, 42, v)
		_, err = policy.Do(t.Context(), p, fail)
		require.ErrorIs(t, err, errBoom)
		assert.Equal(t, []policy.Kind{policy.Success, policy.Failure, policy.Failure}, g.kinds())
		_, err = p.Enter(t.Context())
		require.ErrorIs(t, err, policy.ErrPooled)

		// Time in the queue is nobody's.
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(800 * time.Millisecond); return 0, nil })
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		for _, o := range g.outcomes[3:] {
			assert.Equal(t, 800*time.Millisecond, o.Duration)
		}

		w.full = true
		_, err = policy.Do(t.Context(), p, succeed)
		re, ok := errors.AsType[*policy.RejectedError](err)
		require.True(t, ok, "got %v", err)
		assert.Equal(t, "worker", re.Policy)
		snap := p.Snapshot()
		last := snap.Policies[len(snap.Policies)-1]
		assert.Equal(t, "worker", last.Name)
		assert.Equal(t, uint64(1), last.Rejected[policy.ReasonWaiters])
		w.wg.Wait()
	})
}

func TestRunnerAbandons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorker(), &gate{holds: true}
		p := build(t, w, g, policy.Timeouts{Attempt: time.Second})
		var discarded atomic.Int32
		stubborn := func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
			time.Sleep(time.Minute)
			a.SetOutcome(policy.Success, 0)
			a.Hold()
			return 1, nil
		}
		start := time.Now()
		_, err := policy.DoAttempt(t.Context(), p, nil, 0, stubborn, func(int) { discarded.Add(1) })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, []policy.Kind{policy.Timeout}, g.kinds(), "the gates are left at once")
		assert.Equal(t, time.Second, g.outcomes[0].Duration)
		assert.Zero(t, discarded.Load())

		// While the worker is taken, a caller waits no longer than its context.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = policy.Do(ctx, p, succeed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, policy.NotRun, g.kinds()[1], "it never ran")

		w.wg.Wait()
		assert.Equal(t, int32(1), discarded.Load(), "the late value is disposed of")
		assert.Zero(t, g.held())
		v, err := policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		assert.Equal(t, 42, v)
		w.wg.Wait()
	})
}

func TestRunnerPanicAndGoexit(t *testing.T) {
	t.Parallel()
	w, g := newWorker(), &gate{}
	p := build(t, w, g)
	func() {
		defer func() {
			pe, ok := recover().(*policy.PanicError)
			if assert.True(t, ok) {
				assert.Equal(t, "deep", pe.Value)
				assert.Contains(t, string(pe.Stack), "deepInTheFunction")
			}
		}()
		_, _ = policy.Do(t.Context(), p, deepInTheFunction)
	}()
	_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
	require.ErrorIs(t, err, policy.ErrGoexit)
	assert.Equal(t, []policy.Kind{policy.Failure, policy.Failure}, g.kinds())
	w.wg.Wait()
	assert.Zero(t, g.held())
}

func TestRunnerLooksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorker(), &changeable{}
		p := build(t, w, g)
		first := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { <-first; return 0, nil })
			assert.NoError(t, err)
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
			re, ok := errors.AsType[*policy.RejectedError](err)
			if assert.True(t, ok, "got %v", err) {
				assert.Equal(t, "changeable", re.Policy, "the gate refused, not the pool")
			}
		})
		synctest.Wait()
		g.changed = true
		close(first)
		wg.Wait()
		w.wg.Wait()
		assert.Zero(t, g.held())
		assert.Contains(t, g.kinds(), policy.NotRun)
		for _, ps := range p.Snapshot().Policies {
			var n uint64
			for _, c := range ps.Rejected {
				n += c
			}
			want := uint64(0)
			if ps.Name == "changeable" {
				want = 1
			}
			assert.Equal(t, want, n, "refusals by %s", ps.Name)
		}
	})
}

// A function that panics when its caller has left has no value to dispose of.
func TestRunnerDiscardsNoValueOfAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		p := build(t, w, policy.Timeouts{Attempt: time.Second})
		for _, end := range []func(){func() { panic("late") }, runtime.Goexit} {
			_, err := policy.DoAttempt(t.Context(), p, nil, 0, func(context.Context, int, *policy.Attempt) (*int, error) {
				time.Sleep(time.Minute)
				end()
				return nil, nil
			}, func(v *int) { t.Errorf("discards %v", v) })
			require.ErrorIs(t, err, context.DeadlineExceeded)
			w.wg.Wait()
		}
	})
}

// hasty is a Runner whose function is over, and disposed of, before its caller has
// classified why it left.
type hasty struct{}

func (h hasty) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "hasty", Runner: h}, nil
}

func (hasty) Peek(*policy.Attempt) error { return nil }

func (hasty) Run(ctx context.Context, _ *policy.Attempt, t policy.Task) policy.RunResult {
	t.Begin()
	<-ctx.Done()
	t.Run()
	t.Late()
	return policy.RunResult{State: policy.RunAbandoned, Err: ctx.Err()}
}

func TestRunnerLateKeepsTheReasonForLeaving(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		p := build(t, hasty{}, g, policy.Timeouts{Attempt: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := policy.Do(ctx, p, succeed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, []policy.Kind{policy.Timeout}, g.kinds())
	})
}

// changeable is a gate that may refuse an attempt after it was queued.
type changeable struct {
	gate
	changed bool
}

func (c *changeable) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "changeable", Gate: c}, nil
}

func (c *changeable) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	err := c.gate.Enter(ctx, a, slot)
	a.Slot(slot).Ref = &c.gate
	return err
}

func (c *changeable) Recheck(*policy.Attempt, int) error {
	if c.changed {
		return c.reject()
	}
	return nil
}

// What a budget is a share of are attempts that reached the dependency: one that its
// pool refused did not.
func TestRunnerRefusalIsNoFirstAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, r := newWorker(), &retrier{max: 2}
		p := build(t, w, r)
		w.busy <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := policy.Do(ctx, p, succeed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, r.firsts)
		<-w.busy
		_, err = policy.Do(t.Context(), p, succeed)
		require.NoError(t, err)
		assert.Equal(t, 1, r.firsts)
		w.wg.Wait()
	})
}

func TestRunnerHoldEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		p := build(t, w, policy.Timeouts{Attempt: time.Second})
		h, err := policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (policy.Handle, error) {
			return a.Hold(), nil
		}, nil)
		require.NoError(t, err)
		w.wg.Wait()
		time.Sleep(time.Minute)
		require.NoError(t, h.Context().Err(), "the timeout does not reach beyond the call")
		h.Release()
		require.ErrorIs(t, h.Context().Err(), context.Canceled)
	})
}
