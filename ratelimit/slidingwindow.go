package ratelimit

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// slidingKind is the kind of [SlidingWindow], and its default instance name.
const slidingKind = "sliding_window"

// maxLog is the largest limit of an exact sliding window: it remembers as many calls,
// at 16 bytes each, and where they are all there, half as many again.
const maxLog = 1 << 20

// SlidingWindow configures a limit of so many calls in any window of time, wherever that
// begins; it is handed to [policy.New] as it is, or to [NewSliding] for a live
// [Sliding]. Limit and Window are required. NewSliding copies the SlidingWindow; later
// changes have no effect.
type SlidingWindow struct {
	// Name is the instance name, the policy label everywhere. Empty means
	// "sliding_window".
	Name string

	// Limit is the number of tokens in a window, from 1 to 1,048,576, or to 2^53-1
	// where Approximate is set. It has no default. No call may cost more.
	Limit int

	// Window is the length of the window, above 0 and at most a century. It has no
	// default. It is open at its old end: what was taken exactly one Window ago does
	// not count any more.
	Window time.Duration

	// Approximate counts the calls of this window and of the one before, instead of
	// remembering when each came: it needs no memory for them and no lock, and may
	// have any limit. What it takes for the calls of the last Window is those since
	// the present one began, and of those in the one before the part that its overlap
	// is of it.
	//
	// False is exact: in any stretch as long as Window no more than Limit are taken.
	// With Approximate it is Limit + Limit*t/Window in any stretch of time t, however
	// short or long: so twice the limit in a window at worst, if all calls of one came
	// at its end, but never twice the limit in a moment. Under full load it lets in one
	// call less than Limit in each window, since no part of a call is let in, and at a
	// Limit of 1 half of it: use it for large limits.
	Approximate bool

	// MaxWait is the longest time that a call waits for room, up to a year. Zero
	// means that nobody waits: a call that finds none is refused at once. One that
	// would have to wait for longer, or until its deadline, is refused before it
	// waits.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time. Zero
	// means as many as would be served in MaxWait, at most 100. It needs MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case, and one that would have been refused, or
	// have waited, takes nothing and does not wait. It has no effect on the methods
	// of [Sliding].
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c SlidingWindow) Validate() error {
	f := faults{kind: slidingKind}
	f.sliding(c.Limit, c.Window, c.Approximate)
	f.wait(c.MaxWait, c.MaxWaiters)
	return f.err()
}

// sliding checks a limit per window.
func (f *faults) sliding(limit int, window time.Duration, approximate bool) {
	f.window(limit, window)
	if limit > maxLog && limit <= maxBurst && !approximate {
		f.add("Limit", limit, "want at most %d, or set Approximate: an exact window remembers every call", maxLog)
	}
}

// withDefaults returns the effective configuration. c must be valid.
func (c SlidingWindow) withDefaults() SlidingWindow {
	if c.Name == "" {
		c.Name = slidingKind
	}
	c.MaxWaiters = waiters(c.MaxWaiters, c.MaxWait, windowRate(c.Limit, c.Window))
	return c
}

// warnings returns what works and is likely to surprise. c must be effective.
func (c SlidingWindow) warnings() []string {
	if c.Approximate && c.Limit < 10 {
		return []string{"an Approximate window lets in about one call less than its Limit, which is a large part of a small one; an exact one costs no more here"}
	}
	return nil
}

// BuildPolicy implements [policy.Policy] with a new [Sliding]: each pipeline that is
// given the SlidingWindow has a limit of its own. To share one, give both the Sliding.
func (c SlidingWindow) BuildPolicy() (policy.Part, error) {
	s, err := NewSliding(c.Name, c)
	if err != nil {
		return policy.Part{Kind: slidingKind, Name: c.Name}, err
	}
	return s.BuildPolicy()
}
