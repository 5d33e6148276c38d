// Package e2e holds tests of breakwater together with programs that it does not require:
// what goes out over OTLP is taken in by the OpenTelemetry collector's own receiver.
package e2e
