package sharedlimit

import (
	"context"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// errDeadline matches [ratelimit.ErrLimited] and [context.DeadlineExceeded].
var errDeadline = fmt.Errorf("%w before the context's deadline: %w", ratelimit.ErrLimited, context.DeadlineExceeded)

// BuildPolicy implements [policy.Policy]: pipelines that are given the same limiter share
// it.
func (l *Limiter) BuildPolicy() (policy.Part, error) {
	var warnings []string
	if l.s.StandIn == LocalShare && l.s.Nodes == 0 && l.census == nil {
		warnings = append(warnings, "Nodes is 0 and nothing counts the processes: while the store is away each of them lets through the whole limit")
	}
	return policy.Part{
		Kind: l.kind, Name: l.name, Gate: l, Place: policy.PlaceRateLimit,
		Waits: !l.s.LocalOnly || l.s.MaxWait > 0, Shadow: l.s.Shadow, Warnings: warnings, MaxWait: l.s.MaxWait,
	}, nil
}

// Peek implements [policy.Gate]: it reports a refusal that is sure without asking the
// store.
func (l *Limiter) Peek(a *policy.Attempt) error {
	switch {
	case a.Cost() > int(l.most.Load()):
		return l.refusal(policy.ReasonCost, l.mostOf, policy.Never)
	case l.s.StandIn == Refuse && l.away.Load():
		return l.refusal(policy.ReasonUnavailable, 0, 0)
	}
	return nil
}

// Enter implements [policy.Gate]: it takes the tokens that the call costs, waiting for them
// as [Limiter.Wait] does, or refuses.
func (l *Limiter) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	at := l.at(a.Now())
	t, err := l.take(ctx, a.Call(), at, a.Cost())
	if err != nil && l.s.MaxWait > 0 && !a.NoWait() {
		t, err = l.wait(ctx, a.Call(), at, a.Cost(), err)
	}
	if !l.s.LocalOnly { // what the store took is not the dependency's time
		a.Waited()
	}
	if err != nil {
		return err
	}
	s := a.Slot(slot)
	s.Word, s.Ref = uint64(t.until), t.e //nolint:gosec // the same bits come back in Leave
	return nil
}

// Leave implements [policy.Gate]: an attempt that never ran gives its tokens back.
func (l *Limiter) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	if o.Kind != policy.NotRun {
		return
	}
	s := a.Slot(slot)
	if e, ok := s.Ref.(*entry); ok {
		l.giveBack(ticket{e, int64(s.Word)}, a.Cost()) //nolint:gosec // see Enter
	}
}

// unknownCall is a call of which nothing is known. It is only read.
var unknownCall policy.Call

// Allow takes one token for a call of which nothing is known, if there is one, and reports
// whether it did.
func (l *Limiter) Allow() bool {
	_, ok := l.Take(time.Now(), 1)
	return ok
}

// Take implements [ratelimit.Limiter]: it takes n tokens for a call of which nothing is
// known, if they are there. It waits for the store, for no longer than Timeout, and not
// for tokens. now is the present time.
func (l *Limiter) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	return l.TakeFor(context.Background(), now, &unknownCall, n)
}

// TakeFor is [Limiter.Take] for a call under ctx, at a cost of n. The call is only read,
// and not kept. The time is 0 when it is not known: when ctx is done, the limiter closed,
// or the store away and [Refuse] its stand-in.
func (l *Limiter) TakeFor(ctx context.Context, now time.Time, c *policy.Call, n int) (retryAfter time.Duration, ok bool) {
	_, err := l.take(ctx, c, l.at(now), n)
	if re, is := err.(*policy.RejectedError); is { //nolint:errorlint // our own, never wrapped
		return re.RetryAfter, false
	}
	return 0, err == nil
}

// Wait takes n tokens for the call that ctx is about ([policy.WithCall]), waiting for them
// for at most MaxWait among at most MaxWaiters. It returns nil when they are the caller's,
// and otherwise, with nothing taken:
//
//   - a [*policy.RejectedError] that matches [ratelimit.ErrLimited]: MaxWait is zero
//     ([policy.ReasonRate]); MaxWaiters wait already ([policy.ReasonWaiters]); the wait
//     would be longer than MaxWait ([policy.ReasonWait]), or last until the deadline of
//     ctx ([policy.ReasonDeadline], which matches [context.DeadlineExceeded] too)
//   - a [*policy.RejectedError] that matches [ratelimit.ErrExceedsBurst]
//     ([policy.ReasonCost]), when a limit can never hold n tokens
//   - a [*policy.RejectedError] that matches [ratelimit.ErrUnavailable]
//     ([policy.ReasonUnavailable]), when the store cannot be asked and [Refuse] is the
//     stand-in
//   - the error of ctx, matching its cause, when it is done; this is no
//     [policy.ErrRejected]. The store may have taken the tokens nevertheless
//
// Of those that wait with the same key one asks the store at a time, in no particular
// order.
func (l *Limiter) Wait(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	c := policy.CallFrom(ctx)
	at := l.now()
	_, err := l.take(ctx, &c, at, n)
	if err != nil && l.s.MaxWait > 0 {
		_, err = l.wait(ctx, &c, at, n, err)
	}
	return err
}

// wait goes on after a refusal.
func (l *Limiter) wait(ctx context.Context, c *policy.Call, at int64, n int, err error) (ticket, error) {
	re, ok := err.(*policy.RejectedError) //nolint:errorlint // our own, never wrapped
	if !ok || re.Reason != policy.ReasonRate {
		return ticket{}, err
	}
	if l.waiting.Add(1) > int64(l.s.MaxWaiters) {
		l.waiting.Add(-1)
		re.Reason = policy.ReasonWaiters
		return ticket{}, re
	}
	defer l.waiting.Add(-1)
	limit, late := at+int64(l.s.MaxWait), policy.ReasonWait
	if deadline, ok := ctx.Deadline(); ok && l.at(deadline) <= limit {
		limit, late = l.at(deadline)-1, policy.ReasonDeadline
	}
	e := l.entry(ctx, c)
	turn := e.turn()
	timer := time.NewTimer(0)
	defer timer.Stop()
	mine := false
	for {
		delay := max(int64(re.RetryAfter), int64(time.Millisecond))
		if l.now()+delay > limit {
			return ticket{}, tooLate(re, late, l.s.MaxWait)
		}
		if !mine {
			timer.Reset(time.Duration(limit - l.now()))
			select {
			case turn <- struct{}{}:
				mine = true
				defer func() { <-turn }()
			case <-timer.C:
				return ticket{}, tooLate(re, late, l.s.MaxWait)
			case <-ctx.Done():
				return ticket{}, contextError(ctx)
			}
		} else {
			timer.Reset(time.Duration(delay))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return ticket{}, contextError(ctx)
			}
		}
		t, err := l.take(ctx, c, l.now(), n)
		if re, ok = err.(*policy.RejectedError); !ok || re.Reason != policy.ReasonRate { //nolint:errorlint // our own, never wrapped
			return t, err
		}
	}
}

// tooLate makes a refusal one of a wait that would be too long.
func tooLate(re *policy.RejectedError, reason policy.Reason, allowed time.Duration) error {
	re.Reason = reason
	switch {
	case reason == policy.ReasonDeadline:
		re.Err = errDeadline
	case re.RetryAfter > allowed:
		re.RetryAfter -= allowed // from then on the wait is short enough
	}
	return re
}

// turn returns what those who wait pass on to each other.
func (e *entry) turn() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.line == nil {
		e.line = make(chan struct{}, 1)
	}
	return e.line
}

// Reserve is [Limiter.Take] as a reservation: it reserves nothing ahead of time.
func (l *Limiter) Reserve(now time.Time, n int) ratelimit.Reservation {
	retryAfter, ok := l.Take(now, n)
	return ratelimit.Granted(ok, retryAfter)
}

// Refund gives back n tokens that [Limiter.Take] took at the given time for a call which did
// not run. It makes no trip: the next call without a key uses them.
func (l *Limiter) Refund(taken time.Time, n int) {
	l.RefundFor(context.Background(), taken, &unknownCall, n)
}

// RefundFor gives back n tokens that [Limiter.TakeFor] took at the given time for a call
// that did not run. It makes no trip: the next call with the same key uses them. What was
// taken before the mode changed is lost.
func (l *Limiter) RefundFor(ctx context.Context, taken time.Time, c *policy.Call, n int) {
	at, away := l.at(taken), l.away.Load() || l.s.LocalOnly
	if n <= 0 || at < l.changed.Load() || away && l.s.StandIn != LocalShare {
		return
	}
	e := l.entry(ctx, c)
	if away {
		l.giveBack(shareTicket(e, at), n)
		return
	}
	e.mu.Lock()
	from, until := e.from, e.until
	e.mu.Unlock()
	if at >= from {
		l.giveBack(ticket{e, until}, n)
	}
}

// Tunable is a [Store] of a single limit whose rate can be changed. It returns the burst
// and the largest cost that the limit then has, or joined [*policy.ConfigError].
type Tunable interface {
	SetRate(rate ratelimit.Rate) (burst, maxCost int, err error)
}

// SetRate implements [ratelimit.Limiter]: it changes the rate for this process, which tells
// the store with each call; the others have to be told too. Of several limits none is
// meant, and a store may not be able to: then nothing changes, and an error says so.
func (l *Limiter) SetRate(rate ratelimit.Rate) error {
	t, ok := l.store.(Tunable)
	if !ok || len(l.limits) != 1 {
		return &policy.ConfigError{Policy: l.name, Field: "Rate", Value: rate, Want: "want a limit whose rate can be changed: a single one, kept in a store that is told the rate"}
	}
	burst, most, err := t.SetRate(rate)
	if err != nil {
		return err
	}
	l.limits[0].now.Store(&figures{rate, burst})
	l.most.Store(int64(most))
	l.share()
	return nil
}

// Snapshot implements [policy.Snapshotter]. Tokens are those that this process can use
// without asking the store, for calls without a key.
func (l *Limiter) Snapshot(now time.Time) policy.PolicySnapshot {
	s := &policy.LimiterSnapshot{
		Waiting: int(l.waiting.Load()), MaxWaiters: l.s.MaxWaiters,
		Shared: &policy.SharedSnapshot{
			Mode: l.mode(), Nodes: int(l.nodes.Load()), RoundTrips: l.trips.Load(), Errors: l.failed.Load(),
			LeaseHits: l.hits.Load(), StoodIn: l.stoodIn.Load(),
		},
	}
	s.Shared.Latency.Counts = make([]uint64, hist.Buckets)
	s.Shared.Latency.Sum = l.latency.AddTo(s.Shared.Latency.Counts)
	at, keyed := l.at(now), false
	l.table.all(func(e *entry) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.expire(at)
		e.credit.drop(at)
		s.Shared.Leased += e.lease.n + e.next.n + e.credit.n
	})
	for i := range l.limits {
		p := &l.limits[i]
		f := p.now.Load()
		perSecond := f.rate.Tokens / f.rate.Per.Seconds()
		ps := policy.PolicySnapshot{Name: p.Name, Kind: l.kind, Limiter: &policy.LimiterSnapshot{Burst: float64(f.burst), Rate: perSecond}}
		for r := range ps.Rejected {
			ps.Rejected[r] = p.refused[r].Load()
		}
		if p.KeyOf != nil {
			keyed = true
			ps.Limiter.Keyed = p.local.Snapshot(now).Limiter.Keyed
		}
		if len(l.limits) > 1 {
			s.Limits = append(s.Limits, ps)
		}
		if i == 0 || perSecond < s.Rate {
			s.Burst, s.Rate = ps.Limiter.Burst, ps.Limiter.Rate
		}
		if len(l.limits) == 1 {
			s.Keyed = ps.Limiter.Keyed
		}
	}
	switch {
	case keyed:
	case s.Shared.Mode == policy.SharedModeLocal:
		s.Tokens = l.limits[0].local.Tokens(now, "")
	default:
		s.Tokens = float64(s.Shared.Leased)
	}
	return policy.PolicySnapshot{Name: l.name, Kind: l.kind, Shadow: l.s.Shadow, Limiter: s}
}

// Settings returns the effective settings.
func (l *Limiter) Settings() Settings { return l.s }
