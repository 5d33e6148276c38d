package breaker

import (
	"math"
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// State is the state of a breaker.
type State uint8

// The states, in the order of their cycle.
const (
	Closed   State = iota // calls run and are counted
	Open                  // calls are refused
	HalfOpen              // a few calls, the probes, decide what follows
)

var stateNames = policy.BreakerStates()

// String returns the state's name as metrics and logs show it: "closed", "open" or
// "half_open".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Why a state was entered. It is a closed set, usable as a metric label.
const (
	WhyStart           = "start"            // closed: the breaker is new
	WhyFailureRatio    = "failure_ratio"    // open: the window's failures reached FailureRatio
	WhySlowRatio       = "slow_ratio"       // open: the window's slow calls reached SlowRatio
	WhyOpenPassed      = "open_passed"      // half-open: OpenFor has passed
	WhyProbeFailed     = "probe_failed"     // open: failed probes reached FailureRatio
	WhyProbeSlow       = "probe_slow"       // open: slow probes reached SlowRatio
	WhyProbeTimeout    = "probe_timeout"    // open: so did a probe that was given up after ProbeTimeout
	WhyProbesSucceeded = "probes_succeeded" // closed: all probes ended and reached no ratio
	WhyReset           = "reset"            // closed: by Reset
)

// rules is a Config in the form that decisions are made from. Durations are in
// nanoseconds.
type rules struct {
	failure, slow         ratio
	failureAt, slowAt     float64 // the same as numbers, 0 when off
	slowAfter             time.Duration
	minCalls              uint64
	openFor, probeTimeout int64
	probes                int
}

// newRules takes an effective Config.
func newRules(c Config) rules {
	r := rules{
		slowAfter:    math.MaxInt64,
		minCalls:     uint64(c.MinCalls), //nolint:gosec // validated
		openFor:      int64(c.OpenFor),
		probeTimeout: int64(c.ProbeTimeout),
		probes:       c.Probes,
	}
	if c.FailureRatio != Off {
		r.failure, r.failureAt = newRatio(c.FailureRatio), c.FailureRatio
	}
	if c.SlowRatio != Off {
		r.slow, r.slowAt, r.slowAfter = newRatio(c.SlowRatio), c.SlowRatio, c.SlowAfter
	}
	return r
}

// plain is what a call counts as that neither failed nor was slow.
var plain = window.Counts{Calls: 1}

// judge says what an outcome counts as. No calls at all means that it is neutral.
func (r *rules) judge(o policy.Outcome) window.Counts {
	var c window.Counts
	if o.Kind == policy.NotRun {
		return c
	}
	if o.Kind.IsFailure() {
		c.Failures = 1
	}
	// However the call ended, the time it took is the dependency's.
	if o.Duration > r.slowAfter {
		c.Slow = 1
	}
	if o.Kind.IsAnswer() {
		c.Calls = 1
	} else {
		c.Calls = c.Failures | c.Slow
	}
	return c
}

// change is a transition, with everything that is reported of it.
type change struct {
	from, to         State
	at               int64
	why              string
	gen              uint64
	counts           window.Counts
	ratio, threshold float64
	retryAfter       int64
}

// lease is a probe in flight.
type lease struct {
	id      uint32
	expires int64
}

// machine is the state machine of a breaker. It is pure: time comes in as
// nanoseconds since the breaker's birth, never negative. It is not safe for
// concurrent use. In the closed state it does not see the calls: a window counts
// them, and says when it is time to trip.
type machine struct {
	rules  *rules
	state  State
	gen    uint64
	since  int64
	why    string
	opened uint64

	// counts are, while half-open, the probes that have ended; while open, the
	// figures that opened the breaker.
	counts window.Counts

	until  int64 // open: when it ends
	leases []lease
	lastID uint32
}

// peek returns a copy to look into the future with.
func (m *machine) peek() machine {
	c := *m
	c.leases = slices.Clone(m.leases)
	return c
}

// enter begins a new state. Time never goes back from one state to the next, even
// if the clock of the goroutine that brings the change is behind.
func (m *machine) enter(s State, at int64, why string, counts window.Counts) change {
	ch := change{from: m.state, to: s, at: max(at, m.since), why: why, gen: m.gen + 1, counts: counts}
	m.state, m.gen, m.since, m.why = s, ch.gen, ch.at, why
	m.leases = m.leases[:0]
	m.counts = window.Counts{}
	if s == Open {
		m.opened++
		m.counts = counts
		m.until = addTime(ch.at, m.rules.openFor)
		ch.retryAfter = m.rules.openFor
	}
	return ch
}

// trip opens the breaker with figures of the window for which [rules.tripped] holds.
// When both rules are reached at once it names the failures.
func (m *machine) trip(at int64, c window.Counts) change {
	if m.rules.failure.reached(c.Failures, c.Calls) {
		return m.open(at, WhyFailureRatio, c, c.Failures, m.rules.failureAt)
	}
	return m.open(at, WhySlowRatio, c, c.Slow, m.rules.slowAt)
}

// tripped reports whether figures of the window open the breaker.
func (r *rules) tripped(c window.Counts) bool {
	return c.Calls >= r.minCalls && (r.failure.reached(c.Failures, c.Calls) || r.slow.reached(c.Slow, c.Calls))
}

func (m *machine) open(at int64, why string, c window.Counts, part uint64, threshold float64) change {
	ch := m.enter(Open, at, why, c)
	ch.ratio, ch.threshold = share(part, c.Calls), threshold
	return ch
}

// tick makes the earliest change that time alone has brought about by ns, and
// reports whether there was one; there may be more. It is what lets a breaker
// report its true state without traffic.
func (m *machine) tick(ns int64) (change, bool) {
	switch m.state {
	case Open:
		if ns >= m.until {
			return m.enter(HalfOpen, m.until, WhyOpenPassed, window.Counts{}), true
		}
	case HalfOpen:
		for {
			i := m.firstToExpire()
			if i < 0 || m.leases[i].expires > ns {
				break
			}
			at := m.leases[i].expires
			m.leases = slices.Delete(m.leases, i, i+1)
			hung := window.Counts{Calls: 1, Failures: 1}
			if m.rules.slow.den != 0 {
				hung.Slow = 1
			}
			if ch, ok := m.count(at, hung, true); ok {
				return ch, true
			}
		}
	case Closed:
	}
	return change{}, false
}

func (m *machine) firstToExpire() int {
	first := -1
	for i, l := range m.leases {
		if first < 0 || l.expires < m.leases[first].expires {
			first = i
		}
	}
	return first
}

// admit lets a probe in, if there is a place. Probes in flight and probes counted
// together never exceed the number allowed, so that no verdict waits for more.
func (m *machine) admit(ns int64) (id uint32, ok bool) {
	if m.full() {
		return 0, false
	}
	m.lastID++
	if m.lastID == 0 { // zero is the word of a call that is no probe
		m.lastID++
	}
	m.leases = append(m.leases, lease{m.lastID, addTime(max(ns, m.since), m.rules.probeTimeout)})
	return m.lastID, true
}

func (m *machine) full() bool {
	return len(m.leases) >= m.rules.probes-int(m.counts.Calls) //nolint:gosec // at most probes
}

// settle ends a probe. A neutral one gives its place back and counts nothing. It
// reports whether the probe was in flight.
func (m *machine) settle(id uint32, ns int64, c window.Counts) (ch change, changed, known bool) {
	i := slices.IndexFunc(m.leases, func(l lease) bool { return l.id == id })
	if i < 0 {
		return change{}, false, false
	}
	m.leases = slices.Delete(m.leases, i, i+1)
	if c.Calls == 0 {
		return change{}, false, true
	}
	ch, changed = m.count(ns, c, false)
	return ch, changed, true
}

// amend makes a probe that was counted as a success a failed one.
func (m *machine) amend(ns int64) (change, bool) {
	if m.counts.Failures == m.counts.Calls {
		return change{}, false
	}
	return m.count(ns, window.Counts{Failures: 1}, false)
}

// count adds to the figures of the probes and decides as soon as the end is
// certain.
func (m *machine) count(at int64, c window.Counts, hung bool) (change, bool) {
	m.counts.Calls += c.Calls
	m.counts.Failures += c.Failures
	m.counts.Slow += c.Slow
	got, all := m.counts, uint64(m.rules.probes) //nolint:gosec // validated
	why := func(w string) string {
		if hung {
			return WhyProbeTimeout
		}
		return w
	}
	switch {
	case m.rules.failure.reached(got.Failures, all):
		return m.open(at, why(WhyProbeFailed), got, got.Failures, m.rules.failureAt), true
	case m.rules.slow.reached(got.Slow, all):
		return m.open(at, why(WhyProbeSlow), got, got.Slow, m.rules.slowAt), true
	case got.Calls >= all:
		return m.enter(Closed, at, WhyProbesSucceeded, got), true
	}
	return change{}, false
}

// refuseUntil returns the time before which a call is sure to be refused, unless a
// probe ends first.
func (m *machine) refuseUntil() int64 {
	switch {
	case m.state == Open:
		return m.until
	case m.state == HalfOpen && m.full():
		return m.leases[m.firstToExpire()].expires
	}
	return math.MinInt64
}

// addTime adds a duration to a time, both not negative, and stays at the end of
// time.
func addTime(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}

// share returns part of whole as a number; 0 of nothing.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
