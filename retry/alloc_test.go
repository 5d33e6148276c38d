//go:build !race

package retry_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
	} {
		r := newRetrier(t, cfg)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { r.Decide(s) }), name)
	}
}

func TestAllocPipeline(t *testing.T) {
	p := newPipeline(t, retry.Config{})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, func(context.Context, int) (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
	}))
}
