package ratelimit

import (
	"math"
	"math/bits"
)

// era is a time in which a limit had another rate than it has now. Those who took tokens
// then may have yet to give them back.
type era struct {
	meter
	from   int64 // until the next one, or the present, began
	before *era
}

// maxEras is how many are told apart. Those before the last ones count as one, of the
// highest rate.
const maxEras = 8

// succeed notes what the rate was before s, whose origin is known.
func (s *state) succeed(old *state) {
	if !s.faster(&old.meter) && !old.faster(&s.meter) {
		s.changed, s.before = old.changed, old.before
		return
	}
	from := old.changed
	if old.before == nil {
		from = math.MinInt64 // a time before the start counts as the start
	}
	s.changed = s.origin
	s.before = (&era{old.meter, from, old.before}).shortened(maxEras)
}

// shortened returns the era and those before it, as at most n.
func (e *era) shortened(n int) *era {
	switch {
	case e == nil || e.before == nil:
		return e
	case n > 1:
		return &era{e.meter, e.from, e.before.shortened(n - 1)}
	}
	one := era{meter: e.meter}
	for b := e.before; b != nil; b = b.before {
		one.from = b.from
		if b.faster(&one.meter) {
			one.meter = b.meter
		}
	}
	return &one
}

// faster compares what arrives in about a second.
func (m *meter) faster(o *meter) bool {
	if m.unlimited || o.unlimited {
		return !o.unlimited
	}
	const long = 1 << 30
	a, _ := m.grantedAny(long)
	b, _ := o.grantedAny(long)
	hiA, loA := bits.Mul64(uint64(a), uint64(o.unit)) //nolint:gosec // not negative
	hiB, loB := bits.Mul64(uint64(b), uint64(m.unit)) //nolint:gosec // as above
	return hiA > hiB || hiA == hiB && loA > loB
}

// toGiveBack returns how many units a call that did not run may give back. What has
// arrived since it took them could have been used by others only if it had not
// overflowed meanwhile, and it would have: so that much is lost, and what is given back
// is never more than would be there if the call had not been.
func (s *state) toGiveBack(at, taken, n int64) int64 {
	if s.unlimited {
		return 0
	}
	from := taken
	if s.before != nil {
		from = max(taken, s.changed)
	}
	back, since := s.units(n), s.between(from, at)
	until := min(s.changed, at)
	for e := s.before; e != nil && taken < until && since < back; e = e.before {
		if e.unlimited {
			return 0
		}
		since += e.in(e.between(max(taken, e.from), until), s.unit)
		until = min(until, e.from)
	}
	return back - min(since, back)
}

// between returns the units that arrive from one time to another, if not one more; at
// most maxAhead.
func (m *meter) between(from, to int64) int64 {
	units, _ := m.grantedAny(span(from, to))
	units = min(units, maxAhead)
	if m.shift != 0 && from < to {
		units++ // a fraction at either end may make one more
	}
	return units
}

// in returns units of the era in those of another size, rounded up, at most maxAhead.
func (e *era) in(units, size int64) int64 {
	n := rescaled(units, e.unit, size)
	if n < maxAhead && rescaled(n, size, e.unit) < units {
		n++
	}
	return n
}

// span returns the time from one time to another, 0 if that is before.
func span(from, to int64) int64 {
	switch d := to - from; {
	case to <= from:
		return 0
	case d < 0: // it overflows
		return math.MaxInt64
	default:
		return d
	}
}
