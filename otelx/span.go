package otelx

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/policy"
)

// callSpan follows one call. Its methods are not called concurrently, nor are those of
// its attempts, also when these run side by side.
type callSpan struct {
	tracer *Tracer
	names  *spanNames
	span   trace.Span
	ctx    context.Context //nolint:containedctx // the call's, with its span: events are about it

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
	return a.start(ctx), a
}

// StartHedge implements [policy.HedgeSpan].
func (c *callSpan) StartHedge(ctx context.Context, number, hedge int) (actx context.Context, attempt policy.AttemptSpan) {
	defer func() {
		if recover() != nil {
			actx, attempt = ctx, nil
		}
	}()
	a := &attemptSpan{call: c, number: number, hedge: hedge}
	return a.start(ctx), a
}

// Event implements [policy.CallSpan].
func (c *callSpan) Event(e policy.Event) {
	c.callEvent(e)
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
	ctx     context.Context //nolint:containedctx // with the span: events are about it
	number  int
	hedge   int // number of the hedge; 0 for none
	delay   float64
	delayed bool
	waited  time.Duration
	probe   bool
}

// start begins the span and returns the attempt's context.
func (a *attemptSpan) start(ctx context.Context) context.Context {
	t := a.call.tracer
	ctx, a.span = t.tracer.Start(ctx, a.call.names.attempt, a.call.names.start...) //nolint:spancheck // ended by End
	a.ctx = ctx
	return context.WithValue(ctx, attemptKey{}, a)
}

// Admission implements [policy.AdmissionSpan].
func (a *attemptSpan) Admission(ad policy.Admission) {
	a.waited, a.probe = ad.Waited, ad.Probe
	t, n, now := a.call.tracer, a.call.names, time.Now()
	if a.waited > 0 {
		t.event(a.ctx, n, eventWait, log.SeverityInfo, now, keyAttempt.Int(a.number), seconds(keyWait, a.waited))
	}
	if a.probe {
		t.event(a.ctx, n, eventProbe, log.SeverityInfo, now, keyAttempt.Int(a.number))
	}
}

// End implements [policy.AttemptSpan].
func (a *attemptSpan) End(o policy.Outcome, err error) {
	defer dropPanic()
	defer a.span.End() // whatever becomes of the attributes
	c := a.call
	c.last, c.refused = o.Kind, nil
	attrs := make([]attribute.KeyValue, 0, 10)
	attrs = append(attrs, keyAttempt.Int(a.number), keyOutcome.String(o.Kind.String()))
	if a.delayed {
		attrs = append(attrs, keyRetryDelay.Float64(a.delay))
	}
	if a.hedge > 0 {
		attrs = append(attrs, keyHedge.Int(a.hedge))
	}
	if a.waited > 0 {
		attrs = append(attrs, seconds(keyWait, a.waited))
	}
	if a.probe {
		attrs = append(attrs, keyProbe.Bool(true))
	}
	if o.Kind != policy.NotRun {
		c.names.attempts.note(o.Duration, time.Now(), a.span.SpanContext())
	} else {
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			c.refused = re
			attrs = refusal(attrs, c.names.dependency, re)
			if re.Dependency == c.names.dependency { // otherwise the other pipeline has said so
				what := refusal(make([]attribute.KeyValue, 0, 4), c.names.dependency, re)
				c.tracer.event(a.ctx, c.names, eventRejected, log.SeverityWarn, time.Now(), append(what, keyAttempt.Int(a.number))...)
			}
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
