package otelx

import (
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
)

// DefaultBuckets returns the upper bounds of the buckets of attempt durations: 12
// doublings from 2.048 ms to 4.194 s.
func DefaultBuckets() []time.Duration {
	b := make([]time.Duration, 0, 12)
	for d := 2048 * time.Microsecond; len(b) < cap(b); d *= 2 {
		b = append(b, d)
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
func effectiveBuckets(bounds []time.Duration) ([]time.Duration, error) {
	if len(bounds) == 0 {
		return DefaultBuckets(), nil
	}
	var errs []error
	out := make([]time.Duration, len(bounds))
	for i, d := range bounds {
		field := fmt.Sprintf("Buckets[%d]", i)
		if d < minBucket || d > maxBucket {
			errs = append(errs, &policy.ConfigError{Policy: "collector", Field: field, Value: d, Want: fmt.Sprintf("want %s to %s", minBucket, maxBucket)})
			continue
		}
		out[i] = nearestEdge(d)
		if i > 0 && out[i] <= out[i-1] {
			errs = append(errs, &policy.ConfigError{Policy: "collector", Field: field, Value: d, Want: fmt.Sprintf("want rising bounds at least 1/8 apart: the one before is counted at %s, and so would this be", out[i-1])})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}
