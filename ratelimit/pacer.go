package ratelimit

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/breakwater-go/breakwater/policy"
)

// pacerKind is the kind of [Pacer], and its default instance name.
const pacerKind = "pacer"

// Pacer configures a limit that spaces calls evenly; it is handed to [policy.New] as it
// is, or to [NewPace] for a live [Pace]. Rate is required. NewPace copies the Pacer;
// later changes have no effect.
type Pacer struct {
	// Name is the instance name, the policy label everywhere. Empty means "pacer".
	Name string

	// Rate is the number of calls per time. It has no default: the zero Rate is an
	// error. An infinite one is no rate limit.
	//
	// A call of cost n counts as n calls: it is let in when one would be, and the
	// next comes n intervals later. One that would keep the others out for more than
	// a year is refused.
	Rate Rate

	// Burst is how many calls may come at one instant after a pause, from 1 to
	// 2^53-1. Zero means 1: any two calls are at least an interval apart. In any
	// stretch of time t no more than Burst + Rate*t are let in, and beyond that at
	// most what the cost of the last one is above 1.
	Burst int

	// MaxWait is the longest time that a call waits for its turn, up to a year. Zero
	// means that nobody waits: a call that comes too early is refused at once. One
	// that would have to wait for longer, or until its deadline, is refused before
	// it waits.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time. Zero
	// means as many as have their turn within MaxWait, at most 100. It needs
	// MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case, and one that would have been refused, or
	// have waited, takes nothing and does not wait. It has no effect on the methods
	// of [Pace].
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Pacer) Validate() error {
	f := faults{kind: pacerKind}
	f.rate("Rate", c.Rate)
	f.burst(c.Burst)
	f.wait(c.MaxWait, c.MaxWaiters)
	return f.err()
}

// withDefaults returns the effective configuration. c must be valid.
func (c Pacer) withDefaults() Pacer {
	if c.Name == "" {
		c.Name = pacerKind
	}
	c.Burst = max(c.Burst, 1)
	c.MaxWaiters = waiters(c.MaxWaiters, c.MaxWait, c.Rate)
	return c
}

// warnings returns what works and is likely to surprise. c must be effective.
func (c Pacer) warnings() []string { return evenWarnings(c.Rate, c.Burst, c.MaxWait) }

func evenWarnings(rate Rate, burst int, wait time.Duration) []string {
	if burst == 1 && wait == 0 && !rate.unlimited() {
		return []string{"nobody waits for a turn, so of uneven traffic below the rate what comes too soon is refused; MaxWait lets it wait, a Burst of 2 or more lets it in"}
	}
	return nil
}

// BuildPolicy implements [policy.Policy] with a new [Pace]: each pipeline that is given
// the Pacer has a limit of its own. To share one, give both the Pace.
func (c Pacer) BuildPolicy() (policy.Part, error) {
	p, err := NewPace(c.Name, c)
	if err != nil {
		return policy.Part{Kind: pacerKind, Name: c.Name}, err
	}
	return p.BuildPolicy()
}

// faults collects what is wrong with a configuration.
type faults struct {
	kind string
	errs []error
}

func (f *faults) add(field string, value any, format string, args ...any) {
	f.errs = append(f.errs, &policy.ConfigError{Policy: f.kind, Field: field, Value: value, Want: fmt.Sprintf(format, args...)})
}

// labelWant is what is wanted of a name that is no instance name, which the pipeline
// checks.
const labelWant = "want at most 128 bytes of printable UTF-8: it is a label of metrics and logs"

// isLabel reports whether a name that is not empty can be a label.
func isLabel(s string) bool {
	return len(s) <= 128 && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (f *faults) err() error { return errors.Join(f.errs...) }

// rate checks a rate.
func (f *faults) rate(field string, r Rate) {
	for _, err := range r.validate() {
		if fault, ok := errors.AsType[*policy.ConfigError](err); ok {
			sub := fault.Field[len("Rate"):] // nothing, .Tokens or .Per
			f.errs = append(f.errs, &policy.ConfigError{Policy: f.kind, Field: field + sub, Value: fault.Value, Want: fault.Want})
		}
	}
}

// burst checks a burst of which zero means 1.
func (f *faults) burst(n int) {
	switch {
	case n < 0:
		f.add("Burst", n, "want at least 0 (0 means 1)")
	case n > maxBurst:
		f.add("Burst", n, "want at most %d", maxBurst)
	}
}

// wait checks the bounds of waiting.
func (f *faults) wait(wait time.Duration, n int) {
	switch {
	case wait < 0:
		f.add("MaxWait", wait, "want at least 0 (0 does not wait)")
	case wait > maxDelay:
		f.add("MaxWait", wait, "want at most %s", maxDelay)
	}
	switch {
	case n < 0:
		f.add("MaxWaiters", n, "want at least 0 (0 means as many as are served within MaxWait, at most %d)", defaultWaiters)
	case n > 0 && wait == 0:
		f.add("MaxWaiters", n, "want 0 while MaxWait is 0: nobody waits; set MaxWait too")
	}
}
