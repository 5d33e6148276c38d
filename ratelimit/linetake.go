package ratelimit

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Allow takes one token if there is one, and reports whether it did. It reads the
// clock and never waits.
func (l *line) Allow() bool { return l.AllowN(1) }

// AllowN takes n tokens if they are there, and reports whether it did; otherwise it
// takes none. It reads the clock and never waits. An n of zero or less takes nothing
// and is allowed.
func (l *line) AllowN(n int) bool {
	_, v := l.take(l.now(), n)
	return v == taken
}

// Take takes n tokens if they are there at the given time, and otherwise none. It
// then returns the time after which they will be there if nobody else takes any:
// exactly, to the nanosecond, so that trying again after just that time succeeds. It
// is [policy.Never] if the limit can never hold as many, or the time 292 years. Take
// never waits, and overtakes nobody who does. An n of zero or less takes nothing and
// is allowed.
func (l *line) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	retryAfter, v := l.take(l.at(now), n)
	return retryAfter, v == taken
}

func (l *line) take(at int64, n int) (time.Duration, verdict) {
	if n <= 0 {
		return 0, taken
	}
	if delay, v := l.books.try(at, int64(n)); v != busy {
		return delay, v
	}
	l.lock(at)
	defer l.unlock()
	when, _, v := l.takeLocked(at, int64(n))
	if v == taken {
		return 0, taken
	}
	return delayFrom(at, when), v
}

// takeLocked takes n tokens if they are there. Otherwise it returns when they would
// be, and before whom the caller would then stand.
func (l *line) takeLocked(at, n int64) (when int64, before *place, v verdict) {
	if n > l.books.most() {
		return never, nil, tooBig
	}
	when, before = l.findLocked(at, n)
	if when > at {
		if l.reserved > 0 {
			l.rebookLocked()
		}
		return when, before, short
	}
	if l.first != nil && l.first.when <= at {
		// The caller looks ahead of a waiter's time. What it takes there is future
		// too.
		l.addLocked(&place{when: at, n: n}, before)
		return at, nil, taken
	}
	l.books.spend(at, n)
	l.rebookLocked()
	return at, nil, taken
}

// look is take, taking nothing.
func (l *line) look(at int64, n int) (time.Duration, verdict) {
	if delay, v := l.books.look(at, int64(n)); v != busy {
		return delay, v
	}
	l.lock(at)
	defer l.unlock()
	return l.lookLocked(at, int64(n))
}

func (l *line) lookLocked(at, n int64) (time.Duration, verdict) {
	if n > l.books.most() {
		return policy.Never, tooBig
	}
	when, _ := l.findLocked(at, n)
	if l.reserved > 0 {
		l.rebookLocked()
	}
	if when > at {
		return delayFrom(at, when), short
	}
	return 0, taken
}

// Refund gives back n tokens that were taken at the given time for a call which did
// not run: the time that Take was given, or that of a reservation, or about which Wait
// returned. No more calls run for it than if that one had not been: what has passed
// meanwhile is lost. An n of zero or less does nothing.
func (l *line) Refund(taken time.Time, n int) { l.refund(l.now(), l.at(taken), n) }

func (l *line) refund(at, taken int64, n int) {
	if n <= 0 || l.books.giveBack(at, taken, int64(n)) {
		return
	}
	l.lock(at)
	defer l.unlock()
	l.refundLocked(at, taken, int64(n))
}

func (l *line) refundLocked(at, taken, n int64) {
	l.books.refund(at, taken, n)
	l.rebuildLocked()
}

// Reserve takes n tokens whether or not they have arrived, and says when the caller
// may act: after all who stand in line, or earlier where a reservation was cancelled
// and nobody waits behind it. It never waits. Nothing is taken when the Reservation is
// not OK. An n of zero or less takes nothing and is OK at once.
func (l *line) Reserve(now time.Time, n int) Reservation {
	at := l.at(now)
	delay, v := l.reserve(at, n)
	r := Reservation{of: l, ok: v == taken, delay: delay}
	if r.ok && delay > 0 {
		r.owed = promise{at: at + int64(delay), tokens: int64(n)}
	}
	return r
}

func (l *line) reserve(at int64, n int) (time.Duration, verdict) {
	if n <= 0 {
		return 0, taken
	}
	if delay, v := l.books.try(at, int64(n)); v == taken || v == tooBig || v == short && delay > maxDelay {
		return delay, v
	}
	l.lock(at)
	defer l.unlock()
	when, before, v := l.takeLocked(at, int64(n))
	if v == taken {
		return 0, taken
	}
	delay := delayFrom(at, when)
	if v == short && delay <= maxDelay {
		l.addLocked(&place{when: when, n: int64(n)}, before)
		v = taken
	}
	return delay, v
}

// cancel implements [reserver].
func (l *line) cancel(at int64, owed promise) {
	l.lock(at)
	defer l.unlock()
	for p := l.first; p != nil; p = p.next {
		if !p.waits() && p.when == owed.at && p.n == owed.tokens {
			l.removeLocked(p)
			l.rebuildLocked()
			return
		}
	}
}

// change lets f change the limit, and the queue follow.
func (l *line) change(f func(at int64)) {
	at := l.now()
	l.lock(at)
	defer l.unlock()
	f(at)
	l.rebuildLocked()
}

func (l *line) takeFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return l.take(l.at(now), n)
}

func (l *line) lookFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return l.look(l.at(now), n)
}

func (l *line) refundFor(taken time.Time, _ *policy.Call, n int) { l.Refund(taken, n) }

func (l *line) undoFor(taken time.Time, _ *policy.Call, n int) {
	l.refund(l.at(taken), l.at(taken), n)
}

func (l *line) title() string { return l.name }
