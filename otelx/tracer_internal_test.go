package otelx

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/breakwater-go/breakwater/policy"
)

// Pipelines that are made without end do not fill the memory of a Tracer, and are
// named right all the same.
func TestTracerBoundsWhatItRemembers(t *testing.T) {
	t.Parallel()
	rec := tracetest.NewSpanRecorder()
	tr, err := NewTracer(TracerConfig{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec)), Always: true})
	require.NoError(t, err)
	for range 2 {
		for i := range maxNames + 10 {
			_, span := tr.StartCall(t.Context(), strconv.Itoa(i))
			span.End(policy.CallEnd{Outcome: policy.Outcome{Kind: policy.Success}})
		}
	}
	assert.Len(t, *tr.names.Load(), maxNames)
	for i, s := range rec.Ended() {
		require.Equal(t, "call "+strconv.Itoa(i%(maxNames+10)), s.Name())
	}
}
