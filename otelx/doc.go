// Package otelx makes pipelines visible: [Tracer] turns calls into OpenTelemetry
// spans, [Collector] turns the snapshots of a [policy.Registry] into Prometheus
// metrics.
//
// Both read what the pipeline keeps anyway. A Collector costs a call nothing; a
// Tracer costs a call that nobody records one look into its context.
//
//	tracer, err := otelx.NewTracer(otelx.TracerConfig{})
//	…
//	registry.Use(tracer) // before the pipelines are built
//	collector, err := otelx.NewCollector(&registry, otelx.CollectorConfig{})
//	…
//	prometheus.MustRegister(collector)
//
// Names of spans, attributes, metrics and labels are part of the API: they are
// listed in docs/reference/telemetry.md, and changes are in the changelog. The
// values of labels come from closed sets (outcomes, reasons, states, stops) or from
// the configuration (names of dependencies and policies). Error texts, keys and
// addresses never appear.
//
// The package depends on the OpenTelemetry API, never on its SDK, and registers
// nothing anywhere by itself. Telemetry never fails a call: a panic in a span
// processor or in a policy's Snapshot is caught.
package otelx

// ScopeName is the name of the instrumentation scope of every span.
const ScopeName = "github.com/breakwater-go/breakwater/otelx"

// Version is the version of the instrumentation scope.
const Version = "0.1.0"
