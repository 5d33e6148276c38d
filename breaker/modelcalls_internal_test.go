package breaker

import (
	"slices"

	"github.com/breakwater-go/breakwater/policy"
)

func (m *model) judgeOutcome(o policy.Outcome) (c modelCall, counts bool) {
	c = modelCall{
		failed: o.Kind == policy.Failure || o.Kind == policy.Timeout || o.Kind == policy.Busy,
		slow:   m.cfg.SlowRatio != Off && o.Kind != policy.NotRun && o.Duration > m.cfg.SlowAfter,
	}
	return c, c.failed || c.slow || answers(o)
}

func answers(o policy.Outcome) bool { return o.Kind == policy.Success || o.Kind == policy.Permanent }

func (m *model) end(t *modelTicket, ns int64, o policy.Outcome) (late bool) {
	c, counts := m.judgeOutcome(o)
	if t.ghost {
		return false
	}
	if !t.probe && m.counting() && t.gen >= m.first {
		if counts {
			m.ended(ns, c, o)
		}
		return false
	}
	if t.gen == m.gen {
		m.pass(ns) // which may end the ticket's state
	}
	if t.gen != m.gen || !slices.Contains(m.flying, t) {
		return counts
	}
	m.land(t)
	if counts {
		if c.failed && o.Pushback > 0 {
			m.wish = max(m.wish, max(ns, m.since)+int64(o.Pushback))
		}
		m.probeEnded(ns, c, false)
	}
	return false
}

// ended counts a call in the window.
func (m *model) ended(ns int64, c modelCall, o policy.Outcome) {
	m.newest = m.bucket(ns)
	c.bucket = m.newest
	m.calls = append(m.calls, c)
	switch {
	case c.failed:
		m.failure(ns, o, 1)
	case answers(o):
		m.before, m.failed = m.failed, 0
	}
	f := m.figures(ns)
	reached := f.calls
	if m.cfg.LastCalls > 0 {
		reached = uint64(len(m.calls))
	}
	if c.failed || c.slow || reached == uint64(m.cfg.MinCalls) {
		m.judge(ns, f, c.failed)
	}
}

func (m *model) failure(ns int64, o policy.Outcome, more uint64) {
	if m.cfg.ConsecutiveFailures > 0 {
		m.failed += more
	}
	if o.Pushback > 0 {
		m.wish = max(m.wish, ns+int64(o.Pushback))
	}
}

func (m *model) judge(ns int64, f modelFigures, failed bool) {
	var because reason
	enough := f.calls >= uint64(m.cfg.MinCalls)
	switch {
	case enough && above(f.failures, f.calls, m.cfg.FailureRatio):
		because = reason{WhyFailureRatio, float64(f.failures) / float64(f.calls), m.cfg.FailureRatio}
	case enough && above(f.slow, f.calls, m.cfg.SlowRatio):
		because = reason{WhySlowRatio, float64(f.slow) / float64(f.calls), m.cfg.SlowRatio}
	case m.cfg.FailureCount > 0 && f.failures >= uint64(m.cfg.FailureCount):
		because = reason{WhyFailureCount, float64(f.failures), float64(m.cfg.FailureCount)}
	case failed && m.cfg.ConsecutiveFailures > 0 && m.failed >= uint64(m.cfg.ConsecutiveFailures):
		because = reason{WhyConsecutiveFailures, float64(m.failed), float64(m.cfg.ConsecutiveFailures)}
	default:
		return
	}
	m.pass(ns)
	if m.state == Closed || m.state == Recovering {
		m.open(ns, because)
	}
}

func (m *model) amend(t *modelTicket, ns int64, o policy.Outcome) {
	switch {
	case t.ghost:
		return
	case !t.probe && m.counting() && t.gen >= m.first:
		m.amendCall(ns, o)
		return
	case t.gen == m.gen:
		m.pass(ns)
	}
	if t.gen != m.gen || m.state != HalfOpen {
		return
	}
	i := slices.IndexFunc(m.calls, func(c modelCall) bool { return !c.failed && !c.slow })
	if i < 0 {
		i = slices.IndexFunc(m.calls, func(c modelCall) bool { return !c.failed })
	}
	if i >= 0 {
		m.calls[i].failed = true
		if o.Pushback > 0 {
			m.wish = max(m.wish, max(ns, m.since)+int64(o.Pushback))
		}
		m.verdict(ns, modelCall{failed: true}, false)
	}
}

func (m *model) amendCall(ns int64, o policy.Outcome) {
	m.newest = m.bucket(ns)
	m.failure(ns, o, m.before+1)
	m.before = 0
	from, oldest := 0, m.newest-int64(m.cfg.Buckets)+1
	if n := m.cfg.LastCalls; n > 0 {
		from, oldest = max(len(m.calls)-n, 0), 0
	}
	found := -1
	for i := from; i < len(m.calls); i++ {
		if c := m.calls[i]; !c.failed && c.bucket >= oldest && (found < 0 || c.bucket >= m.calls[found].bucket) {
			found = i
		}
	}
	if found >= 0 {
		m.calls[found].failed = true
	} else {
		m.calls = append(m.calls, modelCall{bucket: m.newest, failed: true})
	}
	m.judge(ns, m.figures(ns), true)
}
