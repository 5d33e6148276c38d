package ratelimit

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// This file has how calls are let into lanes, and how they wait. What ends in Locked
// requires LaneSet.mu.

// laneAnswer is what a lane says to a call: that it can have its tokens at when, and
// from where; or, if that is later than it asked for, why. At lane it could have them
// if there were no limit over all lanes.
type laneAnswer struct {
	when, lane int64
	cause      laneCause
	grant      *laneGrant
}

// blocked reports whether at the time of the question nothing is missing but the limit
// over all lanes.
func (a laneAnswer) blocked(at int64) bool { return a.cause == laneTotal && a.lane <= at }

// laneWaiter is a call that stands in a lane's line. Its channel is made for this wait
// and closed when that is over: the call was let in, or it is late.
type laneWaiter struct {
	next, prev *laneWaiter
	n, limit   int64 // limit is when its time is up
	ready      chan struct{}
	grant      *laneGrant
	when       int64
	late       bool
}

// lock takes mu. It does not let anyone in.
func (s *LaneSet) lock(at int64) {
	s.mu.Lock()
	for _, l := range s.lanes {
		l.purse.rebase(at)
		if l.floor != nil {
			l.floor.rebase(at)
		}
	}
}

// askLocked returns when a call can have n tokens if nothing else happens until then,
// without regard to those who wait.
func (l *Lane) askLocked(at, n int64) laneAnswer {
	total := l.set.total
	if n > l.purse.s.burst || total != nil && n > total.most() {
		return laneAnswer{when: never, cause: laneTooBig}
	}
	a, grant := laneAnswer{when: l.purse.next(at, n)}, 0
	if a.when > at {
		for i, o := range l.lenders {
			keep := min(int64(o.cfg.LendAbove), o.purse.s.burst)
			if o.first != nil || keep+n > o.purse.s.burst {
				continue
			}
			if when := o.purse.next(at, keep+n); when < a.when {
				a.when, grant = when, 2*(i+1)
			}
		}
	}
	if l.yieldTo != nil && a.when != never {
		to := &l.yieldTo.purse
		if when := to.next(a.when, min(l.below, to.s.burst)); when > a.when {
			if l.floor != nil {
				// The floor lets a call in as soon as it has one token, whatever the
				// cost; those after it wait for longer.
				if by := l.floor.after(a.when, l.floor.s.unit); by < when {
					when = by
					grant++
				}
			}
			if when > a.when {
				a.when, a.cause = when, laneYields
			}
		}
	}
	a.lane = a.when
	if total != nil && a.when != never {
		if when := total.next(a.when, n); when > a.when {
			a.when, a.cause = when, laneTotal
		}
	}
	a.grant = &l.grants[grant]
	return a
}

// answerLocked is askLocked behind those who wait.
func (l *Lane) answerLocked(at, n int64) laneAnswer {
	a := l.askLocked(at, n)
	if a.cause == laneTooBig {
		return a
	}
	if l.first != nil {
		behind := at + 1 // nobody is overtaken
		if len(l.lenders) == 0 {
			behind = max(behind, l.purse.after(at, l.purse.s.units(addSat(l.queued, n))))
		}
		if behind > a.when {
			a.when, a.cause = behind, laneLimited
		}
	}
	for _, o := range l.set.lanes {
		if o == l {
			break
		}
		// What is left of the limit over all lanes is for who waits for it.
		if o.first != nil {
			if b := o.askLocked(at, o.first.n); b.blocked(at) && b.when >= a.when {
				a.when, a.cause = b.when, laneTotal
			}
		}
	}
	return a
}

// takeLocked takes n tokens if they are there. A waiter whose time has come is let in
// before.
func (l *Lane) takeLocked(at, n int64) laneAnswer {
	l.set.dispatchLocked(l.set.now())
	a := l.answerLocked(at, n)
	switch {
	case a.when <= at:
		l.grantLocked(at, n, a.grant)
	case a.cause == laneYields:
		l.yielded++
	}
	return a
}

// grantLocked takes n tokens from all that they come from.
func (l *Lane) grantLocked(at, n int64, g *laneGrant) {
	g.from.purse.take(at, n)
	if g != &l.grants[0] {
		r := &l.recent[l.turn%uint8(len(l.recent))]
		r.when, r.n, r.grant = at, n, g
		l.turn++
	}
	if g.from != l {
		l.borrowed += uint64(n) //nolint:gosec // above 0
	}
	switch {
	case g.floor:
		l.floor.take(at, n)
	case l.floor != nil:
		l.floor.drain(at, n) // who is let in anyway is not starving
	}
	if t := l.set.total; t != nil {
		t.spend(at, n)
		t.rewind()
	}
	l.admitted++
}

// grantOfLocked returns where the tokens came from that were taken at a time.
func (l *Lane) grantOfLocked(when, n int64) *laneGrant {
	for i := range l.recent {
		if r := &l.recent[i]; r.grant != nil && r.when == when && r.n == n {
			g := r.grant
			r.grant = nil
			return g
		}
	}
	return &l.grants[0]
}

// dispatchLocked lets in those who can be, and sets the timer for the next.
func (s *LaneSet) dispatchLocked(now int64) {
	next := int64(never)
	for _, l := range s.lanes {
		var a laneAnswer
		for w := l.first; w != nil; w = l.first {
			if a = l.askLocked(now, w.n); a.when > now {
				next = min(next, a.when)
				break
			}
			l.grantLocked(now, w.n, a.grant)
			w.grant, w.when = a.grant, now
			l.removeLocked(w)
			close(w.ready)
		}
		if l.first != nil && a.blocked(now) {
			break // lanes after this one do not get what it waits for
		}
	}
	if next == s.armed {
		return
	}
	s.armed = next
	switch {
	case next == never:
		s.timer.Stop()
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Duration(next-now), s.ring)
	default:
		s.timer.Reset(time.Duration(next - now))
	}
}

// ring lets in those whose time has come. The timer calls it.
func (s *LaneSet) ring() {
	now := s.now()
	s.lock(now)
	defer s.mu.Unlock()
	s.armed = 0 // it has rung
	s.dispatchLocked(now)
}

// doomedLocked reports whether a call is sure to be refused, and why.
func (l *Lane) doomedLocked(at, n int64) (cause laneCause, retryAfter time.Duration, sure bool) {
	a := l.answerLocked(at, n)
	delay := delayFrom(at, a.when)
	switch {
	case a.when <= at:
		return 0, 0, false
	case a.cause == laneTooBig || l.maxWait.Load() == 0:
		return a.cause, delay, true
	case l.waiting >= int(l.maxWaiters.Load()):
		return laneWaiters, delayFrom(at, l.askLocked(at, l.first.n).when), true
	case delay > time.Duration(l.maxWait.Load()):
		return laneTooFar, l.sooner(delay), true
	}
	return 0, 0, false
}

// sooner returns after how long a wait is short enough that would take longer than
// MaxWait now.
func (l *Lane) sooner(delay time.Duration) time.Duration {
	if delay == policy.Never {
		return delay
	}
	return max(delay-time.Duration(l.maxWait.Load()), 0)
}

// refuseLocked counts and returns a refusal.
func (l *Lane) refuseLocked(cause laneCause, retryAfter time.Duration) error {
	reason := laneReasons[cause]
	l.rejected[reason]++
	return &policy.RejectedError{Policy: l.name, Reason: reason, RetryAfter: retryAfter, Err: l.errs[cause]}
}

// enter takes n tokens, above 0, waiting for them as far as that is allowed. It returns
// where they came from, and when.
func (l *Lane) enter(ctx context.Context, at, n int64, noWait bool) (*laneGrant, int64, error) {
	limit, late := addSat(at, l.maxWait.Load()), laneTooFar
	if deadline, ok := ctx.Deadline(); ok {
		// A token that comes with the deadline comes too late.
		if last := l.at(deadline) - 1; last < limit {
			limit, late = last, laneDeadline
		}
	}
	w, g, err := l.join(ctx, at, n, limit, late, noWait)
	if w == nil {
		return g, at, err
	}
	timer := time.NewTimer(time.Duration(limit - at))
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-ctx.Done():
	case <-timer.C:
	}
	// The context comes first when more than one is ready: the call would not run.
	if ctx.Err() != nil {
		l.abandon(w)
		return nil, at, contextError(ctx)
	}
	if err := l.leave(w, at, late); err != nil {
		return nil, at, err
	}
	return w.grant, w.when, nil
}

// join takes n tokens if they are there, or else a place in the lane's line, or none.
func (l *Lane) join(ctx context.Context, at, n, limit int64, late laneCause, noWait bool) (*laneWaiter, *laneGrant, error) {
	l.set.lock(at)
	defer l.set.mu.Unlock()
	a := l.takeLocked(at, n)
	if a.when <= at {
		return nil, a.grant, nil
	}
	delay := delayFrom(at, a.when)
	switch {
	case a.cause == laneTooBig || l.maxWait.Load() == 0 || noWait:
		return nil, nil, l.refuseLocked(a.cause, delay)
	case ctx.Err() != nil:
		return nil, nil, contextError(ctx)
	case l.waiting >= int(l.maxWaiters.Load()):
		return nil, nil, l.refuseLocked(laneWaiters, delayFrom(at, l.askLocked(at, l.first.n).when))
	case a.when > limit && late == laneTooFar:
		return nil, nil, l.refuseLocked(late, l.sooner(delay))
	case a.when > limit:
		return nil, nil, l.refuseLocked(late, delay)
	}
	w := &laneWaiter{n: n, limit: limit, prev: l.last, ready: make(chan struct{})}
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.waiting++
	l.queued = addSat(l.queued, n)
	l.set.dispatchLocked(l.set.now())
	return w, nil, nil
}

// removeLocked takes a waiter out of the line.
func (l *Lane) removeLocked(w *laneWaiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	l.waiting--
	l.queued -= w.n
}

// leave ends the wait of a call that was let in (nil), or whose time is up.
func (l *Lane) leave(w *laneWaiter, at int64, late laneCause) error {
	now := l.set.now()
	l.set.lock(now)
	defer l.set.mu.Unlock()
	if w.grant == nil && !w.late {
		l.set.expireLocked(now)
	}
	if w.grant != nil {
		return nil
	}
	return l.refuseLocked(late, delayFrom(at, l.answerLocked(now, w.n).when))
}

// expireLocked ends the waits of all whose time is up. The time of a token may come at
// the same moment: who gets it is not late, and those who are late are so together, so
// that it does not depend on who looks first.
func (s *LaneSet) expireLocked(now int64) {
	s.dispatchLocked(now)
	for _, l := range s.lanes {
		for w := l.first; w != nil; w = w.next {
			if w.limit <= now {
				w.late = true
				l.removeLocked(w)
				close(w.ready)
			}
		}
	}
	s.dispatchLocked(now)
}

// abandon gives up a place, or what came of it.
func (l *Lane) abandon(w *laneWaiter) {
	now := l.set.now()
	l.set.lock(now)
	g := w.grant
	if g == nil && !w.late {
		l.removeLocked(w)
		l.set.dispatchLocked(now)
	}
	l.set.mu.Unlock()
	if g != nil {
		l.refund(now, w.when, w.n, g)
	}
}
