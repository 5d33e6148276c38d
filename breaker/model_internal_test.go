package breaker

import (
	"math/big"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// model is a breaker that is slow and obvious: it keeps every call that ended and
// counts again whenever it is asked.
type model struct {
	cfg  Config // effective
	seed uint64

	state  State
	gen    uint64
	first  uint64 // generation with which the list of calls began
	since  int64
	until  int64
	why    string
	opened uint64
	row    int // openings in a row

	calls  []modelCall // ended calls; half-open: ended probes; open: what opened it
	newest int64       // bucket of the newest call
	failed uint64      // calls in a row that failed
	before uint64      // the same, which the last success has ended
	wish   int64       // the dependency's, as a time
	asked  uint64      // calls on the ramp
	flying []*modelTicket

	note         string
	observing    bool
	observeUntil int64
	spared       uint64

	log []modelChange
}

type modelCall struct {
	bucket       int64
	failed, slow bool
}

type modelTicket struct {
	gen     uint64
	probe   bool
	ghost   bool
	expires int64
}

type modelChange struct {
	at int64
	policy.StateChange
}

type modelFigures struct{ calls, failures, slow, good uint64 }

func newModel(cfg Config, seed uint64) *model {
	return &model{cfg: cfg.effective(), seed: seed, gen: 1, first: 1, until: forever, why: WhyStart}
}

func (m *model) bucket(ns int64) int64 {
	if m.cfg.LastCalls > 0 {
		return 0
	}
	return max(m.newest, ns/(int64(m.cfg.Window)/int64(m.cfg.Buckets)))
}

func (m *model) counting() bool {
	return m.state == Closed || m.state == Recovering || m.state == ForcedClosed
}

func (m *model) change(to State, at, length int64, why reason, note string) {
	f := m.figures(at)
	at = max(at, m.since)
	ch := modelChange{at, policy.StateChange{
		From: m.state.String(), To: to.String(), Why: why.why, Generation: m.gen + 1, Note: note,
		Ratio: why.figure, Threshold: why.limit,
	}}
	switch why.why {
	case WhyOpenPassed, WhyRampEnded, WhyForced, WhyReleased, WhyExpired, WhyReset:
	default:
		ch.Calls, ch.Failures, ch.Slow = f.calls, f.failures, f.slow
	}
	before := m.counting()
	m.state, m.gen, m.since, m.why, m.until = to, m.gen+1, at, why.why, forever
	m.flying, m.asked = nil, 0
	if length != forever {
		m.until = at + length
		ch.RetryAfter = time.Duration(length)
	}
	m.log = append(m.log, ch)
	if to == Open {
		return // with what opened it
	}
	if !before || !m.counting() || why.why == WhyReset {
		m.first, m.calls, m.newest, m.failed, m.before, m.wish = m.gen, nil, 0, 0, 0, 0
	}
}

// open opens the model at the given time, which begins with how long.
func (m *model) open(at int64, why reason) {
	if m.counting() { // what has left the window is not among the figures
		m.calls = slices.Clone(m.inWindow(at))
		for i := range m.calls {
			m.calls[i].bucket = forever // a clock that is behind has decided
		}
	}
	at = max(at, m.since)
	if m.state == Closed && at-m.since >= int64(m.cfg.ForgetAfter) {
		m.row = 0
	}
	m.row++
	d := int64(m.cfg.OpenFor)
	for range m.row - 1 {
		if m.cfg.OpenGrowth == Linear {
			d += int64(m.cfg.OpenFor)
		} else {
			d *= 2
		}
		d = min(d, int64(m.cfg.MaxOpenFor))
	}
	d -= int64(float64(d) * m.cfg.OpenJitter * chance(m.seed, m.gen))
	if asked := min(m.wish-at, int64(m.cfg.MaxRetryAfter)); m.cfg.MaxRetryAfter != Off && asked > d {
		d = asked
	}
	m.opened++
	m.change(Open, at, d, why, "")
	m.wish = 0
}

// inWindow returns the calls that count.
func (m *model) inWindow(ns int64) []modelCall {
	if !m.counting() {
		return m.calls
	}
	if n := m.cfg.LastCalls; n > 0 {
		return m.calls[max(len(m.calls)-n, 0):]
	}
	var calls []modelCall
	for _, c := range m.calls {
		if c.bucket > m.bucket(ns)-int64(m.cfg.Buckets) {
			calls = append(calls, c)
		}
	}
	return calls
}

func (m *model) figures(ns int64) (f modelFigures) {
	for _, c := range m.inWindow(ns) {
		f.calls++
		if c.failed {
			f.failures++
		}
		if c.slow {
			f.slow++
		}
		if !c.failed && !c.slow {
			f.good++
		}
	}
	return f
}

// above reports whether part of whole reaches the limit, in exact fractions.
func above(part, whole uint64, limit float64) bool {
	if limit == Off || whole == 0 {
		return false
	}
	l, ok := limits.Load(limit)
	if !ok {
		r, _ := new(big.Rat).SetString(strconv.FormatFloat(limit, 'g', -1, 64))
		l, _ = limits.LoadOrStore(limit, r)
	}
	return new(big.Rat).SetFrac64(int64(part), int64(whole)).Cmp(l.(*big.Rat)) >= 0
}

// limits holds the few ratios that scripts are made of, since reading one takes long.
var limits sync.Map

func (m *model) firstToExpire() (first *modelTicket) {
	for _, p := range m.flying {
		if first == nil || p.expires < first.expires {
			first = p
		}
	}
	return first
}

// pass makes the changes that time has brought about.
func (m *model) pass(ns int64) {
	for {
		end := m.until
		hung := m.firstToExpire()
		if hung != nil {
			end = hung.expires
		}
		switch {
		case m.observing && m.observeUntil <= ns && m.observeUntil <= end:
			m.command(m.observeUntil, WhyExpired, m.note)
			m.note, m.observing = "", false
		case end > ns:
			return
		case hung != nil:
			m.land(hung)
			m.probeEnded(end, modelCall{failed: true, slow: m.cfg.SlowRatio != Off}, true)
		case m.state == Open:
			m.change(HalfOpen, end, forever, reason{why: WhyOpenPassed}, "")
		case m.state == Recovering:
			m.change(Closed, end, forever, reason{why: WhyRampEnded}, "")
		default:
			m.unforce(end, WhyExpired, m.note)
		}
	}
}

// command logs a change that leaves the state as it is.
func (m *model) command(at int64, why, note string) {
	m.log = append(m.log, modelChange{max(at, m.since), policy.StateChange{
		From: m.state.String(), To: m.state.String(), Why: why, Generation: m.gen, Note: note,
	}})
}

func (m *model) unforce(at int64, why, note string) {
	to := Closed
	if m.state == ForcedOpen {
		to = HalfOpen
	}
	m.change(to, at, forever, reason{why: why}, note)
	m.note = ""
}

func (m *model) land(p *modelTicket) {
	m.flying = slices.DeleteFunc(m.flying, func(q *modelTicket) bool { return p == q })
}

func (m *model) probeEnded(at int64, c modelCall, hung bool) {
	m.calls = append(m.calls, c)
	m.verdict(at, c, hung)
}

func (m *model) verdict(at int64, last modelCall, hung bool) {
	f, all := m.figures(at), uint64(m.cfg.Probes)
	var because reason
	limit := m.cfg.FailureRatio
	if limit == Off && (m.cfg.FailureCount > 0 || m.cfg.ConsecutiveFailures > 0) {
		limit = 1 / float64(all)
	}
	need := uint64(m.cfg.Successes)
	switch {
	case need > 0 && f.calls-f.good+need > all:
		because = reason{WhyProbeSlow, float64(f.calls - f.good), float64(all - need + 1)}
		if last.failed {
			because.why = WhyProbeFailed
		}
	case need > 0 && f.good == need:
		because.why = WhyProbesSucceeded
	case need > 0:
		return
	case above(f.failures, all, limit):
		because = reason{WhyProbeFailed, float64(f.failures) / float64(f.calls), limit}
	case above(f.slow, all, m.cfg.SlowRatio):
		because = reason{WhyProbeSlow, float64(f.slow) / float64(f.calls), m.cfg.SlowRatio}
	case f.calls == all:
		because.why = WhyProbesSucceeded
	default:
		return
	}
	switch {
	case because.why != WhyProbesSucceeded && hung:
		because.why = WhyProbeTimeout
		m.open(at, because)
	case because.why != WhyProbesSucceeded:
		m.open(at, because)
	case m.cfg.RampFor > 0:
		m.change(Recovering, at, int64(m.cfg.RampFor), because, "")
	default:
		m.change(Closed, at, forever, because, "")
	}
}

// begin admits a call, as a ghost when it is let through only because the breaker is
// observing, or refuses it.
func (m *model) begin(ns int64) (*modelTicket, policy.Reason, time.Duration) {
	t, reason, after := m.ask(ns)
	if t == nil && m.observing && ns < m.observeUntil {
		m.spared++
		return &modelTicket{ghost: true}, 0, 0
	}
	return t, reason, after
}

func (m *model) ask(ns int64) (*modelTicket, policy.Reason, time.Duration) {
	// A call passes the time only when it cannot do without.
	full := m.state == HalfOpen && len(m.flying)+len(m.calls) >= m.cfg.Probes
	switch {
	case m.counting() && (m.state == Closed || ns < m.until):
	case !m.counting() && m.state != HalfOpen && ns < m.until:
	case full && ns < m.firstToExpire().expires:
	default:
		m.pass(ns)
	}
	full = m.state == HalfOpen && len(m.flying)+len(m.calls) >= m.cfg.Probes
	switch {
	case m.state == Open:
		return nil, policy.ReasonOpen, time.Duration(m.until - ns)
	case m.state == ForcedOpen && m.until == forever:
		return nil, policy.ReasonForced, 0
	case m.state == ForcedOpen:
		return nil, policy.ReasonForced, time.Duration(m.until - ns)
	case full:
		return nil, policy.ReasonProbes, 0
	case m.state == HalfOpen:
		p := &modelTicket{gen: m.gen, probe: true, expires: max(ns, m.since) + int64(m.cfg.ProbeTimeout)}
		m.flying = append(m.flying, p)
		return p, 0, 0
	case m.state == Recovering:
		m.asked++
		if float64(m.asked*0x9e3779b97f4a7c15)/(1<<64) >= m.share(ns) { // the golden ratio's share of 2^64
			return nil, policy.ReasonRamp, 0
		}
	}
	return &modelTicket{gen: m.gen}, 0, 0
}

func (m *model) share(ns int64) float64 {
	switch m.state {
	case Recovering:
		done := min(max(float64(ns-m.since), 0), float64(m.cfg.RampFor)) / float64(m.cfg.RampFor)
		return m.cfg.RampStart + (1-m.cfg.RampStart)*done
	case Closed, ForcedClosed:
		return 1
	default:
		return 0
	}
}

func (m *model) reset(ns int64) {
	m.pass(ns)
	m.row = 0
	if m.state != Closed {
		if m.state == ForcedOpen || m.state == ForcedClosed {
			m.note = ""
		}
		m.change(Closed, ns, forever, reason{why: WhyReset}, "")
		return
	}
	m.newest, m.calls, m.failed, m.before, m.wish = m.bucket(ns), nil, 0, 0, 0
}

func (m *model) force(s State, ns, length int64, note string) {
	m.pass(ns)
	m.note, m.observing = note, false
	m.change(s, ns, length, reason{why: WhyForced}, note)
}

func (m *model) observe(ns, length int64, note string) {
	m.release(ns, note, false)
	m.command(ns, WhyObserved, note)
	m.note, m.observing, m.observeUntil = note, true, forever
	if length != forever {
		m.observeUntil = max(ns, m.since) + length
		m.log[len(m.log)-1].RetryAfter = time.Duration(length)
	}
}

func (m *model) release(ns int64, note string, all bool) {
	m.pass(ns)
	switch {
	case m.state == ForcedOpen || m.state == ForcedClosed:
		m.unforce(ns, WhyReleased, note)
	case m.observing && all:
		m.command(ns, WhyReleased, note)
		m.note, m.observing = "", false
	}
}

// clone returns a model to look into the future with.
func (m *model) clone() *model {
	c := *m
	c.calls, c.flying, c.log = slices.Clone(m.calls), slices.Clone(m.flying), nil
	return &c
}
