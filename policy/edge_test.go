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

// What a retry policy measures a call from is its beginning, not the end of its first
// attempt.
func TestCallBeginsBeforeItsFirstAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := &gate{waits: true, enter: func(_ context.Context, a *policy.Attempt) error {
			time.Sleep(time.Second)
			a.Waited()
			return nil
		}}
		for name, p := range map[string]struct {
			gate *gate
			want time.Duration
		}{
			"ran":     {wait, 3 * time.Second},
			"refused": {&gate{limit: -1, enter: wait.enter}, time.Second},
		} {
			r := &retrier{max: 2}
			start := time.Now()
			_, err := policy.Do(t.Context(), build(t, p.gate, r), func(context.Context) (int, error) {
				time.Sleep(2 * time.Second)
				return 0, errBoom
			})
			require.Error(t, err, name)
			assert.Equal(t, start, r.states[0].Started, name)
			assert.Equal(t, p.want, r.states[0].Now.Sub(r.states[0].Started), name)
		}
	})
}

// A kind that does not exist is no index into a counter: the default decides.
func TestUnknownKindsAreLeftToTheDefault(t *testing.T) {
	t.Parallel()
	odd := func(error) policy.Kind { return policy.NumKinds }
	g := &gate{holds: true}
	p := build(t, g, policy.ClassifyErrors(odd))
	_, err := policy.Do(t.Context(), p, fail)
	require.ErrorIs(t, err, errBoom)
	_, err = policy.For[int](p).Classify(func(int, error) policy.Kind { return 200 }).Do(t.Context(), succeed)
	require.NoError(t, err)
	_, err = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
		a.SetOutcome(policy.NumKinds, 0)
		return 0, nil
	}, nil)
	require.NoError(t, err)
	for _, k := range []policy.Kind{policy.NotRun, policy.NumKinds} {
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		h.Settle(k, 0)
		assert.False(t, h.Amend(policy.Busy), "it was no success")
		h.Release()
	}
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	h.Settle(policy.Success, 0)
	for _, k := range []policy.Kind{policy.NotRun, policy.Success, policy.NumKinds} {
		assert.False(t, h.Amend(k), "%v is no correction", k)
	}
	assert.True(t, h.Amend(policy.Busy))
	h.Release()
	assert.Equal(t, []policy.Kind{
		policy.Failure, policy.Success, policy.Success, policy.Failure, policy.Failure, policy.Busy,
	}, g.kinds())
	assert.Equal(t, []policy.Kind{policy.Busy}, g.amended)
}

// A caller who gives up is neutral, whatever a classification makes of the error that
// follows; a value that came all the same is still judged.
func TestTypedClassificationIsNotAskedWhenTheCallerGaveUp(t *testing.T) {
	t.Parallel()
	g := &gate{}
	typed := policy.For[int](build(t, g)).Classify(func(_ int, err error) policy.Kind {
		if err != nil {
			return policy.Failure
		}
		return policy.Busy
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := typed.Do(ctx, func(ctx context.Context) (int, error) { cancel(); return 0, ctx.Err() })
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithCancel(t.Context())
	_, err = typed.Do(ctx, func(context.Context) (int, error) { cancel(); return 0, nil })
	require.NoError(t, err)
	assert.Equal(t, []policy.Kind{policy.Canceled, policy.Busy}, g.kinds())
}

// A refusal further down is not the dependency's failure, but neither does it hide one.
func TestNestedRefusalHidesNoFailure(t *testing.T) {
	t.Parallel()
	shut := build(t, &gate{limit: -1})
	refuse := func(ctx context.Context) (int, error) { return policy.Do(ctx, shut, succeed) }
	closing := func() *policy.Pipeline { // fails, and refuses the retry
		g := &gate{}
		g.enter = func(_ context.Context, a *policy.Attempt) error {
			if a.Number() > 1 {
				return g.reject()
			}
			return nil
		}
		return build(t, g, &retrier{max: 2})
	}
	falling := build(t, &fallbackFunc[int]{answer: func(ctx context.Context, _ policy.FailedCall) (int, error) { return refuse(ctx) }})
	canceling := build(t, &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return 0, context.Canceled }})
	permanent := build(t, &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return 0, policy.AsPermanent(errLimit) }})
	for name, c := range map[string]struct {
		run  func(ctx context.Context) (int, error)
		want policy.Kind
	}{
		"refused":                      {refuse, policy.NotRun},
		"refused, wrapped":             {wrapped(refuse), policy.NotRun},
		"failed, then refused":         {func(ctx context.Context) (int, error) { return policy.Do(ctx, closing(), fail) }, policy.Failure},
		"failed, then refused, marked": {func(ctx context.Context) (int, error) { return policy.Do(ctx, closing(), busy) }, policy.Busy},
		"failed, fallback refused":     {func(ctx context.Context) (int, error) { return policy.Do(ctx, falling, fail) }, policy.Failure},
		"the same, wrapped":            {wrapped(func(ctx context.Context) (int, error) { return policy.Do(ctx, falling, fail) }), policy.Failure},
		"refused, fallback refused":    {func(ctx context.Context) (int, error) { return policy.Do(ctx, falling, refuse) }, policy.NotRun},
		"failed, fallback canceled":    {func(ctx context.Context) (int, error) { return policy.Do(ctx, canceling, fail) }, policy.Failure},
		"failed, fallback permanent":   {func(ctx context.Context) (int, error) { return policy.Do(ctx, permanent, fail) }, policy.Failure},
		"busy, fallback permanent":     {func(ctx context.Context) (int, error) { return policy.Do(ctx, permanent, busy) }, policy.Busy},
		"marked by the caller": {func(ctx context.Context) (int, error) {
			_, err := policy.Do(ctx, falling, fail)
			return 0, policy.AsPermanent(err)
		}, policy.Permanent},
	} {
		g := &gate{}
		_, err := policy.Do(t.Context(), build(t, g), c.run)
		require.Error(t, err, name)
		assert.Equal(t, []policy.Kind{c.want}, g.kinds(), name)
	}
	_, err := policy.Do(t.Context(), falling, fail)
	require.ErrorIs(t, err, errBoom)
	require.ErrorIs(t, err, policy.ErrRejected)
	assert.EqualError(t, err, "boom\nstock: rejected by gate (concurrency), retry after 1.5s")
}

func busy(context.Context) (int, error) { return 0, policy.AsBusy(errBoom, 0) }

func wrapped(f func(context.Context) (int, error)) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		_, err := f(ctx)
		return 0, fmt.Errorf("load: %w", errors.Join(errLimit, err))
	}
}

// A fallback for every type may answer with nothing where nothing is a value.
func TestFallbackAnsweringNothing(t *testing.T) {
	t.Parallel()
	p := build(t, &fallbackFunc[any]{answer: func(context.Context, policy.FailedCall) (any, error) { return nil, nil }})
	_, err := policy.Do(t.Context(), p, fail)
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, "answered with type <nil>, where the call returns type int")
	v, err := policy.Do(t.Context(), p, func(context.Context) (error, error) { return nil, errBoom })
	require.NoError(t, err)
	require.NoError(t, v)
	m, err := policy.Do(t.Context(), p, func(context.Context) (map[string]int, error) { return nil, errBoom })
	require.NoError(t, err)
	assert.Nil(t, m)
}

// remembering is a gate that keeps a reference in its slot and amends by it.
type remembering struct {
	gate
	left, amended []any
}

func (g *remembering) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "remembering", Gate: g}, nil
}

func (g *remembering) Enter(_ context.Context, a *policy.Attempt, slot int) error {
	a.Slot(slot).Ref = g
	return nil
}

func (g *remembering) Leave(a *policy.Attempt, slot int, _ policy.Outcome) {
	g.left = append(g.left, a.Slot(slot).Ref)
}

func (g *remembering) Amend(a *policy.Attempt, slot int, _ policy.Outcome) {
	g.amended = append(g.amended, a.Slot(slot).Ref)
}

// What a gate has in its slot is still there when its outcome is corrected, and gone
// from the attempt of another call.
func TestAmendFindsTheSlot(t *testing.T) {
	t.Parallel()
	g := &remembering{}
	p := build(t, g)
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	h.Settle(policy.Success, 0)
	assert.True(t, h.Amend(policy.Failure))
	h.Release()
	assert.Equal(t, []any{g}, g.left)
	assert.Equal(t, []any{g}, g.amended)
	var stale []any
	look := &gate{limit: 0, enter: func(_ context.Context, a *policy.Attempt) error {
		stale = append(stale, a.Slot(0).Ref)
		return nil
	}}
	for range 20 {
		_, err = policy.Do(t.Context(), build(t, look), succeed)
		require.NoError(t, err)
	}
	for _, ref := range stale {
		assert.False(t, ref == any(g), "an attempt was handed on with it")
	}
}
