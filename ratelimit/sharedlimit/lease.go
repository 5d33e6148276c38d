package sharedlimit

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// takeLeased takes n tokens from those that were taken ahead, and takes more ahead when
// they run out. One call asks for all that wait meanwhile.
func (l *Limiter) takeLeased(ctx context.Context, e *entry, at int64, n int) (ticket, error) {
	limit := at + int64(l.s.Timeout)
	for now := at; ; now = l.now() {
		e.mu.Lock()
		if e.spend(now, n) {
			until := e.until
			l.prefetchLocked(e, now)
			e.mu.Unlock()
			l.hits.Add(1)
			return ticket{e, until}, nil
		}
		if now < e.blocked && n >= e.blockedFor {
			by, next := e.blockedBy, max(e.blockedNext, e.blocked)
			e.mu.Unlock()
			l.hits.Add(1)
			return ticket{}, l.refusal(policy.ReasonRate, by, time.Duration(max(next-now, 0)))
		}
		if refill := e.refill; refill != nil {
			e.mu.Unlock()
			if l.await(ctx, refill, limit) {
				continue
			}
			if ctx.Err() != nil {
				return ticket{}, contextError(ctx)
			}
			return l.standIn(e, l.now(), n)
		}
		want := l.batchLocked(e, now, n)
		e.refill = make(chan struct{})
		e.mu.Unlock()

		until, err := l.lease(ctx, e, want, n, true)
		switch {
		case err == nil:
			return ticket{e, until}, nil
		case ctx.Err() != nil:
			return ticket{}, contextError(ctx)
		}
		if re, ok := err.(*policy.RejectedError); ok { //nolint:errorlint // our own, never wrapped
			return ticket{}, re
		}
		return l.standIn(e, l.now(), n)
	}
}

// await waits for another call's question to be answered.
func (l *Limiter) await(ctx context.Context, refill chan struct{}, limit int64) bool {
	timer := time.NewTimer(time.Duration(limit - l.now()))
	defer timer.Stop()
	select {
	case <-refill:
		return ctx.Err() == nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// batchLocked returns how many tokens to take ahead: what was used of late in half of the
// time that they may be kept. It requires that e.mu is held, as do all whose names end so.
func (l *Limiter) batchLocked(e *entry, now int64, n int) int {
	length := int64(l.s.LeaseFor / 2)
	switch age := now - e.begin; {
	case age >= 2*length || e.begin == 0:
		e.before, e.spent, e.begin = 0, 0, now
	case age >= length:
		e.before, e.spent, e.begin = e.spent, 0, now
	}
	return min(max(e.before, e.spent, n), max(l.s.MaxLease, n))
}

// prefetchLocked asks for more when few tokens are left, so that no call has to wait.
func (l *Limiter) prefetchLocked(e *entry, now int64) {
	if e.refill != nil || now < e.blocked || e.next.n > 0 {
		return
	}
	want := l.batchLocked(e, now, 1)
	if want < 8 || e.lease.n > want/4 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	e.refill = make(chan struct{})
	l.running.Go(func() {
		_, _ = l.lease(l.ctx, e, want, 1, false) // the next call finds what came of it
	})
}

// lease takes tokens ahead, from least to want of them, and uses least of them at once if
// told so. It ends the refill of e.
func (l *Limiter) lease(ctx context.Context, e *entry, want, least int, use bool) (until int64, err error) {
	settled := false
	defer func() { // also should the store panic
		if !settled {
			e.mu.Lock()
			l.refilledLocked(e)
			e.mu.Unlock()
		}
	}()
	g, sent, err := l.ask(ctx, e, want, least)
	e.mu.Lock()
	defer e.mu.Unlock()
	settled = true
	defer l.refilledLocked(e)
	if err != nil {
		return 0, err
	}
	if g.Tokens < want {
		// A short answer: the bucket is empty now. To ask for every token as it arrives
		// would be a trip for each; to ask too late would let the bucket overflow.
		pause := min(int64(l.s.LeaseFor)/8, int64(l.fill())/4)
		e.blockedNext, e.blockedBy, e.blockedFor = sent+int64(g.RetryAfter), g.Limit, 1
		e.blocked = sent + pause
		if g.Tokens < least {
			e.blockedFor = least
			e.blocked = max(e.blocked, min(e.blockedNext, sent+int64(l.s.LeaseFor)))
		}
	}
	if g.Tokens < least {
		return 0, l.refusal(policy.ReasonRate, g.Limit, g.RetryAfter)
	}
	e.granted(sent, sent+int64(g.Expires))
	rest := g.Tokens
	if use {
		rest -= least
		e.spent += least
	}
	life := l.s.LeaseFor
	if g.Ends > 0 {
		life = min(life, g.Ends)
	}
	e.add(rest, sent+int64(life))
	l.sweepLater()
	return e.until, nil
}

func (l *Limiter) refilledLocked(e *entry) {
	close(e.refill)
	e.refill = nil
}

// sweepLater sees to it that tokens are given back when their time has passed.
func (l *Limiter) sweepLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.sweeping || l.stopped:
		return
	case l.sweeper == nil:
		l.sweeper = time.AfterFunc(l.s.LeaseFor, l.inBackground(l.sweep))
	default:
		l.sweeper.Reset(l.s.LeaseFor)
	}
	l.sweeping = true
}

// sweep gives back what has expired, and comes again while anything is held.
func (l *Limiter) sweep() {
	held := 0
	l.table.all(func(e *entry) {
		e.mu.Lock()
		e.expire(l.now())
		held += e.lease.n + e.next.n
		n := e.lapsed
		e.lapsed = 0
		e.mu.Unlock()
		if !l.away.Load() {
			l.returnTokens(l.ctx, e, n)
		}
	})
	l.mu.Lock()
	l.sweeping = false
	l.mu.Unlock()
	if held > 0 {
		l.sweepLater()
	}
}
