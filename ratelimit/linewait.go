package ratelimit

import (
	"context"
	"math/big"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// defaultWaiters bounds those who wait where no other number was given. Each holds on
// to whatever its goroutine holds, and a limiter that is meant to pace rarely needs
// more.
const defaultWaiters = 100

// errWaiters says more about a refused wait. It matches ErrLimited.
var errWaiters = &limitedError{"ratelimit: as many wait as may", nil}

// Wait takes n tokens, standing in line for them for at most MaxWait and behind at most
// MaxWaiters. It returns nil when they are the caller's, and otherwise, with nothing
// taken:
//
//   - at once, a [*policy.RejectedError] that matches [ErrLimited]: MaxWait is zero
//     ([policy.ReasonRate]); MaxWaiters wait already ([policy.ReasonWaiters]); the wait
//     would be longer than MaxWait ([policy.ReasonWait]), or last until the deadline of
//     ctx ([policy.ReasonDeadline], which matches [context.DeadlineExceeded] too)
//   - at once, a [*policy.RejectedError] that matches [ErrExceedsBurst]
//     ([policy.ReasonCost]), when the limit can never hold n tokens
//   - the error of ctx, matching its cause, when it is done, before or during the wait;
//     this is no [policy.ErrRejected]. Those behind move up
//   - during the wait, one of the first refusals, when the limit was lowered so far that
//     the wait would become too long
//
// An n of zero or less takes nothing.
func (l *line) Wait(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	at := l.now()
	delay, v := l.take(at, n)
	if v == taken {
		return nil
	}
	if v == tooBig || l.longest() == 0 {
		return rejection(l.name, v, delay)
	}
	_, err := l.wait(ctx, at, n)
	return err
}

// wait takes n tokens, above 0, standing in line for them. It returns when they were
// there.
func (l *line) wait(ctx context.Context, at int64, n int) (when int64, err error) {
	limit, reason, cause := at+int64(l.longest()), policy.ReasonWait, errTooFar
	if deadline, ok := ctx.Deadline(); ok {
		// A token that comes with the deadline comes too late.
		if last := l.at(deadline) - 1; last < limit {
			limit, reason, cause = last, policy.ReasonDeadline, errDeadline
		}
	}
	p, err := l.join(at, n, limit, reason, cause)
	if p == nil {
		return at, err
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
	}
	// The context comes first when both are ready: the call would not run.
	if ctx.Err() != nil {
		l.leave(p)
		return at, contextError(ctx)
	}
	if p.late {
		return at, &policy.RejectedError{Policy: l.name, Reason: reason, RetryAfter: delayFrom(at, p.when), Err: cause}
	}
	return p.when, nil
}

// join takes the tokens if they are there after all (nil, nil), or else a place in the
// line, or none.
func (l *line) join(at int64, n int, limit int64, reason policy.Reason, cause error) (*place, error) {
	l.lock(at)
	defer l.unlock()
	if int64(l.waiting.Load()) >= l.maxWaiters.Load() {
		return nil, l.crowded(at)
	}
	when, before, v := l.takeLocked(at, int64(n))
	switch {
	case v == taken:
		return nil, nil
	case v == tooBig:
		return nil, rejection(l.name, v, policy.Never)
	case when > limit:
		retryAfter := delayFrom(at, when)
		if reason == policy.ReasonWait && retryAfter != policy.Never {
			retryAfter -= l.longest() // from then on the wait is short enough
		}
		return nil, &policy.RejectedError{Policy: l.name, Reason: reason, RetryAfter: retryAfter, Err: cause}
	}
	p := &place{when: when, n: int64(n), limit: limit, ready: make(chan struct{})}
	l.addLocked(p, before)
	return p, nil
}

// crowded is the refusal of a newcomer when there are enough who wait. The next place
// becomes free when the first of them is let in. It requires that l.mu is held.
func (l *line) crowded(at int64) error {
	return &policy.RejectedError{Policy: l.name, Reason: policy.ReasonWaiters, RetryAfter: delayFrom(at, max(at, l.headLocked().when)), Err: errWaiters}
}

// headLocked returns the first waiter, nil when nobody waits.
func (l *line) headLocked() *place {
	p := l.first
	for p != nil && !p.waits() {
		p = p.next
	}
	return p
}

// leave gives up a place, or what came of it.
func (l *line) leave(p *place) {
	l.mu.Lock()
	select {
	case <-p.ready:
		l.mu.Unlock()
		if !p.late {
			l.refund(l.now(), p.when, int(p.n))
		}
		return
	default:
	}
	defer l.mu.Unlock()
	// Many may leave at the same time. So those behind do not move up here, which
	// means to book anew all who wait, but once, when the timer comes or somebody
	// else looks.
	l.removeLocked(p)
	l.stale = true
	l.armed = 0
	l.timer.Reset(0)
}

// armLocked sets the timer for the first waiter.
func (l *line) armLocked() {
	when := int64(never)
	if p := l.headLocked(); p != nil {
		when = p.when
	}
	if when == l.armed {
		return
	}
	l.armed = when
	switch {
	case when == never:
		l.timer.Stop()
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Duration(when-l.now()), l.ring)
	default:
		l.timer.Reset(time.Duration(when - l.now()))
	}
}

// ring lets in those whose time has come. The timer calls it.
func (l *line) ring() {
	l.lock(l.now())
	l.armed = 0 // it has rung
	l.unlock()
}

// waiters returns the bound of those who wait: the given number, or as many as can be
// let in within the time, at most [defaultWaiters]. The rate must be valid.
func waiters(n int, wait time.Duration, rate Rate) int {
	switch {
	case wait == 0:
		return 0
	case n > 0:
		return n
	case rate.unlimited():
		return 1
	}
	served := rate.perNano()
	served.Mul(served, new(big.Rat).SetInt64(int64(wait)))
	if served.Cmp(new(big.Rat).SetInt64(defaultWaiters)) >= 0 {
		return defaultWaiters
	}
	return max(1, int(ceil(served))) //nolint:gosec // below defaultWaiters
}
