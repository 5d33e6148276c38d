package ratelimit

import (
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// feedbackKind is the kind of [Feedback], and its default instance name.
const feedbackKind = "feedback"

// NoDrain as MaxDrain means that calls go on at a lower rate, whatever time the
// dependency asks for.
const NoDrain time.Duration = -1

const (
	defaultDecrease = 0.7
	defaultRecover  = 10 * time.Second
	defaultDrain    = time.Minute
	floorShare      = 0.01 // of the ceiling
)

// Recovery is the way in which the rate of a [Feedback] rises again.
type Recovery uint8

const (
	// RecoverCubic rises fast, slowly near the rate to which the dependency objected,
	// where it stays for most of the time, and ever faster beyond it. It is the
	// growth function of CUBIC (RFC 9438).
	RecoverCubic Recovery = iota

	// RecoverAdditive rises evenly: additive increase, as in TCP (RFC 5681).
	RecoverAdditive
)

// String returns "cubic" or "additive".
func (r Recovery) String() string {
	switch r {
	case RecoverCubic:
		return "cubic"
	case RecoverAdditive:
		return "additive"
	}
	return "unknown"
}

// Feedback configures a limit that follows what the dependency says: its rate falls when
// the dependency answers that it is asked too often ([policy.Throttled]: HTTP 429, a
// quota) or that it is overloaded ([policy.Busy]: HTTP 503), and rises again by and by.
// It is handed to [policy.New] as it is, or to [NewFeedback] for a live [Governor].
// Ceiling is required. NewFeedback copies the Feedback; later changes have no effect.
//
// Use it for a quota that is not known, or that others use too.
type Feedback struct {
	// Name is the instance name, the policy label everywhere. Empty means
	// "feedback".
	Name string

	// Ceiling is the highest rate, and that at the start. It has no default, and
	// must be finite.
	Ceiling Rate

	// Floor is the lowest rate, at most Ceiling. Zero means 1 % of Ceiling. At the
	// floor calls go on, so that it is found out when the dependency takes more.
	Floor Rate

	// Burst is the number of tokens the bucket can hold, see [TokenBucket]. Zero
	// means what arrives in one second at Ceiling, rounded up. When the rate falls
	// the bucket is emptied.
	Burst int

	// Decrease is the factor by which the rate falls when the dependency objects, in
	// (0, 1). Zero means 0.7. What falls is the present rate, or that of the calls of
	// the last second, if that is lower: a rate that nobody makes use of would have
	// to fall many times before it made a difference.
	//
	// Objections to calls that were let in before the last fall do not count: they
	// are the same overload. So the rate falls at most once in the time that a call
	// takes.
	Decrease float64

	// Recovery is how the rate rises again: [RecoverCubic], the zero value, or
	// [RecoverAdditive].
	Recovery Recovery

	// RecoverIn is, for RecoverCubic, the time until the rate is again what the
	// dependency objected to; for RecoverAdditive, the time in which it would make
	// good a fall from Ceiling. Zero means 10 s. Time alone makes it rise, as calls
	// that are answered say little about those that were not made.
	RecoverIn time.Duration

	// MaxDrain is the longest time for which no call is let in because the dependency
	// asked for it (Retry-After). If it asked for longer, calls are let in at the
	// rate of a fall after MaxDrain, and the first one finds out. Zero means 1
	// minute; [NoDrain] means not at all.
	MaxDrain time.Duration

	// MaxWait is the longest time that a call waits for its tokens, up to a year. Zero
	// means that nobody waits: a call that finds too few is refused at once. One that
	// would have to wait for longer at the present rate, or until its deadline, is
	// refused before it waits.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time. Zero
	// means 100. It needs MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only, see [TokenBucket]. It follows the
	// dependency, which then answers to more calls than it would let in.
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Feedback) Validate() error {
	f := faults{kind: feedbackKind}
	f.finite("Ceiling", c.Ceiling)
	if c.Floor != (Rate{}) {
		before := len(f.errs)
		f.finite("Floor", c.Floor)
		if before == 0 && len(f.errs) == 0 && c.Floor.perSecond() > c.Ceiling.perSecond() {
			f.add("Floor", c.Floor, "want at most Ceiling, which is %s", c.Ceiling)
		}
	}
	switch {
	case c.Burst < 0:
		f.add("Burst", c.Burst, "want at least 0 (0 means what arrives in a second)")
	case c.Burst > maxBurst:
		f.add("Burst", c.Burst, "want at most %d", maxBurst)
	}
	if !(c.Decrease >= 0 && c.Decrease < 1) { // written so that NaN fails
		f.add("Decrease", c.Decrease, "want a number in (0, 1), or 0 (%v)", defaultDecrease)
	}
	if c.Recovery > RecoverAdditive {
		f.add("Recovery", uint8(c.Recovery), "want RecoverCubic or RecoverAdditive")
	}
	if c.RecoverIn < 0 {
		f.add("RecoverIn", c.RecoverIn, "want a positive duration, or 0 (%s)", defaultRecover)
	}
	if c.MaxDrain < NoDrain {
		f.add("MaxDrain", c.MaxDrain, "want a positive duration, 0 (%s) or NoDrain (%d)", defaultDrain, NoDrain)
	}
	f.errs = append(f.errs, waitFaults(feedbackKind, c.MaxWait, c.MaxWaiters)...)
	return f.err()
}

// finite checks a rate that must be a number of tokens per second.
func (f *faults) finite(field string, r Rate) {
	before := len(f.errs)
	f.rate(field, r)
	if s := r.perSecond(); len(f.errs) == before && (s == 0 || math.IsInf(s, 0)) {
		f.add(field, r, "want a rate that is a finite number per second, above 0")
	}
}

// withDefaults returns the effective configuration. c must be valid.
func (c Feedback) withDefaults() Feedback {
	if c.Name == "" {
		c.Name = feedbackKind
	}
	if c.Floor == (Rate{}) {
		c.Floor = Rate{Tokens: c.Ceiling.Tokens * floorShare, Per: c.Ceiling.Per}
		if c.Floor.perSecond() == 0 { // too small for a number
			c.Floor = c.Ceiling
		}
	}
	c.Burst = Limit{Rate: c.Ceiling, Burst: c.Burst}.effective().Burst
	if c.Decrease == 0 {
		c.Decrease = defaultDecrease
	}
	if c.RecoverIn == 0 {
		c.RecoverIn = defaultRecover
	}
	if c.MaxDrain == 0 {
		c.MaxDrain = defaultDrain
	}
	c.MaxWaiters = guests(c.MaxWait, c.MaxWaiters)
	return c
}

// BuildPolicy implements [policy.Policy] with a new [Governor]: each pipeline that is
// given the Feedback has a limit of its own. To share one, give both the Governor.
func (c Feedback) BuildPolicy() (policy.Part, error) {
	g, err := NewFeedback(c.Name, c)
	if err != nil {
		return policy.Part{Kind: feedbackKind, Name: c.Name}, err
	}
	return g.BuildPolicy()
}
