package policy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// guarded is a fallback with more to its part.
type guarded struct {
	*fallbackFunc[int]

	guard       policy.Gate
	afterCancel bool
}

func (g guarded) BuildPolicy() (policy.Part, error) {
	part, err := g.fallbackFunc.BuildPolicy()
	part.Guard, part.AfterCancel = g.guard, g.afterCancel
	return part, err
}

func answers(v int) *fallbackFunc[int] {
	return &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return v, nil }}
}

// described is a fallback that describes itself, and holds something.
type described struct {
	*fallbackFunc[int]

	closed int
}

func (d *described) Snapshot(time.Time) policy.PolicySnapshot {
	return policy.PolicySnapshot{Fallback: &policy.FallbackSnapshot{Stale: &policy.StaleSnapshot{Entries: 3}}}
}

func (d *described) Close(context.Context) error {
	d.closed++
	return errLimit
}

func TestGuardAdmitsAnswers(t *testing.T) {
	t.Parallel()
	full := &gate{limit: -1}
	rec := &recorder{}
	p := build(t, policy.Observe(rec), guarded{fallbackFunc: answers(7), guard: full})
	_, err := policy.Do(t.Context(), p, fail)
	require.ErrorIs(t, err, errBoom)
	require.ErrorIs(t, err, policy.ErrRejected)
	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok)
	assert.Equal(t, "fallback", re.Policy, "refused in the fallback's name")
	assert.Equal(t, "stock", re.Dependency)
	fs := p.Snapshot().Policies[0].Fallback
	assert.EqualValues(t, 1, fs.Rejected)
	assert.Zero(t, fs.Failed)
	assert.Zero(t, fs.Served)
	assert.EqualValues(t, 1, fs.Guard.Rejected[policy.ReasonConcurrency])
	e := rec.events[len(rec.events)-1]
	assert.Equal(t, policy.EventFallback, e.Kind)
	assert.Equal(t, policy.ReasonConcurrency, e.Reason)
	assert.Equal(t, 1500*time.Millisecond, e.RetryAfter)

	// Whoever calls it sees a failure of the dependency, not a refusal.
	assert.Equal(t, policy.Failure, policy.Classify(t.Context(), err).Kind)

	free := &gate{limit: 1}
	h := policy.For(p, policy.Fallback[int](guarded{
		fallbackFunc: &fallbackFunc[int]{name: "typed", answer: func(context.Context, policy.FailedCall) (int, error) {
			assert.Equal(t, 1, free.held())
			return 8, nil
		}}, guard: free,
	}))
	require.NoError(t, h.Err())
	v, err := h.Do(t.Context(), fail)
	require.NoError(t, err)
	assert.Equal(t, 8, v)
	assert.Zero(t, free.held())
	assert.Equal(t, []policy.Kind{policy.Success}, free.kinds())
}

func TestGuardIsLeftByPanics(t *testing.T) {
	t.Parallel()
	guard, outer := &gate{limit: 1}, &gate{limit: 1}
	p := build(t, outer, guarded{fallbackFunc: &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { panic("fallback") }}, guard: guard})
	require.PanicsWithValue(t, "fallback", func() { _, _ = policy.Do(t.Context(), p, fail) })
	assert.Zero(t, guard.held())
	assert.Zero(t, outer.held())
	assert.EqualValues(t, 1, p.Snapshot().Policies[0].Fallback.Failed, "a panic is a failed answer")
}

func TestGuardIsChecked(t *testing.T) {
	t.Parallel()
	_, err := policy.New("stock", guarded{fallbackFunc: answers(1), guard: (*gate)(nil)})
	require.ErrorContains(t, err, "stock.fallback.Gate: want a gate, not a nil *policy_test.gate")
	h := policy.For(build(t), policy.Fallback[int](guarded{fallbackFunc: answers(1), guard: (*gate)(nil)}))
	require.ErrorContains(t, h.Err(), "stock.fallback.Gate")
	_, err = h.Do(t.Context(), fail)
	require.ErrorIs(t, err, errBoom)
}

func TestAfterCancelAnswersWhenAsked(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	var seen []policy.FailedCall
	p := build(t, guarded{afterCancel: true, fallbackFunc: &fallbackFunc[int]{answer: func(ctx context.Context, f policy.FailedCall) (int, error) {
		seen = append(seen, f)
		assert.Equal(t, "kept", ctx.Value(key{}))
		return 5, ctx.Err()
	}}})
	v, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) {
		cancel()
		return 0, ctx.Err()
	})
	require.NoError(t, err)
	assert.Equal(t, 5, v)
	_, err = policy.Do(ctx, p, fail)
	require.NoError(t, err, "gone before it began")
	require.Len(t, seen, 2)
	assert.True(t, seen[0].Canceled)
	assert.Equal(t, policy.Canceled, seen[0].Outcome.Kind)
	assert.Equal(t, policy.NotRun, seen[1].Outcome.Kind)
	s := p.Snapshot()
	assert.EqualValues(t, 1, s.Calls[policy.Canceled], "the outcome stays neutral")
}

func TestMapError(t *testing.T) {
	t.Parallel()
	errMine := errors.New("mine")
	mapper := func(name string, fn func(policy.FailedCall) error) policy.Policy {
		return partOf{Kind: "map", Name: name, MapError: fn}
	}
	failing := &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return 0, errLimit }}
	p := build(
		t, failing,
		mapper("keep", func(policy.FailedCall) error { return nil }),
		mapper("mine", func(f policy.FailedCall) error {
			assert.ErrorIs(t, f.Err, errLimit, "it sees what the fallbacks said, too")
			return errMine
		}),
	)
	_, err := policy.Do(t.Context(), p, fail)
	require.EqualError(t, err, "mine")
	for _, target := range []error{errMine, errBoom, errLimit} {
		require.ErrorIs(t, err, target)
	}
	ps := p.Snapshot().Policies
	assert.Equal(t, "keep", ps[0].Name)
	assert.Zero(t, ps[0].Fallback.Mapped)
	assert.EqualValues(t, 1, ps[1].Fallback.Mapped)
	assert.EqualValues(t, 1, ps[2].Fallback.Failed)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = policy.Do(ctx, p, func(context.Context) (int, error) { cancel(); return 0, errBoom })
	require.Equal(t, errBoom, err, "nobody is there to read it")

	v, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 3, nil })
	require.NoError(t, err)
	assert.Equal(t, 3, v)

	alone := build(t, mapper("mine", func(policy.FailedCall) error { return errMine }))
	_, err = policy.Do(t.Context(), alone, fail)
	require.EqualError(t, err, "mine", "also without a fallback")
}

// listed stands for several fallbacks.
type listed struct{ *fallbackFunc[int] }

func (listed) Fallbacks() []policy.Fallback[int] {
	return []policy.Fallback[int]{
		&fallbackFunc[int]{name: "one", answer: func(context.Context, policy.FailedCall) (int, error) { return 0, errLimit }},
		&fallbackFunc[int]{name: "two", answer: func(context.Context, policy.FailedCall) (int, error) { return 2, nil }},
	}
}

func (l listed) Policies() []policy.Policy {
	var list []policy.Policy
	for _, fb := range l.Fallbacks() {
		list = append(list, fb)
	}
	return list
}

func TestListsAreAskedInTheirPlace(t *testing.T) {
	t.Parallel()
	p := build(t)
	v, err := policy.For(p, policy.Fallback[int](listed{answers(9)})).Do(t.Context(), fail)
	require.NoError(t, err)
	assert.Equal(t, 2, v)
	ps := p.Snapshot().Policies
	require.Len(t, ps, 2)
	assert.EqualValues(t, 1, ps[0].Fallback.Failed)
	assert.EqualValues(t, 1, ps[1].Fallback.Served)

	p = build(t, listed{answers(9)})
	v, err = policy.Do(t.Context(), p, fail)
	require.NoError(t, err)
	assert.Equal(t, 2, v)
	require.Len(t, p.Snapshot().Policies, 2)
}

func TestFallbackDescribesItself(t *testing.T) {
	t.Parallel()
	p := build(t)
	d := &described{fallbackFunc: answers(1)}
	for range 2 {
		v, err := policy.For(p, policy.Fallback[int](d)).Do(t.Context(), fail)
		require.NoError(t, err)
		assert.Equal(t, 1, v)
	}
	ps := p.Snapshot().Policies
	require.Len(t, ps, 1)
	assert.EqualValues(t, 2, ps[0].Fallback.Served)
	assert.Equal(t, 3, ps[0].Fallback.Stale.Entries)

	other := policy.For(p, policy.Fallback[int](&described{fallbackFunc: answers(2)}))
	require.ErrorContains(t, other.Err(), `stock.fallback.Name: "fallback": another of this name`)

	require.ErrorIs(t, p.Close(t.Context()), errLimit)
	require.NoError(t, p.Close(t.Context()))
	assert.Equal(t, 1, d.closed, "closed with its pipeline, once")
}

func TestPipelineClassify(t *testing.T) {
	t.Parallel()
	p := build(t, policy.ClassifyErrors(func(err error) policy.Kind {
		if errors.Is(err, errLimit) {
			return policy.Throttled
		}
		return policy.NotRun
	}))
	assert.Equal(t, policy.Throttled, p.Classify(t.Context(), errLimit).Kind)
	assert.Equal(t, policy.Failure, p.Classify(t.Context(), errBoom).Kind)
	assert.Equal(t, policy.Success, p.Classify(t.Context(), nil).Kind)
	assert.Equal(t, policy.Permanent, (*policy.Pipeline)(nil).Classify(t.Context(), policy.AsPermanent(errLimit)).Kind)
}

// closing is a gate that holds something.
type closing struct {
	policy.Gate

	closed int
}

func (c *closing) Close(context.Context) error {
	c.closed++
	return nil
}

func TestGuardIsClosedWithItsPipeline(t *testing.T) {
	t.Parallel()
	untypedGuard, typedGuard := &closing{Gate: &gate{}}, &closing{Gate: &gate{}}
	p := build(t, guarded{fallbackFunc: answers(1), guard: untypedGuard})
	h := policy.For(p, policy.Fallback[int](guarded{fallbackFunc: &fallbackFunc[int]{name: "typed", answer: answers(2).answer}, guard: typedGuard}))
	require.NoError(t, h.Err())
	require.NoError(t, p.Close(t.Context()))
	assert.Equal(t, 1, untypedGuard.closed)
	assert.Equal(t, 1, typedGuard.closed)
	v, err := h.Do(t.Context(), fail)
	require.NoError(t, err, "a fallback answers also for a pipeline that is closed")
	assert.Equal(t, 2, v)
}

// Counters survive an update of the pipeline.
func TestFallbackCountsSurviveUpdates(t *testing.T) {
	t.Parallel()
	mapper := partOf{Kind: "map", Name: "map", MapError: func(policy.FailedCall) error { return errLimit }}
	failing := &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return 0, errBoom }}
	p := build(t, mapper, failing)
	for want := range uint64(3) {
		_, err := policy.Do(t.Context(), p, fail)
		require.EqualError(t, err, "limit")
		ps := p.Snapshot().Policies
		assert.Equal(t, want+1, ps[0].Fallback.Mapped)
		assert.Equal(t, want+1, ps[1].Fallback.Failed)
		u, err := p.Prepare(mapper, failing)
		require.NoError(t, err)
		require.NoError(t, u.Apply())
	}
}
