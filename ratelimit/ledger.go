package ratelimit

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// locked in place of state.used says that the figure is kept under Bucket.mu: in the
// ledger, or in a newer state.
const locked = -1 << 63

// state is a bucket's figures since an origin. All but used is immutable; a change
// makes a new state.
type state struct {
	// used is the number of units used since the origin, promised ones included,
	// less those there were at the origin; or locked. It is at least -full, as less
	// would be overflow at any time, and at most maxAhead.
	used atomic.Int64

	meter
	origin int64 // ns since Bucket.start
	rate   Rate

	changed int64 // since when the rate is what it is, if it was another one before
	before  *era
}

// elapsed returns the time since the origin, 0 before it.
func (s *state) elapsed(at int64) int64 {
	if at <= s.origin {
		return 0
	}
	return at - s.origin
}

// arrived returns the units that have arrived at the given time, at most maxArrived.
func (s *state) arrived(at int64) int64 {
	units, _ := s.grantedAny(s.elapsed(at))
	return min(units, maxArrived)
}

// crossingAt returns the time at which that many units have arrived, or never.
func (s *state) crossingAt(units int64) int64 {
	c := s.crossing(units)
	if c > never-s.origin {
		return never
	}
	return s.origin + c
}

// promise is a reservation of tokens that had yet to arrive when it was made. The
// bucket does not hear of it again unless it is cancelled.
type promise struct {
	at     int64 // when they arrive, ns since Bucket.start
	tokens int64

	// keep is what the bucket must hold just before, so that this promise and those
	// after it come true. It is filled in by earliest.
	keep int64
}

// ledger keeps the books of a bucket where one figure is not enough.
//
// As long as promises are only made, the figure of all that is used says everything:
// it is where the queue ends. Once one of them is cancelled, tokens are refunded, or
// the rate changes, while others are outstanding, the queue has gaps. To leave the
// gaps unused would keep a bucket empty for as long as the last promise is away; to
// give their tokens to whoever comes, at any time, would let these come on top of the
// promises that are left, at up to twice the rate. So what follows is the bucket
// itself: tokens arrive, overflow, and are spent at the time that was promised, and
// a call may have tokens at the earliest time at which no promise is broken by it.
//
// All methods require that Bucket.mu is held; those that are given a state also require
// that its used is locked.
type ledger struct {
	promises []promise // by time; those past may still be there
	spent    int64     // units used up to settled, without promises yet to come
	settled  int64
}

// keepPromise returns the units spent after p came true, given those before. A time is
// rounded up to a nanosecond, so what arrives in the last one does not overflow: the
// promise was for a moment within it.
func (s *state) keepPromise(spent int64, p promise) int64 {
	return max(spent, s.arrived(p.at-1)-s.full) + s.units(p.tokens)
}

// settle brings the books to the given time, at least to the time they are at, which
// it returns.
func (l *ledger) settle(s *state, at int64) int64 {
	at = max(at, l.settled)
	l.settled = at
	for _, p := range l.promises {
		if p.at > at {
			break
		}
		l.spent = s.keepPromise(l.spent, p)
	}
	l.drop(at)
	l.spent = max(l.spent, s.arrived(at)-s.full)
	return at
}

// earliest returns the first time, not before settled, at which a call may have that
// many units, at most a full bucket; or never.
//
// Between two promises the stock grows until the bucket is full. What must be kept for
// the promises ahead grows too, from when it is above 0, as ever less can arrive
// before them. So what is free does not grow any further from then on, and the first
// moment at which the stock suffices decides for the whole stretch.
func (l *ledger) earliest(s *state, cost int64) int64 {
	l.computeKeep(s)
	at, spent := l.settled, l.spent
	for i := range l.promises {
		p := &l.promises[i]
		arrivedThen := s.arrived(p.at)
		if when := max(at, s.crossingAt(spent+cost)); when < p.at {
			arrived := s.arrived(when)
			stock := min(arrived-spent, s.full)
			if stock-cost >= p.keep-(arrivedThen-arrived) {
				return when
			}
		}
		at, spent = p.at, s.keepPromise(spent, *p)
	}
	return max(at, s.crossingAt(spent+cost))
}

func (l *ledger) computeKeep(s *state) {
	next, arrivedNext := int64(0), int64(maxArrived)
	for i := range slices.Backward(l.promises) {
		p := &l.promises[i]
		arrived := s.arrived(p.at)
		most := s.full + arrived - s.arrived(p.at-1) // more is not to be had
		p.keep = min(s.units(p.tokens)+max(0, next-(arrivedNext-arrived)), most)
		next, arrivedNext = p.keep, arrived
	}
}

// free returns the units that can be spent at the time of the books; if there are
// none, it is 0 or below, by as much as is promised beyond what has arrived.
func (l *ledger) free(s *state) int64 {
	stock := s.arrived(l.settled) - l.spent
	if len(l.promises) == 0 {
		return stock
	}
	l.computeKeep(s)
	p := l.promises[0]
	if free := stock - max(0, p.keep-(s.arrived(p.at)-s.arrived(l.settled))); free > 0 {
		return free
	}
	return min(0, stock-s.units(l.promised()))
}

// refund gives units back.
func (l *ledger) refund(s *state, units int64) {
	l.spent = max(l.spent-units, s.arrived(l.settled)-s.full)
}

// clone returns books to try things out on.
func (l *ledger) clone() ledger {
	c := *l
	c.promises = slices.Clone(l.promises)
	return c
}

// promised returns the number of tokens promised.
func (l *ledger) promised() int64 {
	tokens := int64(0)
	for _, p := range l.promises {
		tokens += p.tokens
	}
	return tokens
}

// add adds a promise.
func (l *ledger) add(p promise) {
	i, _ := slices.BinarySearchFunc(l.promises, p, comparePromises) // nearly always the end
	l.promises = slices.Insert(l.promises, i, p)
}

// forget removes a promise and reports whether it was there.
func (l *ledger) forget(p promise) bool {
	i, found := slices.BinarySearchFunc(l.promises, p, comparePromises)
	if found {
		l.promises = slices.Delete(l.promises, i, i+1)
	}
	return found
}

// drop removes the promises up to the given time.
func (l *ledger) drop(at int64) {
	past := 0
	for past < len(l.promises) && l.promises[past].at <= at {
		past++
	}
	if rest := len(l.promises) - past; rest > past {
		l.promises = l.promises[past:]
	} else {
		// Copying no more than is dropped keeps the space for the next ones.
		l.promises = slices.Delete(l.promises, 0, past)
	}
}

func comparePromises(a, b promise) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.tokens, b.tokens))
}
