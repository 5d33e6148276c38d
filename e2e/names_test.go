package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// What OpenTelemetry's own exporter for Prometheus makes of the Meter's names are the
// names that the Collector has, so that queries work with either. Histograms are counters
// there, and what is per second says so in its name.
func TestNamesAreThoseOfTheExporter(t *testing.T) {
	t.Parallel()
	var registry policy.Registry
	_, err := registry.New("dep",
		retry.Config{}, fallback.Value(1), breaker.Config{SlowAfter: time.Second},
		bulkhead.Semaphore{MaxWait: time.Second}, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1)})
	require.NoError(t, err)
	registry.ConfigApplied("r1")

	theirs := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(theirs), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	require.NoError(t, err)
	meter, err := otelx.NewMeter(&registry, otelx.MeterConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))})
	require.NoError(t, err)
	defer func() { assert.NoError(t, meter.Close()) }()
	ours := prometheus.NewRegistry()
	collector, err := otelx.NewCollector(&registry, otelx.CollectorConfig{})
	require.NoError(t, err)
	require.NoError(t, ours.Register(collector))

	got := names(t, theirs)
	for name := range names(t, ours) {
		switch {
		case strings.HasSuffix(name, "duration_seconds"), strings.HasSuffix(name, "wait_seconds"):
			base := strings.TrimSuffix(name, "_seconds")
			assert.Contains(t, got, base+"_bucket_total")
			assert.Contains(t, got, base+"_count_total")
			assert.Contains(t, got, base+"_sum_seconds_total")
		case name == "breakwater_ratelimit_rate":
			assert.Contains(t, got, name+"_per_second")
		default:
			assert.Contains(t, got, name)
		}
	}
}

func names(t *testing.T, g prometheus.Gatherer) map[string]bool {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	all := map[string]bool{}
	for _, f := range families {
		all[f.GetName()] = true
	}
	return all
}
