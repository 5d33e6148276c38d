package replay

import (
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Sum adds up counts.
func Sum(counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Mean returns the mean of counts.
func Mean(counts []int) float64 { return float64(Sum(counts)) / float64(len(counts)) }

// Extremes returns the smallest and the largest of counts.
func Extremes(counts []int) (least, most int) { return slices.Min(counts), slices.Max(counts) }

// Ratio returns how many times b a is.
func Ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// Find returns the state of a policy of a pipeline, by its name.
func Find(p *policy.Pipeline, name string) policy.PolicySnapshot {
	for _, s := range p.Snapshot().Policies {
		if s.Name == name {
			return s
		}
	}
	return policy.PolicySnapshot{}
}

// Never is the figure of a gauge that must not reach n.
func Never(g *Gauge, n int) Figure {
	if at, ok := g.Reached(n); ok {
		return Figure{text: show(at), want: "never", out: true}
	}
	return Says("never", "never")
}
