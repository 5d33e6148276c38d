package policy

import (
	"context"
	"sync/atomic"
	"time"
)

// A hedge is an attempt that is started beside one that is slow: the first of them to
// answer is the call's, and the others are canceled. Hedges are for what is slow now
// and then; what fails is retried.

// HedgeState is what a [Hedger] decides from.
type HedgeState struct {
	Now     time.Time     // when the hedge is due
	Attempt int           // number of the attempt that is slow, from 1
	Hedge   int           // number of the hedge beside it, from 1
	Delay   time.Duration // since the attempt began to run
	Call    *Call         // what the call says about itself
}

// A Hedger decides whether an attempt that is slow gets another one beside it. All
// methods are called concurrently.
type Hedger interface {
	// First is told of the first attempt of each call, hedged or not, once its gates
	// have let it in: what a budget is a share of. It is on the path of every call.
	First(a *Attempt)

	// Delay is asked before each attempt that may be hedged. It returns how long
	// the attempt may run before the first hedge, and how long each hedge may before
	// the next. Negative means that this attempt is not hedged.
	Delay(now time.Time) time.Duration

	// Allow is asked when a hedge is due, on a goroutine of its own. When it answers
	// with true it has taken what the hedge costs.
	Allow(s HedgeState) bool

	// Undo gives back what the last Allow took: the hedge did not reach the
	// dependency, because a gate refused it or an answer came first.
	Undo(now time.Time)

	// Done is told of the end of each hedge for which Allow took something, unless
	// Undo is.
	Done()

	// Observe is told how long an attempt ran that could have been hedged and was no
	// hedge itself: until it was answered, or until a hedge was answered in its
	// place, or timed out. It is not told of attempts that failed, since these say
	// nothing of how long an answer takes.
	Observe(now time.Time, d time.Duration)
}

// hedgeStats counts what became of hedges.
type hedgeStats struct {
	name                              string
	started, won, suppressed, refused atomic.Uint64
}

// addTo fills in what a snapshot says about hedges that were due.
func (c *hedgeStats) addTo(s *HedgeSnapshot) {
	s.Started = c.started.Load()
	s.Won = c.won.Load()
	s.Suppressed = c.suppressed.Load()
	s.Refused = c.refused.Load()
}

// hedgeable reports whether the attempts of a call may run beside each other.
func (pl *plan) hedgeable(c *Call) bool {
	return pl.hedge != nil && c.Idempotent && !c.NoRetry
}

// Hedges reports whether attempts of a call may run at the same time: the pipeline has a
// hedge policy, and the call says that it is idempotent and may be tried more than once.
// One that is part of a retry by a layer above ([Hop]) is not hedged all the same.
// The function of such a call may still run when the call has returned.
func (p *Pipeline) Hedges(c Call) bool {
	return p != nil && p.plan.Load().hedgeable(&c)
}

// attempt makes an attempt of a call that is off the fast path, with hedges beside it if
// it may have any and there is time for one.
func attempt[A, T any](ctx context.Context, s *callState, b *body[A, T], v *T) {
	if !s.plan.hedgeable(s.call) || HopFrom(s.ctx).IsRetry() {
		step(ctx, s, b, v)
		return
	}
	delay := s.plan.hedge.Delay(s.p.clock())
	if delay < 0 || s.endsWithin(ctx, delay) {
		step(ctx, s, b, v)
		s.plan.observe(s.p, s.out)
		return
	}
	compete(ctx, s, b, v, delay)
}

// endsWithin reports whether an attempt has ended, one way or other, after d.
func (s *callState) endsWithin(ctx context.Context, d time.Duration) bool {
	if t := s.plan.attemptTimeout; t > 0 && d >= t {
		return true
	}
	deadline, ok := ctx.Deadline()
	return ok && d >= deadline.Sub(s.p.clock())
}

// observe tells the hedge policy how long an attempt ran that was no hedge.
func (pl *plan) observe(p *Pipeline, o Outcome) {
	if o.Kind.IsAnswer() || o.Kind == Timeout {
		pl.hedge.Observe(p.clock(), o.Duration)
	}
}

// firster is told of the first attempt of each call.
type firster interface{ First(a *Attempt) }

// firsts tells two.
type firsts [2]firster

func (f firsts) First(a *Attempt) {
	f[0].First(a)
	f[1].First(a)
}

// callers tells two watchers of calls. What an attempt has spent concerns the retrier.
type callers struct{ retry, hedge CallWatcher }

func (c callers) Begin(ctx context.Context) context.Context {
	return c.hedge.Begin(c.retry.Begin(ctx))
}

func (c callers) End(ctx context.Context, k Kind) {
	c.retry.End(ctx, k)
	c.hedge.End(ctx, k)
}

func (c callers) Spent() { c.retry.Spent() }

// paid are the parts of a pipeline that are paid from a budget; nil for none.
type paid struct{ retry, hedge *Part }

func paidOf(parts []Part) (p paid) {
	for i := range parts {
		switch {
		case parts[i].Retry != nil:
			p.retry = &parts[i]
		case parts[i].Hedge != nil:
			p.hedge = &parts[i]
		}
	}
	return p
}

// together reports whether retries and hedges are paid from one budget.
func (p paid) together() bool {
	return p.retry != nil && p.hedge != nil && p.retry.Budget != nil && p.retry.Budget == p.hedge.Budget
}

// first returns who is to be told of first attempts; nil for nobody.
func (p paid) first() firster {
	switch {
	case p.retry == nil && p.hedge == nil:
		return nil
	case p.hedge == nil, p.together():
		return p.retry.Retry
	case p.retry == nil:
		return p.hedge.Hedge
	default:
		return firsts{p.retry.Retry, p.hedge.Hedge}
	}
}

// calls returns who is to be told of calls; nil for nobody.
func (p paid) calls() CallWatcher {
	var retry, hedge CallWatcher
	if p.retry != nil {
		retry = p.retry.Calls
	}
	if p.hedge != nil && !p.together() {
		hedge = p.hedge.Calls
	}
	switch {
	case hedge == nil:
		return retry
	case retry == nil:
		return hedgeCalls{hedge}
	default:
		return callers{retry, hedge}
	}
}

// hedgeCalls is the watcher of a hedge policy, which is not told what retries spend.
type hedgeCalls struct{ CallWatcher }

func (hedgeCalls) Spent() {}
