package ratelimit

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// fixedKind is the kind of [FixedWindow], and its default instance name.
const fixedKind = "fixed_window"

// maxWindow is the longest window: a century.
const maxWindow = 100 * maxDelay

// FixedWindow configures a limit of so many calls in each window of time, one window
// after the other; it is handed to [policy.New] as it is, or to [NewWindow] for a live
// [Window]. Limit and Window are required. NewWindow copies the FixedWindow; later
// changes have no effect.
//
// It is what many quotas are. Around the end of a window it lets twice the limit through
// in a moment; [SlidingWindow] does not.
type FixedWindow struct {
	// Name is the instance name, the policy label everywhere. Empty means
	// "fixed_window".
	Name string

	// Limit is the number of tokens in each window, from 1 to 2^53-1. It has no
	// default. No call may cost more. In any stretch of time as long as m windows no
	// more than (m+1)*Limit are taken.
	Limit int

	// Window is the length of a window, above 0 and at most a century. It has no
	// default.
	Window time.Duration

	// AlignToClock begins windows at whole multiples of Window since the beginning of
	// 1970 in UTC, as providers count their quotas: of a minute, on the minute. The
	// clock is read once, by NewWindow; it being set later moves nothing. False means
	// that the first window begins with NewWindow.
	AlignToClock bool

	// MaxWait is the longest time that a call waits for a window with room, up to a
	// year. Zero means that nobody waits: a call that finds none is refused at once.
	// One that would have to wait for longer, or until its deadline, is refused
	// before it waits. Those who wait are let in all at once when the window begins.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time. Zero
	// means as many as would be served in MaxWait, at most 100. It needs MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case, and one that would have been refused, or
	// have waited, takes nothing and does not wait. It has no effect on the methods
	// of [Window].
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c FixedWindow) Validate() error {
	f := faults{kind: fixedKind}
	f.window(c.Limit, c.Window)
	f.wait(c.MaxWait, c.MaxWaiters)
	return f.err()
}

// window checks a limit per window.
func (f *faults) window(limit int, window time.Duration) {
	if limit < 1 || limit > maxBurst {
		f.add("Limit", limit, "want 1 to %d", maxBurst)
	}
	if window <= 0 || window > maxWindow {
		f.add("Window", window, "want a duration above 0, at most %s", maxWindow)
	}
}

// withDefaults returns the effective configuration. c must be valid.
func (c FixedWindow) withDefaults() FixedWindow {
	if c.Name == "" {
		c.Name = fixedKind
	}
	c.MaxWaiters = waiters(c.MaxWaiters, c.MaxWait, windowRate(c.Limit, c.Window))
	return c
}

func windowRate(limit int, window time.Duration) Rate { return Per(float64(limit), window) }

// limitAt returns the limit of a window that is nearest to a rate from below, at least 1.
// The rate must be valid.
func limitAt(rate Rate, window time.Duration) int {
	if rate.unlimited() {
		return maxBurst
	}
	tokens := rate.Tokens * (float64(window) / float64(rate.Per))
	// A whole number may come out a hair below.
	return int(min(max(tokens*(1+1e-12), 1), maxBurst))
}

// BuildPolicy implements [policy.Policy] with a new [Window]: each pipeline that is
// given the FixedWindow has a limit of its own. To share one, give both the Window.
func (c FixedWindow) BuildPolicy() (policy.Part, error) {
	w, err := NewWindow(c.Name, c)
	if err != nil {
		return policy.Part{Kind: fixedKind, Name: c.Name}, err
	}
	return w.BuildPolicy()
}
