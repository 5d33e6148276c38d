package breaker

import (
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// Snapshot implements [policy.Snapshotter]. The figures are those of the window;
// while half-open, of the probes that have ended; while open, those that opened the
// breaker. Refusals are counted by the pipelines the breaker is in, not here.
func (b *Breaker) Snapshot(now time.Time) policy.PolicySnapshot {
	s := b.snapshot(now)
	return policy.PolicySnapshot{Name: b.config().Name, Kind: kind, Shadow: b.config().Shadow, Breaker: &s}
}

func (b *Breaker) snapshot(now time.Time) policy.BreakerSnapshot {
	ns := b.nanos(now)
	m, p := b.at(ns)
	c, row := b.countsAt(now, &m, p)
	s := policy.BreakerSnapshot{
		State:                m.state.String(),
		Since:                b.base.Add(time.Duration(m.since)),
		Generation:           m.gen,
		Why:                  m.why,
		Note:                 m.note,
		Calls:                c.Calls,
		Failures:             c.Failures,
		Slow:                 c.Slow,
		Consecutive:          row,
		FailureRatio:         share(c.Failures, c.Calls),
		SlowRatio:            share(c.Slow, c.Calls),
		FailureThreshold:     b.rules().failureAt,
		SlowThreshold:        b.rules().slowAt,
		CountThreshold:       b.rules().count,
		ConsecutiveThreshold: b.rules().consecutive,
		MinCalls:             b.rules().minCalls,
		ProbesInFlight:       len(m.leases),
		MaxProbes:            b.rules().probes,
		Opened:               m.opened,
		Observing:            m.observing,
		Spared:               b.spared.Load(),
	}
	switch m.state {
	case Closed, ForcedClosed:
		s.Share = 1
	case Recovering:
		s.Share = b.rules().rampShare(ns - m.since)
	case Open, HalfOpen, ForcedOpen:
	}
	if (m.state == Open || m.state.forced()) && m.until != forever {
		s.RetryAfter = time.Duration(m.until - ns)
	}
	return s
}

// at returns the machine as it is at ns, with what time alone has changed since the
// phase, which is the one of the last call. Nothing is changed: ns may be a time to
// come.
func (b *Breaker) at(ns int64) (machine, *phase) {
	b.mu.Lock()
	m, p := b.m.peek(), b.phase.Load()
	b.mu.Unlock()
	for {
		if _, moved := m.tick(ns); !moved {
			return m, p
		}
	}
}

// countsAt returns the figures of the machine that at has returned, and the failed
// calls in a row.
func (b *Breaker) countsAt(now time.Time, m *machine, p *phase) (window.Counts, uint64) {
	switch {
	case !m.state.counts():
		return m.counts, 0
	case p.tally != nil && p.first == m.first:
		return p.tally.counts(now), p.tally.row.load()
	}
	return window.Counts{}, 0 // a state that no call has seen yet
}
