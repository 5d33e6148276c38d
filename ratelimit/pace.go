package ratelimit

import (
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Pace is a live [Pacer]: calls are let in at even distances, as a leaky bucket lets
// its water out. Use [NewPace]. It is at once a [policy.Policy], a [policy.Gate] and a
// [Limiter] to be used by hand: [Pace.Wait] waits for its turn within the bounds of
// the Pacer, [Pace.Allow] answers whether it is now, [Pace.Take] also when. All methods
// are safe for concurrent use.
//
// Callers wait in the order in which they came. A newcomer's turn is known at once, so
// it is refused before it waits, or not at all, unless the rate is lowered meanwhile.
// When one gives up, those behind move up.
//
// # How it counts
//
// As [Bucket] does, in units of which whole ones arrive each nanosecond; but a call is
// let in as soon as one token is there, and then takes as many as it costs. So a large
// call does not have to wait until there was a pause: those after it wait for longer
// (as in Guava's RateLimiter). Letting in a call whose turn it is takes no lock while
// nobody waits. The queue and its turns are under one.
type Pace struct {
	line

	cfg   Pacer // effective; Rate and Burst as they were in the beginning
	paces paceBooks
}

var _ Limiter = (*Pace)(nil)

// NewPace returns the live limit of a configuration. A name that is not empty takes the
// place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewPace(name string, cfg Pacer) (*Pace, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults()
	p := &Pace{
		cfg:  cfg,
		line: line{kind: pacerKind, name: cfg.Name, shadow: cfg.Shadow, warnings: cfg.warnings()},
	}
	s := newPaceState(cfg.Rate, cfg.Burst, 0)
	s.used.Store(-s.full)
	p.paces.state.Store(s)
	p.bound(cfg.MaxWait, cfg.MaxWaiters)
	p.init(p, &p.paces)
	return p, nil
}

// Config returns the effective configuration, with the limit as it is now.
func (p *Pace) Config() Pacer {
	cfg, s := p.cfg, p.paces.state.Load()
	cfg.Rate, cfg.Burst = s.rate, int(s.burst)
	cfg.MaxWait, cfg.MaxWaiters = p.bounds()
	return cfg
}

// SetLimit changes rate and burst, from now on. A burst of zero means 1. An invalid
// limit changes nothing and is reported as joined [*policy.ConfigError].
//
// What was let in stays counted, so that no change lets anyone in earlier than the new
// rate would have: of an interval that has passed in part, the rest has to pass at the
// new rate. Waiters get their turns anew, and are refused at once if these now come too
// late for them. Reservations keep the times that were promised. MaxWaiters stays as it
// is, also where it came from the rate.
func (p *Pace) SetLimit(rate Rate, burst int) error {
	f := faults{kind: pacerKind}
	f.rate("Rate", rate)
	f.burst(burst)
	if err := f.err(); err != nil {
		return err
	}
	p.change(func(at int64) { p.paces.setLimit(at, rate, max(burst, 1)) })
	return nil
}

// SetRate implements [Limiter]: it is [Pace.SetLimit] with the burst as it is.
func (p *Pace) SetRate(rate Rate) error {
	f := faults{kind: pacerKind}
	f.rate("Rate", rate)
	if err := f.err(); err != nil {
		return err
	}
	p.change(func(at int64) { p.paces.setLimit(at, rate, int(p.paces.state.Load().burst)) })
	return nil
}

// paceBooks is the algorithm of a [Pace]: one figure, the units used since the origin.
type paceBooks struct {
	// state is replaced, and its used locked and unlocked, under line.mu.
	state atomic.Pointer[paceState]

	// While the books are open the figure is here, without and with what is booked.
	// These are under line.mu.
	opened                  bool
	present, future, marked int64
}

// paceState is state with what follows from it.
type paceState struct {
	state

	most int64 // the largest cost
}

// newPaceState returns the figures of a valid limit. need is a number of tokens that
// must be representable.
func newPaceState(rate Rate, burst int, need int64) *paceState {
	s := &paceState{state: state{meter: newMeter(rate, int64(burst), need), rate: rate}}
	// More would not be paid off within a year, or be more than can be counted.
	s.most = maxUnits / s.unit
	if !s.unlimited {
		year, _ := s.grantedAny(int64(maxDelay))
		s.most = max(1, min(s.most, year/s.unit))
	}
	return s
}

func (b *paceBooks) try(at, n int64) (time.Duration, verdict) {
	s := b.state.Load()
	if n > s.most {
		return policy.Never, tooBig
	}
	elapsed := s.elapsed(at)
	if elapsed > s.horizon {
		return 0, busy
	}
	arrived := s.granted(elapsed)
	for {
		used := s.used.Load()
		switch {
		case used == locked:
			return 0, busy
		case s.unlimited:
			return 0, taken
		}
		after := max(used, arrived-s.full) + s.unit
		if after > arrived {
			return delayFrom(at, s.crossingAt(after)), short
		}
		if s.used.CompareAndSwap(used, after+(n-1)*s.unit) {
			return 0, taken
		}
	}
}

func (b *paceBooks) look(at, n int64) (time.Duration, verdict) {
	s := b.state.Load()
	used, arrived := s.used.Load(), s.arrived(at)
	switch {
	case n > s.most:
		return policy.Never, tooBig
	case used == locked:
		return 0, busy
	case s.unlimited:
		return 0, taken
	}
	if after := max(used, arrived-s.full) + s.unit; after > arrived {
		return delayFrom(at, s.crossingAt(after)), short
	}
	return 0, taken
}

func (b *paceBooks) giveBack(at, taken, n int64) bool {
	s := b.state.Load()
	units := s.toGiveBack(at, taken, n)
	for units > 0 {
		used := s.used.Load()
		if used == locked {
			return false
		}
		if s.used.CompareAndSwap(used, max(used-units, -s.full)) {
			break
		}
	}
	return true
}

func (b *paceBooks) open() {
	if !b.opened {
		b.opened = true
		b.present = b.state.Load().used.Swap(locked)
		b.future = b.present
	}
}

func (b *paceBooks) close() {
	if b.opened {
		b.opened = false
		b.state.Load().used.Store(b.present)
	}
}

func (b *paceBooks) rebase(at int64) bool {
	s := b.state.Load()
	if s.elapsed(at) <= s.horizon {
		return false
	}
	stock, frac := b.stock(s, at)
	next := &paceState{state: state{meter: s.meter, rate: s.rate}, most: s.most}
	next.frac = frac
	b.begin(next, at, stock)
	return true
}

// stock returns what is there now, without what is booked, and the fraction of a unit
// that has arrived beyond it.
func (b *paceBooks) stock(s *paceState, at int64) (units int64, frac uint64) {
	_, frac = s.grantedAny(s.elapsed(at))
	return min(s.arrived(at)-b.present, s.full), frac
}

// begin makes s the state, with a stock that is capped by what it can hold.
func (b *paceBooks) begin(s *paceState, at, stock int64) {
	old := b.state.Load()
	s.origin = max(at, old.origin)
	s.succeed(&old.state)
	s.used.Store(locked)
	b.state.Store(s)
	b.present = -min(stock, s.full)
	b.future = b.present
}

func (b *paceBooks) setLimit(at int64, rate Rate, burst int) {
	s := b.state.Load()
	stock, frac := b.stock(s, at)
	// What is owed must be representable, or it would be forgiven.
	next := newPaceState(rate, burst, -stock/s.unit+1)
	if next.unlimited {
		stock = next.full
	} else {
		stock = rescale(stock, s.unit, next.unit)
	}
	if next.unit == s.unit && next.mult == s.mult && next.shift == s.shift {
		next.frac = frac // otherwise drop it: it is less than a unit
	}
	b.begin(next, at, stock)
}

func (b *paceBooks) most() int64 { return b.state.Load().most }

func (b *paceBooks) next(at, _ int64) int64 {
	s := b.state.Load()
	if s.unlimited {
		return at
	}
	arrived := s.arrived(at)
	after := max(b.future, arrived-s.full) + s.unit
	switch {
	case after <= arrived:
		return at
	case after > maxAhead:
		return never
	}
	return s.crossingAt(after)
}

// use returns what is used after n tokens have been taken at a time. One that is not exact
// was rounded up to a nanosecond, and what arrives in that does not overflow: it was for a
// moment within it.
func (s *paceState) use(used, when, n int64, exact bool) int64 {
	if s.unlimited {
		return used
	}
	if !exact {
		when--
	}
	return min(max(used, s.arrived(when)-s.full)+s.units(n), maxArrived)
}

func (b *paceBooks) book(when, n int64, exact bool) {
	b.future = b.state.Load().use(b.future, when, n, exact)
}

func (b *paceBooks) settle(when, n int64) {
	b.present = b.state.Load().use(b.present, when, n, false)
}

func (b *paceBooks) mark()   { b.marked = b.future }
func (b *paceBooks) back()   { b.future = b.marked }
func (b *paceBooks) rewind() { b.future = b.present }

func (b *paceBooks) spend(at, n int64) {
	if s := b.state.Load(); !s.unlimited {
		b.present = max(b.present, s.arrived(at)-s.full) + s.units(n)
	}
}

func (b *paceBooks) refund(at, taken, n int64) {
	s := b.state.Load()
	if units := s.toGiveBack(at, taken, n); units > 0 {
		b.present = max(b.present-units, -s.full)
	}
}

func (b *paceBooks) describe(at int64, snapshot *policy.LimiterSnapshot) {
	s := b.state.Load()
	free := s.full
	if !s.unlimited {
		free = min(s.arrived(at)-b.present, s.full)
	}
	snapshot.Tokens = float64(free) / float64(s.unit)
	snapshot.Burst = float64(s.burst)
	snapshot.Rate = s.rate.perSecond()
}
