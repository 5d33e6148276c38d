package ratelimit

import (
	"math/big"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// This file has what takes Bucket.mu.

// claim takes n tokens that are there after at most limit; otherwise it takes none
// and returns when they would be. n must be above 0; a limit below zero counts as
// zero.
func (b *Bucket) claim(at int64, n int, limit time.Duration) (time.Duration, verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claimLocked(at, n, limit)
}

func (b *Bucket) claimLocked(at int64, n int, limit time.Duration) (time.Duration, verdict) {
	s := b.state.Load()
	if int64(n) > s.burst {
		return policy.Never, tooBig
	}
	if s.unlimited {
		return 0, taken
	}
	if s.elapsed(at) > s.horizon {
		s = b.moveLocked(s, at)
	}
	cost := int64(n) * s.unit
	if s.used.Load() == locked {
		defer b.reopenLocked(s)
		now := b.ledger.settle(s, at)
		when := b.ledger.earliest(s, cost)
		if when == now {
			b.ledger.spent += cost
			return 0, taken
		}
		delay := delayFrom(at, when)
		if delay > limit || s.arrived(when) > maxAhead {
			return delay, short
		}
		b.ledger.add(promise{at: when, tokens: int64(n)})
		return delay, taken
	}
	arrived := s.arrived(at)
	for {
		used := s.used.Load() // not locked: that takes mu
		after := max(used, arrived-s.full) + cost
		if after <= arrived {
			if s.used.CompareAndSwap(used, after) {
				return 0, taken
			}
			continue
		}
		when := s.crossingAt(after)
		delay := delayFrom(at, when)
		if delay > limit || after > maxAhead {
			return delay, short
		}
		// The promise comes before the tokens are used: a Refund that sees the
		// one must see the other.
		p := promise{at: when, tokens: int64(n)}
		b.ledger.drop(at)
		b.ledger.add(p)
		b.ahead.Store(true)
		if s.used.CompareAndSwap(used, after) {
			return delay, taken
		}
		b.ledger.forget(p)
		b.ahead.Store(len(b.ledger.promises) > 0)
	}
}

// books returns the state and, when its figure is locked, a copy of the ledger,
// settled at the given time; otherwise the figure.
func (b *Bucket) books(at int64) (s *state, books *ledger, used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s = b.state.Load()
	if used = s.used.Load(); used != locked {
		return s, nil, used
	}
	c := b.ledger.clone()
	c.settle(s, at)
	return s, &c, 0
}

// refundLocked gives back n tokens that were taken at the given time; those of the promise
// p, if it has yet to come true. It takes mu.
func (b *Bucket) refundLocked(at, taken int64, n int, p promise) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveBackLocked(at, taken, n, p)
}

func (b *Bucket) giveBackLocked(at, taken int64, n int, p promise) {
	s := b.state.Load()
	b.freezeLocked(s)
	forgotten := b.ledger.forget(p)
	b.ledger.settle(s, at)
	if units := s.toGiveBack(at, taken, int64(n)); !forgotten && units > 0 {
		b.ledger.refund(s, units)
	}
	b.advanceLocked(s)
	b.reopenLocked(s)
}

// cancel forgets a promise, if it is still there.
func (b *Bucket) cancel(at int64, p promise) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	b.freezeLocked(s)
	b.ledger.forget(p)
	b.ledger.settle(s, at)
	b.advanceLocked(s)
	b.reopenLocked(s)
}

// freezeLocked moves the figure of s into the ledger, if it is not there yet. It
// requires that b.mu is held, as do all whose names end so.
func (b *Bucket) freezeLocked(s *state) {
	if used := s.used.Swap(locked); used != locked {
		b.ledger.spent = used - s.units(b.ledger.promised())
		b.ledger.settled = s.origin
	}
}

// reopenLocked ends the use of the ledger as soon as there is no promise that needs
// it.
func (b *Bucket) reopenLocked(s *state) {
	switch {
	case s.unlimited:
		s.used.Store(-s.full) // always full
	case len(b.ledger.promises) == 0:
		s.used.Store(max(b.ledger.spent, -s.full))
	}
	b.ahead.Store(len(b.ledger.promises) > 0)
}

// move begins to count anew, at the given time, before the figures of s grow too
// large. It does nothing when s is no longer the state.
func (b *Bucket) move(s *state, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Load() == s {
		b.moveLocked(s, at)
	}
}

func (b *Bucket) moveLocked(s *state, at int64) *state {
	stock, frac := b.closeLocked(s, at)
	next := &state{meter: s.meter, rate: s.rate}
	next.frac = frac
	b.openLocked(next, stock)
	return next
}

// closeLocked ends the use of s and returns what is in the bucket, in units, and the
// fraction of a unit that has arrived beyond it.
func (b *Bucket) closeLocked(s *state, at int64) (stock int64, frac uint64) {
	b.freezeLocked(s)
	at = b.ledger.settle(s, at)
	if s.unlimited {
		return s.full, 0
	}
	_, frac = s.grantedAny(s.elapsed(at))
	return s.arrived(at) - b.ledger.spent, frac
}

// openLocked publishes s, with a stock that is capped by what it can hold, from the
// time at which the ledger is settled.
func (b *Bucket) openLocked(s *state, stock int64) {
	s.origin = b.ledger.settled
	s.succeed(b.state.Load())
	s.used.Store(locked)
	b.ledger.spent = -min(stock, s.full)
	b.state.Store(s)
	b.advanceLocked(s)
	b.reopenLocked(s)
}

// SetLimit changes rate and burst, from now on. A burst of zero means what it does
// in [TokenBucket]. An invalid limit changes nothing and is reported as joined
// [*policy.ConfigError].
//
// The balance stays: a smaller burst caps it, a larger one leaves it as it is, so
// that no change grants a token. Tokens reserved ahead stay reserved, for the times
// that were promised; if these come sooner than the new rate would have them, the
// tokens of later calls come accordingly later. An infinite rate fills the bucket.
func (b *Bucket) SetLimit(rate Rate, burst int) error {
	cfg := TokenBucket{Rate: rate, Burst: burst}
	if err := cfg.Validate(); err != nil {
		return err
	}
	b.setLimit(b.now(), rate, int64(cfg.burst()))
	return nil
}

func (b *Bucket) setLimit(at int64, rate Rate, burst int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	stock, frac := b.closeLocked(s, at)
	// What is owed or promised must be representable, or it would be forgiven.
	m := newMeter(rate, burst, max(b.ledger.promised(), -stock/s.unit+1))
	if m.unlimited {
		stock = m.full
	} else {
		stock = rescale(stock, s.unit, m.unit)
	}
	if m.unit == s.unit && m.mult == s.mult && m.shift == s.shift {
		m.frac = frac // otherwise drop it: it is less than a unit
	}
	b.openLocked(&state{meter: m, rate: rate}, stock)
}

// rescale returns a stock in units of another size, rounded down, and at least
// -maxAhead.
func rescale(stock, from, to int64) int64 {
	x := new(big.Int).Mul(big.NewInt(stock), big.NewInt(to))
	x.Div(x, big.NewInt(from)) // rounds down, also below zero
	if x.Sign() < 0 && (!x.IsInt64() || x.Int64() < -maxAhead) {
		return -maxAhead
	}
	if !x.IsInt64() {
		return maxAhead
	}
	return x.Int64()
}
