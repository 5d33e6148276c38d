package otelx

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/breakwater-go/breakwater/policy"
)

// Names of events. They are log records in the context of a span and not span events,
// which OpenTelemetry is phasing out (OTEP 4430).
const (
	eventRejected   = "breakwater.rejected"
	eventWait       = "breakwater.wait"
	eventProbe      = "breakwater.probe"
	eventRetry      = "breakwater.retry"
	eventStopped    = "breakwater.stopped"
	eventFallback   = "breakwater.fallback"
	eventHedge      = "breakwater.hedge"
	eventSuppressed = "breakwater.hedge_suppressed"
)

// newLogger returns what events are logged to.
func newLogger(p log.LoggerProvider) log.Logger {
	return p.Logger(ScopeName, log.WithInstrumentationVersion(Version), log.WithSchemaURL(semconv.SchemaURL))
}

// event logs an event about a call of the dependency. ctx carries the span it is about.
func (t *Tracer) event(ctx context.Context, n *spanNames, name string, severity log.Severity, when time.Time, attrs ...attribute.KeyValue) {
	if !t.events.Enabled(ctx, log.EnabledParameters{Severity: severity, EventName: name}) {
		return
	}
	var r log.Record
	r.SetEventName(name)
	r.SetSeverity(severity)
	r.SetTimestamp(when)
	r.AddAttributes(keyDependency.String(n.dependency))
	r.AddAttributes(attrs...)
	t.events.Emit(ctx, r)
}

// callEvent logs what happened between the attempts of a call.
func (c *callSpan) callEvent(e policy.Event) {
	attempt, delay := keyAttempt.Int(e.Attempt), seconds(keyRetryDelay, e.Delay)
	switch e.Kind {
	case policy.EventRetry:
		c.tracer.event(c.ctx, c.names, eventRetry, log.SeverityInfo, e.Time, attempt, keyOutcome.String(e.Outcome.String()), delay)
	case policy.EventStopped:
		c.tracer.event(c.ctx, c.names, eventStopped, log.SeverityInfo, e.Time, attempt, keyOutcome.String(e.Outcome.String()), keyRetryStop.String(e.Stop.String()))
	case policy.EventFallback:
		severity, result := log.SeverityInfo, "served"
		if e.Err != nil {
			severity, result = log.SeverityWarn, "failed"
		}
		c.tracer.event(c.ctx, c.names, eventFallback, severity, e.Time, keyFallbackPolicy.String(e.Policy), keyResult.String(result))
	case policy.EventHedge:
		c.tracer.event(c.ctx, c.names, eventHedge, log.SeverityInfo, e.Time, attempt, seconds(keyHedgeDelay, e.Delay))
	case policy.EventSuppressed:
		c.tracer.event(c.ctx, c.names, eventSuppressed, log.SeverityInfo, e.Time, attempt, seconds(keyHedgeDelay, e.Delay))
	default: // refusals are told by their attempt
	}
}
