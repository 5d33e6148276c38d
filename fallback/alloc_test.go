//go:build !race

package fallback_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

func TestAllocAnswer(t *testing.T) {
	ctx := t.Context()
	f := policy.FailedCall{Outcome: policy.Outcome{Kind: policy.Failure}, Err: errDown}
	for name, fb := range map[string]policy.Fallback[stock]{
		"value":    fallback.Value(stock{Count: 1}),
		"function": fallback.Func(func(context.Context, policy.FailedCall) (stock, error) { return stock{}, nil }),
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			if fb.Handles(f) {
				_, _ = fb.Answer(ctx, f)
			}
		}), name)
	}
}

func TestAllocPipelineSuccess(t *testing.T) {
	p := newPipeline(t, fallback.Value(1))
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := policy.DoWith(ctx, p, 1, func(context.Context, int) (int, error) { return 1, nil }); err != nil {
			t.Error(err)
		}
	}))
}
