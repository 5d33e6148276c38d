package otelx

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// TraceID returns the id of the trace that ctx belongs to, in hexadecimal, and nothing
// when there is none or it is not sampled, so that nobody could look it up. It is for
// dashboard.Config.
func TraceID(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() && sc.IsSampled() {
		return sc.TraceID().String()
	}
	return ""
}
