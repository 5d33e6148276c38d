package fallback_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// memory is a queue that keeps tasks for as long as the process lives.
type memory struct {
	err error

	mu    sync.Mutex
	tasks []fallback.Task
}

func (m *memory) Enqueue(ctx context.Context, t fallback.Task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if errors.Is(m.err, context.DeadlineExceeded) {
		<-ctx.Done()
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks = append(m.tasks, t)
	return m.err
}

func (m *memory) DeferSnapshot() policy.DeferSnapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return policy.DeferSnapshot{Accepted: uint64(len(m.tasks)), Connected: true}
}

type receipt struct{ ID, State string }

func accepted(t fallback.Task) receipt { return receipt{t.Key, "accepted"} }

func fallible(err error) func(context.Context) (receipt, error) {
	return func(context.Context) (receipt, error) { return receipt{ID: "1", State: "done"}, err }
}

func TestDeferHandsOver(t *testing.T) {
	t.Parallel()
	q := &memory{}
	later := fallback.Defer[receipt]{Queue: q, Accepted: accepted}
	task := fallback.Task{Kind: "order.create", Key: "order-1", Payload: []byte(`{"sku":7}`)}
	ctx := fallback.WithTask(t.Context(), task)

	p := newPipeline(t)
	orders := policy.For(p, later)
	r, err := orders.DoResult(ctx, fallible(nil))
	require.NoError(t, err)
	assert.False(t, r.Degraded)
	assert.Empty(t, q.tasks, "what succeeds is not deferred")

	r, err = orders.DoResult(ctx, fallible(errDown))
	require.NoError(t, err)
	assert.Equal(t, policy.Result[receipt]{Value: receipt{"order-1", "accepted"}, Degraded: true, Cause: errDown}, r)
	assert.Equal(t, []fallback.Task{task}, q.tasks)
	ps := p.Snapshot().Policies[0]
	assert.Equal(t, "defer", ps.Name)
	assert.Equal(t, "defer", ps.Kind)
	assert.EqualValues(t, 1, ps.Fallback.Served)
	assert.Equal(t, policy.DeferSnapshot{Accepted: 1, Connected: true}, *ps.Fallback.Defer)

	_, err = orders.DoResult(ctx, fallible(policy.AsPermanent(errDown)))
	require.ErrorIs(t, err, errDown, "bad input is not better later")
	assert.Len(t, q.tasks, 1)

	untyped := newPipeline(t, later)
	v, err := policy.Do(ctx, untyped, fallible(errDown))
	require.NoError(t, err)
	assert.Equal(t, "accepted", v.State)
	assert.EqualValues(t, 2, untyped.Snapshot().Policies[0].Fallback.Defer.Accepted)
}

func TestDeferMakesItsTask(t *testing.T) {
	t.Parallel()
	errEncode := errors.New("encode")
	q := &memory{}
	tests := []struct {
		name string
		d    fallback.Defer[receipt]
		ctx  context.Context //nolint:containedctx // a test's input
		want string
	}{
		{name: "made", d: fallback.Defer[receipt]{Task: func(_ context.Context, f policy.FailedCall) (fallback.Task, error) {
			return fallback.Task{Kind: f.Dependency, Key: "k"}, nil
		}}},
		{name: "not made", d: fallback.Defer[receipt]{Task: func(context.Context, policy.FailedCall) (fallback.Task, error) {
			return fallback.Task{}, errEncode
		}}, want: "encode"},
		{name: "none", want: "carries no task"},
		{name: "no key", ctx: fallback.WithTask(t.Context(), fallback.Task{Kind: "a"}), want: `task.Key: "": want 1 to 255 bytes`},
		{name: "bad kind", ctx: fallback.WithTask(t.Context(), fallback.Task{Kind: "a\n", Key: "k"}), want: `task.Kind: "\"a\\n\"": want`},
		{name: "long kind", ctx: fallback.WithTask(t.Context(), fallback.Task{Kind: strings.Repeat("a", 129), Key: "k"}), want: "task.Kind"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.d.Queue = q
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			_, err := policy.For(newPipeline(t), tt.d).Do(ctx, fallible(errDown))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, errDown)
			require.ErrorContains(t, err, strings.ReplaceAll(tt.want, `"\"a\\n\""`, `"a\n"`))
		})
	}
}

func TestDeferFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errFull := errors.New("queue full")
		ctx := fallback.WithTask(t.Context(), fallback.Task{Kind: "a", Key: "k"})
		p := newPipeline(t, fallback.Defer[receipt]{Queue: &memory{err: errFull}})
		_, err := policy.Do(ctx, p, fallible(errDown))
		require.ErrorIs(t, err, errDown)
		require.ErrorIs(t, err, errFull)
		assert.EqualValues(t, 1, p.Snapshot().Policies[0].Fallback.Failed)

		// A queue that hangs costs the Timeout.
		slow := newPipeline(t, fallback.Defer[receipt]{Queue: &memory{err: context.DeadlineExceeded}})
		start := time.Now()
		_, err = policy.Do(ctx, slow, fallible(errDown))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// The caller's deadline is what ended the call; the hand-over has its own.
func TestDeferOutlivesDeadlineAndCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &memory{}
		base := fallback.WithTask(t.Context(), fallback.Task{Kind: "a", Key: "k"})
		ctx, cancel := context.WithTimeout(base, time.Second)
		defer cancel()
		hang := func(ctx context.Context) (receipt, error) { <-ctx.Done(); return receipt{}, ctx.Err() }
		_, err := policy.Do(ctx, newPipeline(t, fallback.Defer[receipt]{Queue: q}), hang)
		require.NoError(t, err)
		assert.Len(t, q.tasks, 1)

		gone, leave := context.WithCancel(base)
		leave()
		_, err = policy.Do(gone, newPipeline(t, fallback.Defer[receipt]{Queue: q}), hang)
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, q.tasks, 1, "not asked")
		_, err = policy.Do(gone, newPipeline(t, fallback.Defer[receipt]{Queue: q, AfterCancel: true}), hang)
		require.NoError(t, err)
		assert.Len(t, q.tasks, 2)
	})
}

// What admits a hand-over does not end with the caller's deadline either.
func TestDeferGateOutlivesDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate, err := bulkhead.New("", bulkhead.Semaphore{})
		require.NoError(t, err)
		q := &memory{}
		p := newPipeline(t, fallback.Defer[receipt]{Queue: q, Gate: gate})
		ctx, cancel := context.WithTimeout(fallback.WithTask(t.Context(), fallback.Task{Kind: "a", Key: "k"}), time.Second)
		defer cancel()
		_, err = policy.Do(ctx, p, func(ctx context.Context) (receipt, error) { <-ctx.Done(); return receipt{}, ctx.Err() })
		require.NoError(t, err)
		assert.Len(t, q.tasks, 1)
	})
}

func TestDeferValidate(t *testing.T) {
	t.Parallel()
	_, err := policy.New("orders", fallback.Defer[receipt]{Timeout: -1})
	require.ErrorContains(t, err, "orders.defer.Queue: want a queue, not nil")
	require.ErrorContains(t, err, "orders.defer.Timeout: -1ns: at least 0 (0 means 1s)")
	_, err = policy.New("orders", fallback.Defer[receipt]{Queue: (*memory)(nil)})
	require.ErrorContains(t, err, "orders.defer.Queue")
	h := policy.For(newPipeline(t), fallback.Defer[receipt]{})
	require.ErrorContains(t, h.Err(), "defer.Queue")
	_, err = h.Do(t.Context(), fallible(errDown))
	require.ErrorIs(t, err, errDown)
}
