package breaker

import "github.com/breakwater-go/breakwater/policy"

// State is the state of a breaker.
type State uint8

// The states, in the order of their cycle; the last two are those of commands.
const (
	Closed       State = iota // calls run and are counted
	Open                      // calls are refused
	HalfOpen                  // a few calls, the probes, decide what follows
	Recovering                // a share of the calls runs, which rises to all of them
	ForcedOpen                // calls are refused, by [Breaker.ForceOpen]
	ForcedClosed              // calls run and are counted, and nothing follows from it, by [Breaker.ForceClosed]
)

var stateNames = policy.BreakerStates()

// throttling is the state of a [Throttler] that refuses calls; otherwise it is closed.
const throttling = "throttling"

// String returns the state's name as metrics and logs show it, such as "half_open".
func (s State) String() string {
	if s <= ForcedClosed {
		return stateNames[s]
	}
	return "unknown"
}

// counts reports whether calls are counted in a window.
func (s State) counts() bool { return s == Closed || s == Recovering || s == ForcedClosed }

// forced reports whether a command holds the breaker in the state.
func (s State) forced() bool { return s == ForcedOpen || s == ForcedClosed }

// Why a state was entered. It is a closed set, usable as a metric label.
const (
	WhyStart               = "start"                // closed: the breaker is new
	WhyFailureRatio        = "failure_ratio"        // open: the window's failures reached FailureRatio
	WhySlowRatio           = "slow_ratio"           // open: the window's slow calls reached SlowRatio
	WhyFailureCount        = "failure_count"        // open: the window's failures reached FailureCount
	WhyConsecutiveFailures = "consecutive_failures" // open: the failures in a row reached ConsecutiveFailures
	WhyOpenPassed          = "open_passed"          // half-open: the open time has passed
	WhyProbeFailed         = "probe_failed"         // open: failed probes reached their limit
	WhyProbeSlow           = "probe_slow"           // open: slow probes reached their limit
	WhyProbeTimeout        = "probe_timeout"        // open: so did a probe that was given up after ProbeTimeout
	WhyProbesSucceeded     = "probes_succeeded"     // recovering or closed: the probes reached no limit
	WhyRampEnded           = "ramp_ended"           // closed: the ramp has let all calls through
	WhyReset               = "reset"                // closed: by Reset
	WhyForced              = "forced"               // forced open or closed: by ForceOpen or ForceClosed
	WhyObserved            = "observed"             // no change of state: Observe has begun
	WhyReleased            = "released"             // a command was ended by Release, or replaced
	WhyExpired             = "expired"              // a command has ended by itself
	WhyThrottled           = "throttled"            // throttling: too few requests were accepted
	WhyAccepted            = "accepted"             // closed, of a throttle: enough requests are accepted again
)
