package otelx

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/breakwater-go/breakwater/policy"
)

// MeterConfig configures a [Meter]. The zero value is valid. All but MeterProvider mean
// what they do in [CollectorConfig].
type MeterConfig struct {
	// MeterProvider makes the instruments. Nil means the global one, also if it is set
	// after the Meter was made.
	MeterProvider metric.MeterProvider

	// Buckets are the upper bounds of the buckets of attempt durations. Empty means
	// [DefaultBuckets].
	Buckets []time.Duration

	// CallBuckets are those of call durations. Empty means [DefaultCallBuckets].
	CallBuckets []time.Duration

	// WaitBuckets are those of all other durations. Empty means none.
	WaitBuckets []time.Duration

	// MaxSeries is the largest number of series that one dependency has, at least 20.
	// Zero means 80; negative means any number.
	MaxSeries int

	// MaxDerived is the number of derived pipelines that are dependencies of their
	// own. Zero means 100.
	MaxDerived int
}

func (c MeterConfig) view() viewConfig {
	return viewConfig{
		kind: "meter", buckets: c.Buckets, callBuckets: c.CallBuckets, waitBounds: c.WaitBuckets,
		maxSeries: c.MaxSeries, maxDerived: c.MaxDerived,
	}
}

// Validate reports every invalid field, joined.
func (c MeterConfig) Validate() error {
	_, err := newView(new(policy.Registry), c.view())
	return err
}

// Meter shows all pipelines of a [policy.Registry] through OpenTelemetry's observable
// instruments, including those that are added later. It says what a [Collector] of the
// same registry says, under OpenTelemetry's names, and keeps no counters of its own: a
// collection takes one snapshot of each pipeline.
//
// OpenTelemetry's API has no observable histogram. Durations are counters of what their
// buckets hold, with the attribute le as in Prometheus, and of their number and sum.
//
// It is safe for concurrent use.
type Meter struct {
	cfg MeterConfig
	v   *view

	instruments []instrument // by the index of the family
	reg         metric.Registration

	mu   sync.Mutex
	sets map[setKey]metric.MeasurementOption
}

// instrument is a family as OpenTelemetry has it. Of a distribution counters holds what
// the buckets hold, count how many durations there are, and seconds their sum.
type instrument struct {
	counter metric.Int64ObservableCounter
	updown  metric.Int64ObservableUpDownCounter
	gauge   metric.Float64ObservableGauge
	count   metric.Int64ObservableCounter
	seconds metric.Float64ObservableCounter
}

// setKey is what a set of attributes is made of.
type setKey struct {
	of         *family
	dependency string
	labels     [maxLabels]string
	le         string
}

// maxSets bounds the sets that are remembered, should dependencies come without end.
const maxSets = 1 << 16

// NewMeter registers the instruments of the pipelines in reg. The error joins everything
// that is wrong with the arguments and what the MeterProvider refused. [Meter.Close]
// takes them away.
func NewMeter(reg *policy.Registry, cfg MeterConfig) (*Meter, error) {
	v, err := newView(reg, cfg.view())
	if err != nil {
		return nil, err
	}
	cfg.Buckets, cfg.CallBuckets, cfg.WaitBuckets = v.bounds[0], v.bounds[1], v.bounds[2]
	cfg.MaxSeries, cfg.MaxDerived = effectiveSeries(v), v.maxDerived
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = otel.GetMeterProvider()
	}
	m := &Meter{cfg: cfg, v: v, sets: map[setKey]metric.MeasurementOption{}}
	meter := cfg.MeterProvider.Meter(ScopeName, metric.WithInstrumentationVersion(Version), metric.WithSchemaURL(semconv.SchemaURL))
	var all []metric.Observable
	m.instruments, all, err = newInstruments(meter)
	if err != nil {
		return nil, err
	}
	m.reg, err = meter.RegisterCallback(m.observe, all...)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Config returns the effective settings.
func (m *Meter) Config() MeterConfig {
	cfg := m.cfg
	cfg.Buckets, cfg.CallBuckets, cfg.WaitBuckets = slices.Clone(cfg.Buckets), slices.Clone(cfg.CallBuckets), slices.Clone(cfg.WaitBuckets)
	return cfg
}

// Close ends the observation. Further calls do nothing.
func (m *Meter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reg == nil {
		return nil
	}
	err := m.reg.Unregister()
	m.reg = nil
	return err
}

// newInstruments makes the instruments of all families.
func newInstruments(meter metric.Meter) (list []instrument, all []metric.Observable, err error) {
	var errs []error
	list = make([]instrument, len(table.all))
	for i, f := range table.all {
		in, name := &list[i], "breakwater."+f.otel
		var err error
		switch f.kind {
		case counter:
			in.counter, err = meter.Int64ObservableCounter(name, metric.WithUnit(f.unit), metric.WithDescription(f.help))
			all = append(all, in.counter)
		case updown:
			in.updown, err = meter.Int64ObservableUpDownCounter(name, metric.WithUnit(f.unit), metric.WithDescription(f.help))
			all = append(all, in.updown)
		case distribution:
			in.counter, err = meter.Int64ObservableCounter(name+".bucket", metric.WithUnit("{duration}"), metric.WithDescription(f.help+" Durations below le."))
			errs = append(errs, err)
			in.count, err = meter.Int64ObservableCounter(name+".count", metric.WithUnit("{duration}"), metric.WithDescription(f.help+" How many."))
			errs = append(errs, err)
			in.seconds, err = meter.Float64ObservableCounter(name+".sum", metric.WithUnit(f.unit), metric.WithDescription(f.help+" Their sum."))
			all = append(all, in.counter, in.count, in.seconds)
		default:
			in.gauge, err = meter.Float64ObservableGauge(name, metric.WithUnit(f.unit), metric.WithDescription(f.help))
			all = append(all, in.gauge)
		}
		errs = append(errs, err)
	}
	return list, all, errors.Join(errs...)
}

// observe is the callback of a collection.
func (m *Meter) observe(_ context.Context, o metric.Observer) error {
	list := m.v.readings()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range list {
		for j := range list[i].points {
			m.observePoint(o, list[i].dependency, &list[i].points[j])
		}
	}
	return nil
}

func (m *Meter) observePoint(o metric.Observer, dependency string, p *point) {
	in := &m.instruments[p.of.index]
	key := setKey{of: p.of, dependency: dependency, labels: p.labels}
	switch p.of.kind {
	case counter:
		o.ObserveInt64(in.counter, int64(p.value), m.setLocked(key))
	case updown:
		o.ObserveInt64(in.updown, int64(p.value), m.setLocked(key))
	case distribution:
		set := boundsOf(p.of)
		counts, total := cumulate(p.dist, m.v.bounds[set])
		o.ObserveInt64(in.count, int64(total), m.setLocked(key)) //nolint:gosec // counts of what happened
		o.ObserveFloat64(in.seconds, p.dist.Sum.Seconds(), m.setLocked(key))
		for i, n := range append(counts, total) {
			key.le = "+Inf"
			if i < len(counts) {
				key.le = strconv.FormatFloat(m.v.seconds[set][i], 'g', -1, 64)
			}
			o.ObserveInt64(in.counter, int64(n), m.setLocked(key)) //nolint:gosec // counts of what happened
		}
	default:
		o.ObserveFloat64(in.gauge, p.value, m.setLocked(key))
	}
}

// setLocked returns the attributes of a series, which are made once.
func (m *Meter) setLocked(key setKey) metric.MeasurementOption {
	if set, ok := m.sets[key]; ok {
		return set
	}
	attrs := make([]attribute.KeyValue, 0, 2+maxLabels)
	rest := key.of.labels
	if key.dependency != "" {
		attrs = append(attrs, keyDependency.String(key.dependency))
		rest = rest[1:]
	}
	for i, name := range rest {
		attrs = append(attrs, attribute.String("breakwater."+name, key.labels[i]))
	}
	if key.le != "" {
		attrs = append(attrs, attribute.String("le", key.le))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	if len(m.sets) >= maxSets {
		clear(m.sets)
	}
	m.sets[key] = set
	return set
}
