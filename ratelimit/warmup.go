package ratelimit

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// warmUpKind is the kind of [WarmUp], and its default instance name.
const warmUpKind = "warm_up"

const (
	// defaultColdFactor is that of Guava and of Sentinel.
	defaultColdFactor = 3
	maxColdFactor     = 1e6

	// defaultPeriod is that of Sentinel.
	defaultPeriod = 10 * time.Second
)

// WarmUp configures a limit that rises: cold, it lets in Rate/ColdFactor; in use, it
// rises in a straight line, within Period, to Rate; idle, it falls back as it rose. It
// is for what has to fill its caches and pools before it can do what it is able to. It
// is handed to [policy.New] as it is, or to [NewRamp] for a live [Ramp]. Rate is
// required. NewRamp copies the WarmUp; later changes have no effect.
type WarmUp struct {
	// Name is the instance name, the policy label everywhere. Empty means "warm_up".
	Name string

	// Rate is the number of calls per time once it is warm. It has no default: the
	// zero Rate is an error. An infinite one is no rate limit.
	//
	// A call of cost n counts as n calls: it is let in when one would be, and those
	// after it pay for the rest. One that would keep the others out for more than a
	// year is refused.
	Rate Rate

	// ColdFactor is by how much less is let in when cold, from 1 to a million. Zero
	// means 3: a third of Rate.
	ColdFactor float64

	// Period is how long it takes from cold to warm while calls keep the limit busy,
	// and from warm to cold while none come; above 0 and at most a year. Zero means
	// 10s.
	//
	// The limit is busy while it is getting back what was taken from it, and idle
	// while it has its whole Burst to give. So a load that needs less than half of
	// what it lets in cools it, and one that needs more warms it: at a steady load it
	// ends at twice that, or at one of its ends. A call that was refused does not
	// make it wait for the next one in vain: an interval after that does not cool it.
	Period time.Duration

	// Burst is how many calls may come at one instant after a pause, from 1 to
	// 2^53-1. Zero means 1, which is pacing: any two calls are at least an interval
	// apart, that of the present rate. In any stretch of time t no more than
	// Burst + Rate*t are let in, and beyond that at most what the cost of the last
	// one is above 1.
	Burst int

	// MaxWait is the longest time that a call waits for its turn, up to a year. Zero
	// means that nobody waits: a call that comes too early is refused at once. One
	// that would have to wait for longer, or until its deadline, is refused before
	// it waits.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time. Zero
	// means as many as have their turn within MaxWait when warm, at most 100. It
	// needs MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case, and one that would have been refused, or
	// have waited, takes nothing and does not wait. It has no effect on the methods
	// of [Ramp].
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c WarmUp) Validate() error {
	f := faults{kind: warmUpKind}
	f.rate("Rate", c.Rate)
	if c.ColdFactor != 0 && !(c.ColdFactor >= 1 && c.ColdFactor <= maxColdFactor) { // written so that NaN fails
		f.add("ColdFactor", c.ColdFactor, "want 1 to %d, or 0 (%d)", int(maxColdFactor), defaultColdFactor)
	}
	if c.Period < 0 || c.Period > maxDelay {
		f.add("Period", c.Period, "want a duration above 0, at most %s, or 0 (%s)", maxDelay, defaultPeriod)
	}
	f.burst(c.Burst)
	f.wait(c.MaxWait, c.MaxWaiters)
	return f.err()
}

// withDefaults returns the effective configuration. c must be valid.
func (c WarmUp) withDefaults() WarmUp {
	if c.Name == "" {
		c.Name = warmUpKind
	}
	if c.ColdFactor == 0 {
		c.ColdFactor = defaultColdFactor
	}
	if c.Period == 0 {
		c.Period = defaultPeriod
	}
	c.Burst = max(c.Burst, 1)
	c.MaxWaiters = waiters(c.MaxWaiters, c.MaxWait, c.Rate)
	return c
}

// warnings returns what works and is likely to surprise. c must be effective.
func (c WarmUp) warnings() []string { return evenWarnings(c.Rate, c.Burst, c.MaxWait) }

// BuildPolicy implements [policy.Policy] with a new [Ramp]: each pipeline that is given
// the WarmUp has a limit of its own. To share one, give both the Ramp.
func (c WarmUp) BuildPolicy() (policy.Part, error) {
	r, err := NewRamp(c.Name, c)
	if err != nil {
		return policy.Part{Kind: warmUpKind, Name: c.Name}, err
	}
	return r.BuildPolicy()
}
