package otelx

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/breakwater-go/breakwater/policy"
)

// CollectorConfig configures a [Collector]. The zero value is valid.
type CollectorConfig struct {
	// Buckets are the upper bounds of the histogram of attempt durations, rising,
	// each in [1µs, 251.658s]. Each is moved to the nearest edge of the histogram
	// that the pipeline keeps, at most 6.25 % (or 0.5 µs) away, so that every count
	// is exact; [Collector.Config] returns the bounds in use. Each adds one series
	// per dependency. Empty means [DefaultBuckets].
	Buckets []time.Duration

	// CallBuckets are those of the histogram of call durations. Empty means
	// [DefaultCallBuckets].
	CallBuckets []time.Duration

	// WaitBuckets are those of all other histograms: times in queues, on workers and
	// for the store of a shared limit. Empty means none: without native histograms
	// these then show their number and their mean.
	WaitBuckets []time.Duration

	// MaxSeries is the largest number of series that one dependency has, at least 20.
	// Where it would have more, whole metrics are left out, the least important ones
	// first. Zero means 80; negative means any number.
	MaxSeries int

	// MaxDerived is the number of derived pipelines ([policy.Derived]), from the first
	// that was made, which are dependencies of their own; the others together are the
	// dependency "other". A place is free again when its pipeline is removed. Zero
	// means 100.
	MaxDerived int

	// Tracer is where exemplars come from: of calls that it records, the trace IDs are
	// attached to the histograms. Nil means no exemplars.
	Tracer *Tracer
}

func (c CollectorConfig) view() viewConfig {
	return viewConfig{
		kind: "collector", buckets: c.Buckets, callBuckets: c.CallBuckets, waitBounds: c.WaitBuckets,
		maxSeries: c.MaxSeries, maxDerived: c.MaxDerived,
	}
}

// Validate reports every invalid field, joined.
func (c CollectorConfig) Validate() error {
	_, err := newView(new(policy.Registry), c.view())
	return err
}

// Collector is a [prometheus.Collector] of all pipelines of a [policy.Registry],
// including those that are added later. It keeps no counters of its own: each scrape
// takes one snapshot of each pipeline and hands out what it says, so metrics are
// right from process start and without traffic. An open breaker whose delay has
// passed reads half_open.
//
// Durations are histograms that are classic and native at once; which of the two is
// stored is a setting of Prometheus.
//
// The user registers it; two Collectors meet in one [prometheus.Registerer] only
// when they are told apart with [prometheus.WrapRegistererWith]. It is safe for
// concurrent use. Collect blocks for no longer than the snapshots take.
type Collector struct {
	cfg CollectorConfig
	v   *view
}

// NewCollector returns a Collector of the pipelines in reg. The error joins
// everything that is wrong with the arguments.
func NewCollector(reg *policy.Registry, cfg CollectorConfig) (*Collector, error) {
	v, err := newView(reg, cfg.view())
	if err != nil {
		return nil, err
	}
	cfg.Buckets, cfg.CallBuckets, cfg.WaitBuckets = v.bounds[0], v.bounds[1], v.bounds[2]
	cfg.MaxSeries, cfg.MaxDerived = effectiveSeries(v), v.maxDerived
	return &Collector{cfg: cfg, v: v}, nil
}

// effectiveSeries returns the bound of a view as a configuration has it.
func effectiveSeries(v *view) int {
	if v.maxSeries == 0 {
		return -1
	}
	return v.maxSeries
}

// Config returns the effective settings.
func (c *Collector) Config() CollectorConfig {
	cfg := c.cfg
	cfg.Buckets, cfg.CallBuckets, cfg.WaitBuckets = slices.Clone(cfg.Buckets), slices.Clone(cfg.CallBuckets), slices.Clone(cfg.WaitBuckets)
	return cfg
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range table.all {
		ch <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.v.readings() {
		for i := range r.points {
			ch <- c.metric(r.dependency, &r.points[i])
		}
	}
}

// metric makes a metric of a point; an error makes the scrape fail where it can be
// seen.
func (c *Collector) metric(dependency string, p *point) prometheus.Metric {
	labels := make([]string, 0, 1+maxLabels)
	if dependency != "" {
		labels = append(labels, dependency)
	}
	labels = append(labels, p.labels[:len(p.of.labels)-len(labels)]...)
	t := prometheus.GaugeValue
	switch p.of.kind {
	case distribution:
		return c.histogram(dependency, p, labels)
	case counter:
		t = prometheus.CounterValue
	default:
	}
	m, err := prometheus.NewConstMetric(p.of.desc, t, p.value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(p.of.desc, err)
	}
	return m
}

func (c *Collector) histogram(dependency string, p *point, labels []string) prometheus.Metric {
	set := boundsOf(p.of)
	h := &histogram{
		desc: p.of.desc, labels: prometheus.MakeLabelPairs(p.of.desc, labels),
		dist: p.dist, bounds: c.v.seconds[set],
		exemplars: c.cfg.Tracer.exemplarsOf(dependency, p.of),
	}
	h.counts, h.total = cumulate(p.dist, c.v.bounds[set])
	return h
}
