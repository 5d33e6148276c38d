package retry

import (
	"math"
	"time"
)

// Jitter says how much of a backoff is left to chance. The zero value is
// [FullJitter].
type Jitter uint8

// The kinds of jitter.
const (
	// FullJitter waits a random time, evenly distributed from zero to the backoff.
	// Of the usual kinds it spreads callers that failed together most evenly.
	FullJitter Jitter = iota

	// NoJitter waits for the whole backoff. Callers that failed together come back
	// together.
	NoJitter

	numJitters
)

// String returns "full" or "none".
func (j Jitter) String() string {
	switch j {
	case FullJitter:
		return "full"
	case NoJitter:
		return "none"
	default:
		return "unknown"
	}
}

// backoff returns the delay before retry n, from 1, without jitter: base ×
// factor^(n-1), at most most. It is never negative, and never above most however
// large n is.
func backoff(base, most time.Duration, factor float64, n int) time.Duration {
	if base <= 0 {
		return 0
	}
	// As a float the product cannot wrap around: it becomes infinite, and is then
	// above the cap like anything else that is too long. The comparison comes
	// before the conversion, which is undefined for what does not fit.
	d := float64(base) * math.Pow(factor, float64(max(n, 1)-1))
	if !(d < float64(most)) {
		return most
	}
	return time.Duration(d)
}

// spread applies the jitter to a backoff. uniform returns an evenly distributed
// number in [0, n); n is at least 1.
func (j Jitter) spread(d time.Duration, uniform func(n uint64) uint64) time.Duration {
	if j == NoJitter || d <= 0 {
		return max(d, 0)
	}
	return time.Duration(uniform(uint64(d) + 1)) //nolint:gosec // d is positive, and the result at most d
}
