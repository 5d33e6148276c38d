//go:build !race

package retry_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func TestAllocFirst(t *testing.T) {
	r := newRetrier(t, retry.Config{})
	now := time.Now()
	assert.Zero(t, testing.AllocsPerRun(1000, func() { retry.FirstAt(r, now) }))
}

func TestAllocDecide(t *testing.T) {
	now := time.Now()
	s := policy.RetryState{Now: now, Started: now, Attempt: 1, Outcome: policy.Outcome{Kind: policy.Failure}}
	for name, cfg := range map[string]retry.Config{
		"allowed": {Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: 1e6}},
		"refused": {Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off}},
		"tokens":  {Budget: retry.TokenBudgetConfig{}},
		"share":   {Budget: retry.InFlightBudgetConfig{}},
		"rules":   {Failure: retry.Rule{Delay: time.Second}, Backoff: retry.Decorrelated},
	} {
		r := newRetrier(t, cfg)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { r.Decide(s) }), name)
	}
}

func TestAllocPipeline(t *testing.T) {
	shared, err := retry.NewBudget(retry.BudgetConfig{})
	require.NoError(t, err)
	newPipeline(t, retry.Config{Budget: shared})
	alone, err := retry.NewBudget(retry.BudgetConfig{})
	require.NoError(t, err)
	for name, budget := range map[string]retry.BudgetSource{
		"ratio": nil, "tokens": retry.TokenBudgetConfig{}, "in flight": retry.InFlightBudgetConfig{},
		"live, used once": alone, "shared": shared,
	} {
		p := newPipeline(t, retry.Config{Budget: budget})
		ctx := t.Context()
		want := 0.0
		if name == "shared" {
			want = 1 // its mark in the context
		}
		assert.InDelta(t, want, testing.AllocsPerRun(1000, func() {
			if _, err := policy.DoWith(ctx, p, 1, func(context.Context, int) (int, error) { return 1, nil }); err != nil {
				t.Error(err)
			}
		}), 0, name)
	}
}

func TestAllocHedge(t *testing.T) {
	h, err := retry.NewHedge("", retry.Hedge{MinSamples: 1})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	h.Observe(now, time.Second)
	h.Delay(now)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		h.Observe(now, time.Second)
		h.Delay(now)
		h.Allow(policy.HedgeState{Now: now})
	}))

	// Calls that may not be hedged keep the fast path.
	p := newPipeline(t, retry.Hedge{}, retry.Config{})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, func(context.Context, int) (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
	}))
}
