package policy

import (
	"context"
	"time"
)

// EnterCall is [Pipeline.Enter] for adapters that serve what others call, and hand the
// context of the attempt on. What ctx says about the call is replaced by c where c is not
// nil; c must stay as it is until the handle is released. A total timeout bounds the
// attempt, waits for the gates included, until its outcome is told.
func (p *Pipeline) EnterCall(ctx context.Context, c *Call) (Handle, error) {
	return p.enter(ctx, c, true)
}

func (p *Pipeline) enter(ctx context.Context, c *Call, bounded bool) (Handle, error) {
	if p == nil {
		return Handle{ctx: ctx}, nil
	}
	if err := contextError(ctx); err != nil {
		p.stats.first().calls[NotRun].Add(1)
		return Handle{}, err
	}
	pl := p.plan.Load()
	if pl.runner != nil {
		return Handle{}, ErrPooled
	}
	call := callOr(ctx, c)
	var total *deadlineCtx
	if bounded && pl.total > 0 {
		total = newDeadlineCtx(ctx, time.Now().Add(pl.total))
		ctx = total
	}
	a := p.newAttempt(ctx, pl, 1, call)
	ended := false // a gate that was asked has not panicked
	defer func() {
		if !ended {
			a.unwind(nil)
			total.drop()
		}
	}()
	err := a.admit()
	ended = true
	if err != nil {
		st := p.stats.at(a.stripe)
		st.calls[NotRun].Add(1)
		st.attempts[NotRun].Add(1)
		a.recycle()
		total.drop()
		return Handle{}, err
	}
	a.held, a.total = true, total
	return a.handle(), nil
}

// drop ends a context that nobody has got. A nil one has no end.
func (c *deadlineCtx) drop() {
	if c != nil {
		c.cancel(context.Canceled)
	}
}

// Bounded reports whether the attempt runs under a context of its own, because it has a
// timeout. It is for the one who has just entered it; others ask [Handle.Context].
func (h Handle) Bounded() bool { return h.a != nil && (h.a.bound != nil || h.a.total != nil) }
