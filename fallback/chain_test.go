package fallback_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

func TestChainCountsEachUnderItsName(t *testing.T) {
	t.Parallel()
	errCache := errors.New("cache empty")
	chain := fallback.Chain(
		fallback.Config[stock]{Name: "never", When: func(policy.FailedCall) bool { return false }},
		fallback.Func(func(context.Context, policy.FailedCall) (stock, error) { return stock{}, errCache }),
		fallback.Chain(fallback.Value(stock{Count: 3})),
		fallback.Value(stock{Count: 4}),
	)
	for name, do := range map[string]func(*policy.Pipeline) (policy.Result[stock], error){
		"typed": func(p *policy.Pipeline) (policy.Result[stock], error) {
			return policy.For(p, chain).DoResult(t.Context(), fails(errDown))
		},
		"untyped": func(p *policy.Pipeline) (policy.Result[stock], error) {
			return policy.DoResult(t.Context(), p, fails(errDown))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var policies []policy.Policy
			if name == "untyped" {
				policies = append(policies, chain)
			}
			p := newPipeline(t, policies...)
			r, err := do(p)
			require.NoError(t, err)
			assert.Equal(t, stock{Count: 3}, r.Value)
			assert.True(t, r.Degraded)
			assert.Equal(t, errDown, r.Cause)
			counts := map[string]policy.FallbackSnapshot{}
			for _, ps := range p.Snapshot().Policies {
				counts[ps.Name] = *ps.Fallback
			}
			assert.Equal(t, map[string]policy.FallbackSnapshot{
				"never": {}, "fallback-2": {Failed: 1}, "fallback-3": {Served: 1}, "fallback-4": {},
			}, counts)
		})
	}
}

// The names of a chain in a chain are not those of its neighbours.
func TestChainOfChains(t *testing.T) {
	t.Parallel()
	none := fallback.Func(func(context.Context, policy.FailedCall) (int, error) { return 0, errDown })
	p := newPipeline(t, fallback.Chain(fallback.Chain(none, fallback.Chain(none)), none, fallback.Chain[int]()))
	_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errDown })
	require.ErrorIs(t, err, errDown)
	var names []string
	for _, ps := range p.Snapshot().Policies {
		names = append(names, ps.Name)
		assert.Equal(t, uint64(1), ps.Fallback.Failed)
	}
	assert.Equal(t, []string{"fallback-1", "fallback-2", "fallback-3"}, names)
}

func TestChainAsOne(t *testing.T) {
	t.Parallel()
	errCache := errors.New("cache empty")
	fail := fallback.Func(func(context.Context, policy.FailedCall) (int, error) { return 9, errCache })
	f := policy.FailedCall{Outcome: policy.Outcome{Kind: policy.Failure}}

	chain := fallback.Chain(fail, fallback.Value(2))
	assert.True(t, chain.Handles(f))
	a, err := chain.Answer(t.Context(), f)
	require.NoError(t, err)
	assert.Equal(t, 2, a.Value)

	a, err = fallback.Chain(fail, fail).Answer(t.Context(), f)
	require.ErrorIs(t, err, errCache)
	assert.Zero(t, a)
	part, err := fallback.Chain(fail).BuildPolicy()
	require.NoError(t, err)
	_, err = part.Fallback.Answer(t.Context(), f)
	require.ErrorIs(t, err, errCache)

	empty := fallback.Chain[int]()
	assert.False(t, empty.Handles(f))
	p := newPipeline(t, empty)
	_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errDown })
	assert.Equal(t, errDown, err)
}

func TestChainReportsFaults(t *testing.T) {
	t.Parallel()
	chain := fallback.Chain(fallback.Value(1), fallback.Func[int](nil), nil)
	_, err := policy.New("inventory", chain)
	require.ErrorContains(t, err, "inventory.fallback-2.Func: want a function")
	require.ErrorContains(t, err, "a nil policy is in the list")
	h := policy.For(newPipeline(t), chain)
	require.ErrorContains(t, h.Err(), "inventory.fallback-2.Func: want a function")
	require.ErrorContains(t, h.Err(), "a nil policy is in the list")
	v, err := h.Do(t.Context(), func(context.Context) (int, error) { return 0, errDown })
	require.NoError(t, err)
	assert.Equal(t, 1, v, "what works is still asked")

	_, err = policy.New("inventory", fallback.Chain(fallback.Config[int]{Name: "a"}, fallback.Config[int]{Name: "a"}))
	require.ErrorContains(t, err, "used twice")
}

// The chain does what the obvious loop does.
func TestChainProperty(t *testing.T) {
	t.Parallel()
	type member struct{ Handles, Fails bool }
	rapid.Check(t, func(rt *rapid.T) {
		members := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) member {
			return member{rapid.Bool().Draw(rt, "handles"), rapid.Bool().Draw(rt, "fails")}
		}), 0, 6).Draw(rt, "members")
		want := -1
		var list []policy.Fallback[int]
		for i, m := range members {
			if want < 0 && m.Handles && !m.Fails {
				want = i
			}
			list = append(list, fallback.Config[int]{
				When: func(policy.FailedCall) bool { return m.Handles },
				Func: func(context.Context, policy.FailedCall) (int, error) {
					if m.Fails {
						return 0, errDown
					}
					return i, nil
				},
			})
		}
		p, err := policy.New("inventory", fallback.Chain(list...))
		require.NoError(rt, err)
		errCall := errors.New("call")
		got, err := policy.Do(context.Background(), p, func(context.Context) (int, error) { return 0, errCall }) //nolint:usetesting // rapid has no context
		if want < 0 {
			require.ErrorIs(rt, err, errCall)
			return
		}
		require.NoError(rt, err)
		require.Equal(rt, want, got)
	})
}

func TestAfterCancelIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var left time.Duration
		write := fallback.Config[stock]{
			AfterCancel: true, Timeout: time.Second,
			Func: func(ctx context.Context, f policy.FailedCall) (stock, error) {
				assert.True(t, f.Canceled)
				assert.Equal(t, "kept", ctx.Value(key{}))
				deadline, _ := ctx.Deadline()
				left = time.Until(deadline)
				<-ctx.Done()
				return stock{Count: 5}, nil
			},
		}
		p := newPipeline(t, write)
		assert.Empty(t, p.Warnings())
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		v, err := policy.Do(ctx, p, func(ctx context.Context) (stock, error) {
			cancel()
			return stock{}, ctx.Err()
		})
		require.NoError(t, err)
		assert.Equal(t, stock{Count: 5}, v)
		assert.Equal(t, time.Second, left)

		write.Timeout = 0
		assert.Len(t, newPipeline(t, write).Warnings(), 1)
		assert.False(t, write.Handles(policy.FailedCall{Canceled: true, Outcome: policy.Outcome{Kind: policy.Permanent}}), "an answer stays an answer")
		assert.False(t, fallback.Handles(policy.FailedCall{Canceled: true, Outcome: policy.Outcome{Kind: policy.Failure}}))
	})
}

func TestTimeoutBoundsFunc(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, fallback.Config[stock]{
			Timeout: 50 * time.Millisecond,
			Func:    func(ctx context.Context, _ policy.FailedCall) (stock, error) { <-ctx.Done(); return stock{}, ctx.Err() },
		})
		start := time.Now()
		_, err := policy.Do(t.Context(), p, fails(errDown))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errDown)
		assert.Equal(t, 50*time.Millisecond, time.Since(start))
	})
}

func TestErrorMap(t *testing.T) {
	t.Parallel()
	errUnavailable := errors.New("stock is unknown right now")
	p := newPipeline(t, shut{reason: policy.ReasonOpen}, fallback.ErrorMap{Func: func(f policy.FailedCall) error {
		if f.Outcome.Kind == policy.NotRun {
			return errUnavailable
		}
		return nil
	}})
	_, err := policy.Do(t.Context(), p, fails(nil))
	require.EqualError(t, err, "stock is unknown right now")
	require.ErrorIs(t, err, errUnavailable)
	require.ErrorIs(t, err, policy.ErrRejected)
	ps := p.Snapshot().Policies[0]
	assert.Equal(t, "errormap", ps.Name)
	assert.EqualValues(t, 1, ps.Fallback.Mapped)

	_, err = policy.New("inventory", fallback.ErrorMap{})
	require.EqualError(t, err, "inventory.errormap.Func: want a function, not nil")
}
