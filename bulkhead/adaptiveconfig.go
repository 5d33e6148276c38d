package bulkhead

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// adaptiveKind is the kind of policy, and the default of every instance name.
const adaptiveKind = "adaptive"

const (
	defaultMin       = 5
	defaultMax       = 200
	defaultInitial   = 20
	defaultTolerance = 2
)

// NoBrake is the [Adaptive] Tolerance that never holds the estimate down.
const NoBrake = -1

// Adaptive configures [AdaptivePermits]: a semaphore whose limit is found at run time
// from how long the calls take. The zero value is valid: every field documents what
// zero means. [NewAdaptive] copies it; later changes have no effect.
type Adaptive struct {
	// Name is the instance name: the policy label of metrics, events and errors,
	// unique within a pipeline. Empty means "adaptive".
	Name string

	// Min is the floor: the limit never goes below it. From 1 to Max. Zero means 5,
	// or Max if that is less.
	Min int

	// Max is the ceiling: the limit never goes above it. From 1 to 2,147,483,647.
	// Zero means 200, or Min or Initial if that is more.
	Max int

	// Initial is the limit in the beginning, and the one below which it does not
	// sink for want of traffic. From Min to Max. Zero means 20, or the nearest that
	// Min and Max allow.
	Initial int

	// Tolerance is how many times the latency without contention the mean latency
	// may be while calls are refused; above it the limit is lowered by a tenth each
	// second, whatever the estimate says. At least 1.1. Zero means 2; [NoBrake] turns
	// it off.
	Tolerance float64

	// MaxWait is the longest time that a call waits for a permit. Zero means that it
	// does not wait. A deadline of the call's context that comes first ends the wait
	// first.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time, up to
	// 2,147,483,647. Zero means as many as Initial. It needs MaxWait.
	MaxWaiters int

	// Reserve is how many of the permits only calls of high and critical priority
	// get, whatever the limit is. From 1 to Min - 1; zero means none.
	Reserve int

	// Shadow only watches: every call runs, and those that found no permit free are
	// counted as refused. It never waits. The limit that it finds is that of a
	// dependency under all the load there is.
	Shadow bool
}

// Validate reports every invalid field, and every contradiction between two of them,
// as a [*policy.ConfigError], joined with [errors.Join].
func (c Adaptive) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: adaptiveKind, Field: field, Value: value, Want: want})
	}
	d := c.withDefaults()
	bad := false
	for _, f := range []struct {
		name  string
		value int
		zero  string
	}{{"Min", c.Min, "5"}, {"Max", c.Max, "200"}, {"Initial", c.Initial, "20"}} {
		if f.value < 0 || f.value > maxLimit {
			bad = true
			fault(f.name, f.value, fmt.Sprintf("want 1 to 2147483647, or 0 (%s)", f.zero))
		}
	}
	if !bad {
		if d.Min > d.Max {
			fault("Min", c.Min, fmt.Sprintf("want at most Max (%d)", d.Max))
		}
		if d.Initial < d.Min || d.Initial > d.Max {
			fault("Initial", c.Initial, fmt.Sprintf("want Min (%d) to Max (%d)", d.Min, d.Max))
		}
	}
	if c.Tolerance != 0 && c.Tolerance != NoBrake && !(c.Tolerance >= 1.1 && c.Tolerance <= math.MaxFloat64) {
		fault("Tolerance", c.Tolerance, "want at least 1.1, 0 (2) or NoBrake (-1)")
	}
	if c.MaxWait != 0 && c.MaxWait < time.Microsecond {
		fault("MaxWait", c.MaxWait, "want at least 1µs, or 0 (does not wait); a number alone is nanoseconds")
	}
	switch {
	case c.MaxWaiters < 0 || c.MaxWaiters > maxLimit:
		fault("MaxWaiters", c.MaxWaiters, "want 1 to 2147483647, or 0 (as many as Initial)")
	case c.MaxWaiters > 0 && c.MaxWait == 0:
		fault("MaxWaiters", c.MaxWaiters, "want 0 while MaxWait is 0: nobody waits; set MaxWait too")
	}
	if c.Reserve < 0 || (!bad && c.Reserve >= d.Min && c.Reserve > 0) {
		fault("Reserve", c.Reserve, fmt.Sprintf("want 0 to Min - 1 (%d): ordinary calls would get none at the floor", max(d.Min-1, 0)))
	}
	return errors.Join(errs...)
}

// withDefaults returns what a valid c means, with every field filled in.
func (c Adaptive) withDefaults() Adaptive {
	if c.Name == "" {
		c.Name = adaptiveKind
	}
	if c.Max == 0 {
		c.Max = max(defaultMax, c.Min, c.Initial)
	}
	if c.Min == 0 {
		c.Min = min(defaultMin, c.Max)
		if c.Initial > 0 {
			c.Min = min(c.Min, c.Initial)
		}
	}
	if c.Initial == 0 {
		c.Initial = min(max(defaultInitial, c.Min), c.Max)
	}
	if c.Tolerance == 0 {
		c.Tolerance = defaultTolerance
	}
	if c.MaxWait > 0 && c.MaxWaiters == 0 {
		c.MaxWaiters = c.Initial
	}
	return c
}

// BuildPolicy returns a part with a limit of its own. To share one between pipelines,
// hand over [AdaptivePermits].
func (c Adaptive) BuildPolicy() (policy.Part, error) {
	p, err := NewAdaptive(c.Name, c)
	if err != nil {
		return policy.Part{Kind: adaptiveKind, Name: c.Name}, err
	}
	return p.BuildPolicy()
}
