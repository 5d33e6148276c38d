package demo

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	metricsPath   = "/metrics"
	dashboardPath = "/breakwater/"
)

// newDashboard shows the pipelines in reg. Whoever is on this machine may act: there is
// nothing to lose.
func newDashboard(reg *policy.Registry) (*dashboard.Dashboard, error) {
	d, err := dashboard.New(reg, dashboard.Config{
		Title:   "breakwater demo",
		Actions: true,
		Authorize: func(r *http.Request) (dashboard.Viewer, bool) {
			return dashboard.Viewer{Name: "demo", Act: true, Private: true}, dashboard.Loopback(r)
		},
		TraceID: otelx.TraceID,
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return d, nil
}

// serveMetrics serves the metrics of all pipelines in reg, and the dashboard.
func serveMetrics(ctx context.Context, addr string, reg *policy.Registry, dash http.Handler) (*server, error) {
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
	mux.Handle(dashboardPath, dash)
	srv.serve(mux)
	return srv, nil
}
