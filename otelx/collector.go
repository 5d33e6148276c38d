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
		c.pipeline(emitter{ch: ch, dependency: label(snap.Dependency)}, &snap)
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
		c.policy(e, &s.Policies[i])
	}
}

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

func (c *Collector) policy(e emitter, p *policy.PolicySnapshot) {
	name := label(p.Name)
	c.rejections(e, name, p)
	if p.Breaker != nil {
		c.breaker(e, name, p.Breaker)
	}
	if b := p.Bulkhead; b != nil {
		e.gauge(c.d.inFlight, float64(b.InFlight), name)
		e.gauge(c.d.limit, float64(b.Limit), name)
		e.gauge(c.d.waiting, float64(b.Waiting), name)
		e.gauge(c.d.maxWaiters, float64(b.MaxWaiters), name)
		e.gauge(c.d.highWater, float64(b.HighWater), name)
	}
	if l := p.Limiter; l != nil {
		e.gauge(c.d.tokens, l.Tokens, name)
		e.gauge(c.d.burst, l.Burst, name)
		e.gauge(c.d.rate, l.Rate, name)
	}
	if r := p.Retry; r != nil {
		for stop := policy.StopNone + 1; stop < policy.NumStops; stop++ {
			e.counter(c.d.stops, r.Stopped[stop], name, stop.String())
		}
		if r.HasBudget {
			e.gauge(c.d.budgetRemaining, r.BudgetRemaining, name)
			e.gauge(c.d.budgetRatio, r.BudgetRatio, name)
		}
	}
	if f := p.Fallback; f != nil {
		e.counter(c.d.fallbacks, f.Served, name, "served")
		e.counter(c.d.fallbacks, f.Failed, name, "failed")
	}
}

// rejections hands out the refusals of a gate: those that happened, and at zero the
// ones that its kind is made to give, so that a rate over the first of them is right.
func (c *Collector) rejections(e emitter, name string, p *policy.PolicySnapshot) {
	if p.Retry != nil || p.Fallback != nil || p.Timeouts != nil {
		return // not a gate
	}
	desc, mode := c.d.rejections, "enforce"
	if p.Shadow {
		desc, mode = c.d.shadowRejections, "shadow"
	}
	expected := expectedReasons(p)
	for r := range policy.NumReasons {
		if n := p.Rejected[r]; n > 0 || expected&(1<<r) != 0 {
			e.counter(desc, n, name, r.String())
		}
	}
	e.gauge(c.d.gateInfo, 1, name, label(p.Kind), mode)
}

// expectedReasons returns, as bits, the reasons for which a gate of this kind
// refuses in the ordinary course of things.
func expectedReasons(p *policy.PolicySnapshot) uint32 {
	switch {
	case p.Breaker != nil:
		return 1<<policy.ReasonOpen | 1<<policy.ReasonProbes
	case p.Bulkhead != nil && p.Bulkhead.MaxWaiters > 0 && !p.Shadow: // in shadow mode nobody waits
		return 1<<policy.ReasonWaiters | 1<<policy.ReasonWait
	case p.Bulkhead != nil:
		return 1 << policy.ReasonConcurrency
	case p.Limiter != nil:
		return 1 << policy.ReasonRate
	}
	return 0
}

func (c *Collector) breaker(e emitter, name string, b *policy.BreakerSnapshot) {
	for _, state := range breakerStates {
		v := 0.0
		if b.State == state {
			v = 1
		}
		e.gauge(c.d.state, v, name, state)
	}
	e.counter(c.d.opened, b.Opened, name)
	e.gauge(c.d.retryAfter, max(b.RetryAfter, 0).Seconds(), name)
	e.gauge(c.d.windowCalls, float64(b.Calls), name)
	e.gauge(c.d.failureRatio, b.FailureRatio, name)
	e.gauge(c.d.slowRatio, b.SlowRatio, name)
	e.gauge(c.d.probes, float64(b.ProbesInFlight), name)
}

var breakerStates = policy.BreakerStates()

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

func (e emitter) value(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	if e.dependency != "" {
		labels = append([]string{e.dependency}, labels...)
	}
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	e.send(d, m, err)
}

// send passes on a metric; an error makes the scrape fail where it can be seen.
func (e emitter) send(d *prometheus.Desc, m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	e.ch <- m
}

// label makes a name usable as the value of a label.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
