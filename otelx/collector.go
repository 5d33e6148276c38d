package otelx

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
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
}

// Validate reports every invalid field, joined.
func (c CollectorConfig) Validate() error {
	_, err := effectiveBuckets(c.Buckets)
	return err
}

// Collector is a [prometheus.Collector] of all pipelines of a [policy.Registry],
// including those that are added later. It keeps no counters of its own: each scrape
// takes one snapshot of each pipeline and hands out what it says, so metrics are
// right from process start and without traffic. An open breaker whose delay has
// passed reads half_open.
//
// The user registers it; two Collectors meet in one [prometheus.Registerer] only
// when they are told apart with [prometheus.WrapRegistererWith]. It is safe for
// concurrent use. Collect blocks for no longer than the snapshots take.
type Collector struct {
	reg      *policy.Registry
	cfg      CollectorConfig
	bounds   []float64 // cfg.Buckets in seconds
	d        *descs
	failures atomic.Uint64
}

// NewCollector returns a Collector of the pipelines in reg. The error joins
// everything that is wrong with the arguments.
func NewCollector(reg *policy.Registry, cfg CollectorConfig) (*Collector, error) {
	var errs []error
	if reg == nil {
		errs = append(errs, &policy.ConfigError{Policy: "collector", Field: "reg", Want: "want a registry"})
	}
	buckets, err := effectiveBuckets(cfg.Buckets)
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	c := &Collector{reg: reg, cfg: CollectorConfig{Buckets: buckets}, d: newDescs()}
	for _, b := range buckets {
		c.bounds = append(c.bounds, b.Seconds())
	}
	return c, nil
}

// Config returns the effective settings.
func (c *Collector) Config() CollectorConfig {
	return CollectorConfig{Buckets: slices.Clone(c.cfg.Buckets)}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.d.all {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for p := range c.reg.All() {
		snap, ok := snapshot(p)
		if !ok {
			c.failures.Add(1)
			continue
		}
		c.pipeline(emitter{ch: ch, dependency: snap.Dependency}, &snap)
	}
	emitter{ch: ch}.counter(c.d.failures, c.failures.Load())
}

// snapshot asks a pipeline for its state. A policy that panics over it must not end
// the process, which a panic in a Collector does; the pipeline is then missing from
// the scrape.
func snapshot(p *policy.Pipeline) (snap policy.Snapshot, ok bool) {
	defer func() { _ = recover() }()
	return p.Snapshot(), true
}

func (c *Collector) pipeline(e emitter, s *policy.Snapshot) {
	for k := range policy.NumKinds {
		e.counter(c.d.calls, s.Calls[k], k.String())
		e.counter(c.d.attempts, s.Attempts[k], k.String())
	}
	e.counter(c.d.retries, s.Retries)
	e.counter(c.d.panics, s.Panics)
	e.counter(c.d.discarded, s.Discarded)
	e.counter(c.d.abandoned, s.Abandoned)
	c.latency(e, s.Latency)
	for i := range s.Policies {
		p := &s.Policies[i]
		if p.Kind == closedKind && slices.ContainsFunc(s.Policies[:i], func(o policy.PolicySnapshot) bool { return o.Name == p.Name }) {
			continue // two series of one name would make the whole scrape fail
		}
		c.policy(e, p)
	}
}

// closedKind is the kind of the entry that a pipeline has for itself once it is closed.
// A policy may have taken its name.
const closedKind = "pipeline"

// latency hands out the histogram. The pipeline's buckets exclude their upper edge
// and Prometheus includes it, so a duration of exactly a bound counts one bucket
// higher than it would there; no other differs.
func (c *Collector) latency(e emitter, l policy.Latency) {
	counts := make(map[float64]uint64, len(c.bounds))
	var n uint64
	next := 0
	for i, count := range l.Counts {
		n += count
		if next < len(c.bounds) && l.Upper(i) == c.cfg.Buckets[next] {
			counts[c.bounds[next]] = n
			next++
		}
	}
	m, err := prometheus.NewConstHistogram(c.d.duration, n, l.Sum.Seconds(), counts, e.dependency)
	e.send(c.d.duration, m, err)
}

// emitter sends the metrics of one pipeline.
type emitter struct {
	ch         chan<- prometheus.Metric
	dependency string
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e.value(d, prometheus.CounterValue, float64(v), labels)
}

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.value(d, prometheus.GaugeValue, v, labels)
}

// summary sends a number of durations and their sum: the mean, and how it moves, at a
// tenth of the price of a histogram.
func (e emitter) summary(d *prometheus.Desc, l policy.Latency, labels ...string) {
	m, err := prometheus.NewConstSummary(d, l.Count(), l.Sum.Seconds(), nil, e.labels(labels)...)
	e.send(d, m, err)
}

func (e emitter) value(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	m, err := prometheus.NewConstMetric(d, t, v, e.labels(labels)...)
	e.send(d, m, err)
}

func (e emitter) labels(more []string) []string {
	if e.dependency == "" {
		return more
	}
	return append([]string{e.dependency}, more...)
}

// send passes on a metric; an error makes the scrape fail where it can be seen.
func (e emitter) send(d *prometheus.Desc, m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	e.ch <- m
}

// label makes a name usable as the value of a label. Names of dependencies and policies
// are, since policy.New has checked them; kinds and names of lanes may be anything.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
