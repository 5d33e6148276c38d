package bulkhead_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// newWorkers returns live workers that are closed with the test.
func newWorkers(t *testing.T, cfg bulkhead.Pool) *bulkhead.Workers {
	t.Helper()
	w, err := bulkhead.NewPool("", cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		// context.WithoutCancel: the test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
		defer cancel()
		assert.NoError(t, w.Close(ctx))
	})
	return w
}

func state(w *bulkhead.Workers) policy.BulkheadSnapshot {
	return *w.Snapshot(time.Now()).Bulkhead
}

// atRest asserts that nothing runs and nobody waits.
func atRest(t *testing.T, w *bulkhead.Workers) {
	t.Helper()
	b := state(w)
	assert.Zero(t, b.InFlight, "in flight")
	assert.Zero(t, b.Waiting, "waiting")
	assert.Zero(t, b.Orphans, "orphans")
	assert.Equal(t, b.Workers, b.Idle, "workers that are not idle")
	assert.Equal(t, b.Completed, b.Run.Count(), "every function that ended was timed")
}

// deaf returns a function for policy.Do that takes d and does not heed its context.
func deaf(d time.Duration) func(context.Context) (int, error) { return hold(d) }

func TestWorkersRunCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 2, Queue: 1})
		p := newPipeline(t, w)
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		v, err := policy.Do(ctx, p, func(ctx context.Context) (any, error) { return ctx.Value(key{}), nil })
		require.NoError(t, err)
		assert.Equal(t, "value", v, "the function has the caller's context")
		boom := errors.New("boom")
		_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, boom })
		require.ErrorIs(t, err, boom)
		s := p.Snapshot()
		assert.EqualValues(t, 1, s.Attempts[policy.Success])
		assert.EqualValues(t, 1, s.Attempts[policy.Failure])
		assert.Equal(t, 1, state(w).Workers, "one worker was enough for both")
		assert.EqualValues(t, 2, state(w).Completed)
		atRest(t, w)
	})
}

func TestWorkersAbort(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		cfg    bulkhead.Pool
		fill   int
		reason policy.Reason
	}{
		{name: "queue full", cfg: bulkhead.Pool{Workers: 2, Queue: 3, MaxWait: time.Hour}, fill: 5, reason: policy.ReasonWaiters},
		{name: "no queue", cfg: bulkhead.Pool{Workers: 2, Queue: bulkhead.NoQueue}, fill: 2, reason: policy.ReasonConcurrency},
		{name: "queue like workers", cfg: bulkhead.Pool{Workers: 2, MaxWait: time.Hour}, fill: 4, reason: policy.ReasonWaiters},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorkers(t, tt.cfg)
				p := newPipeline(t, w)
				var wg sync.WaitGroup
				for range tt.fill {
					wg.Go(func() {
						_, err := policy.Do(t.Context(), p, hold(time.Second))
						assert.NoError(t, err)
					})
				}
				synctest.Wait()
				start := time.Now()
				_, err := policy.Do(t.Context(), p, hold(0))
				assert.Equal(t, tt.reason, reasonOf(t, err))
				assert.EqualError(t, err, "inventory: rejected by pool ("+tt.reason.String()+")")
				assert.Zero(t, time.Since(start), "a refusal takes no time")
				assert.Equal(t, tt.fill-2, state(w).Waiting)
				assert.Equal(t, 2, state(w).InFlight)
				wg.Wait()
				ps := p.Snapshot().Policies[0]
				assert.EqualValues(t, 1, ps.Rejected[tt.reason])
				assert.Equal(t, "pool", ps.Kind)
				assert.Equal(t, 2, ps.Bulkhead.HighWater)
				assert.EqualValues(t, tt.fill-2, ps.Bulkhead.Wait.Count(), "of those that stood in the queue")
				atRest(t, w)
			})
		})
	}
}

// While another gate may wait, a pool that is sure to refuse is asked before.
func TestWorkersPeek(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		cfg    bulkhead.Pool
		fill   int
		prio   policy.Priority
		refuse bool
	}{
		{name: "worker free", cfg: bulkhead.Pool{Workers: 2, Queue: 1}, fill: 1},
		{name: "place free", cfg: bulkhead.Pool{Workers: 1, Queue: 2}, fill: 2},
		{name: "full", cfg: bulkhead.Pool{Workers: 1, Queue: 1}, fill: 2, refuse: true},
		{name: "full, and matters more", cfg: bulkhead.Pool{Workers: 1, Queue: 1}, fill: 2, prio: policy.PriorityHigh},
		{name: "no queue", cfg: bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue}, fill: 1, prio: policy.PriorityHigh, refuse: true},
		{name: "caller runs", cfg: bulkhead.Pool{Workers: 1, Queue: 1, WhenFull: bulkhead.CallerRuns}, fill: 2},
		{name: "stale calls may be shed", cfg: bulkhead.Pool{Workers: 1, Queue: 1, CoDel: bulkhead.CoDel{Target: time.Millisecond}}, fill: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				front, w := &slow{}, newWorkers(t, tt.cfg)
				p, back := newPipeline(t, front, w), newPipeline(t, w)
				var wg sync.WaitGroup
				for range tt.fill {
					wg.Go(func() { _, _ = policy.Do(t.Context(), back, hold(time.Second)) })
					synctest.Wait()
				}
				wg.Go(func() { _, _ = policy.Do(policy.WithPriority(t.Context(), tt.prio), p, hold(0)) })
				synctest.Wait()
				assert.Equal(t, tt.refuse, front.entered == 0, "refused before the gate in front was entered")
				wg.Wait()
			})
		})
	}
}

func TestWorkersQueue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		busy     time.Duration // how long the one worker is
		deadline time.Duration // of the waiting caller; 0 is none
		cancel   time.Duration // when it gives up; 0 is never
		reason   policy.Reason
		err      error
		at       time.Duration
		expired  bool
	}{
		{name: "served", busy: 30 * time.Millisecond, at: 30 * time.Millisecond},
		{name: "too late", busy: time.Second, reason: policy.ReasonWait, at: 100 * time.Millisecond},
		{name: "deadline first", busy: time.Second, deadline: 40 * time.Millisecond, err: context.DeadlineExceeded, at: 40 * time.Millisecond, expired: true},
		{name: "deadline far", busy: time.Second, deadline: 400 * time.Millisecond, reason: policy.ReasonWait, at: 100 * time.Millisecond},
		{name: "cancelled", busy: time.Second, cancel: 20 * time.Millisecond, err: context.Canceled, at: 20 * time.Millisecond, expired: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: 1, MaxWait: 100 * time.Millisecond})
				p := newPipeline(t, w)
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = policy.Do(t.Context(), p, hold(tt.busy)) })
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				start, ran := time.Now(), false
				_, err := policy.Do(ctx, p, func(context.Context) (int, error) { ran = true; return 1, nil })
				assert.Equal(t, tt.at, time.Since(start), "end of the wait")
				switch {
				case tt.err != nil:
					require.ErrorIs(t, err, tt.err)
					require.NotErrorIs(t, err, policy.ErrRejected)
				case tt.reason != 0:
					assert.Equal(t, tt.reason, reasonOf(t, err))
				default:
					require.NoError(t, err)
				}
				wg.Wait()
				assert.Equal(t, err == nil, ran, "work that was given up is never begun")
				b := state(w)
				assert.Equal(t, tt.expired, b.Expired == 1, "expired")
				assert.EqualValues(t, 1, b.Wait.Count())
				assert.Equal(t, tt.at, b.Wait.Sum)
				atRest(t, w)
			})
		})
	}
}

// A task whose caller has gone without having noticed yet is dropped by the worker.
func TestWorkersDropBeforeTheStart(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: 1, MaxWait: time.Hour})
			p := newPipeline(t, w)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
					time.Sleep(time.Second)
					cancel() // and the worker is free in the same moment
					return 0, nil
				})
				assert.NoError(t, err)
			})
			synctest.Wait()
			wg.Go(func() {
				_, err := policy.Do(ctx, p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
				assert.ErrorIs(t, err, context.Canceled)
			})
			wg.Wait()
			assert.EqualValues(t, 1, state(w).Expired)
			atRest(t, w)
		})
	}
}

func TestWorkersCallerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue, WhenFull: bulkhead.CallerRuns})
		p := newPipeline(t, w, policy.Timeouts{Attempt: time.Second})
		require.Len(t, p.Warnings(), 1)
		assert.Contains(t, p.Warnings()[0], "CallerRuns")
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = policy.Do(t.Context(), p, deaf(time.Minute)) })
		synctest.Wait()

		v, err := policy.Do(t.Context(), p, hold(10*time.Millisecond))
		require.NoError(t, err)
		assert.Equal(t, 1, v)
		assert.PanicsWithValue(t, "x", func() {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic("x") })
		}, "a panic in the caller is the caller's own")
		// The trap: the attempt's timeout does not free a caller that is at work.
		start := time.Now()
		_, err = policy.Do(t.Context(), p, deaf(time.Minute))
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(start))
		wg.Wait()
		b := state(w)
		assert.EqualValues(t, 3, b.CallerRan)
		assert.Equal(t, 1, b.HighWater, "it is not on a worker")
		atRest(t, w)
	})
}

// The breaker's word counts again when the task leaves the queue.
func TestWorkersLookAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorkers(t, bulkhead.Pool{Workers: 1, MaxWait: time.Hour}), &fickle{}
		p := newPipeline(t, w, g)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
				time.Sleep(time.Second)
				g.open.Store(true)
				return 0, nil
			})
			assert.NoError(t, err)
		})
		synctest.Wait()
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		re, ok := errors.AsType[*policy.RejectedError](err)
		require.True(t, ok, "got %v", err)
		assert.Equal(t, policy.ReasonOpen, re.Reason)
		assert.Equal(t, "fickle", re.Policy)
		wg.Wait()
		atRest(t, w)
	})
}

// fickle is a gate that may refuse what it has let in.
type fickle struct {
	spy
	open atomic.Bool
}

func (g *fickle) Recheck(*policy.Attempt, int) error {
	if g.open.Load() {
		return &policy.RejectedError{Reason: policy.ReasonOpen}
	}
	return nil
}

func (g *fickle) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "fickle", Gate: g, Place: policy.PlaceBreaker}, nil
}

func TestWorkersServeByPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: 5, MaxWait: time.Hour})
		p := newPipeline(t, w)
		var served []int
		var wg sync.WaitGroup
		told := make([]error, 7)
		for i, prio := range []policy.Priority{
			policy.PriorityNormal, // runs at once
			policy.PriorityLow, policy.PriorityNormal, policy.PriorityHigh, policy.PriorityNormal, policy.PriorityLow,
			policy.PriorityCritical, // takes the place of the last that matters least
		} {
			wg.Go(func() {
				_, told[i] = policy.Do(policy.WithPriority(t.Context(), prio), p, func(context.Context) (int, error) {
					served = append(served, i) // one worker: one at a time
					time.Sleep(time.Second)
					return 0, nil
				})
			})
			synctest.Wait()
		}
		wg.Wait()
		assert.Equal(t, []int{0, 6, 3, 2, 4, 1}, served)
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, told[5]))
		atRest(t, w)
	})
}
