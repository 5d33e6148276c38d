package demo

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

const metricsPath = "/metrics"

// serveMetrics serves the metrics of all pipelines in reg.
func serveMetrics(ctx context.Context, addr string, reg *policy.Registry) (*server, error) {
	collector, err := otelx.NewCollector(reg, otelx.CollectorConfig{})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	metrics := prometheus.NewRegistry()
	if err := metrics.Register(collector); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	srv, err := listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	srv.serve(mux)
	return srv, nil
}
