package otelx_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// Metrics of every pipeline of a registry, on a page for Prometheus.
func Example() {
	var registry policy.Registry
	collector, err := otelx.NewCollector(&registry, otelx.CollectorConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	metrics := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	metrics.MustRegister(collector)
	page := promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})

	inventory, err := registry.New("inventory", breaker.Config{MinCalls: 2}, fallback.Value("in stock"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, _ = policy.Do(context.Background(), inventory, func(context.Context) (string, error) {
			return "", errors.New("connection refused")
		})
	}

	rec := httptest.NewRecorder()
	page.ServeHTTP(rec, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "breakwater_breaker_state") || strings.HasPrefix(line, "breakwater_fallbacks") ||
			strings.HasPrefix(line, "breakwater_rejections") {
			fmt.Print(line)
		}
	}
	// Output:
	// breakwater_breaker_state{dependency="inventory",policy="breaker",state="closed"} 0
	// breakwater_breaker_state{dependency="inventory",policy="breaker",state="forced_closed"} 0
	// breakwater_breaker_state{dependency="inventory",policy="breaker",state="forced_open"} 0
	// breakwater_breaker_state{dependency="inventory",policy="breaker",state="half_open"} 0
	// breakwater_breaker_state{dependency="inventory",policy="breaker",state="open"} 1
	// breakwater_breaker_state{dependency="inventory",policy="breaker",state="recovering"} 0
	// breakwater_fallbacks_total{dependency="inventory",policy="fallback",result="failed"} 0
	// breakwater_fallbacks_total{dependency="inventory",policy="fallback",result="served"} 3
	// breakwater_rejections_total{dependency="inventory",policy="breaker",reason="forced"} 0
	// breakwater_rejections_total{dependency="inventory",policy="breaker",reason="open"} 1
	// breakwater_rejections_total{dependency="inventory",policy="breaker",reason="probes"} 0
	// breakwater_rejections_total{dependency="inventory",policy="breaker",reason="ramp"} 0
}

// A retried call inside the trace of a request.
func ExampleTracer() {
	spans := tracetest.NewInMemoryExporter() // in a service: an OTLP exporter
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	var registry policy.Registry
	registry.Use(otelx.TracerConfig{TracerProvider: provider}) // every pipeline from here on
	inventory, err := registry.New("inventory", retry.Config{BaseDelay: retry.Off})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, request := provider.Tracer("server").Start(context.Background(), "GET /basket")
	tries := 0
	_, _ = policy.Do(ctx, inventory, func(context.Context) (string, error) {
		if tries++; tries == 1 {
			return "", errors.New("connection refused")
		}
		return "in stock", nil
	})
	request.End()

	for _, s := range spans.GetSpans() { // in the order they ended
		fmt.Println(s.Name)
		for _, a := range s.Attributes {
			fmt.Printf("\t%s=%s\n", a.Key, a.Value)
		}
	}
	// Output:
	// attempt inventory
	// 	breakwater.dependency=inventory
	// 	breakwater.attempt=1
	// 	breakwater.outcome=failure
	// 	error.type=failure
	// attempt inventory
	// 	breakwater.dependency=inventory
	// 	breakwater.attempt=2
	// 	breakwater.outcome=success
	// 	breakwater.retry.delay=0
	// call inventory
	// 	breakwater.dependency=inventory
	// 	breakwater.outcome=success
	// 	breakwater.attempts=2
	// 	breakwater.degraded=false
	// GET /basket
}
