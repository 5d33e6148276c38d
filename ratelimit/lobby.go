package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// host is a limiter with a lobby.
type host interface {
	// try takes n tokens for a call if they are there, and says from which part of the
	// limiter. Otherwise it says when they would be there, and which part has too few.
	try(now time.Time, c *policy.Call, n int) (delay time.Duration, v verdict, part int)

	// foresee says when try can succeed after calls like this one have had tokens
	// for all that are ahead of it, if nobody else comes. It may be too early, never
	// too late. It takes nothing.
	foresee(now time.Time, c *policy.Call, ahead, n int) (delay time.Duration, v verdict, part int)

	// giveBack gives back what try took at the given time, from that part.
	giveBack(taken time.Time, c *policy.Call, n, part int)

	// refusal completes an error that a part is the reason for.
	refusal(err *policy.RejectedError, part int) error
}

// lobby is where callers wait for a limiter of which no token can be had in advance:
// because it is made of several limiters, or has one for each key, or because its rate
// depends on what happens. Nothing is taken for those who wait, so there is nothing to
// be given back, and who leaves makes way for those behind. Callers with the same key
// are let in in the order in which they came; others are not in each other's way.
//
// Its host, and whether keys make a difference, are fixed.
type lobby struct {
	host       host
	oneLine    bool         // keys make no difference
	maxWait    atomic.Int64 // a change holds for those who come
	maxWaiters atomic.Int64

	waiting atomic.Int32 // changes under mu

	mu          sync.Mutex
	first, last *guest
	timer       *time.Timer
	lines       []guestLine // for the next pass
}

// guest is one who waits. What became of it is fixed when ready is closed.
type guest struct {
	next, prev *guest

	call  policy.Call
	n     int
	limit time.Time // the latest time at which it wants to be let in

	ready chan struct{}
	taken time.Time // when its tokens were taken
	delay time.Duration
	v     verdict
	part  int
}

// guestLine is what a pass knows of those with one key that it has come to.
type guestLine struct {
	key   string
	ahead int // tokens they wait for
}

// waitFaults returns what is wrong with the bounds of a wait.
func waitFaults(kind string, wait time.Duration, most int) (errs []error) {
	fail := func(field string, value any, format string, args ...any) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	if wait < 0 || wait > maxDelay {
		fail("MaxWait", wait, "want at most %s, or 0 (does not wait)", maxDelay)
	}
	switch {
	case most < 0:
		fail("MaxWaiters", most, "want at least 1, or 0 (%d)", defaultWaiters)
	case most > 0 && wait == 0:
		fail("MaxWaiters", most, "want 0 while MaxWait is 0: nobody waits; set MaxWait too")
	}
	return errs
}

// guests returns the effective number of those who may wait.
func guests(wait time.Duration, most int) int {
	if wait > 0 && most == 0 {
		return defaultWaiters
	}
	return most
}

// init makes the lobby ready.
func (l *lobby) init(h host, wait time.Duration, most int) {
	l.host = h
	l.bound(wait, most)
}

// bound changes how long callers may wait, and how many.
func (l *lobby) bound(wait time.Duration, most int) {
	l.maxWait.Store(int64(wait))
	l.maxWaiters.Store(int64(most))
}

// bounds returns what bound has set.
func (l *lobby) bounds() (wait time.Duration, most int) {
	return l.longest(), int(l.maxWaiters.Load())
}

func (l *lobby) longest() time.Duration { return time.Duration(l.maxWait.Load()) }

func (l *lobby) keyOf(c *policy.Call) string {
	if l.oneLine {
		return ""
	}
	return c.Key
}

// take takes n tokens, waiting for them as far as that is allowed. It returns when they
// were taken, the given time if it did not wait, and what try said of the part.
func (l *lobby) take(ctx context.Context, now time.Time, c *policy.Call, n int) (when time.Time, part int, err error) {
	if l.waiting.Load() == 0 {
		delay, v, part := l.host.try(now, c, n)
		switch {
		case v == taken:
			return now, part, nil
		case v == tooBig || l.longest() == 0:
			return now, 0, l.host.refusal(refusalOf(v, delay), part)
		}
	}
	if ctx.Err() != nil {
		return now, 0, contextError(ctx)
	}
	limit, byDeadline := now.Add(l.longest()), false
	// A token that comes with the deadline comes too late.
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-1).Before(limit) {
		limit, byDeadline = deadline.Add(-1), true
	}
	g := &guest{call: *c, n: n, limit: limit}
	if full, delay := l.join(now, g); full {
		return now, 0, l.host.refusal(&policy.RejectedError{Reason: policy.ReasonWaiters, RetryAfter: delay, Err: errWaiters}, g.part)
	}
	if g.ready != nil {
		select {
		case <-g.ready:
		case <-ctx.Done():
		}
		// The context comes first when both are ready: the call would not run.
		if ctx.Err() != nil {
			l.leave(g)
			return now, 0, contextError(ctx)
		}
	}
	if g.v == taken {
		return g.taken, g.part, nil
	}
	return now, 0, l.host.refusal(l.late(g, byDeadline), g.part)
}

// refusalOf is the error for a verdict without a wait.
func refusalOf(v verdict, retryAfter time.Duration) *policy.RejectedError {
	if v == tooBig {
		return &policy.RejectedError{Reason: policy.ReasonCost, RetryAfter: policy.Never, Err: ErrExceedsBurst}
	}
	return &policy.RejectedError{Reason: policy.ReasonRate, RetryAfter: retryAfter, Err: ErrLimited}
}

// late is the error for a guest whose wait would be too long.
func (l *lobby) late(g *guest, byDeadline bool) *policy.RejectedError {
	switch {
	case g.v == tooBig:
		return refusalOf(g.v, g.delay)
	case byDeadline:
		return &policy.RejectedError{Reason: policy.ReasonDeadline, RetryAfter: g.delay, Err: errDeadline}
	}
	delay := g.delay
	if delay != policy.Never {
		delay = max(delay-l.longest(), 0) // from then on the wait is short enough
	}
	return &policy.RejectedError{Reason: policy.ReasonWait, RetryAfter: delay, Err: errTooFar}
}

// peek is the refusal that take is sure to give, nil when there is none.
func (l *lobby) peek(now time.Time, c *policy.Call, n int) error {
	delay, v, part := l.host.foresee(now, c, 0, n)
	switch {
	case v == taken:
		return nil
	case v == tooBig || l.longest() == 0:
		return l.host.refusal(refusalOf(v, delay), part)
	case delay > l.longest():
		return l.host.refusal(l.late(&guest{v: v, delay: delay}, false), part)
	case int64(l.waiting.Load()) >= l.maxWaiters.Load():
		return l.host.refusal(&policy.RejectedError{Reason: policy.ReasonWaiters, RetryAfter: delay, Err: errWaiters}, part)
	}
	return nil
}

// join takes the tokens if they are there after all and nobody waits for the like, or
// takes a place in the lobby, which then has a channel, or finds that the wait would be
// too long or the lobby is full.
func (l *lobby) join(now time.Time, g *guest) (full bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.serveLocked(now)
	i := l.considerLocked(now, g)
	switch {
	case g.v != short:
		return false, 0
	case int64(l.waiting.Load()) >= l.maxWaiters.Load():
		return true, min(next, g.delay)
	case now.Add(g.delay).After(g.limit):
		return false, 0
	}
	g.ready = make(chan struct{})
	l.linkLocked(g)
	if i < 0 {
		next = min(next, g.delay)
	}
	l.armLocked(next)
	return false, 0
}

// considerLocked lets a guest in if nobody with its key is ahead, and there are tokens.
// Otherwise it finds out how long that will be. It returns the line of those ahead, -1
// if there is none. It requires that l.mu is held, as do all whose names end so.
func (l *lobby) considerLocked(now time.Time, g *guest) (line int) {
	key := l.keyOf(&g.call)
	line = slices.IndexFunc(l.lines, func(ln guestLine) bool { return ln.key == key })
	ahead, least := 0, time.Duration(1)
	if line >= 0 {
		ahead = l.lines[line].ahead
	} else {
		g.delay, g.v, g.part = l.host.try(now, &g.call, g.n)
		if g.v != short {
			g.taken = now
			return line
		}
		least = max(least, g.delay)
	}
	g.delay, g.v, g.part = l.host.foresee(now, &g.call, ahead, g.n)
	g.delay = max(g.delay, least)
	if g.v == taken { // what came just now: it will be found the next time
		g.v = short
	}
	return line
}

// saturated returns a sum of costs, at most the largest number.
func saturated(a, b int) int {
	if a > maxBurst-b {
		return maxBurst
	}
	return a + b
}

// serveLocked lets in whoever can be, sends away those who would wait for too long, and
// returns how long it is until the next one may be let in, [policy.Never] when nobody
// waits. It leaves what it found in lines.
func (l *lobby) serveLocked(now time.Time) (next time.Duration) {
	clear(l.lines)
	l.lines = l.lines[:0]
	next = policy.Never
	for g := l.first; g != nil; {
		here := g
		g = g.next
		line := l.considerLocked(now, here)
		if here.v != short || now.Add(here.delay).After(here.limit) {
			l.unlinkLocked(here)
			close(here.ready)
			continue
		}
		if line < 0 {
			next = min(next, here.delay)
			l.lines = append(l.lines, guestLine{key: l.keyOf(&here.call)})
			line = len(l.lines) - 1
		}
		l.lines[line].ahead = saturated(l.lines[line].ahead, here.n)
	}
	l.armLocked(next)
	return next
}

// leave ends the wait of a guest who has given up.
func (l *lobby) leave(g *guest) {
	l.mu.Lock()
	select {
	case <-g.ready:
		l.mu.Unlock()
		if g.v == taken { // given back without the lock: the host lets those behind look
			l.host.giveBack(g.taken, &g.call, g.n, g.part)
		}
		return
	default:
	}
	defer l.mu.Unlock()
	l.unlinkLocked(g)
	// Many may leave at the same time. So those behind do not move up here, but all
	// at once.
	if l.first != nil {
		l.armLocked(0)
	}
}

// look lets in whoever can be now, after something has changed.
func (l *lobby) look() {
	if l.waiting.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serveLocked(time.Now())
}

// armLocked sets the timer.
func (l *lobby) armLocked(delay time.Duration) {
	switch {
	case delay == policy.Never:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(delay, l.look)
	default:
		l.timer.Reset(delay)
	}
}

func (l *lobby) linkLocked(g *guest) {
	g.prev = l.last
	if g.prev == nil {
		l.first = g
	} else {
		g.prev.next = g
	}
	l.last = g
	l.waiting.Add(1)
}

func (l *lobby) unlinkLocked(g *guest) {
	if g.prev == nil {
		l.first = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		l.last = g.prev
	} else {
		g.next.prev = g.prev
	}
	l.waiting.Add(-1)
}
