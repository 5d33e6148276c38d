package policy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

func TestEnterCallSaysWhatTheCallIs(t *testing.T) {
	t.Parallel()
	var keys []string
	p := build(t, &gate{enter: func(_ context.Context, a *policy.Attempt) error {
		keys = append(keys, a.Call().Key)
		return nil
	}})
	ctx := policy.WithCall(t.Context(), policy.Call{Key: "of the context"})
	for _, c := range []*policy.Call{{Key: "own"}, nil} {
		h, err := p.EnterCall(ctx, c)
		require.NoError(t, err)
		assert.Equal(t, "of the context", policy.CallFrom(h.Context()).Key, "the context stays as it is")
		assert.False(t, h.Bounded())
		assert.True(t, h.Leave(nil))
	}
	assert.Equal(t, []string{"own", "of the context"}, keys)

	var none *policy.Pipeline
	h, err := none.EnterCall(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, ctx, h.Context())
	assert.False(t, h.Bounded())
}

// A total timeout counts from the beginning, and ends with the outcome.
func TestEnterCallTotal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		waits := &gate{waits: true, enter: func(context.Context, *policy.Attempt) error {
			time.Sleep(time.Second)
			return nil
		}}
		p := build(t, waits, policy.Timeouts{Total: 3 * time.Second, Attempt: time.Minute})
		h, err := p.EnterCall(t.Context(), nil)
		require.NoError(t, err)
		assert.True(t, h.Bounded())
		deadline, ok := h.Context().Deadline()
		require.True(t, ok)
		assert.Equal(t, 2*time.Second, time.Until(deadline))
		<-h.Context().Done()
		require.ErrorIs(t, h.Context().Err(), context.DeadlineExceeded)
		assert.Equal(t, deadline, time.Now())
		assert.True(t, h.Leave(h.Context().Err()))
		assert.Equal(t, uint64(1), p.Snapshot().Attempts[policy.Timeout])

		h, err = p.EnterCall(t.Context(), nil)
		require.NoError(t, err)
		assert.True(t, h.Settle(policy.Success, 0))
		_, ok = h.Context().Deadline()
		assert.False(t, ok)
		time.Sleep(time.Hour)
		require.NoError(t, h.Context().Err(), "what follows has no deadline of ours")
		h.Release()
		require.ErrorIs(t, h.Context().Err(), context.Canceled, "and ends with the handle")

		plain, err := p.Enter(t.Context())
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.NoError(t, plain.Context().Err(), "Enter leaves the total timeout to its caller")
		plain.Release()
	})
}

// Whoever is refused, or panics in a gate, leaves no timer behind.
func TestEnterCallTotalEndsWithARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var bound context.Context
		p := build(t, &gate{limit: -1, enter: func(ctx context.Context, _ *policy.Attempt) error {
			bound = ctx //nolint:fatcontext // to look at it
			return nil
		}}, policy.Timeouts{Total: time.Hour})
		_, err := p.EnterCall(t.Context(), nil)
		require.ErrorIs(t, err, policy.ErrRejected)
		require.ErrorIs(t, bound.Err(), context.Canceled)

		p = build(t, &gate{enter: func(ctx context.Context, _ *policy.Attempt) error {
			bound = ctx //nolint:fatcontext // to look at it
			panic("boom")
		}}, policy.Timeouts{Total: time.Hour})
		assert.Panics(t, func() { _, _ = p.EnterCall(t.Context(), nil) })
		require.ErrorIs(t, bound.Err(), context.Canceled)
		assert.Equal(t, uint64(1), p.Snapshot().Panics)
	})
}
