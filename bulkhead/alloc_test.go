//go:build !race

package bulkhead_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func TestAllocAdmitted(t *testing.T) {
	p := newPermits(t, bulkhead.Semaphore{Limit: 10})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if p.TryAcquire() {
			p.Release()
		}
		if p.Acquire(ctx) == nil {
			p.Release()
		}
	}))
}

func TestAllocRefused(t *testing.T) {
	p := newPermits(t, bulkhead.Semaphore{Limit: 1})
	require.True(t, p.TryAcquire())
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if p.TryAcquire() {
			t.Error("admitted")
		}
	}), "TryAcquire makes no error")
	assert.Equal(t, 1.0, testing.AllocsPerRun(1000, func() {
		if p.Acquire(t.Context()) == nil {
			t.Error("admitted")
		}
	}), "the refusal")
}

func TestAllocPipeline(t *testing.T) {
	p := newPipeline(t, bulkhead.Semaphore{Limit: 10})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, func(context.Context, int) (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
	}))
}

// A task that does nothing: what is counted is the pool's.
type nothing struct{ ctx context.Context } //nolint:containedctx // what Begin returns

func (n *nothing) Look() error            { return nil }
func (n *nothing) Begin() context.Context { return n.ctx }
func (n *nothing) Run()                   {}
func (n *nothing) Late()                  {}

func TestAllocHandOff(t *testing.T) {
	w := newWorkers(t, bulkhead.Pool{Workers: 1})
	ctx := t.Context()
	_, err := policy.DoAttempt(ctx, newPipeline(t), nil, 0, func(ctx context.Context, _ int, a *policy.Attempt) (int, error) {
		task := &nothing{ctx: ctx}
		// The average is cut to a whole number: a task that the garbage collector
		// took from the pool's store is made anew.
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			if res := w.Run(ctx, a, task); res.State != policy.RunDone {
				t.Error(res.Err)
			}
		}), "a hand-off to an idle worker")
		return 0, nil
	}, nil)
	require.NoError(t, err)
}
