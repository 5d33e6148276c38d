package otelx

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Values returns what all metrics of reg say now, by dependency, under the names that
// they have in OpenTelemetry with their labels, as in
//
//	breaker.state{policy=breaker,state=open}
//
// What concerns the registry as a whole is under the empty name. Of durations there are
// count, sum (in seconds), p50 and p99. It is for those who have neither OpenTelemetry nor
// Prometheus: package expvars publishes it. Nothing is left out, however much there is.
func Values(reg *policy.Registry) map[string]map[string]float64 {
	v, err := newView(reg, viewConfig{kind: "values", maxSeries: -1})
	if err != nil {
		return nil
	}
	all := map[string]map[string]float64{}
	for _, r := range v.readings() {
		values := make(map[string]float64, len(r.points))
		for i := range r.points {
			r.points[i].values(r.dependency != "", values)
		}
		all[r.dependency] = values
	}
	return all
}

// values adds what a point says.
func (p *point) values(dependent bool, to map[string]float64) {
	names := p.of.labels
	if dependent {
		names = names[1:]
	}
	var b strings.Builder
	for i, name := range names {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		b.WriteByte(sep)
		b.WriteString(name + "=" + p.labels[i])
	}
	if b.Len() > 0 {
		b.WriteByte('}')
	}
	labels := b.String()
	if p.of.kind != distribution {
		to[p.of.otel+labels] = p.value
		return
	}
	to[p.of.otel+".count"+labels] = float64(p.dist.Count())
	to[p.of.otel+".sum"+labels] = p.dist.Sum.Seconds()
	if p.dist.Count() > 0 {
		to[p.of.otel+".p50"+labels] = p.dist.Quantile(0.5).Seconds()
		to[p.of.otel+".p99"+labels] = p.dist.Quantile(0.99).Seconds()
	}
}

// quantiles formats what a histogram says in few words.
func quantiles(l policy.Latency) string {
	n := l.Count()
	if n == 0 {
		return "none"
	}
	mean := l.Sum / time.Duration(n) //nolint:gosec // a number of calls
	return fmt.Sprintf("%d, mean %s, p50 %s, p99 %s", n, short(mean), short(l.Quantile(0.5)), short(l.Quantile(0.99)))
}

// short rounds a duration to what is worth reading.
func short(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Microsecond; unit /= 10 {
		if d.Abs() >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
