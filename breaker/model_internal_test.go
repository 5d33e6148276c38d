package breaker

import (
	"math/big"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// model is a breaker that is slow and obvious: it keeps every call that ended and
// counts again whenever it is asked.
type model struct {
	cfg Config // effective

	state  State
	gen    uint64
	since  int64
	why    string
	opened uint64
	until  int64 // open

	calls  []modelCall // closed: ended calls; half-open: ended probes; open: what opened it
	newest int64       // bucket of the newest call
	flying []*modelTicket

	log []modelChange
}

type modelCall struct {
	bucket       int64
	failed, slow bool
}

type modelTicket struct {
	gen     uint64
	probe   bool
	expires int64
}

type modelChange struct {
	from, to State
	why      string
	gen      uint64
	at       int64
}

type modelFigures struct{ calls, failures, slow uint64 }

func newModel(cfg Config) *model { return &model{cfg: cfg.effective(), gen: 1, why: WhyStart} }

func (m *model) bucket(ns int64) int64 {
	return max(m.newest, ns/(int64(m.cfg.Window)/int64(m.cfg.Buckets)))
}

func (m *model) change(to State, at int64, why string) {
	at = max(at, m.since)
	m.log = append(m.log, modelChange{m.state, to, why, m.gen + 1, at})
	m.state, m.gen, m.since, m.why = to, m.gen+1, at, why
	m.flying = nil
	if to == Open {
		m.opened++
		m.until = at + int64(m.cfg.OpenFor)
	} else {
		m.calls, m.newest = nil, 0
	}
}

func (m *model) figures(ns int64) (f modelFigures) {
	for _, c := range m.calls {
		if m.state == Closed && c.bucket <= m.bucket(ns)-int64(m.cfg.Buckets) {
			continue
		}
		f.calls++
		if c.failed {
			f.failures++
		}
		if c.slow {
			f.slow++
		}
	}
	return f
}

// above reports whether part of whole reaches the limit, in exact fractions.
func above(part, whole uint64, limit float64) bool {
	if limit == Off || whole == 0 {
		return false
	}
	l, _ := new(big.Rat).SetString(strconv.FormatFloat(limit, 'g', -1, 64))
	return new(big.Rat).SetFrac64(int64(part), int64(whole)).Cmp(l) >= 0
}

// pass makes the changes that time has brought about.
func (m *model) pass(ns int64) {
	for {
		if m.state == Open && ns >= m.until {
			m.change(HalfOpen, m.until, WhyOpenPassed)
			continue
		}
		var first *modelTicket
		for _, p := range m.flying {
			if p.expires <= ns && (first == nil || p.expires < first.expires) {
				first = p
			}
		}
		if m.state != HalfOpen || first == nil {
			return
		}
		m.land(first)
		m.probeEnded(first.expires, modelCall{failed: true, slow: m.cfg.SlowRatio != Off}, true)
	}
}

func (m *model) land(p *modelTicket) {
	m.flying = slices.DeleteFunc(m.flying, func(q *modelTicket) bool { return p == q })
}

func (m *model) probeEnded(at int64, c modelCall, hung bool) {
	m.calls = append(m.calls, c)
	m.verdict(at, hung)
}

func (m *model) verdict(at int64, hung bool) {
	f, all := m.figures(at), uint64(m.cfg.Probes)
	var why string
	switch {
	case above(f.failures, all, m.cfg.FailureRatio):
		why = WhyProbeFailed
	case above(f.slow, all, m.cfg.SlowRatio):
		why = WhyProbeSlow
	case f.calls == all:
		m.change(Closed, at, WhyProbesSucceeded)
		return
	default:
		return
	}
	if hung {
		why = WhyProbeTimeout
	}
	m.change(Open, at, why)
}

func (m *model) begin(ns int64) (*modelTicket, policy.Reason, time.Duration) {
	m.pass(ns)
	switch m.state {
	case Open:
		return nil, policy.ReasonOpen, time.Duration(m.until - ns)
	case HalfOpen:
		if len(m.flying)+len(m.calls) >= m.cfg.Probes {
			return nil, policy.ReasonProbes, 0
		}
		p := &modelTicket{gen: m.gen, probe: true, expires: max(ns, m.since) + int64(m.cfg.ProbeTimeout)}
		m.flying = append(m.flying, p)
		return p, 0, 0
	default:
		return &modelTicket{gen: m.gen}, 0, 0
	}
}

func (m *model) end(t *modelTicket, ns int64, o policy.Outcome) (late bool) {
	if t.gen == m.gen && t.probe {
		m.pass(ns) // which may end the ticket's state
	}
	c := modelCall{
		failed: o.Kind == policy.Failure || o.Kind == policy.Timeout || o.Kind == policy.Busy,
		slow:   m.cfg.SlowRatio != Off && o.Kind != policy.NotRun && o.Duration > m.cfg.SlowAfter,
	}
	counts := c.failed || c.slow || o.Kind == policy.Success || o.Kind == policy.Permanent
	if t.gen != m.gen || t.probe && !slices.Contains(m.flying, t) {
		return counts
	}
	m.land(t)
	if !counts {
		return false
	}
	if m.state == HalfOpen {
		m.probeEnded(ns, c, false)
		return false
	}
	m.newest = m.bucket(ns)
	c.bucket = m.newest
	m.calls = append(m.calls, c)
	if f := m.figures(ns); c.failed || c.slow || f.calls == uint64(m.cfg.MinCalls) {
		m.judge(ns, f)
	}
	return false
}

func (m *model) judge(ns int64, f modelFigures) {
	switch {
	case f.calls < uint64(m.cfg.MinCalls):
		return
	case above(f.failures, f.calls, m.cfg.FailureRatio):
		m.trip(ns, WhyFailureRatio)
	case above(f.slow, f.calls, m.cfg.SlowRatio):
		m.trip(ns, WhySlowRatio)
	}
}

// trip opens the model; what has left the window is not among the figures.
func (m *model) trip(ns int64, why string) {
	oldest := m.bucket(ns) - int64(m.cfg.Buckets) + 1
	m.calls = slices.DeleteFunc(m.calls, func(c modelCall) bool { return c.bucket < oldest })
	m.change(Open, ns, why)
}

func (m *model) amend(t *modelTicket, ns int64) {
	if t.gen == m.gen && t.probe {
		m.pass(ns)
	}
	if t.gen != m.gen {
		return
	}
	if m.state == HalfOpen {
		for i := range m.calls {
			if !m.calls[i].failed {
				m.calls[i].failed = true
				m.verdict(ns, false)
				return
			}
		}
		return
	}
	m.newest = m.bucket(ns)
	var found *modelCall
	for i := range m.calls {
		c := &m.calls[i]
		if !c.failed && c.bucket > m.newest-int64(m.cfg.Buckets) && (found == nil || c.bucket > found.bucket) {
			found = c
		}
	}
	if found != nil {
		found.failed = true
	} else {
		m.calls = append(m.calls, modelCall{bucket: m.newest, failed: true})
	}
	m.judge(ns, m.figures(ns))
}

func (m *model) reset(ns int64) {
	m.pass(ns)
	if m.state != Closed {
		m.change(Closed, ns, WhyReset)
		return
	}
	m.newest, m.calls = m.bucket(ns), nil
}

// clone returns a model to look into the future with.
func (m *model) clone() *model {
	c := *m
	c.calls, c.flying, c.log = slices.Clone(m.calls), slices.Clone(m.flying), nil
	return &c
}

// inFlight is a call that both sides have admitted.
type inFlight struct {
	word   uint64
	ticket *modelTicket
}

// script draws the operations of a run: from rapid, or from the bytes of a fuzzer.
type script interface {
	// choose returns a number in [0, n).
	choose(label string, n int) int
}

type rapidScript struct{ t *rapid.T }

func (s rapidScript) choose(label string, n int) int { return rapid.IntRange(0, n-1).Draw(s.t, label) }

var (
	scriptKinds = []policy.Kind{
		policy.Success, policy.Failure, policy.Success, policy.Failure, policy.Timeout, policy.Busy,
		policy.Throttled, policy.Permanent, policy.Canceled, policy.NotRun,
	}
	scriptRatios = []float64{0, Off, 0.5, 0.1, 0.25, 1.0 / 3, 2.0 / 3, 0.7, 1, 0.001}
)

func scriptConfig(s script) Config {
	cfg := Config{
		FailureRatio: scriptRatios[s.choose("failure ratio", len(scriptRatios))],
		Window:       time.Duration(1+s.choose("window", 40)) * 100 * time.Millisecond,
		Buckets:      1 + s.choose("buckets", 10),
		MinCalls:     1 + s.choose("min calls", 6),
		OpenFor:      time.Duration(1+s.choose("open for", 20)) * 100 * time.Millisecond,
		Probes:       1 + s.choose("probes", 4),
		ProbeTimeout: time.Duration(1+s.choose("probe timeout", 20)) * 100 * time.Millisecond,
	}
	if cfg.FailureRatio == Off || s.choose("slow rule", 2) == 1 {
		cfg.SlowAfter = 50 * time.Millisecond
		if cfg.FailureRatio != Off {
			cfg.SlowRatio = scriptRatios[s.choose("slow ratio", len(scriptRatios))]
		}
	}
	return cfg
}

// runScript drives a breaker and its model through the same operations, and
// compares all that can be seen after each of them.
func runScript(t interface {
	Fatalf(format string, args ...any)
}, s script, steps int,
) {
	cfg := scriptConfig(s)
	var log []modelChange
	base := time.Now()
	cfg.OnStateChange = func(c StateChange) {
		state := func(name string) State { return State(slices.Index(policy.BreakerStates(), name)) }
		log = append(log, modelChange{state(c.From), state(c.To), c.Why, c.Generation, int64(c.Time.Sub(base))})
	}
	b, err := newAt(base, "", cfg)
	if err != nil {
		t.Fatalf("%+v: %v", cfg, err)
	}
	m := newModel(cfg)

	var ns int64
	var flying, done []inFlight
	for range steps {
		switch s.choose("time", 12) {
		case 0:
			ns += int64(cfg.OpenFor)
		case 1:
			ns += int64(cfg.ProbeTimeout)
		case 2:
			ns += int64(cfg.Window)
		case 3: // to an edge
			w := int64(cfg.Window) / int64(cfg.Buckets)
			ns = (ns/w + 1) * w
		case 4: // a clock that is behind
			ns = max(ns-int64(s.choose("back", 300))*int64(time.Millisecond), 0)
		case 5, 6, 7, 8:
			ns += int64(s.choose("step", 200)) * int64(time.Millisecond)
		}
		now := base.Add(time.Duration(ns))
		op := s.choose("op", 12)
		switch {
		case op <= 4 || op <= 9 && len(flying) == 0:
			word, refused := b.enter(now)
			ticket, reason, after := m.begin(ns)
			switch {
			case (refused == nil) != (ticket != nil):
				t.Fatalf("at %d: refused: %v, want ticket %+v, reason %v", ns, refused, ticket, reason)
			case refused != nil && (refused.Reason != reason || refused.RetryAfter != after):
				t.Fatalf("at %d: %v, want %v after %v", ns, refused, reason, after)
			case refused == nil:
				flying = append(flying, inFlight{word, ticket})
			}
		case op <= 9:
			i := s.choose("which", len(flying))
			o := policy.Outcome{
				Kind:     scriptKinds[s.choose("kind", len(scriptKinds))],
				Duration: time.Duration(49+s.choose("duration", 3)) * time.Millisecond,
			}
			f := flying[i]
			flying = slices.Delete(flying, i, i+1)
			if got, want := b.leave(f.word, 0, now, o), m.end(f.ticket, ns, o); got != want {
				t.Fatalf("at %d: late %v, want %v: %+v", ns, got, want, o)
			}
			if o.Kind == policy.Success {
				done = append(done, f)
			}
		case op == 10 && len(done) > 0:
			i := s.choose("which", len(done))
			f := done[i]
			done = slices.Delete(done, i, i+1)
			b.amend(f.word, now)
			m.amend(f.ticket, ns)
		case op == 11 && s.choose("reset", 8) == 0:
			b.reset(now)
			m.reset(ns)
		}
		compare(t, b, m, ns)
		compare(t, b, m, ns+int64(s.choose("ahead", 50))*int64(100*time.Millisecond))
		if !slices.Equal(log, m.log) {
			t.Fatalf("at %d: told of\n%+v, want\n%+v", ns, log, m.log)
		}
	}
}

func compare(t interface {
	Fatalf(format string, args ...any)
}, b *Breaker, m *model, ns int64,
) {
	got := b.Snapshot(b.base.Add(time.Duration(ns))).Breaker
	c := m.clone()
	c.pass(ns)
	f := c.figures(ns)
	want := policy.BreakerSnapshot{
		State:          c.state.String(),
		Since:          b.base.Add(time.Duration(c.since)),
		Generation:     c.gen,
		Why:            c.why,
		Calls:          f.calls,
		Failures:       f.failures,
		Slow:           f.slow,
		MinCalls:       uint64(c.cfg.MinCalls),
		ProbesInFlight: len(c.flying),
		MaxProbes:      c.cfg.Probes,
		Opened:         c.opened,
	}
	if f.calls > 0 {
		want.FailureRatio = float64(f.failures) / float64(f.calls)
		want.SlowRatio = float64(f.slow) / float64(f.calls)
	}
	if c.cfg.FailureRatio != Off {
		want.FailureThreshold = c.cfg.FailureRatio
	}
	if c.cfg.SlowRatio != Off {
		want.SlowThreshold = c.cfg.SlowRatio
	}
	if c.state == Open {
		want.RetryAfter = time.Duration(c.until - ns)
	}
	if *got != want {
		t.Fatalf("at %d:\n got %+v\nwant %+v", ns, *got, want)
	}
	if got.Failures > got.Calls || got.Slow > got.Calls || got.ProbesInFlight > got.MaxProbes {
		t.Fatalf("at %d: figures that cannot be: %+v", ns, *got)
	}
}

// The breaker equals its model after every step: states, generations, figures,
// refusals, what is ignored, and the changes that are told.
func TestBreakerEqualsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		runScript(rt, rapidScript{rt}, rapid.IntRange(1, 150).Draw(rt, "steps"))
	})
}
