//go:build !race

package fallback_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
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

// While a breaker is open every call ends here: no executor, and no allocation but the
// refusal itself, the answer that lost its type, and the note that it is degraded.
func TestAllocOpenBreakerAnswered(t *testing.T) {
	br, err := breaker.New("breaker", breaker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	br.ForceOpen("test", 0)
	ctx := t.Context()
	call := func(context.Context, int) (int, error) { return 0, errDown }
	p := newPipeline(t, br, fallback.Value(1000), retry.Config{MaxAttempts: 1})
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		if v, err := policy.DoWith(ctx, p, 1, call); v != 1000 || err != nil {
			t.Error(v, err)
		}
	}), 3.0)

	h := policy.For(newPipeline(t, br), fallback.Value(1000))
	fn := func(context.Context) (int, error) { return 0, errDown }
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		if v, err := h.Do(ctx, fn); v != 1000 || err != nil {
			t.Error(v, err)
		}
	}), 2.0)
}
