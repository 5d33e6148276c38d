package ratelimit

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// BuildPolicy implements [policy.Policy]: pipelines that are given the same limiter
// share it.
func (l *line) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:        l.kind,
		Name:        l.name,
		Gate:        l.self,
		Place:       policy.PlaceRateLimit,
		Waits:       l.longest() > 0,
		RefundsOnly: true,
		Shadow:      l.shadow,
		Warnings:    l.warnings,
	}, nil
}

// Peek implements [policy.Gate]: it reports that too few tokens are there, if nobody
// may wait for them, or that the wait would be refused. It takes nothing.
func (l *line) Peek(a *policy.Attempt) error {
	at, n := l.at(a.Now()), a.Cost()
	delay, v := l.look(at, n)
	switch {
	case v == taken:
		return nil
	case v == tooBig, l.longest() == 0:
		return rejection(l.name, v, delay)
	case int64(l.waiting.Load()) >= l.maxWaiters.Load():
		l.lock(at)
		defer l.unlock()
		if int64(l.waiting.Load()) >= l.maxWaiters.Load() {
			return l.crowded(at)
		}
		return nil
	case delay > l.longest():
		if delay != policy.Never {
			delay -= l.longest()
		}
		return &policy.RejectedError{Policy: l.name, Reason: policy.ReasonWait, RetryAfter: delay, Err: errTooFar}
	}
	return nil
}

// Enter implements [policy.Gate]: it takes the tokens that the call costs, waiting for
// them as [line.Wait] does, or refuses at once where the attempt must not wait.
func (l *line) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	at, n := l.at(a.Now()), a.Cost()
	delay, v := l.take(at, n)
	if v != taken {
		if v == tooBig || l.longest() == 0 || a.NoWait() {
			return rejection(l.name, v, delay)
		}
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		when, err := l.wait(ctx, at, n)
		if err != nil {
			return err
		}
		if when > at {
			a.Waited()
		}
		at = when
	}
	a.Slot(slot).Word = uint64(at) //nolint:gosec // the same bits come back in Leave
	return nil
}

// Leave implements [policy.Gate]: an attempt that never ran gets its tokens back.
func (l *line) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	if o.Kind == policy.NotRun {
		l.refund(l.now(), int64(a.Slot(slot).Word), a.Cost()) //nolint:gosec // see Enter
	}
}

// Snapshot implements [policy.Snapshotter].
func (l *line) Snapshot(now time.Time) policy.PolicySnapshot {
	at := l.at(now)
	s := &policy.LimiterSnapshot{MaxWaiters: int(l.maxWaiters.Load())}
	l.lock(at)
	defer l.unlock()
	l.books.describe(at, s)
	s.Waiting = int(l.waiting.Load())
	for p := l.first; p != nil; p = p.next {
		s.Tokens -= float64(p.n)
	}
	if delay, v := l.lookLocked(at, 1); v == short {
		s.Delay = delay
	}
	return policy.PolicySnapshot{Name: l.name, Kind: l.kind, Shadow: l.shadow, Limiter: s}
}
