package ratelimit

// purse is a token bucket without concurrency: what a lane has.
type purse struct {
	s     *state // its used is not used
	spent int64  // units used since the origin
}

// newPurse returns the purse of a valid limit that holds some tokens.
func newPurse(rate Rate, burst, tokens int) purse {
	s := &state{meter: newMeter(rate, int64(burst), 0), rate: rate}
	return purse{s: s, spent: -s.units(int64(tokens))}
}

// effective returns what is spent as of the given time: what has overflowed until then
// is.
func (p *purse) effective(at int64) int64 { return max(p.spent, p.s.arrived(at)-p.s.full) }

// next returns the first time, not before at, at which there are n tokens; or never.
func (p *purse) next(at, n int64) int64 { return p.after(at, p.s.units(n)) }

// after returns the first time, not before at, at which that many units are there or
// have come, or never.
func (p *purse) after(at, units int64) int64 {
	if p.s.unlimited {
		return at
	}
	after := p.effective(at) + units
	switch {
	case after <= p.s.arrived(at):
		return at
	case after > maxAhead:
		return never
	}
	return max(at, p.s.crossingAt(after))
}

// take takes n tokens, whether or not they are there.
func (p *purse) take(at, n int64) {
	if !p.s.unlimited {
		p.spent = min(p.effective(at)+p.s.units(n), maxArrived)
	}
}

// drain takes n tokens, or what is there.
func (p *purse) drain(at, n int64) {
	arrived := p.s.arrived(at)
	if spent := p.effective(at); spent < arrived {
		p.spent = min(spent+p.s.units(n), arrived)
	}
}

// give gives n tokens back that a call took which did not run.
func (p *purse) give(at, taken, n int64) {
	if units := p.s.toGiveBack(at, taken, n); units > 0 {
		p.spent = max(p.spent-units, -p.s.full)
	}
}

// rebase begins to count anew when the figures have grown large.
func (p *purse) rebase(at int64) {
	if p.s.elapsed(at) > p.s.horizon {
		p.replace(at, p.s.meter, p.s.rate)
	}
}

// setLimit changes rate and burst. What is there stays, if it fits, and what is owed is
// not forgiven.
func (p *purse) setLimit(at int64, rate Rate, burst int) {
	owed := (p.effective(at)-p.s.arrived(at))/p.s.unit + 1
	p.replace(at, newMeter(rate, int64(burst), owed), rate)
}

func (p *purse) replace(at int64, m meter, rate Rate) {
	s := p.s
	stock := s.arrived(at) - p.effective(at)
	_, frac := s.grantedAny(s.elapsed(at))
	m.frac = 0
	switch {
	case m.unlimited:
		stock = m.full
	case s.unlimited:
		stock = m.full
	case m.unit == s.unit && m.mult == s.mult && m.shift == s.shift:
		m.frac = frac // otherwise drop it: it is less than a unit
	default:
		stock = rescale(stock, s.unit, m.unit)
	}
	p.s = &state{meter: m, rate: rate, origin: max(at, s.origin)}
	p.s.succeed(s)
	p.spent = -min(stock, m.full)
}

// tokens returns how many tokens are there; below 0 they are owed.
func (p *purse) tokens(at int64) float64 {
	if p.s.unlimited {
		return float64(p.s.burst)
	}
	return float64(p.s.arrived(at)-p.effective(at)) / float64(p.s.unit)
}
