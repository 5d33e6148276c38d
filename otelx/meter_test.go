package otelx_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// metered is a Meter whose instruments are read in memory.
type metered struct {
	*otelx.Meter

	reader *sdkmetric.ManualReader
}

func meter(tb testing.TB, reg *policy.Registry, cfg otelx.MeterConfig) metered {
	tb.Helper()
	m := metered{reader: sdkmetric.NewManualReader()}
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))
	var err error
	m.Meter, err = otelx.NewMeter(reg, cfg)
	require.NoError(tb, err)
	return m
}

// collect returns what was observed, by the name of the instrument.
func (m metered) collect(tb testing.TB) map[string]metricdata.Metrics {
	tb.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(tb, m.reader.Collect(context.WithoutCancel(tb.Context()), &rm))
	all := map[string]metricdata.Metrics{}
	for _, sm := range rm.ScopeMetrics {
		assert.Equal(tb, otelx.ScopeName, sm.Scope.Name)
		assert.Equal(tb, otelx.Version, sm.Scope.Version)
		for _, metrics := range sm.Metrics {
			all[metrics.Name] = metrics
		}
	}
	return all
}

func TestMeterShowsABreaker(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	policies, _ := everyPolicy()
	add(t, &reg, "inventory", policies...)
	got := meter(t, &reg, otelx.MeterConfig{}).collect(t)
	of := func(more ...attribute.KeyValue) attribute.Set {
		return attribute.NewSet(append(more, attribute.String("breakwater.dependency", "inventory"), attribute.String("breakwater.policy", "breaker"))...)
	}
	state := func(s string, v int64) metricdata.DataPoint[int64] {
		return metricdata.DataPoint[int64]{Attributes: of(attribute.String("breakwater.state", s)), Value: v}
	}
	metricdatatest.AssertEqual(t, metricdata.Metrics{
		Name: "breakwater.breaker.state", Unit: "{breaker}",
		Description: "1 for the state the breaker is in, 0 for the others; of a keyed breaker, the state of its worst key.",
		Data: metricdata.Sum[int64]{
			Temporality: metricdata.CumulativeTemporality,
			DataPoints: []metricdata.DataPoint[int64]{
				state("closed", 0), state("open", 1), state("half_open", 0), state("recovering", 0), state("forced_open", 0), state("forced_closed", 0),
			},
		},
	}, got["breakwater.breaker.state"], metricdatatest.IgnoreTimestamp())
	metricdatatest.AssertEqual(t, metricdata.Metrics{
		Name: "breakwater.breaker.retry_after", Unit: "s",
		Description: "Time until an open breaker lets a probe through, or a forced one is released; 0 when neither.",
		Data:        metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{{Attributes: of(), Value: 1.5}}},
	}, got["breakwater.breaker.retry_after"], metricdatatest.IgnoreTimestamp())
	metricdatatest.AssertEqual(t, metricdata.Metrics{
		Name: "breakwater.breaker.opened", Unit: "{opening}",
		Description: "Times the breaker opened, or the throttle began to refuse.",
		Data: metricdata.Sum[int64]{
			Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
			DataPoints: []metricdata.DataPoint[int64]{{Attributes: of(), Value: 3}},
		},
	}, got["breakwater.breaker.opened"], metricdatatest.IgnoreTimestamp())
}

// Both views of one registry say the same: every series of the one is in the other, with
// the same value, under the name that follows from it.
func TestMeterAndCollectorAgree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := forms(t)
		policies, refuse := everyPolicy()
		p := add(t, reg, "inventory", policies...)
		add(t, reg, "shadowed", shadow())
		rich(t, reg, "rich")
		for i := range 5 {
			add(t, reg, fmt.Sprintf("host%d", i), policy.Derived())
		}
		reg.ConfigApplied("r1")
		reg.ConfigRefused("r2", errSick)
		for i := range 20 {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (string, error) {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				return "", []error{nil, errSick, policy.AsPermanent(errSick)}[i%3]
			})
		}
		*refuse = true
		_, _ = policy.Do(t.Context(), p, script())

		for _, most := range []int{0, 40, -1} {
			m := meter(t, reg, otelx.MeterConfig{MaxSeries: most, MaxDerived: 2, WaitBuckets: []time.Duration{time.Second}})
			c := collector(t, reg, otelx.CollectorConfig{MaxSeries: most, MaxDerived: 2, WaitBuckets: []time.Duration{time.Second}})
			ours, theirs := observed(t, m.collect(t)), scraped(t, c)
			assert.Equal(t, slices.Sorted(maps.Keys(theirs)), slices.Sorted(maps.Keys(ours)))
			assert.Equal(t, theirs, ours)
			assert.Greater(t, len(ours), 300)
			require.NoError(t, m.Close())
			assert.Empty(t, m.collect(t))
			require.NoError(t, m.Close(), "again")
		}
	})
}

// observed makes Prometheus' series of OpenTelemetry's: the name follows from the name,
// the kind and the unit, and the labels from the attributes.
func observed(tb testing.TB, all map[string]metricdata.Metrics) map[string]float64 {
	tb.Helper()
	got := map[string]float64{}
	for _, m := range all {
		name, part, _ := strings.Cut(m.Name, "!")
		counts := false
		for _, suffix := range []string{".bucket", ".count", ".sum"} {
			if _, ok := all[strings.TrimSuffix(name, suffix)+".bucket"]; ok && strings.HasSuffix(name, suffix) {
				name, part = strings.TrimSuffix(name, suffix), suffix
			}
		}
		name = strings.ReplaceAll(name, ".", "_")
		put := func(set attribute.Set, v float64) {
			labels := []string{}
			for _, kv := range set.ToSlice() {
				labels = append(labels, strings.TrimPrefix(string(kv.Key), "breakwater.")+"="+kv.Value.AsString())
			}
			slices.Sort(labels)
			full := name
			switch {
			case part != "":
				full += "_seconds" + strings.ReplaceAll(part, ".", "_")
			case m.Unit == "s":
				full += "_seconds"
			case m.Unit == "1":
				full += "_ratio"
			}
			if counts && part == "" {
				full += "_total"
			}
			got[full+fmt.Sprint(labels)] = v
		}
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			counts = d.IsMonotonic
			for _, p := range d.DataPoints {
				put(p.Attributes, float64(p.Value))
			}
		case metricdata.Sum[float64]:
			counts = d.IsMonotonic
			for _, p := range d.DataPoints {
				put(p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range d.DataPoints {
				put(p.Attributes, p.Value)
			}
		default:
			tb.Errorf("%s is a %T", m.Name, d)
		}
	}
	return got
}

// scraped returns the series of a scrape.
func scraped(tb testing.TB, c prometheus.Collector) map[string]float64 {
	tb.Helper()
	preg := prometheus.NewPedanticRegistry()
	require.NoError(tb, preg.Register(c))
	families, err := preg.Gather()
	require.NoError(tb, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := []string{}
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				got[f.GetName()+"_count"+fmt.Sprint(labels)] = float64(h.GetSampleCount())
				got[f.GetName()+"_sum"+fmt.Sprint(labels)] = h.GetSampleSum()
				for _, b := range h.GetBucket() {
					got[f.GetName()+"_bucket"+fmt.Sprint(slices.Sorted(slices.Values(append(labels, fmt.Sprintf("le=%v", b.GetUpperBound())))))] = float64(b.GetCumulativeCount())
				}
				got[f.GetName()+"_bucket"+fmt.Sprint(slices.Sorted(slices.Values(append(labels, "le=+Inf"))))] = float64(h.GetSampleCount())
			case dto.MetricType_COUNTER:
				got[f.GetName()+fmt.Sprint(labels)] = m.GetCounter().GetValue()
			default:
				got[f.GetName()+fmt.Sprint(labels)] = m.GetGauge().GetValue()
			}
		}
	}
	return got
}

func TestMeterConfig(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	m, err := otelx.NewMeter(&reg, otelx.MeterConfig{})
	require.NoError(t, err)
	assert.Equal(t, otel.GetMeterProvider(), m.Config().MeterProvider, "nil is the global one")
	assert.Equal(t, otelx.DefaultBuckets(), m.Config().Buckets)
	assert.Equal(t, otelx.DefaultCallBuckets(), m.Config().CallBuckets)
	assert.Equal(t, 80, m.Config().MaxSeries)
	require.NoError(t, m.Close())

	_, err = otelx.NewMeter(nil, otelx.MeterConfig{MaxSeries: 1, MaxDerived: -1, Buckets: []time.Duration{0}})
	for _, want := range []string{"meter.reg: want a registry", "meter.MaxSeries: 1", "meter.MaxDerived: -1", "meter.Buckets[0]: 0s"} {
		require.ErrorContains(t, err, want)
	}
	require.Error(t, otelx.MeterConfig{MaxSeries: 1}.Validate())
	require.NoError(t, otelx.MeterConfig{}.Validate())

	m, err = otelx.NewMeter(&reg, otelx.MeterConfig{MeterProvider: noop.NewMeterProvider()})
	require.NoError(t, err)
	require.NoError(t, m.Close())
}

func TestMeterConcurrentSafe(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	m := meter(t, &reg, otelx.MeterConfig{})
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			p, err := reg.New(string(rune('a'+i)), retries{max: 2}, shadow())
			assert.NoError(t, err)
			for j := range 100 {
				_, _ = policy.Do(t.Context(), p, script(errSick))
				if j%10 == 0 {
					m.collect(t)
				}
			}
		}()
	}
	for range 4 {
		<-done
	}
	assert.Len(t, m.collect(t)["breakwater.retries"].Data.(metricdata.Sum[int64]).DataPoints, 4)
}

// States are right before the first call, and after an open delay in which nothing
// happened.
func TestMeterFollowsABreakerWithoutTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		m := meter(t, &reg, otelx.MeterConfig{})
		p := add(t, &reg, "dep", breaker.Config{MinCalls: 1, OpenFor: 5 * time.Second})
		state := func() (states []string) {
			for series, v := range observed(t, m.collect(t)) {
				if strings.HasPrefix(series, "breakwater_breaker_state[") && v == 1 {
					states = append(states, series[strings.Index(series, "state="):])
				}
			}
			return states
		}
		assert.Equal(t, []string{"state=closed]"}, state())
		_, _ = policy.Do(t.Context(), p, script(errSick))
		assert.Equal(t, []string{"state=open]"}, state())
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"state=half_open]"}, state())
	})
}
