package otelx_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// What a Tracer adds to a call that nobody records.
func BenchmarkStartCallNotRecording(b *testing.B) {
	tr, err := otelx.NewTracer(otelx.TracerConfig{})
	require.NoError(b, err)
	for name, ctx := range map[string]context.Context{"no span": b.Context(), "not sampled": unsampled(b.Context())} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = tr.StartCall(ctx, "dep")
			}
		})
	}
}

func BenchmarkDoWith(b *testing.B) {
	tr, err := otelx.NewTracer(otelx.TracerConfig{TracerProvider: sdktrace.NewTracerProvider()})
	require.NoError(b, err)
	recording, root := sdktrace.NewTracerProvider().Tracer("bench").Start(b.Context(), "root")
	defer root.End()
	for _, bb := range []struct {
		name     string
		policies []policy.Policy
		ctx      context.Context //nolint:containedctx // of a benchmark
	}{
		{"no tracer", nil, b.Context()},
		{"not recording", []policy.Policy{tr}, b.Context()},
		{"recording", []policy.Policy{tr}, recording},
	} {
		b.Run(bb.name, func(b *testing.B) {
			p := pipeline(b, "dep", bb.policies...)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				_, _ = policy.DoWith(bb.ctx, p, &n, func(_ context.Context, n *int) (int, error) { *n++; return *n, nil })
			}
		})
	}
}

// One scrape of 200 pipelines, each with a policy of every kind.
func BenchmarkScrape(b *testing.B) {
	var reg policy.Registry
	for i := range 200 {
		policies, _ := everyPolicy()
		add(b, &reg, "dep"+strconv.Itoa(i), policies...)
	}
	preg := prometheus.NewRegistry()
	require.NoError(b, preg.Register(collector(b, &reg, otelx.CollectorConfig{})))
	b.ReportAllocs()
	for b.Loop() {
		families, err := preg.Gather()
		if err != nil || len(families) == 0 {
			b.Fatal(err)
		}
	}
}

func BenchmarkCollect(b *testing.B) {
	var reg policy.Registry
	for i := range 200 {
		policies, _ := everyPolicy()
		add(b, &reg, "dep"+strconv.Itoa(i), policies...)
	}
	c := collector(b, &reg, otelx.CollectorConfig{})
	ch := make(chan prometheus.Metric, 64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range ch {
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		c.Collect(ch)
	}
	close(ch)
	<-done
}
