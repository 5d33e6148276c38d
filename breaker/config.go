package breaker

import (
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// kind is the kind of policy, and the name of a breaker that is given none.
const kind = "breaker"

// Off as a ratio turns its rule off.
const Off = -1

// The values that zero fields of a [Config] stand for.
const (
	defaultRatio    = 0.5
	defaultWindow   = 10 * time.Second
	defaultBuckets  = 10
	defaultMinCalls = 20
	defaultOpenFor  = 5 * time.Second
	defaultProbes   = 3

	// defaultProbeTimeout is the least that a zero ProbeTimeout stands for.
	defaultProbeTimeout = 10 * time.Second
)

const (
	maxBuckets = 1000
	maxProbes  = 1000

	// A duration below these is a number without a unit.
	minDuration  = time.Millisecond
	minSlowAfter = time.Microsecond
)

// Config configures a [Breaker]. The zero value is valid: it opens when half of at
// least 20 calls within 10 s have failed. It can be handed to [policy.New] as it is;
// each pipeline then gets a breaker of its own.
//
// Two rules look at the same window, and whichever is reached first opens the
// breaker. Both compare exactly: a threshold of 0.1 is reached by one call of ten.
type Config struct {
	// Name is the instance name, unique in a pipeline and the policy label
	// everywhere. Empty means "breaker".
	Name string

	// FailureRatio is the share of failed calls, in (0, 1], that opens the breaker.
	// Zero means 0.5; [Off] turns the rule off, which needs the slow rule.
	FailureRatio float64

	// SlowAfter makes a call slow when the dependency took longer than this, at
	// least 1µs. Zero turns the slow rule off. A call that was given up by its
	// caller after it was slow counts as slow too.
	SlowAfter time.Duration

	// SlowRatio is the share of slow calls, in (0, 1], that opens the breaker. Zero
	// means 0.5 when SlowAfter is set; without SlowAfter any ratio is an error.
	// [Off] turns the rule off.
	SlowRatio float64

	// Window is the length of the sliding window, at least 1ms. Zero means 10s.
	Window time.Duration

	// Buckets is the number of steps in which the window slides, from 1 to 1000.
	// The window covers its length less what its newest bucket still lacks. Zero
	// means 10.
	Buckets int

	// MinCalls is the number of calls the window must hold before a rule is looked
	// at. Zero means 20. It has no part in the half-open state.
	MinCalls int

	// OpenFor is how long the breaker refuses before it lets probes through, at
	// least 1ms. Zero means 5s.
	OpenFor time.Duration

	// Probes is the number of calls, from 1 to 1000, that decide in the half-open
	// state. Not more than that many run at a time, and when that many have ended
	// the breaker closes, unless their failures or slow calls reach a ratio: then
	// it opens again, as soon as that is certain. Zero means 3.
	Probes int

	// ProbeTimeout is how long a probe may take, at least 1ms. After that its place
	// is taken back and it counts as failed and, if there is a slow rule, slow;
	// what it returns later is ignored. It guards against calls that never return;
	// to end slow ones use an attempt timeout. Zero means OpenFor, or 10s when that
	// is longer.
	ProbeTimeout time.Duration

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

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	fail := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
	}
	// Ranges are written so that NaN fails.
	if !(c.FailureRatio == Off || c.FailureRatio >= 0 && c.FailureRatio <= 1) {
		fail("FailureRatio", c.FailureRatio, "want above 0 and at most 1 (0 means 0.5, -1 turns the rule off)")
	}
	if !(c.SlowRatio == Off || c.SlowRatio >= 0 && c.SlowRatio <= 1) {
		fail("SlowRatio", c.SlowRatio, "want above 0 and at most 1 (0 means 0.5, -1 turns the rule off)")
	} else if c.SlowRatio > 0 && c.SlowAfter == 0 {
		fail("SlowRatio", c.SlowRatio, "has no effect without SlowAfter, which says when a call is slow")
	}
	if c.SlowAfter != 0 && c.SlowAfter < minSlowAfter {
		fail("SlowAfter", c.SlowAfter, "want at least 1µs (0 turns the slow rule off)")
	}
	if c.FailureRatio == Off && (c.SlowRatio == Off || c.SlowAfter == 0) {
		fail("FailureRatio", nil, "both rules are off, so the breaker would never open; set FailureRatio or SlowAfter")
	}
	for _, d := range []struct {
		field, zero string
		value       time.Duration
	}{
		{"Window", "10s", c.Window},
		{"OpenFor", "5s", c.OpenFor},
		{"ProbeTimeout", "OpenFor, at least 10s", c.ProbeTimeout},
	} {
		if d.value != 0 && d.value < minDuration {
			fail(d.field, d.value, fmt.Sprintf("want at least 1ms (0 means %s)", d.zero))
		}
	}
	if c.Buckets < 0 || c.Buckets > maxBuckets {
		fail("Buckets", c.Buckets, "want from 1 to 1000 (0 means 10)")
	}
	if c.MinCalls < 0 {
		fail("MinCalls", c.MinCalls, "want at least 1 (0 means 20)")
	}
	if c.Probes < 0 || c.Probes > maxProbes {
		fail("Probes", c.Probes, "want from 1 to 1000 (0 means 3)")
	}
	return errors.Join(errs...)
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
	c.Window = orDefault(c.Window, defaultWindow)
	c.Buckets = orDefault(c.Buckets, defaultBuckets)
	c.MinCalls = orDefault(c.MinCalls, defaultMinCalls)
	c.OpenFor = orDefault(c.OpenFor, defaultOpenFor)
	c.Probes = orDefault(c.Probes, defaultProbes)
	c.ProbeTimeout = orDefault(c.ProbeTimeout, max(c.OpenFor, defaultProbeTimeout))
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
			ws = append(ws, fmt.Sprintf("with MinCalls %d and %s %v a single %s call opens the breaker; raise MinCalls",
				c.MinCalls, rule.field, rule.ratio, rule.what))
		}
	}
	if c.ProbeTimeout <= c.SlowAfter {
		ws = append(ws, fmt.Sprintf("ProbeTimeout %s is not above SlowAfter %s: a probe counts as hung before it is slow",
			c.ProbeTimeout, c.SlowAfter))
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
