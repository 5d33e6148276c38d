package otelx_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/trace"

	"github.com/breakwater-go/breakwater/otelx"
)

func TestTraceID(t *testing.T) {
	t.Parallel()
	assert.Empty(t, otelx.TraceID(t.Context()))
	for flags, want := range map[trace.TraceFlags]string{0: "", trace.FlagsSampled: "01000000000000000000000000000000"} {
		sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags})
		assert.Equal(t, want, otelx.TraceID(trace.ContextWithSpanContext(t.Context(), sc)))
	}
}
