package otelx

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/policy"
)

// callSpan follows one call. Its methods are not called concurrently.
type callSpan struct {
	tracer trace.Tracer
	names  *spanNames
	span   trace.Span

	// What is known between attempts, for the next attempt or for the end.
	delay    float64 // seconds, before the next attempt
	delayed  bool
	stop     policy.Stop
	answered string   // the fallback that answered
	failed   []string // fallbacks that could not
	refused  *policy.RejectedError
	last     policy.Kind // outcome of the last attempt
}

// StartAttempt implements [policy.CallSpan].
func (c *callSpan) StartAttempt(ctx context.Context, number int) (actx context.Context, attempt policy.AttemptSpan) {
	defer func() {
		if recover() != nil {
			actx, attempt = ctx, nil
		}
	}()
	a := &attemptSpan{call: c, number: number, delay: c.delay, delayed: c.delayed}
	c.delayed = false
	actx, a.span = c.tracer.Start(ctx, c.names.attempt, c.names.start...) //nolint:spancheck // ended by attemptSpan.End
	return actx, a
}

// Event implements [policy.CallSpan].
func (c *callSpan) Event(e policy.Event) {
	switch e.Kind {
	case policy.EventRetry:
		c.delay, c.delayed = e.Delay.Seconds(), true
	case policy.EventStopped:
		c.stop = e.Stop
	case policy.EventFallback:
		if e.Err != nil {
			c.failed = append(c.failed, e.Policy)
		} else {
			c.answered = e.Policy
		}
	default: // refusals are told by the end of their attempt
	}
}

// End implements [policy.CallSpan].
func (c *callSpan) End(e policy.CallEnd) {
	defer dropPanic()
	defer c.span.End() // whatever becomes of the attributes
	kind, errType := e.Outcome.Kind, ""
	switch {
	case e.Degraded: // the caller got an answer
	case kind == policy.NotRun && e.Err == nil:
		// The call never returned: a panic, or its goroutine ended. CallEnd says so
		// with a zero Outcome; a call that was refused has an error.
		kind, errType = c.last, errorPanic
	default:
		errType = errorType(kind, e.Err)
	}
	attrs := make([]attribute.KeyValue, 0, 10)
	attrs = append(attrs,
		keyOutcome.String(kind.String()),
		keyAttempts.Int(e.Attempts),
		keyDegraded.Bool(e.Degraded),
	)
	if kind == policy.NotRun && c.refused != nil {
		attrs = refusal(attrs, c.names.dependency, c.refused)
	}
	if c.stop != policy.StopNone {
		attrs = append(attrs, keyRetryStop.String(c.stop.String()))
	}
	if c.answered != "" {
		attrs = append(attrs, keyFallbackPolicy.String(c.answered))
	}
	if len(c.failed) > 0 {
		attrs = append(attrs, keyFallbackFailed.StringSlice(c.failed))
	}
	if kind != policy.NotRun {
		c.names.calls.note(e.Duration, time.Now(), c.span.SpanContext())
	}
	c.span.SetAttributes(fail(c.span, attrs, errType)...)
}

// attemptSpan follows one attempt.
type attemptSpan struct {
	call    *callSpan
	span    trace.Span
	number  int
	delay   float64
	delayed bool
}

// End implements [policy.AttemptSpan].
func (a *attemptSpan) End(o policy.Outcome, err error) {
	defer dropPanic()
	defer a.span.End() // whatever becomes of the attributes
	c := a.call
	c.last, c.refused = o.Kind, nil
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, keyAttempt.Int(a.number), keyOutcome.String(o.Kind.String()))
	if a.delayed {
		attrs = append(attrs, keyRetryDelay.Float64(a.delay))
	}
	if o.Kind != policy.NotRun {
		c.names.attempts.note(o.Duration, time.Now(), a.span.SpanContext())
	} else {
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			c.refused = re
			attrs = refusal(attrs, c.names.dependency, re)
		}
	}
	a.span.SetAttributes(fail(a.span, attrs, errorType(o.Kind, err))...)
}

// dropPanic, deferred, keeps a panic of a span processor from the call. It does not
// catch the panic of a call that is being unwound: that one is not raised in the
// function which defers it.
func dropPanic() { _ = recover() }

// droppedCall carries the decision not to record through a call.
type droppedCall struct{}

func (droppedCall) StartAttempt(ctx context.Context, _ int) (context.Context, policy.AttemptSpan) {
	return ctx, nil
}
func (droppedCall) Event(policy.Event) {}
func (droppedCall) End(policy.CallEnd) {}
