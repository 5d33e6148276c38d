package breaker

import (
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// kind is the kind of policy, and the name of a breaker that is given none.
const kind = "breaker"

// Off turns off a rule, as its ratio, and [Config.MaxRetryAfter].
const Off = -1

// The values that zero fields of a [Config] stand for.
const (
	defaultRatio     = 0.5
	defaultWindow    = 10 * time.Second
	defaultBuckets   = 10
	defaultMinCalls  = 20
	defaultOpenFor   = 5 * time.Second
	defaultProbes    = 3
	defaultRampStart = 0.1

	// defaultProbeTimeout is the least that a zero ProbeTimeout stands for, and
	// defaultMaxRetryAfter the least that a zero MaxRetryAfter does.
	defaultProbeTimeout  = 10 * time.Second
	defaultMaxRetryAfter = time.Minute
)

const (
	maxBuckets   = 1000
	maxLastCalls = 100_000
	maxProbes    = 1000
	maxRow       = 1_000_000

	// A duration below these is a number without a unit.
	minDuration  = time.Millisecond
	minSlowAfter = time.Microsecond
)

// Growth says how the time for which a breaker is open grows when it opens again and
// again.
type Growth uint8

// The ways in which the open delay grows up to [Config.MaxOpenFor].
const (
	Exponential Growth = iota // it doubles: 1, 2, 4, 8 times OpenFor
	Linear                    // it rises by itself: 1, 2, 3, 4 times OpenFor

	numGrowths
)

// String returns "exponential" or "linear".
func (g Growth) String() string {
	switch g {
	case Exponential:
		return "exponential"
	case Linear:
		return "linear"
	default:
		return "unknown"
	}
}

// Config configures a [Breaker]. The zero value is valid: it opens when half of at
// least 20 calls within 10 s have failed. It can be handed to [policy.New] as it is;
// each pipeline then gets a breaker of its own.
//
// There are four rules, in any mix: FailureRatio, SlowRatio, FailureCount and
// ConsecutiveFailures. All look at the same calls, and whichever is reached first
// opens the breaker. Ratios are compared exactly: a threshold of 0.1 is reached by one
// call of ten.
type Config struct {
	// Name is the instance name, unique in a pipeline and the policy label
	// everywhere. Empty means "breaker".
	Name string

	// FailureRatio is the share of failed calls, in (0, 1], that opens the breaker.
	// Zero means 0.5; [Off] turns the rule off, which needs another one.
	FailureRatio float64

	// SlowAfter makes a call slow when the dependency took longer than this, at
	// least 1µs. Zero turns the slow rule off. A call that was given up by its
	// caller after it was slow counts as slow too.
	SlowAfter time.Duration

	// SlowRatio is the share of slow calls, in (0, 1], that opens the breaker. It is
	// a rule about a percentile: 0.5 opens when the median is above SlowAfter, and
	// 0.01 when the p99 is (with a MinCalls above 100, or one slow call is enough).
	// Zero means 0.5 when SlowAfter is set; without SlowAfter any ratio is an error.
	// [Off] turns the rule off.
	SlowRatio float64

	// FailureCount is the number of failed calls in the window that opens the
	// breaker, whatever the number of calls; MinCalls has no part in it. It suits a
	// dependency whose traffic is known: what is an outage at 1 call/s is noise at
	// 1000. Zero turns the rule off.
	FailureCount int

	// ConsecutiveFailures is the number of failed calls without a success between
	// them that opens the breaker, up to 1,000,000, however far apart they are;
	// neither the window nor MinCalls has a part in it. Zero turns the rule off.
	ConsecutiveFailures int

	// Window is the length of the sliding window, at least 1ms. Zero means 10s,
	// unless LastCalls is set: the two exclude each other.
	Window time.Duration

	// Buckets is the number of steps in which the window slides, from 1 to 1000.
	// The window covers its length less what its newest bucket still lacks. Zero
	// means 10. It has no meaning with LastCalls.
	Buckets int

	// LastCalls makes the window one of calls: exactly the last so many of them, up
	// to 100,000, however old they are. Zero means that the window is one of time.
	LastCalls int

	// MinCalls is the number of calls the window must hold before a ratio is looked
	// at. Zero means 20, or LastCalls if that is less. It has no part in the
	// half-open state.
	MinCalls int

	// OpenFor is how long the breaker refuses before it lets probes through, at
	// least 1ms. Zero means 5s.
	OpenFor time.Duration

	// MaxOpenFor makes that time grow, up to this, when the breaker opens again
	// from the half-open or the recovering state, or soon after it has closed; see
	// ForgetAfter. It must not be below OpenFor. Zero means OpenFor: no growth.
	MaxOpenFor time.Duration

	// OpenGrowth says how it grows. The zero value is [Exponential]. It needs a
	// MaxOpenFor above OpenFor.
	OpenGrowth Growth

	// ForgetAfter is how long the breaker must have been closed for the growth to
	// begin anew, at least 1ms. Zero means MaxOpenFor.
	ForgetAfter time.Duration

	// OpenJitter is the share, in [0, 1), of the open time that is left to chance:
	// with 0.2 a breaker that would be open for 5s is open for 4s to 5s, so that
	// many instances do not probe at one instant. Zero means none.
	OpenJitter float64

	// MaxRetryAfter bounds how long the breaker stays open because the dependency
	// asked for it: a failed call's [policy.Outcome] carried a Pushback (Retry-After)
	// beyond the end of the open time. It must not be below OpenFor. Zero means
	// MaxOpenFor, at least 1m; [Off] means that such wishes are ignored.
	MaxRetryAfter time.Duration

	// Probes is the number of calls, from 1 to 1000, that decide in the half-open
	// state. Not more than that many run at a time, and when that many have ended
	// the breaker closes, unless their failures or slow calls reach a ratio: then
	// it opens again, as soon as that is certain. With FailureRatio [Off] and
	// another rule for failures, one failed probe opens it. Zero means 3.
	Probes int

	// Successes is the number of probes, up to Probes, that must succeed without
	// being slow for the breaker to close. It does so as soon as they have, and
	// opens again as soon as they no longer can, whatever the ratios. Zero leaves
	// the decision to the ratios.
	Successes int

	// ProbeTimeout is how long a probe may take, at least 1ms. After that its place
	// is taken back and it counts as failed and, if there is a slow rule, slow;
	// what it returns later is ignored. It guards against calls that never return;
	// to end slow ones use an attempt timeout. Zero means OpenFor, or 10s when that
	// is longer.
	ProbeTimeout time.Duration

	// RampFor puts a recovering state between half-open and closed, in which the
	// share of calls that are let through rises evenly from RampStart to all of
	// them within this time: load returns to the dependency as a ramp and not as a
	// step. The rules hold meanwhile. It must not be below Window, in which they
	// look. Zero means none.
	RampFor time.Duration

	// RampStart is the share of calls, in (0, 1), with which the ramp begins. Zero
	// means 0.1 when RampFor is set; without it any share is an error.
	RampStart float64

	// Shadow makes the breaker watch only: it decides, its decisions are counted
	// and reported, and every call runs. Outcomes of calls it would have refused
	// are ignored.
	Shadow bool

	// OnStateChange is told of each change of state, once and in order, on the
	// goroutine of a call, after the change and outside any lock: it may use the
	// breaker. It holds that call up, and later changes with it. A panic in it is
	// dropped. Nil means that nobody is told.
	OnStateChange func(StateChange)
}

// StateChange is what [Config.OnStateChange] is told.
type StateChange struct {
	Name string    // of the breaker
	Time time.Time // when the new state began
	policy.StateChange
}

// effective returns c with every default filled in.
func (c Config) effective() Config {
	c.Name = orDefault(c.Name, kind)
	c.FailureRatio = orDefault(c.FailureRatio, defaultRatio)
	switch {
	case c.SlowAfter == 0 || c.SlowRatio == Off:
		c.SlowAfter, c.SlowRatio = 0, Off
	default:
		c.SlowRatio = orDefault(c.SlowRatio, defaultRatio)
	}
	if c.LastCalls == 0 {
		c.Window = orDefault(c.Window, defaultWindow)
		c.Buckets = orDefault(c.Buckets, defaultBuckets)
		c.MinCalls = orDefault(c.MinCalls, defaultMinCalls)
	} else {
		c.MinCalls = orDefault(c.MinCalls, min(defaultMinCalls, c.LastCalls))
	}
	c.OpenFor = orDefault(c.OpenFor, defaultOpenFor)
	c.MaxOpenFor = orDefault(c.MaxOpenFor, c.OpenFor)
	if c.MaxOpenFor > c.OpenFor {
		c.ForgetAfter = orDefault(c.ForgetAfter, c.MaxOpenFor)
	}
	c.MaxRetryAfter = orDefault(c.MaxRetryAfter, max(c.MaxOpenFor, defaultMaxRetryAfter))
	c.Probes = orDefault(c.Probes, defaultProbes)
	c.ProbeTimeout = orDefault(c.ProbeTimeout, max(c.OpenFor, defaultProbeTimeout))
	if c.RampFor > 0 {
		c.RampStart = orDefault(c.RampStart, defaultRampStart)
	}
	return c
}

func orDefault[T comparable](v, zero T) T {
	var unset T
	if v == unset {
		return zero
	}
	return v
}

// warnings returns what is likely to surprise in an effective Config.
func (c Config) warnings() []string {
	var ws []string
	warn := func(format string, args ...any) { ws = append(ws, fmt.Sprintf(format, args...)) }
	r := newRules(c)
	for _, rule := range []struct {
		field, what string
		ratio       float64
		limit       ratio
	}{
		{"FailureRatio", "failed", c.FailureRatio, r.failure},
		{"SlowRatio", "slow", c.SlowRatio, r.slow},
	} {
		if rule.limit.reached(1, r.minCalls) {
			warn("with MinCalls %d and %s %v a single %s call opens the breaker; raise MinCalls",
				c.MinCalls, rule.field, rule.ratio, rule.what)
		}
	}
	if c.FailureCount == 1 {
		warn("with FailureCount 1 a single failed call opens the breaker; raise it")
	}
	if c.ConsecutiveFailures == 1 {
		warn("with ConsecutiveFailures 1 a single failed call opens the breaker; raise it")
	}
	if c.ProbeTimeout <= c.SlowAfter {
		warn("ProbeTimeout %s is not above SlowAfter %s: a probe counts as hung before it is slow",
			c.ProbeTimeout, c.SlowAfter)
	}
	return ws
}

// BuildPolicy implements [policy.Policy]: every pipeline that is given the Config
// gets a breaker of its own. To share one, hand over a [*Breaker].
func (c Config) BuildPolicy() (policy.Part, error) {
	b, err := New(c.Name, c)
	if err != nil {
		return policy.Part{Kind: kind, Name: c.Name}, err
	}
	return b.BuildPolicy()
}
