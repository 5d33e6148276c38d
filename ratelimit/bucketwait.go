package ratelimit

import (
	"context"
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// bucketWaiter is a call in [Bucket.Wait]. Its fields are under Bucket.mu.
type bucketWaiter struct {
	owed  promise
	timer *time.Timer
}

// Wait takes n tokens, waiting until they are there, in the order in which callers
// came. It returns nil when they are the caller's, and otherwise, with nothing taken:
//
//   - at once, a [*policy.RejectedError] that matches [ErrLimited] and
//     [context.DeadlineExceeded] ([policy.ReasonDeadline]), when they come no
//     earlier than the deadline of ctx
//   - at once, a [*policy.RejectedError] that matches [ErrExceedsBurst]
//     ([policy.ReasonCost]), when n exceeds the burst
//   - at once, a [*policy.RejectedError] that matches [ErrLimited], when MaxWaiters
//     wait already ([policy.ReasonWaiters]), or the tokens come more than a year later
//     ([policy.ReasonWait])
//   - the error of ctx, matching its cause, when it is done, before or during the
//     wait; this is no [policy.ErrRejected]. Those behind move up
//
// The length of the wait is for the caller to bound: each who waits holds on to whatever
// its goroutine holds. Give ctx a deadline, or do not wait: a limiter in a pipeline does
// not unless it is told to. An n of zero or less takes nothing.
func (b *Bucket) Wait(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	at := b.now()
	limit, reason, cause := maxDelay, policy.ReasonWait, errTooFar
	if deadline, ok := ctx.Deadline(); ok {
		// A token that comes with the deadline comes too late.
		if left := time.Duration(max(b.at(deadline), at) - at - 1); left < limit {
			limit, reason, cause = left, policy.ReasonDeadline, errDeadline
		}
	}
	delay, v := b.take(at, n)
	var w *bucketWaiter
	if v == short {
		var err error
		if w, delay, v, err = b.stand(at, n, limit); err != nil {
			return err
		}
	}
	switch {
	case v == tooBig:
		return rejection(b.name, v, delay)
	case v == short:
		return &policy.RejectedError{Policy: b.name, Reason: reason, RetryAfter: delay, Err: cause}
	case w == nil:
		return nil
	}
	defer w.timer.Stop()
	select {
	case <-w.timer.C:
	case <-ctx.Done():
	}
	// The context comes first when both are ready: the call would not run.
	ended := ctx.Err() != nil
	b.leave(w, ended)
	if ended {
		return contextError(ctx)
	}
	return nil
}

// stand takes n tokens that are there after at most limit, and a place among those who
// wait for theirs (nil if there is nothing to wait for), or refuses because there is none.
func (b *Bucket) stand(at int64, n int, limit time.Duration) (*bucketWaiter, time.Duration, verdict, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(len(b.waiters)) >= b.maxWaiters.Load() {
		// The next place becomes free when the first of them has its tokens.
		retryAfter := delayFrom(at, max(at, b.waiters[0].owed.at))
		return nil, 0, short, &policy.RejectedError{Policy: b.name, Reason: policy.ReasonWaiters, RetryAfter: retryAfter, Err: errWaiters}
	}
	delay, v := b.claimLocked(at, n, limit)
	if v != taken || delay == 0 {
		return nil, delay, v, nil
	}
	w := &bucketWaiter{owed: promise{at: at + int64(delay), tokens: int64(n)}, timer: time.NewTimer(delay)}
	b.waiters = append(b.waiters, w)
	b.waiting.Add(1)
	return w, delay, taken, nil
}

// leave ends a wait. One that is given up gives its tokens back.
func (b *Bucket) leave(w *bucketWaiter, givenUp bool) {
	at := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiters, w); i >= 0 { // mostly the first
		b.waiters = slices.Delete(b.waiters, i, i+1)
		b.waiting.Add(-1)
	}
	if givenUp {
		b.giveBackLocked(at, w.owed.at, int(w.owed.tokens), w.owed)
	}
}

// advanceLocked lets those who wait move up to tokens that have become free. Nobody's
// tokens come later than before, also where the limit was lowered: they were promised.
// The books are open, and settled.
func (b *Bucket) advanceLocked(s *state) {
	for _, w := range b.waiters {
		// It waits no longer if the promise has come true.
		if w.owed.at <= b.ledger.settled || !b.ledger.forget(w.owed) {
			continue
		}
		when := b.ledger.settled
		if !s.unlimited {
			when = b.ledger.earliest(s, s.units(w.owed.tokens))
		}
		if when >= w.owed.at {
			b.ledger.add(w.owed)
			continue
		}
		w.owed.at = when
		if when > b.ledger.settled {
			b.ledger.add(w.owed)
		} else {
			b.ledger.spent += s.units(w.owed.tokens)
		}
		w.timer.Reset(time.Duration(max(when-b.now(), 0)))
	}
}
