//go:build !race

package policy_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/policy"
)

// quiet is a gate that keeps no log.
type quiet struct{ policy.Gate }

func (q quiet) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "quiet", Gate: q}, nil
}
func (quiet) Peek(*policy.Attempt) error                        { return nil }
func (quiet) Enter(context.Context, *policy.Attempt, int) error { return nil }
func (quiet) Leave(*policy.Attempt, int, policy.Outcome)        {}

// still is a retrier that is told of calls and does nothing.
type still struct{}

func (still) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: still{}}, nil
}
func (still) First(*policy.Attempt) {}
func (still) Undo(time.Time)        {}
func (still) Decide(policy.RetryState) policy.Decision {
	return policy.Decision{Stop: policy.StopAttempts}
}

func TestAllocSuccess(t *testing.T) {
	p := build(t, quiet{}, still{}, &fallbackFunc[int]{}, policy.Trace(&tracer{off: true}), policy.Observe(&recorder{}))
	ctx := policy.WithPriority(t.Context(), policy.PriorityHigh)
	n := 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		_, _ = policy.DoWith(ctx, p, &n, func(_ context.Context, n *int) (int, error) { *n++; return *n, nil })
	}), "DoWith")
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		h, _ := p.Enter(ctx)
		h.Leave(nil)
	}), "Enter and Leave")
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_, _ = policy.Do(ctx, p, func(context.Context) (int, error) { n++; return n, nil })
	}), 1.0, "Do: the closure itself")
	typed := policy.For(p, policy.Fallback[int](&fallbackFunc[int]{}))
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_, _ = typed.Do(ctx, func(context.Context) (int, error) { n++; return n, nil })
	}), 1.0, "Typed.Do: the closure itself")

	bounded := build(t, policy.Timeouts{Attempt: time.Hour})
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		_, _ = policy.DoWith(ctx, bounded, &n, func(_ context.Context, n *int) (int, error) { *n++; return *n, nil })
	}), 1.0, "an attempt timeout: its context")
}
