package otelx

import (
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
)

// DefaultBuckets returns the upper bounds of the buckets of attempt durations: doublings
// from 65.536 ms to 1.049 s, and two wider steps below and one above, from 4.096 ms to
// 4.194 s.
func DefaultBuckets() []time.Duration {
	return milliseconds(4.096, 16.384, 65.536, 131.072, 262.144, 524.288, 1048.576, 4194.304)
}

// DefaultCallBuckets returns the upper bounds of the buckets of call durations: steps of
// four from 16.384 ms to 4.194 s.
func DefaultCallBuckets() []time.Duration {
	return milliseconds(16.384, 65.536, 262.144, 1048.576, 4194.304)
}

func milliseconds(ms ...float64) []time.Duration {
	b := make([]time.Duration, len(ms))
	for i, m := range ms {
		b[i] = time.Duration(m*1000) * time.Microsecond
	}
	return b
}

// The range of a bound. The last bucket of the pipeline's histogram has no upper
// edge, so nothing can be said about durations below one.
const minBucket = time.Microsecond

var maxBucket = hist.Upper(hist.Buckets - 2)

// nearestEdge returns the edge of the pipeline's histogram that is nearest to d,
// which must be in range; halfway between two it is the lower one.
func nearestEdge(d time.Duration) time.Duration {
	i := hist.Index(d)
	upper := hist.Upper(i)
	if i == 0 {
		return upper
	}
	if lower := hist.Upper(i - 1); d-lower <= upper-d {
		return lower
	}
	return upper
}

// effectiveBuckets validates the bounds and moves each to the nearest edge.
func effectiveBuckets(kind, name string, bounds []time.Duration) ([]time.Duration, error) {
	var errs []error
	out := make([]time.Duration, len(bounds))
	for i, d := range bounds {
		field := fmt.Sprintf("%s[%d]", name, i)
		if d < minBucket || d > maxBucket {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: d, Want: fmt.Sprintf("want %s to %s", minBucket, maxBucket)})
			continue
		}
		out[i] = nearestEdge(d)
		if i > 0 && out[i] <= out[i-1] {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: d, Want: fmt.Sprintf("want rising bounds at least 1/8 apart: the one before is counted at %s, and so would this be", out[i-1])})
		}
	}
	return out, errors.Join(errs...)
}

// cumulate returns how many durations are below each bound, which must be edges.
//
// The pipeline's buckets exclude their upper edge and those of Prometheus include it, so
// a duration of exactly a bound counts one bucket higher than it would there; no other
// differs.
func cumulate(l policy.Latency, bounds []time.Duration) (counts []uint64, total uint64) {
	counts = make([]uint64, len(bounds))
	next := 0
	for i, n := range l.Counts {
		total += n
		if next < len(bounds) && l.Upper(i) == bounds[next] {
			counts[next] = total
			next++
		}
	}
	for ; next < len(bounds); next++ { // an empty Latency has no buckets
		counts[next] = total
	}
	return counts, total
}
