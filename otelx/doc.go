// Package otelx makes pipelines visible: [Tracer] turns calls into OpenTelemetry spans,
// [Collector] and [Meter] turn the snapshots of a [policy.Registry] into metrics for
// Prometheus and for OpenTelemetry, [Logger] writes what changes to a [slog.Logger], and
// [DebugHandler] is a page for those who have none of these.
//
// All read what the pipeline keeps anyway. Metrics cost a call nothing; a Tracer costs a
// call that nobody records one look into its context; a Logger hears only of what did not
// succeed at once.
//
//	tracer, err := otelx.NewTracer(otelx.TracerConfig{})
//	…
//	logger, err := otelx.NewLogger(otelx.LoggerConfig{})
//	…
//	registry.Use(tracer, logger) // before the pipelines are built
//	collector, err := otelx.NewCollector(&registry, otelx.CollectorConfig{Tracer: tracer})
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
// nothing anywhere by itself. Telemetry never fails a call: a panic in a span processor,
// in a log handler or in a policy's Snapshot is caught.
package otelx

// ScopeName is the name of the instrumentation scope of every span, metric and event.
const ScopeName = "github.com/breakwater-go/breakwater/otelx"

// Version is the version of the instrumentation scope.
const Version = "0.1.0"
