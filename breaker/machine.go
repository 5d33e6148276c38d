package breaker

import (
	"math"
	"slices"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// change is a transition, with everything that is reported of it.
type change struct {
	from, to State
	at       int64
	because  reason
	gen      uint64
	note     string
	counts   window.Counts
	ends     int64 // time until the next change that needs no traffic; 0 when there is none
}

// lease is a probe in flight.
type lease struct {
	id      uint32
	expires int64
}

// forever is the end of what time does not end.
const forever = math.MaxInt64

// machine is the state machine of a breaker. It is pure: time comes in as
// nanoseconds since the breaker's birth, never negative. It is not safe for
// concurrent use. In the states that count calls it does not see them: a window
// counts them, and says when it is time to trip.
type machine struct {
	rules *rules
	seed  uint64 // of the jitter

	state State
	gen   uint64
	first uint64 // the earliest generation whose calls count in the present window
	since int64
	until int64 // when time ends the state, or forever
	why   string

	opened uint64
	row    int // how often it has opened in a row, for the growth of the open time

	// counts are, while half-open, the probes that have ended; while open, the
	// figures that opened the breaker. good is the number of probes that neither
	// failed nor were slow.
	counts window.Counts
	good   uint64
	leases []lease
	lastID uint32

	notBefore int64 // the dependency's own wish, from the failed calls of the state

	// The command in force: a forced state, or observing.
	note         string
	observing    bool
	observeUntil int64
}

// peek returns a copy to look into the future with.
func (m *machine) peek() machine {
	c := *m
	c.leases = slices.Clone(m.leases)
	return c
}

// enter begins a new state. Time never goes back from one state to the next, even
// if the clock of the goroutine that brings the change is behind.
func (m *machine) enter(s State, at int64, because reason, counts window.Counts) change {
	ch := change{from: m.state, to: s, at: max(at, m.since), because: because, gen: m.gen + 1, counts: counts}
	if !s.counts() || !m.state.counts() {
		m.first = ch.gen // otherwise the window goes on
	}
	m.state, m.gen, m.since, m.why, m.until = s, ch.gen, ch.at, because.why, forever
	m.leases = m.leases[:0]
	m.counts, m.good, m.notBefore = window.Counts{}, 0, 0
	return ch
}

// endAt says when time will end the state that has just been entered.
func (m *machine) endAt(until int64, ch change) change {
	m.until = until
	if until != forever {
		ch.ends = until - ch.at
	}
	return ch
}

// open opens the breaker for the reason given.
func (m *machine) open(at int64, because reason, c window.Counts) change {
	at = max(at, m.since)
	if m.state == Closed && at-m.since >= m.rules.forgetAfter {
		m.row = 0
	}
	m.row = min(m.row+1, math.MaxInt32)
	m.opened++
	until := addTime(at, m.rules.openDelay(m.row, chance(m.seed, m.gen)))
	until = max(until, min(m.notBefore, addTime(at, m.rules.maxRetryAfter)))
	ch := m.enter(Open, at, because, c)
	m.counts = c
	return m.endAt(until, ch)
}

// chance returns a number in [0, 1) that looks random and belongs to a generation, so
// that whoever looks ahead sees what will come (SplitMix64).
func chance(seed, gen uint64) float64 {
	z := seed + gen*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

// close ends the half-open state well.
func (m *machine) close(at int64, because reason, c window.Counts) change {
	if m.rules.rampFor == 0 {
		return m.enter(Closed, at, because, c)
	}
	ch := m.enter(Recovering, at, because, c)
	return m.endAt(addTime(ch.at, m.rules.rampFor), ch)
}

// reset closes the breaker, in whatever state other than closed it is, with a window
// that is empty. Observing goes on.
func (m *machine) reset(at int64) change {
	if m.state.forced() {
		m.note = ""
	}
	m.row = 0
	ch := m.enter(Closed, at, reason{why: WhyReset}, window.Counts{})
	m.first = m.gen
	return ch
}

// force begins a forced state, for so long or forever.
func (m *machine) force(s State, at, length int64, note string) change {
	m.note, m.observing = note, false
	ch := m.enter(s, at, reason{why: WhyForced}, window.Counts{})
	ch.note = note
	return m.endAt(addTime(ch.at, length), ch)
}

// observe begins to let through what would be refused, for so long or forever.
func (m *machine) observe(at, length int64, note string) change {
	ch := m.same(at, WhyObserved, note)
	m.note, m.observing, m.observeUntil = note, true, addTime(ch.at, length)
	if length != forever {
		ch.ends = length
	}
	return ch
}

// release ends a command, if there is one. What follows a forced state is what asks
// least of the dependency: it is not known how that is after it was kept from calls.
func (m *machine) release(at int64, why, note string) (ch change, changed bool) {
	switch {
	case m.state == ForcedOpen:
		ch = m.enter(HalfOpen, at, reason{why: why}, window.Counts{})
	case m.state == ForcedClosed:
		ch = m.enter(Closed, at, reason{why: why}, window.Counts{})
	case m.observing:
		ch = m.same(at, why, note)
	default:
		return change{}, false
	}
	ch.note = note
	m.note, m.observing = "", false
	return ch, true
}

// same is a change that leaves the state as it is.
func (m *machine) same(at int64, why, note string) change {
	return change{from: m.state, to: m.state, at: max(at, m.since), because: reason{why: why}, gen: m.gen, note: note}
}

// tick makes the earliest change that time alone has brought about by ns, and
// reports whether there was one; there may be more. It is what lets a breaker
// report its true state without traffic.
func (m *machine) tick(ns int64) (change, bool) {
	for {
		end, i := m.until, m.firstToExpire()
		if i >= 0 {
			end = m.leases[i].expires
		}
		switch {
		case m.observing && m.observeUntil <= min(ns, end) && m.observeUntil != forever:
			return m.release(m.observeUntil, WhyExpired, m.note)
		case end > ns || end == forever:
			return change{}, false
		case i >= 0:
			if ch, ok := m.expire(i); ok {
				return ch, true
			}
		case m.state == Open:
			return m.enter(HalfOpen, end, reason{why: WhyOpenPassed}, window.Counts{}), true
		case m.state == Recovering:
			return m.enter(Closed, end, reason{why: WhyRampEnded}, window.Counts{}), true
		default: // a forced state
			return m.release(end, WhyExpired, m.note)
		}
	}
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

// expire takes back the place of a probe that has run out of time.
func (m *machine) expire(i int) (change, bool) {
	at := m.leases[i].expires
	m.leases = slices.Delete(m.leases, i, i+1)
	hung := window.Counts{Calls: 1, Failures: 1}
	if m.rules.slow.den != 0 {
		hung.Slow = 1
	}
	return m.count(at, hung, true)
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

// probe returns the place of a probe among the leases, negative when it has none.
func (m *machine) probe(id uint32) int {
	return slices.IndexFunc(m.leases, func(l lease) bool { return l.id == id })
}

// settle ends a probe. A neutral one gives its place back and counts nothing. It
// reports whether the probe was in flight.
func (m *machine) settle(id uint32, ns int64, c window.Counts, o policy.Outcome) (ch change, changed, known bool) {
	i := m.probe(id)
	if i < 0 {
		return change{}, false, false
	}
	m.leases = slices.Delete(m.leases, i, i+1)
	if c.Calls == 0 {
		return change{}, false, true
	}
	m.wish(ns, c, o)
	ch, changed = m.count(ns, c, false)
	return ch, changed, true
}

// wish notes how long a failed call asked to be left alone.
func (m *machine) wish(ns int64, c window.Counts, o policy.Outcome) {
	if c.Failures > 0 && o.Pushback > 0 {
		m.notBefore = max(m.notBefore, addTime(max(ns, m.since), int64(o.Pushback)))
	}
}

// amend makes a probe that was counted as a success a failed or a slow one, of those that
// were neither if there is one.
func (m *machine) amend(ns int64, c window.Counts, o policy.Outcome) (change, bool) {
	if m.counts.Failures+c.Failures > m.counts.Calls || m.counts.Slow+c.Slow > m.counts.Calls {
		return change{}, false
	}
	if m.good > 0 {
		m.good--
	}
	m.wish(ns, c, o)
	m.counts.Failures += c.Failures
	m.counts.Slow += c.Slow
	return m.decide(ns, c, false)
}

// count adds to the figures of the probes.
func (m *machine) count(at int64, c window.Counts, hung bool) (change, bool) {
	m.counts.Calls += c.Calls
	m.counts.Failures += c.Failures
	m.counts.Slow += c.Slow
	if c == plain {
		m.good++
	}
	return m.decide(at, c, hung)
}

// decide ends the half-open state as soon as its end is certain.
func (m *machine) decide(at int64, last window.Counts, hung bool) (change, bool) {
	because, decided := m.rules.probeVerdict(m.counts, m.good, last)
	switch {
	case !decided:
		return change{}, false
	case because.why == WhyProbesSucceeded:
		return m.close(at, because, m.counts), true
	case hung:
		because.why = WhyProbeTimeout
	}
	return m.open(at, because, m.counts), true
}

// refuseUntil returns the time before which a call is sure to be refused, unless a
// probe ends first.
func (m *machine) refuseUntil() int64 {
	switch {
	case m.state == Open || m.state == ForcedOpen:
		return m.until
	case m.state == HalfOpen && m.full():
		return m.leases[m.firstToExpire()].expires
	}
	return math.MinInt64
}
