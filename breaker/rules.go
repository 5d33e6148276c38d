package breaker

import (
	"math"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// rules is a Config in the form that decisions are made from. Durations are in
// nanoseconds.
type rules struct {
	failure, slow      ratio
	failureAt, slowAt  float64 // the same as numbers, 0 when off
	slowAfter          time.Duration
	count, consecutive uint64 // 0 when off
	minCalls           uint64

	openFor, maxOpenFor int64
	growth              Growth
	forgetAfter         int64
	jitter              float64
	maxRetryAfter       int64 // 0 when off

	probes       int
	successes    uint64  // 0 when the ratios decide
	probeFailure ratio   // of failed probes among all
	probeAt      float64 // the same as a number
	probeTimeout int64

	rampFor   int64
	rampStart float64
}

// newRules takes an effective Config.
func newRules(c Config) rules {
	r := rules{
		slowAfter:     math.MaxInt64,
		count:         uint64(c.FailureCount),        //nolint:gosec // validated
		consecutive:   uint64(c.ConsecutiveFailures), //nolint:gosec // validated
		minCalls:      uint64(c.MinCalls),            //nolint:gosec // validated
		openFor:       int64(c.OpenFor),
		maxOpenFor:    int64(c.MaxOpenFor),
		growth:        c.OpenGrowth,
		forgetAfter:   int64(c.ForgetAfter),
		jitter:        c.OpenJitter,
		maxRetryAfter: max(int64(c.MaxRetryAfter), 0),
		probes:        c.Probes,
		successes:     uint64(c.Successes), //nolint:gosec // validated
		probeTimeout:  int64(c.ProbeTimeout),
		rampFor:       int64(c.RampFor),
		rampStart:     c.RampStart,
	}
	if c.FailureRatio != Off {
		r.failure, r.failureAt = newRatio(c.FailureRatio), c.FailureRatio
	}
	if c.SlowRatio != Off {
		r.slow, r.slowAt, r.slowAfter = newRatio(c.SlowRatio), c.SlowRatio, c.SlowAfter
	}
	switch {
	case c.FailureRatio != Off:
		r.probeFailure, r.probeAt = r.failure, r.failureAt
	case r.count > 0 || r.consecutive > 0:
		all := uint64(c.Probes) //nolint:gosec // validated
		r.probeFailure, r.probeAt = ratio{num: 1, den: all}, share(1, all)
	}
	return r
}

// plain is what a call counts as that neither failed nor was slow.
var plain = window.Counts{Calls: 1}

// judge says what an outcome counts as. No calls at all means that it is neutral.
func (r *rules) judge(o policy.Outcome) window.Counts {
	var c window.Counts
	if o.Kind == policy.NotRun {
		return c
	}
	if o.Kind.IsFailure() {
		c.Failures = 1
	}
	// However the call ended, the time it took is the dependency's.
	if o.Duration > r.slowAfter {
		c.Slow = 1
	}
	if o.Kind.IsAnswer() {
		c.Calls = 1
	} else {
		c.Calls = c.Failures | c.Slow
	}
	return c
}

// reason is why a breaker opens, or closes: the rule, the figure that it looked at and
// the limit that the figure reached.
type reason struct {
	why           string
	figure, limit float64
}

// verdict says which rule the figures of a window reach, and a number of failed calls
// in a row; the zero reason when they reach none. Of rules that are reached at once it
// names the first.
func (r *rules) verdict(c window.Counts, row uint64) reason {
	if c.Calls >= r.minCalls {
		switch {
		case r.failure.reached(c.Failures, c.Calls):
			return reason{WhyFailureRatio, share(c.Failures, c.Calls), r.failureAt}
		case r.slow.reached(c.Slow, c.Calls):
			return reason{WhySlowRatio, share(c.Slow, c.Calls), r.slowAt}
		}
	}
	switch {
	case r.count > 0 && c.Failures >= r.count:
		return reason{WhyFailureCount, float64(c.Failures), float64(r.count)}
	case r.consecutive > 0 && row >= r.consecutive:
		return reason{WhyConsecutiveFailures, float64(row), float64(r.consecutive)}
	}
	return reason{}
}

// probeVerdict says what follows from the probes that have ended, of which good
// neither failed nor were slow: the breaker opens (with a reason), closes, or waits.
// last is what the last of them counted as.
func (r *rules) probeVerdict(c window.Counts, good uint64, last window.Counts) (because reason, decided bool) {
	all := uint64(r.probes) //nolint:gosec // validated
	if r.successes > 0 {
		switch bad, most := c.Calls-good, all-r.successes; {
		case bad > most:
			why := WhyProbeSlow
			if last.Failures > 0 {
				why = WhyProbeFailed
			}
			return reason{why, float64(bad), float64(most + 1)}, true
		case good >= r.successes:
			return reason{why: WhyProbesSucceeded}, true
		}
		return reason{}, false
	}
	switch {
	case r.probeFailure.reached(c.Failures, all):
		return reason{WhyProbeFailed, share(c.Failures, c.Calls), r.probeAt}, true
	case r.slow.reached(c.Slow, all):
		return reason{WhyProbeSlow, share(c.Slow, c.Calls), r.slowAt}, true
	case c.Calls >= all:
		return reason{why: WhyProbesSucceeded}, true
	}
	return reason{}, false
}

// openDelay returns how long the breaker is open when it opens for the nth time in a
// row, counted from 1; chance is in [0, 1).
func (r *rules) openDelay(n int, chance float64) int64 {
	d, steps := r.maxOpenFor, int64(n)
	switch {
	case r.growth == Linear:
		if r.openFor <= d/steps {
			d = r.openFor * steps
		}
	case steps <= 63 && r.openFor <= d>>(steps-1):
		d = r.openFor << (steps - 1)
	}
	return max(d-int64(float64(d)*r.jitter*chance), 1)
}

// rampShare returns the share of calls that are let through, so long after the ramp
// began.
func (r *rules) rampShare(elapsed int64) float64 {
	done := float64(min(max(elapsed, 0), r.rampFor)) / float64(r.rampFor)
	return r.rampStart + (1-r.rampStart)*done
}

// addTime adds a duration to a time, both not negative, and stays at the end of
// time.
func addTime(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}

// share returns part of whole as a number; 0 of nothing.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
