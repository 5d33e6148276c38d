package retry

import (
	"math"
	"time"
)

// Backoff says how the delay grows from one retry to the next. The zero value is
// [Exponential].
type Backoff uint8

// The kinds of backoff.
const (
	// Exponential multiplies the delay by Factor after each retry.
	Exponential Backoff = iota

	// Constant waits for BaseDelay each time.
	Constant

	// Decorrelated draws each delay evenly from BaseDelay to Factor times the one
	// before it. It grows like an exponential one, and needs no jitter.
	Decorrelated

	numBackoffs
)

var backoffNames = [numBackoffs]string{"exponential", "constant", "decorrelated"}

// String returns "exponential", "constant" or "decorrelated".
func (b Backoff) String() string {
	if b < numBackoffs {
		return backoffNames[b]
	}
	return "unknown"
}

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

	// EqualJitter waits for half of the backoff, and a random time up to the other
	// half: where a retry that comes at once would be of no use.
	EqualJitter

	numJitters
)

var jitterNames = [numJitters]string{"full", "none", "equal"}

// String returns "full", "none" or "equal".
func (j Jitter) String() string {
	if j < numJitters {
		return jitterNames[j]
	}
	return "unknown"
}

// delays computes backoffs, from effective settings.
type delays struct {
	kind   Backoff
	base   time.Duration // Off is none
	most   time.Duration
	factor float64
	jitter Jitter

	// uniform returns an evenly distributed number in [0, n).
	uniform func(n uint64) uint64
}

// before returns the delay before retry n, from 1, in [0, most]. last is the delay
// before the retry that came before it.
func (d *delays) before(n int, last time.Duration) time.Duration {
	if d.base <= 0 {
		return 0
	}
	// The cap comes twice. The backoff is cut before jitter is applied: otherwise
	// nearly every draw from a long one would be cut to the cap, and callers that
	// failed together would come back together. And nothing that chance adds may
	// exceed the cap.
	var t time.Duration
	switch d.kind {
	case Decorrelated:
		t = d.decorrelated(last)
	case Constant:
		t = d.jitter.spread(min(d.base, d.most), d.uniform)
	default:
		t = d.jitter.spread(backoff(d.base, d.most, d.factor, n), d.uniform)
	}
	return min(max(t, 0), d.most)
}

// least returns the shortest delay that before may return.
func (d *delays) least() time.Duration {
	t := min(max(d.base, 0), max(d.most, 0))
	if d.kind == Decorrelated {
		return t
	}
	switch d.jitter {
	case NoJitter:
		return t
	case EqualJitter:
		return t - t/2
	default:
		return 0
	}
}

// decorrelated draws evenly from base to factor times the last delay. It is cut to the
// cap after the draw only, as its author has it: since every draw may come out at base
// again, callers do not stay together at the cap.
func (d *delays) decorrelated(last time.Duration) time.Duration {
	high := product(max(min(last, d.most), d.base), d.factor, math.MaxInt64)
	return d.base + FullJitter.spread(high-d.base, d.uniform)
}

// backoff returns the delay before retry n, from 1, without jitter: base ×
// factor^(n-1), at most most. It is never negative, and never above most however
// large n is.
func backoff(base, most time.Duration, factor float64, n int) time.Duration {
	if base <= 0 {
		return 0
	}
	return product(base, math.Pow(factor, float64(max(n, 1)-1)), most)
}

// product multiplies a duration by a factor of at least 1, and cuts the result to most.
//
// As a float the product cannot wrap around: it becomes infinite, and is then above
// the cap like anything else that is too long. The comparison comes before the
// conversion, which is undefined for what does not fit. A float has fewer digits than a
// duration of more than 104 days: what rounding takes from d is given back.
func product(d time.Duration, factor float64, most time.Duration) time.Duration {
	f := float64(d) * factor
	if !(f < float64(most)) {
		return most
	}
	return max(time.Duration(f), d)
}

// spread applies the jitter to a backoff. uniform returns an evenly distributed
// number in [0, n); n is at least 1.
func (j Jitter) spread(d time.Duration, uniform func(n uint64) uint64) time.Duration {
	if d <= 0 {
		return 0
	}
	fixed := time.Duration(0)
	switch j {
	case NoJitter:
		return d
	case EqualJitter:
		fixed = d - d/2
	default:
	}
	return fixed + time.Duration(uniform(uint64(d-fixed)+1)) //nolint:gosec // d is positive, and the result at most d
}
