package otelx

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Bounds of what a view shows, unless its configuration says otherwise.
const (
	defaultMaxSeries  = 80
	leastMaxSeries    = 20
	defaultMaxDerived = 100
)

// view reads the pipelines of a registry. The Collector, the Meter and the pages are
// all made of it, so no two of them can disagree.
type view struct {
	reg        *policy.Registry
	bounds     [3][]time.Duration // of attempts, calls and waits
	seconds    [3][]float64       // the same
	maxSeries  int                // 0 is unlimited
	maxDerived int

	failures atomic.Uint64 // snapshots

	mu   sync.Mutex
	past past // guarded by mu
}

// viewConfig is what the configurations of views have in common.
type viewConfig struct {
	kind                             string
	buckets, callBuckets, waitBounds []time.Duration
	maxSeries, maxDerived            int
}

// newView validates a configuration. It reports every fault.
func newView(reg *policy.Registry, c viewConfig) (*view, error) {
	v := &view{reg: reg, maxSeries: c.maxSeries, maxDerived: c.maxDerived}
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: c.kind, Field: field, Value: value, Want: want})
	}
	if reg == nil {
		errs = append(errs, &policy.ConfigError{Policy: c.kind, Field: "reg", Want: "want a registry"})
	}
	for i, b := range []struct {
		field  string
		bounds []time.Duration
		usual  []time.Duration
	}{
		{"Buckets", c.buckets, DefaultBuckets()},
		{"CallBuckets", c.callBuckets, DefaultCallBuckets()},
		{"WaitBuckets", c.waitBounds, nil},
	} {
		bounds, err := effectiveBuckets(c.kind, b.field, b.bounds)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(bounds) == 0 {
			bounds = b.usual
		}
		v.bounds[i] = bounds
		for _, d := range bounds {
			v.seconds[i] = append(v.seconds[i], d.Seconds())
		}
	}
	switch {
	case c.maxSeries == 0:
		v.maxSeries = defaultMaxSeries
	case c.maxSeries < 0:
		v.maxSeries = 0
	case c.maxSeries < leastMaxSeries:
		fault("MaxSeries", c.maxSeries, "want at least 20 (0 means 80, negative any number)")
	}
	switch {
	case c.maxDerived == 0:
		v.maxDerived = defaultMaxDerived
	case c.maxDerived < 0:
		fault("MaxDerived", c.maxDerived, "want at least 0 (0 means 100)")
	}
	return v, errors.Join(errs...)
}

// boundsOf returns which bounds the buckets of a distribution have.
func boundsOf(f *family) int {
	switch f {
	case table.duration:
		return 0
	case table.callDuration:
		return 1
	}
	return 2
}

// size returns the number of series that a point is for Prometheus: a histogram has one
// for each bound, one for +Inf, one for the count and one for the sum.
func (v *view) size(p *point) int {
	if p.of.kind != distribution {
		return 1
	}
	return len(v.bounds[boundsOf(p.of)]) + 3
}

// other is the dependency of derived pipelines that are shown as one.
const other = "other"

// readings says what there is to say now: about each dependency, and in the end about
// the registry.
func (v *view) readings() []reading {
	list, rest, folded := v.read()
	if len(rest.points) > 0 {
		if i := slices.IndexFunc(list, func(r reading) bool { return r.dependency == other }); i >= 0 {
			list[i].points = append(list[i].points, rest.points...) // somebody took the name
		} else {
			list = append(list, rest)
		}
	}
	for i := range list {
		r := &list[i]
		r.merge()
		v.cut(r)
		if r.omitted > 0 {
			r.number(table.omitted, r.omitted)
		}
	}
	own := reading{}
	own.count(table.failures, v.failures.Load())
	if c := v.reg.Config(); c.Applied+c.Refused > 0 {
		own.count(table.configVersion, c.Version)
		own.count(table.configLoads, c.Applied, "applied")
		own.count(table.configLoads, c.Refused, "refused")
		if c.Applied > 0 {
			own.add(table.configApplied, float64(c.Since.UnixNano())/1e9)
		}
	}
	if len(rest.points) > 0 {
		own.number(table.folded, folded)
	}
	return append(list, own)
}

// read reads all pipelines. Those that are shown as one are together in rest, with what
// such ones had counted that are no longer there.
func (v *view) read() (list []reading, rest reading, folded int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rest.dependency = other
	now := map[*policy.Pipeline][]point{}
	for p := range v.reg.All() {
		s, ok := snapshot(p)
		if !ok {
			v.failures.Add(1)
			if before, ok := v.past.last[p]; ok {
				folded++
				now[p] = before
				rest.points = append(rest.points, before...)
			}
			continue
		}
		r := read(&s)
		if s.Derived <= v.maxDerived {
			list = append(list, r)
			continue
		}
		folded++
		rest.points = append(rest.points, r.points...)
		now[p] = rising(r.points)
	}
	rest.points = append(rest.points, v.past.advance(now)...)
	return list, rest, folded
}

// snapshot asks a pipeline for its state. A policy that panics over it must not end
// the process, which a panic in a Collector does; the pipeline is then missing from
// the scrape.
func snapshot(p *policy.Pipeline) (snap policy.Snapshot, ok bool) {
	defer func() { _ = recover() }()
	return p.Snapshot(), true
}

// merge puts the points of a reading in order, those of one metric together, and makes
// one of those that have all labels in common.
func (r *reading) merge() {
	slices.SortStableFunc(r.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.of.index, b.of.index), slices.Compare(a.labels[:], b.labels[:]))
	})
	kept := r.points[:0]
	for _, p := range r.points {
		if n := len(kept); n > 0 && kept[n-1].of == p.of && kept[n-1].labels == p.labels {
			kept[n-1].join(&p)
			continue
		}
		kept = append(kept, p)
	}
	r.points = kept
}

// join adds another point to one of the same metric.
func (p *point) join(o *point) {
	switch p.of.kind {
	case gauge:
		p.value = max(p.value, o.value)
	case gaugeLow:
		p.value = min(p.value, o.value)
	case distribution:
		counts := make([]uint64, max(len(p.dist.Counts), len(o.dist.Counts)))
		copy(counts, p.dist.Counts)
		for i, n := range o.dist.Counts {
			counts[i] += n
		}
		p.dist = policy.Latency{Counts: counts, Sum: p.dist.Sum + o.dist.Sum}
	default:
		p.value += o.value
	}
}

// cut leaves out metrics, those of the last rank first, until no more series are left
// than the dependency may have. The one that says how many went is among them.
// Of a metric whose series differ in rank, those of one rank go together.
func (v *view) cut(r *reading) {
	if v.maxSeries == 0 {
		return
	}
	total := 0
	sizes := make([][trivial + 1]int, len(table.all))
	for i := range r.points {
		p := &r.points[i]
		n := v.size(p)
		sizes[p.of.index][p.rank] += n
		total += n
	}
	if total <= v.maxSeries {
		return
	}
	out := make([][trivial + 1]bool, len(table.all))
	total++ // omitted_series
	for rank := trivial; rank >= vital && total > v.maxSeries; rank-- {
		for i := len(table.all) - 1; i >= 0 && total > v.maxSeries; i-- {
			if n := sizes[i][rank]; n > 0 && table.all[i] != table.calls {
				out[i][rank] = true
				total -= n
				r.omitted += n
			}
		}
	}
	r.points = slices.DeleteFunc(r.points, func(p point) bool { return out[p.of.index][p.rank] })
}
