package otelx_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// guarded adds a pipeline that lets every call through, and returns it.
func guarded(tb testing.TB, reg *policy.Registry, name string) *policy.Pipeline {
	tb.Helper()
	return add(tb, reg, name,
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e12), Burst: 1 << 30},
		bulkhead.Semaphore{Limit: 1000},
		breaker.Config{SlowAfter: time.Second},
		retry.Config{},
		fallback.Value(-1),
	)
}

// watch shows a registry to Prometheus and to OpenTelemetry, with a tracer and a logger
// besides, and returns functions that read both.
func watch(tb testing.TB, reg *policy.Registry) (scrape, collect func()) {
	tb.Helper()
	tr, err := otelx.NewTracer(otelx.TracerConfig{})
	require.NoError(tb, err)
	l, err := otelx.NewLogger(otelx.LoggerConfig{})
	require.NoError(tb, err)
	reg.Use(tr, l)
	preg := prometheus.NewRegistry()
	require.NoError(tb, preg.Register(collector(tb, reg, otelx.CollectorConfig{Tracer: tr})))
	m := meter(tb, reg, otelx.MeterConfig{})
	return func() {
			_, err := preg.Gather()
			require.NoError(tb, err)
		}, func() {
			var rm metricdata.ResourceMetrics
			require.NoError(tb, m.reader.Collect(context.Background(), &rm)) //nolint:usetesting // also after the test
		}
}

func count(_ context.Context, n *int) (int, error) { *n++; return *n, nil }

// A call through a bare pipeline, and the same with everything that otelx has switched on
// and read twice a second.
func BenchmarkCall(b *testing.B) {
	for _, watched := range []bool{false, true} {
		name := "bare"
		if watched {
			name = "Prometheus and OpenTelemetry"
		}
		b.Run(name, func(b *testing.B) {
			var reg policy.Registry
			if watched {
				scrape, collect := watch(b, &reg)
				stop, done := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(done)
					for {
						select {
						case <-stop:
							return
						case <-time.After(500 * time.Millisecond):
							scrape()
							collect()
						}
					}
				}()
				defer func() { close(stop); <-done }()
			}
			p := guarded(b, &reg, "dep")
			n := 0
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				_, _ = policy.DoWith(ctx, p, &n, count)
			}
		})
	}
}

// Reading 50, 100, 200 and 400 pipelines takes time in proportion.
func BenchmarkRead(b *testing.B) {
	for _, n := range []int{50, 100, 200, 400} {
		var reg policy.Registry
		scrape, collect := watch(b, &reg)
		for i := range n {
			guarded(b, &reg, "dep"+strconv.Itoa(i))
		}
		for name, read := range map[string]func(){"Prometheus": scrape, "OpenTelemetry": collect} {
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) {
				for b.Loop() {
					read()
				}
			})
		}
	}
}
