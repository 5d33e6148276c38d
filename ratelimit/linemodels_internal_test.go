package ratelimit

import (
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"
)

// windowModel counts by window: window 0 from the beginning or from the last change of
// the limit until end, and others after it.
type windowModel struct {
	limit, window int64
	start, end    int64 // of window 0
	counts        map[int64]int64
}

func (m *windowModel) clone() modelBooks {
	c := *m
	c.counts = maps.Clone(m.counts)
	return &c
}

func (m *windowModel) tooBig(n int64) bool { return n > m.limit }

// bounds returns the window of a time.
func (m *windowModel) bounds(at int64) (start, end int64) {
	start, end = m.start, m.end
	for at >= end {
		start, end = end, end+m.window
	}
	return start, end
}

func (m *windowModel) fits(at, n int64) bool {
	start, _ := m.bounds(at)
	return m.counts[start]+n <= m.limit
}

func (m *windowModel) take(at, n int64, _ bool) {
	start, _ := m.bounds(at)
	m.counts[start] += n
}

func (m *windowModel) refund(_, taken, n int64) {
	// The window is the last from which anything was taken; it takes back its own.
	if taken < m.start {
		return
	}
	last := m.start
	for start, count := range m.counts {
		if count > 0 {
			last = max(last, start)
		}
	}
	if start, _ := m.bounds(taken); start == last {
		m.counts[start] = max(m.counts[start]-n, 0)
	}
}

func (m *windowModel) setLimit(at, limit, window int64) {
	start, end := m.bounds(at)
	used := m.counts[start]
	switch {
	case window > m.window:
		end = start + window
	case window < m.window:
		end = min(end, max(at, start)+window)
	}
	*m = windowModel{limit: limit, window: window, start: start, end: end, counts: map[int64]int64{start: used}}
}

// windowLimits are those of the models of windows.
var windowLimits = [lineLimits]struct {
	limit  int
	window time.Duration
}{{3, 20}, {2, 7}, {5, 20}, {1, 50}}

func windowKind() lineKind {
	return lineKind{
		make: func(wait time.Duration, waiters int) (Limiter, func() int, modelBooks) {
			limit := windowLimits[0]
			w, err := NewWindow("", FixedWindow{Limit: limit.limit, Window: limit.window, MaxWait: wait, MaxWaiters: waiters})
			if err != nil {
				panic(err)
			}
			return w, w.length, &windowModel{
				limit: int64(limit.limit), window: int64(limit.window), end: int64(limit.window),
				counts: map[int64]int64{},
			}
		},
		change: func(l Limiter, m modelBooks, at int64, i int) {
			limit := windowLimits[i]
			if err := l.(*Window).SetLimit(limit.limit, limit.window); err != nil {
				panic(err)
			}
			m.(*windowModel).setLimit(at, int64(limit.limit), int64(limit.window))
		},
	}
}

func TestPropWindowLine(t *testing.T) { checkLine(t, windowKind()) }

// logModel is a list of what was taken, never shortened.
type logModel struct {
	limit, window int64
	calls         []logEntry
}

func (m *logModel) clone() modelBooks {
	c := *m
	c.calls = slices.Clone(m.calls)
	return &c
}

func (m *logModel) tooBig(n int64) bool { return n > m.limit }

func (m *logModel) fits(at, n int64) bool {
	for _, c := range m.calls {
		if c.at > at-m.window {
			n += c.n
		}
	}
	return n <= m.limit
}

func (m *logModel) take(at, n int64, _ bool) { m.calls = append(m.calls, logEntry{at, n}) }

func (m *logModel) refund(_, taken, n int64) {
	for i := range m.calls {
		if c := &m.calls[i]; c.at == taken && c.n > 0 {
			back := min(n, c.n)
			c.n -= back
			n -= back
		}
	}
}

func (m *logModel) setLimit(at, limit, window int64) {
	// Of a longer window the part before the old one is not known.
	m.calls = slices.DeleteFunc(m.calls, func(e logEntry) bool { return e.at <= at-m.window })
	m.limit, m.window = limit, window
}

// twoWindowModel is the weighted sum of two windows, in fractions.
type twoWindowModel struct {
	limit, window int64
	start         int64 // of some window
	calls         []logEntry
}

func (m *twoWindowModel) clone() modelBooks {
	c := *m
	c.calls = slices.Clone(m.calls)
	return &c
}

func (m *twoWindowModel) tooBig(n int64) bool { return n > m.limit }

// estimate returns what the algorithm reckons with.
func (m *twoWindowModel) estimate(at int64) *big.Rat {
	start := m.start
	for at >= start+m.window {
		start += m.window
	}
	var before, here int64
	for _, c := range m.calls {
		switch {
		case c.at >= start:
			here += c.n
		case c.at >= start-m.window:
			before += c.n
		}
	}
	weighed := new(big.Rat).Mul(ratOf(before), big.NewRat(m.window-(at-start), m.window))
	return weighed.Add(weighed, ratOf(here))
}

func (m *twoWindowModel) fits(at, n int64) bool {
	sum := m.estimate(at)
	return sum.Add(sum, ratOf(n)).Cmp(ratOf(m.limit)) <= 0
}

func (m *twoWindowModel) take(at, n int64, _ bool) { m.calls = append(m.calls, logEntry{at, n}) }

func (m *twoWindowModel) refund(_, taken, n int64) {
	for i := range m.calls {
		if c := &m.calls[i]; c.at == taken && c.n > 0 {
			back := min(n, c.n)
			c.n -= back
			n -= back
		}
	}
}

func (m *twoWindowModel) setLimit(at, limit, window int64) {
	if window != m.window {
		estimate := m.estimate(at)
		n := -floorOf(estimate.Neg(estimate)).Int64() // rounded up
		m.start, m.calls = at, []logEntry{{at, n}}
	}
	m.limit, m.window = limit, window
}

// slidingKindOf is the sliding window, exact or approximate.
func slidingKindOf(approximate bool) lineKind {
	return lineKind{
		make: func(wait time.Duration, waiters int) (Limiter, func() int, modelBooks) {
			limit := windowLimits[0]
			s, err := NewSliding("", SlidingWindow{Limit: limit.limit, Window: limit.window, Approximate: approximate, MaxWait: wait, MaxWaiters: waiters})
			if err != nil {
				panic(err)
			}
			if approximate {
				return s, s.length, &twoWindowModel{limit: int64(limit.limit), window: int64(limit.window)}
			}
			return s, s.length, &logModel{limit: int64(limit.limit), window: int64(limit.window)}
		},
		change: func(l Limiter, m modelBooks, at int64, i int) {
			limit := windowLimits[i]
			if err := l.(*Sliding).SetLimit(limit.limit, limit.window); err != nil {
				panic(err)
			}
			m.(interface{ setLimit(at, limit, window int64) }).setLimit(at, int64(limit.limit), int64(limit.window))
		},
	}
}

func TestPropLogLine(t *testing.T) { checkLine(t, slidingKindOf(false)) }

func TestPropCounterLine(t *testing.T) { checkLine(t, slidingKindOf(true)) }
