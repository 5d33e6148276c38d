package otelx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/policy"
)

var errSick = errors.New("sick: key=4711")

// gate is a policy.Gate that refuses while refuse is set.
type gate struct {
	part   policy.Part
	refuse func() error
	snap   policy.PolicySnapshot
	broken bool // Snapshot panics
}

func (g *gate) Peek(*policy.Attempt) error { return nil }

func (g *gate) Enter(context.Context, *policy.Attempt, int) error {
	if g.refuse == nil {
		return nil
	}
	return g.refuse()
}

func (g *gate) Leave(*policy.Attempt, int, policy.Outcome) {}

func (g *gate) Snapshot(time.Time) policy.PolicySnapshot {
	if g.broken {
		panic("snapshot")
	}
	return g.snap
}

func (g *gate) BuildPolicy() (policy.Part, error) {
	part := g.part
	part.Gate = g
	part.Waits = part.Waits || g.snap.Limiter != nil && g.snap.Limiter.MaxWaiters > 0
	if part.Kind == "" {
		part.Kind = "gate"
	}
	return part, nil
}

// refusing returns a gate that refuses every attempt.
func refusing(r policy.Reason, after time.Duration) *gate {
	return &gate{refuse: func() error { return &policy.RejectedError{Reason: r, RetryAfter: after} }}
}

// retries is a policy.Retrier that retries failures up to max attempts.
type retries struct {
	max   int
	delay time.Duration
	snap  *policy.RetrySnapshot
}

func (retries) First(*policy.Attempt) {}
func (retries) Undo(time.Time)        {}

func (r retries) Decide(s policy.RetryState) policy.Decision {
	switch {
	case !s.Outcome.Kind.IsFailure():
		return policy.Decision{Stop: policy.StopOutcome}
	case s.Attempt >= r.max:
		return policy.Decision{Stop: policy.StopAttempts}
	}
	return policy.Decision{Delay: r.delay}
}

func (r retries) Snapshot(time.Time) policy.PolicySnapshot {
	return policy.PolicySnapshot{Retry: r.snap}
}

func (r retries) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: r}, nil
}

// answer is a policy.Fallback that answers with a string, or fails.
type answer struct {
	name string
	err  error
}

func (answer) Handles(policy.FailedCall) bool { return true }

func (a answer) Answer(context.Context, policy.FailedCall) (policy.Answer[any], error) {
	return policy.Answer[any]{Value: "stale"}, a.err
}

func (a answer) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "fallback", Name: a.name, Fallback: a}, nil
}

func pipeline(tb testing.TB, name string, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New(name, policies...)
	require.NoError(tb, err)
	return p
}

// script returns a function that gives one error after the other, and then nil.
func script(errs ...error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		if len(errs) == 0 {
			return "fresh", nil
		}
		err := errs[0]
		errs = errs[1:]
		return "", err
	}
}

// unsampled puts a span into a context that does not record.
func unsampled(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
}
