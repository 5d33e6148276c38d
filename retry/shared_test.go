package retry_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// through calls fn through one pipeline inside the other, outermost first.
func through(ctx context.Context, fn func(context.Context) (int, error), pipelines ...*policy.Pipeline) (int, error) {
	for _, p := range slices.Backward(pipelines) {
		inner := fn
		fn = func(ctx context.Context) (int, error) { return policy.Do(ctx, p, inner) }
	}
	return fn(ctx)
}

// (e) 10 calls through two layers that share a budget pay 10 times, not 20: 100 of the
// reserve and a tenth of 10 are 101.
func TestCaseB53LayersThatShareABudgetPayOnce(t *testing.T) {
	t.Parallel()
	cfg := retry.BudgetConfig{Ratio: 0.1, MinPerSecond: 10, Window: 10 * time.Second}
	budget, err := retry.NewBudget(cfg)
	require.NoError(t, err)
	retrier, err := retry.New("", retry.Config{Budget: cfg})
	require.NoError(t, err)
	fine := func(context.Context) (int, error) { return 1, nil }
	tests := []struct {
		name   string
		layers []*policy.Pipeline
		want   float64
	}{
		{name: "one layer", layers: []*policy.Pipeline{newPipeline(t, retry.Config{Budget: cfg})}, want: 101},
		{name: "two layers, a budget each", layers: []*policy.Pipeline{newPipeline(t, retry.Config{Budget: cfg}), newPipeline(t, retry.Config{Budget: cfg})}, want: 101},
		{name: "two layers, one budget", layers: []*policy.Pipeline{newPipeline(t, retry.Config{Budget: budget}), newPipeline(t, retry.Config{Budget: budget})}, want: 101},
		{name: "three layers, one retrier", layers: []*policy.Pipeline{newPipeline(t, retrier), newPipeline(t, retrier), newPipeline(t, retrier)}, want: 101},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for range 10 {
				_, err := through(t.Context(), fine, tt.layers...)
				require.NoError(t, err)
			}
			for _, p := range tt.layers {
				s := budgetOf(p)
				assert.EqualValues(t, 10, s.BudgetFirsts)
				assert.InDelta(t, tt.want, s.BudgetRemaining, 0)
			}
		})
	}
}

// A retry by the outer layer is no new call for the inner one, and calls side by side
// are two calls.
func TestCaseB53WhatIsOneCall(t *testing.T) {
	t.Parallel()
	budget, err := retry.NewBudget(retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off})
	require.NoError(t, err)
	layer := func() *policy.Pipeline {
		return newPipeline(t, retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: budget})
	}
	outer, inner, beside := layer(), layer(), layer()
	calls := 0
	_, err = through(t.Context(), func(context.Context) (int, error) { calls++; return 0, errDown }, outer, inner)
	require.ErrorIs(t, err, errDown)
	s := budgetOf(outer)
	assert.EqualValues(t, 1, s.BudgetFirsts)
	assert.EqualValues(t, 1, s.BudgetRetries, "one call pays for one retry, whichever layer makes it")
	assert.Equal(t, 2, calls)

	for _, p := range []*policy.Pipeline{outer, beside} {
		_, _ = through(t.Context(), func(context.Context) (int, error) { return 1, nil }, p)
	}
	assert.EqualValues(t, 3, budgetOf(outer).BudgetFirsts)
}

func TestLayersThatShareOtherBudgets(t *testing.T) {
	t.Parallel()
	flight, err := retry.NewInFlightBudget(retry.InFlightBudgetConfig{Share: 1, MinRetries: retry.Off})
	require.NoError(t, err)
	tokens, err := retry.NewTokenBudget(retry.TokenBudgetConfig{MaxTokens: 10, TokenRatio: 0.5})
	require.NoError(t, err)
	layers := func(b retry.BudgetSource) []*policy.Pipeline {
		cfg := retry.Config{MaxAttempts: 1, Budget: b}
		return []*policy.Pipeline{newPipeline(t, cfg), newPipeline(t, cfg), newPipeline(t, cfg)}
	}
	l := layers(flight)
	_, err = through(t.Context(), func(context.Context) (int, error) {
		assert.EqualValues(t, 1, budgetOf(l[0]).BudgetInFlight, "one call, through three layers")
		return 1, nil
	}, l...)
	require.NoError(t, err)
	assert.Zero(t, budgetOf(l[0]).BudgetInFlight)

	l = layers(tokens)
	_, _ = through(t.Context(), func(context.Context) (int, error) { return 0, errDown }, l...)
	require.InDelta(t, 7, budgetOf(l[0]).BudgetTokens, 0, "three attempts failed")
	_, err = through(t.Context(), func(context.Context) (int, error) { return 1, nil }, l...)
	require.NoError(t, err)
	assert.InDelta(t, 7.5, budgetOf(l[0]).BudgetTokens, 0, "one call succeeded")
}

func TestRetrierHandsOutItsBudget(t *testing.T) {
	t.Parallel()
	for _, source := range []retry.BudgetSource{retry.BudgetConfig{}, retry.TokenBudgetConfig{}, retry.InFlightBudgetConfig{}} {
		r := newRetrier(t, retry.Config{Budget: source})
		require.NotNil(t, r.Budget())
		assert.Equal(t, r.Config().Budget, retry.BudgetSource(r.Budget()))
		other := newRetrier(t, retry.Config{Budget: r.Budget()})
		assert.Same(t, r.Budget(), other.Budget())
	}
	assert.Nil(t, newRetrier(t, retry.Config{Budget: retry.NoBudget{}}).Budget())
}
