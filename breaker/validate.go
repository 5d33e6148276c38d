package breaker

import (
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// faults collects what is wrong with a configuration.
type faults struct {
	kind string // of the policy
	errs []error
}

func (f *faults) add(field string, value any, want string) {
	f.errs = append(f.errs, &policy.ConfigError{Policy: f.kind, Field: field, Value: value, Want: want})
}

func (f *faults) addf(field string, value any, format string, args ...any) {
	f.add(field, value, fmt.Sprintf(format, args...))
}

// ratio checks a share in (0, 1], for which 0 means a default and Off nothing.
func (f *faults) ratio(field string, v float64) bool {
	ok := v == Off || v >= 0 && v <= 1 // written so that NaN fails
	if !ok {
		f.add(field, v, "want above 0 and at most 1 (0 means 0.5, -1 turns the rule off)")
	}
	return ok
}

// duration checks a duration for which 0 means what is said.
func (f *faults) duration(field string, v time.Duration, zero string) {
	if v != 0 && v < minDuration {
		f.addf(field, v, "want at least 1ms (0 means %s)", zero)
	}
}

// between checks a number for which 0 means what is said.
func (f *faults) between(field string, v, most int, zero string) {
	if v < 0 || v > most {
		f.addf(field, v, "want from 1 to %d (0 means %s)", most, zero)
	}
}

func (f *faults) notNegative(field string, v int, zero string) {
	if v < 0 {
		f.addf(field, v, "want at least 1 (0 means %s)", zero)
	}
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join]. Fields that contradict each other are invalid too.
func (c Config) Validate() error {
	f := faults{kind: kind}
	c.validate(&f)
	return errors.Join(f.errs...)
}

func (c Config) validate(f *faults) {
	c.validateRules(f)
	c.validateWindow(f)
	c.validateOpen(f)

	f.between("Probes", c.Probes, maxProbes, "3")
	f.notNegative("Successes", c.Successes, "that the ratios decide")
	if probes := orDefault(c.Probes, defaultProbes); probes > 0 && c.Successes > probes {
		f.addf("Successes", c.Successes, "is more than the %d that Probes allows, so the breaker would never close", probes)
	}
	f.duration("ProbeTimeout", c.ProbeTimeout, "OpenFor, at least 10s")

	f.duration("RampFor", c.RampFor, "no ramp")
	if window := orDefault(c.Window, defaultWindow); c.RampFor > 0 && c.LastCalls == 0 && c.RampFor < window {
		f.addf("RampFor", c.RampFor, "is shorter than Window, %s: the rules could not look at the ramp as a whole", window)
	}
	switch {
	case !(c.RampStart >= 0 && c.RampStart < 1):
		f.add("RampStart", c.RampStart, "want above 0 and below 1 (0 means 0.1)")
	case c.RampStart > 0 && c.RampFor == 0:
		f.add("RampStart", c.RampStart, "has no effect without RampFor, which says how long the ramp is")
	}
}

func (c Config) validateRules(f *faults) {
	f.ratio("FailureRatio", c.FailureRatio)
	if f.ratio("SlowRatio", c.SlowRatio) && c.SlowRatio > 0 && c.SlowAfter == 0 {
		f.add("SlowRatio", c.SlowRatio, "has no effect without SlowAfter, which says when a call is slow")
	}
	if c.SlowAfter != 0 && c.SlowAfter < minSlowAfter {
		f.add("SlowAfter", c.SlowAfter, "want at least 1µs (0 turns the slow rule off)")
	}
	f.notNegative("FailureCount", c.FailureCount, "no such rule")
	f.between("ConsecutiveFailures", c.ConsecutiveFailures, maxRow, "no such rule")
	if c.FailureRatio == Off && (c.SlowRatio == Off || c.SlowAfter == 0) && c.FailureCount == 0 && c.ConsecutiveFailures == 0 {
		f.add("FailureRatio", nil, "every rule is off, so the breaker would never open; "+
			"set FailureRatio, SlowAfter, FailureCount or ConsecutiveFailures")
	}
}

func (c Config) validateWindow(f *faults) {
	f.duration("Window", c.Window, "10s")
	f.between("Buckets", c.Buckets, maxBuckets, "10")
	f.between("LastCalls", c.LastCalls, maxLastCalls, "a window of time")
	f.notNegative("MinCalls", c.MinCalls, "20")
	if c.LastCalls <= 0 {
		return
	}
	if c.Window > 0 {
		f.add("LastCalls", c.LastCalls, "excludes Window: the window is one of calls or one of time")
	}
	if c.Buckets > 0 {
		f.add("Buckets", c.Buckets, "has no effect with LastCalls, which is exact")
	}
	for _, n := range []struct {
		field string
		value int
	}{{"MinCalls", c.MinCalls}, {"FailureCount", c.FailureCount}} {
		if n.value > c.LastCalls {
			f.addf(n.field, n.value, "is more than the window of LastCalls %d ever holds, so the rule would never open the breaker", c.LastCalls)
		}
	}
}

func (c Config) validateOpen(f *faults) {
	f.duration("OpenFor", c.OpenFor, "5s")
	f.duration("MaxOpenFor", c.MaxOpenFor, "OpenFor")
	f.duration("ForgetAfter", c.ForgetAfter, "MaxOpenFor")
	openFor := orDefault(c.OpenFor, defaultOpenFor)
	if c.MaxOpenFor >= minDuration && c.MaxOpenFor < openFor {
		f.addf("MaxOpenFor", c.MaxOpenFor, "is below OpenFor, %s", openFor)
	}
	grows := c.MaxOpenFor > openFor
	switch {
	case c.OpenGrowth >= numGrowths:
		f.add("OpenGrowth", uint8(c.OpenGrowth), "want Exponential or Linear")
	case c.OpenGrowth != Exponential && !grows:
		f.add("OpenGrowth", c.OpenGrowth, "has no effect without a MaxOpenFor above OpenFor")
	}
	if c.ForgetAfter >= minDuration && !grows {
		f.add("ForgetAfter", c.ForgetAfter, "has no effect without a MaxOpenFor above OpenFor")
	}
	if !(c.OpenJitter >= 0 && c.OpenJitter < 1) {
		f.add("OpenJitter", c.OpenJitter, "want at least 0 and below 1")
	}
	switch {
	case c.MaxRetryAfter == Off || c.MaxRetryAfter == 0:
	case c.MaxRetryAfter < minDuration:
		f.add("MaxRetryAfter", c.MaxRetryAfter, "want at least 1ms (0 means MaxOpenFor, at least 1m; -1 ignores such wishes)")
	case c.MaxRetryAfter < openFor:
		f.addf("MaxRetryAfter", c.MaxRetryAfter, "is below OpenFor, %s, so it would have no effect", openFor)
	}
}
