package ratelimit

import (
	"errors"
	"runtime"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// systemKind is the kind of [System], and its default instance name.
const systemKind = "system"

// NoDelay as MaxDelay means that the queue delay is not looked at.
const NoDelay time.Duration = -1

const (
	defaultMaxCPU   = 0.8
	defaultMaxDelay = 20 * time.Millisecond
	defaultSample   = 250 * time.Millisecond
	defaultCoolDown = time.Second
	defaultSpan     = 10 * time.Second

	minSample   = time.Millisecond
	minSpan     = 100 * time.Millisecond
	maxInFlight = 1 << 30
)

// ErrOverloaded is the cause of a refusal because the process is overloaded and has
// enough in flight. It comes inside a [*policy.RejectedError], whose RetryAfter is the
// CoolDown: the shortest time after which it can be over.
var ErrOverloaded = errors.New("ratelimit: overloaded")

// errNoCPU and errLateCPU say by which sign the overload was known.
var (
	errNoCPU   = &overloadError{"ratelimit: overloaded: hardly any CPU left"}
	errLateCPU = &overloadError{"ratelimit: overloaded: work waits for too long"}
)

// overloadError is a more exact ErrOverloaded.
type overloadError struct{ text string }

// Error returns the text.
func (e *overloadError) Error() string { return e.text }

// Unwrap returns [ErrOverloaded].
func (e *overloadError) Unwrap() error { return ErrOverloaded }

// System configures load shedding: while the process is overloaded, it lets in no more
// calls than the process can work on at the same time without being slowed down, those of
// higher priority first. It is for calls that come in, in a pipeline around the service's
// own work, and needs no figure that depends on that work. It is handed to [policy.New]
// as it is, or to [NewSystem] for a live [Shedder]. The zero value is valid; NewSystem
// copies it, and later changes have no effect.
//
// A rate limit protects from too many calls of a known cost. System protects from
// calls whose cost has changed.
type System struct {
	// Name is the instance name, the policy label everywhere. Empty means "system".
	Name string

	// CPU reads the share of the CPU time that was used since it was last called, of
	// what the process may use: 1 is all. Package sysload has a reader that knows of
	// containers. It is called at most once per Sample, on the goroutine of a call,
	// which waits for it, and never concurrently. A reading that fails, or is not a
	// number, is left out. Nil means that CPU use is not looked at.
	CPU func() (float64, error)

	// MaxCPU is the share of CPU from which on the process is overloaded, in (0, 1].
	// Zero means 0.8. It needs CPU.
	MaxCPU float64

	// Delay reads how long work had to wait for its turn since it was last called, as
	// CPU does. Nil means the delay of the Go scheduler: of the goroutines that
	// became ready to run, the time that one in ten waited for longer than, before it
	// ran. That is on the rise when the process has too little CPU for what it does,
	// whoever took it away, and needs no knowledge of the machine.
	Delay func() (time.Duration, error)

	// MaxDelay is the delay from which on the process is overloaded. Zero means 20
	// ms; [NoDelay] means that it is not looked at.
	MaxDelay time.Duration

	// Sample is the shortest time between two readings, at least 1 ms. Zero means 250
	// ms. Readings are averaged with a time constant of half a second. They are taken when
	// calls come, so they cost nothing when none do.
	Sample time.Duration

	// CoolDown is how long there must have been no sign of overload, and no call
	// refused, until every call is let in again. Zero means 1 s.
	CoolDown time.Duration

	// Window is the stretch of the past from which the limit on what is in flight is
	// computed, at least 100 ms: the highest throughput times the shortest latency in
	// it. Zero means 10 s.
	Window time.Duration

	// MinInFlight is the least limit on calls in flight, from 1 to 2^30: when so few
	// are, none is shed. Zero means the number of processors Go uses (GOMAXPROCS).
	MinInFlight int

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case.
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c System) Validate() error {
	f := faults{kind: systemKind}
	if !(c.MaxCPU >= 0 && c.MaxCPU <= 1) { // written so that NaN fails
		f.add("MaxCPU", c.MaxCPU, "want a number in (0, 1], or 0 (%v)", defaultMaxCPU)
	} else if c.MaxCPU > 0 && c.CPU == nil {
		f.add("MaxCPU", c.MaxCPU, "want 0 without a CPU to read; package sysload has one")
	}
	switch {
	case c.MaxDelay < NoDelay:
		f.add("MaxDelay", c.MaxDelay, "want a positive duration, 0 (%s) or NoDelay (%d)", defaultMaxDelay, NoDelay)
	case c.MaxDelay == NoDelay && c.Delay != nil:
		f.add("Delay", nil, "want none with MaxDelay NoDelay: it is not looked at")
	case c.MaxDelay == NoDelay && c.CPU == nil:
		f.add("MaxDelay", c.MaxDelay, "want a delay, or a CPU to read: nothing is left to tell overload by")
	}
	if c.Sample < 0 || c.Sample > 0 && c.Sample < minSample {
		f.add("Sample", c.Sample, "want at least %s, or 0 (%s)", minSample, defaultSample)
	}
	if c.CoolDown < 0 {
		f.add("CoolDown", c.CoolDown, "want a positive duration, or 0 (%s)", defaultCoolDown)
	}
	if c.Window < 0 || c.Window > 0 && c.Window < minSpan {
		f.add("Window", c.Window, "want at least %s, or 0 (%s)", minSpan, defaultSpan)
	}
	if c.MinInFlight < 0 || c.MinInFlight > maxInFlight {
		f.add("MinInFlight", c.MinInFlight, "want 1 to %d, or 0 (GOMAXPROCS)", maxInFlight)
	}
	return f.err()
}

// withDefaults returns the effective configuration. c must be valid.
func (c System) withDefaults() System {
	if c.Name == "" {
		c.Name = systemKind
	}
	if c.CPU != nil && c.MaxCPU == 0 {
		c.MaxCPU = defaultMaxCPU
	}
	if c.MaxDelay == 0 {
		c.MaxDelay = defaultMaxDelay
	}
	if c.Sample == 0 {
		c.Sample = defaultSample
	}
	if c.CoolDown == 0 {
		c.CoolDown = defaultCoolDown
	}
	if c.Window == 0 {
		c.Window = defaultSpan
	}
	if c.MinInFlight == 0 {
		c.MinInFlight = runtime.GOMAXPROCS(0)
	}
	return c
}

// BuildPolicy implements [policy.Policy] with a new [Shedder]: each pipeline that is
// given the System counts its own calls. To count those of several together, give all the
// Shedder.
func (c System) BuildPolicy() (policy.Part, error) {
	s, err := NewSystem(c.Name, c)
	if err != nil {
		return policy.Part{Kind: systemKind, Name: c.Name}, err
	}
	return s.BuildPolicy()
}
