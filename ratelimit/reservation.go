package ratelimit

import "time"

// maxDelay is how far ahead tokens can be reserved. Whoever asks for more has
// misconfigured something, and a reservation of centuries looks like a success.
const maxDelay = 365 * 24 * time.Hour

// Reservation is a claim on tokens that may have yet to arrive. Use the Reserve of a
// [Limiter]; the zero Reservation is not OK. It is to be used by one goroutine at a
// time, and not to be copied: a copy could be cancelled too.
type Reservation struct {
	of    reserver
	ok    bool
	delay time.Duration
	owed  promise // zero when there was no delay, and after Cancel
}

// OK reports whether the tokens are reserved. It is false when more than the burst
// was asked for, and when they would come more than a year later, or beyond what can be
// counted: that is decades at common rates, and an hour and a half at the least at
// those that are no simple fraction.
func (r *Reservation) OK() bool { return r.ok }

// Delay returns how long to wait, from the time given to Reserve, before acting; zero
// means not at all. Of a reservation that is not OK it is when the tokens would have
// been there, [policy.Never] if never.
func (r *Reservation) Delay() time.Duration { return r.delay }

// Cancel gives all the tokens back if their time is yet to come, in whatever order
// reservations are cancelled. Reservations made after this one keep their times; the
// tokens go to who comes next, as early as no other reservation is hurt by it.
//
// At the time that was reserved and later, without a delay, and when it was cancelled
// before, Cancel does nothing: the holder may have acted. Tokens that were not used
// although their time had come go back with [Bucket.Refund].
func (r *Reservation) Cancel(now time.Time) {
	owed := r.owed
	if owed == (promise{}) {
		return
	}
	r.owed = promise{}
	if at := r.of.at(now); at < owed.at {
		r.of.cancel(at, owed)
	}
}

// Reserve takes n tokens whether or not they have arrived, and says when the caller
// may act. It never waits. Nothing is taken when the Reservation is not OK. An n of
// zero or less takes nothing and is OK at once.
//
// Use it where something better than sleeping can be done with the delay; otherwise
// [Bucket.Wait], which gives the tokens back when it is cut short.
func (b *Bucket) Reserve(now time.Time, n int) Reservation {
	at := b.at(now)
	delay, v := b.reserve(at, n, maxDelay)
	r := Reservation{of: b, ok: v == taken, delay: delay}
	if r.ok && delay > 0 {
		r.owed = promise{at: at + int64(delay), tokens: int64(n)}
	}
	return r
}

// reserve is claim, without the lock where there is nothing to wait for.
func (b *Bucket) reserve(at int64, n int, limit time.Duration) (time.Duration, verdict) {
	delay, v := b.take(at, n)
	if v != short || delay > limit {
		return delay, v
	}
	return b.claim(at, n, limit)
}
