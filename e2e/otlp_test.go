package e2e_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is the OpenTelemetry collector's receiver, with what it has received.
type collector struct {
	endpoint string
	traces   consumertest.TracesSink
	metrics  consumertest.MetricsSink
	logs     consumertest.LogsSink
}

// startCollector starts the receiver on a free port of the loopback interface.
func startCollector(t *testing.T) *collector {
	t.Helper()
	var err error
	for range 5 { // somebody else may take the port in between
		c := &collector{endpoint: freePort(t)}
		if err = c.start(t); err == nil {
			return c
		}
	}
	require.NoError(t, err)
	return nil
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (c *collector) start(t *testing.T) error {
	t.Helper()
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"protocols": map[string]any{"grpc": map[string]any{"endpoint": c.endpoint}},
	}).Unmarshal(cfg))
	settings := receivertest.NewNopSettings(factory.Type())
	var parts []receiver.Traces // all three are one receiver
	traces, err := factory.CreateTraces(t.Context(), settings, cfg, &c.traces)
	require.NoError(t, err)
	metrics, err := factory.CreateMetrics(t.Context(), settings, cfg, &c.metrics)
	require.NoError(t, err)
	logs, err := factory.CreateLogs(t.Context(), settings, cfg, &c.logs)
	require.NoError(t, err)
	for _, part := range append(parts, traces, metrics, logs) {
		if err := part.Start(t.Context(), componenttest.NewNopHost()); err != nil {
			return err
		}
		t.Cleanup(func() { assert.NoError(t, part.Shutdown(context.WithoutCancel(t.Context()))) })
	}
	return nil
}

// Spans, events and metrics of a pipeline arrive in a collector as they were meant.
func TestOTLPRoundTrip(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	spans, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(c.endpoint), otlptracegrpc.WithInsecure())
	require.NoError(t, err)
	numbers, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(c.endpoint), otlpmetricgrpc.WithInsecure())
	require.NoError(t, err)
	events, err := otlploggrpc.New(ctx, otlploggrpc.WithEndpoint(c.endpoint), otlploggrpc.WithInsecure())
	require.NoError(t, err)
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(numbers, sdkmetric.WithInterval(time.Hour))))
	lp := sdklog.NewLoggerProvider(sdklog.WithProcessor(sdklog.NewBatchProcessor(events)))

	var registry policy.Registry
	registry.Use(otelx.TracerConfig{TracerProvider: tp, LoggerProvider: lp, Always: true})
	meter, err := otelx.NewMeter(&registry, otelx.MeterConfig{MeterProvider: mp})
	require.NoError(t, err)
	inventory, err := registry.New("inventory",
		retry.Config{MaxAttempts: 2, BaseDelay: retry.Off},
		breaker.Config{ConsecutiveFailures: 2, MinCalls: 1000, OpenFor: time.Hour},
		fallback.Value("stale"))
	require.NoError(t, err)
	for range 2 { // the first fails twice and opens the breaker, the second is refused
		answer, err := policy.Do(ctx, inventory, func(context.Context) (string, error) { return "", errors.New("away") })
		require.NoError(t, err)
		assert.Equal(t, "stale", answer)
	}
	require.NoError(t, tp.Shutdown(ctx))
	require.NoError(t, mp.ForceFlush(ctx))
	require.NoError(t, mp.Shutdown(ctx))
	require.NoError(t, lp.Shutdown(ctx))
	require.NoError(t, meter.Close())

	c.checkSpans(t)
	c.checkEvents(t)
	c.checkMetrics(t)
}

func (c *collector) checkSpans(t *testing.T) {
	t.Helper()
	byName := map[string][]ptrace.Span{}
	for _, batch := range c.traces.AllTraces() {
		for _, rs := range batch.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				assert.Equal(t, otelx.ScopeName, ss.Scope().Name())
				for _, s := range ss.Spans().All() {
					byName[s.Name()] = append(byName[s.Name()], s)
				}
			}
		}
	}
	calls, attempts := byName["call inventory"], byName["attempt inventory"]
	require.Len(t, calls, 2)
	require.Len(t, attempts, 3)
	assert.Equal(t, calls[0].SpanID(), attempts[0].ParentSpanID())
	assert.Equal(t, calls[0].SpanID(), attempts[1].ParentSpanID())
	assert.Equal(t, calls[1].SpanID(), attempts[2].ParentSpanID())
	assert.Equal(t, ptrace.StatusCodeError, attempts[0].Status().Code())
	assert.Equal(t, ptrace.StatusCodeUnset, calls[0].Status().Code(), "a fallback answered")
	refused := attempts[2].Attributes().AsRaw()
	assert.Equal(t, "breaker", refused["breakwater.policy"])
	assert.Equal(t, "open", refused["breakwater.reason"])
	assert.InDelta(t, 3600, refused["breakwater.retry_after"], 60)
}

func (c *collector) checkEvents(t *testing.T) {
	t.Helper()
	got := map[string][]plog.LogRecord{}
	for _, batch := range c.logs.AllLogs() {
		for _, rl := range batch.ResourceLogs().All() {
			for _, sl := range rl.ScopeLogs().All() {
				for _, l := range sl.LogRecords().All() {
					got[l.EventName()] = append(got[l.EventName()], l)
				}
			}
		}
	}
	require.Len(t, got["breakwater.retry"], 1)
	require.Len(t, got["breakwater.rejected"], 1)
	require.Len(t, got["breakwater.fallback"], 2)
	rejected := got["breakwater.rejected"][0]
	assert.Equal(t, plog.SeverityNumberWarn, rejected.SeverityNumber())
	assert.False(t, rejected.TraceID().IsEmpty(), "it is in a trace")
	assert.Equal(t, "open", rejected.Attributes().AsRaw()["breakwater.reason"])
}

func (c *collector) checkMetrics(t *testing.T) {
	t.Helper()
	got := map[string]pmetric.Metric{}
	batches := c.metrics.AllMetrics()
	require.NotEmpty(t, batches)
	for _, rm := range batches[0].ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				got[m.Name()] = m
			}
		}
	}
	value := func(name string, want map[string]any) (float64, bool) {
		m, ok := got[name]
		if !ok {
			return 0, false
		}
		points := pmetric.NewNumberDataPointSlice()
		switch m.Type() {
		case pmetric.MetricTypeSum:
			points = m.Sum().DataPoints()
		case pmetric.MetricTypeGauge:
			points = m.Gauge().DataPoints()
		default:
		}
		for _, p := range points.All() {
			if matches(p.Attributes(), want) {
				if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
					return float64(p.IntValue()), true
				}
				return p.DoubleValue(), true
			}
		}
		return 0, false
	}
	for _, tt := range []struct {
		name  string
		attrs map[string]any
		want  float64
	}{
		{"breakwater.calls", map[string]any{"breakwater.outcome": "failure"}, 1},
		{"breakwater.calls", map[string]any{"breakwater.outcome": "not_run"}, 1},
		{"breakwater.attempts", map[string]any{"breakwater.outcome": "failure"}, 2},
		{"breakwater.retries", nil, 1},
		{"breakwater.rejections", map[string]any{"breakwater.policy": "breaker", "breakwater.reason": "open"}, 1},
		{"breakwater.fallbacks", map[string]any{"breakwater.result": "served"}, 2},
		{"breakwater.breaker.state", map[string]any{"breakwater.state": "open"}, 1},
		{"breakwater.breaker.state", map[string]any{"breakwater.state": "closed"}, 0},
		{"breakwater.attempt.duration.count", nil, 2},
		{"breakwater.attempt.duration.bucket", map[string]any{"le": "+Inf"}, 2},
	} {
		got, ok := value(tt.name, tt.attrs)
		assert.True(t, ok, "%s %v", tt.name, tt.attrs)
		assert.InDelta(t, tt.want, got, 0, "%s %v", tt.name, tt.attrs)
	}
	left, ok := value("breakwater.breaker.retry_after", map[string]any{"breakwater.policy": "breaker"})
	assert.True(t, ok)
	assert.InDelta(t, 3600, left, 60)
	assert.True(t, got["breakwater.calls"].Sum().IsMonotonic())
	assert.Equal(t, "{call}", got["breakwater.calls"].Unit())
	assert.False(t, got["breakwater.breaker.state"].Sum().IsMonotonic())
}

func matches(attrs pcommon.Map, want map[string]any) bool {
	raw := attrs.AsRaw()
	for k, v := range want {
		if raw[k] != v {
			return false
		}
	}
	return raw["breakwater.dependency"] == "inventory"
}
