package policy_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// A live policy whose constructor failed, and whose error was dropped, is a nil pointer
// in a non-nil interface.
func TestTypedNilPolicyIsAConfigError(t *testing.T) {
	t.Parallel()
	var g *gate
	_, err := policy.New("stock", g, policy.Ordered(g))
	require.Error(t, err)
	assert.EqualError(t, err, "stock.policies: a nil *policy_test.gate is in the list\nstock.policies: a nil *policy_test.gate is in the list")

	var fb *fallbackFunc[int]
	for name, nothing := range map[string]policy.Fallback[int]{"nil": nil, "typed nil": fb} {
		typed := policy.For(build(t), nothing)
		ce, ok := errors.AsType[*policy.ConfigError](typed.Err())
		require.True(t, ok, "%s: got %v", name, typed.Err())
		assert.Equal(t, "stock", ce.Dependency, name)
		v, err := typed.Do(t.Context(), succeed)
		require.NoError(t, err, name)
		assert.Equal(t, 42, v, name)
		_, err = typed.Do(t.Context(), fail)
		require.ErrorIs(t, err, errBoom, name)
		require.ErrorIs(t, err, ce, "%s: a call that needs it says so", name)
	}
}

func TestTypedFallbackNameIsALabel(t *testing.T) {
	t.Parallel()
	p := build(t)
	fb := &fallbackFunc[int]{name: "a\xff", answer: func(context.Context, policy.FailedCall) (int, error) { return 1, nil }}
	typed := policy.For(p, policy.Fallback[int](fb))
	require.ErrorContains(t, typed.Err(), "stock.fallback.Name")
	_, err := typed.Do(t.Context(), fail)
	require.ErrorIs(t, err, errBoom)
	assert.Empty(t, p.Snapshot().Policies, "nothing goes under a name that is no label")
}

func TestPartWithTwoContributionsIsAConfigError(t *testing.T) {
	t.Parallel()
	_, err := policy.New("stock", partOf{Kind: "both", Gate: &gate{}, Retry: &retrier{}})
	require.ErrorContains(t, err, "stock.both: the policy contributes more than one thing to a pipeline")
	_, err = policy.New("stock", partOf{Kind: "both", Gate: &gate{}, Fallback: untyped[int]{&fallbackFunc[int]{}}})
	require.ErrorContains(t, err, "stock.both")
}

type partOf policy.Part

func (p partOf) BuildPolicy() (policy.Part, error) { return policy.Part(p), nil }

func TestPlacesFarApartAreSorted(t *testing.T) {
	t.Parallel()
	p := build(t, &gate{name: "last", place: math.MaxInt}, &gate{name: "middle"}, &gate{name: "first", place: math.MinInt})
	var names []string
	for _, ps := range p.Snapshot().Policies {
		names = append(names, ps.Name)
	}
	assert.Equal(t, []string{"first", "middle", "last"}, names)
}

// slowCloser is a gate that takes its time to close.
type slowCloser struct {
	gate
	closing func()
}

func (s *slowCloser) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "slow", Gate: s}, nil
}

func (s *slowCloser) Close(ctx context.Context) error {
	s.closing()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute):
		return nil
	}
}

// While a pipeline waits for its policies to close, it can be looked at, and a second
// Close does not wait for the first.
func TestCloseHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowCloser{}
		p := build(t, s)
		var looked policy.Snapshot
		s.closing = func() { looked = p.Snapshot() }
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			p.Snapshot()
			policy.For[int](p, &fallbackFunc[int]{})
			assert.NoError(t, p.Close(t.Context()))
			assert.Equal(t, time.Second, time.Since(start))
		}()
		require.NoError(t, p.Close(t.Context()))
		assert.Equal(t, time.Minute, time.Since(start))
		assert.Equal(t, "stock", looked.Dependency)
	})
}
