package ratelimit

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// BuildPolicy implements [policy.Policy]: pipelines that are given the same Governor
// share it.
func (g *Governor) BuildPolicy() (policy.Part, error) {
	cfg := g.Config()
	return policy.Part{
		Kind:     feedbackKind,
		Name:     cfg.Name,
		Gate:     g,
		Place:    policy.PlaceRateLimit,
		Waits:    cfg.MaxWait > 0,
		Shadow:   cfg.Shadow,
		Warnings: TokenBucket{Rate: cfg.Ceiling, Burst: cfg.Burst}.warnings(),
	}, nil
}

// Peek implements [policy.Gate]: it reports that too few tokens are there, or that the
// wait for them would be refused, and takes none.
func (g *Governor) Peek(a *policy.Attempt) error {
	return g.lobby.peek(a.Now(), a.Call(), a.Cost())
}

// Enter implements [policy.Gate]: it takes the tokens that the call costs, waiting for
// them as [Governor.Wait] does, or refuses at once where the attempt must not wait.
func (g *Governor) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	now := a.Now()
	if a.NoWait() {
		if delay, v := g.take(g.bucket.at(now), a.Cost()); v != taken {
			return g.refusal(refusalOf(v, delay), 0)
		}
	} else {
		when, _, err := g.lobby.take(ctx, now, a.Call(), a.Cost())
		if err != nil {
			return err
		}
		if when != now {
			a.Waited()
			now = when
		}
	}
	a.Slot(slot).Word = uint64(g.bucket.at(now)) //nolint:gosec // the same bits come back in Leave
	return nil
}

// Leave implements [policy.Gate]: an attempt that never ran gets its tokens back, and one
// that the dependency objected to lowers the rate.
func (g *Governor) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	at := int64(a.Slot(slot).Word) //nolint:gosec // see Enter
	if o.Kind == policy.NotRun {
		g.refund(at, a.Cost())
		return
	}
	g.hear(a.Now(), g.bucket.start.Add(time.Duration(at)), o)
}

// Snapshot implements [policy.Snapshotter]. The rate is that of the time it is asked for,
// also when no call has come since it rose.
func (g *Governor) Snapshot(now time.Time) policy.PolicySnapshot {
	ps := g.bucket.Snapshot(now)
	at := g.bucket.at(now)
	l := ps.Limiter
	l.Waiting, l.MaxWaiters = int(g.lobby.waiting.Load()), int(g.lobby.maxWaiters.Load())
	l.Delay, _ = g.bucket.look(at, 1)
	g.mu.Lock()
	defer g.mu.Unlock()
	l.Rate = g.curve.at(at)
	l.Feedback = &policy.FeedbackSnapshot{
		Floor: g.curve.floor, Ceiling: g.curve.ceiling,
		Drain:     time.Duration(max(g.drain-at, 0)),
		Pushbacks: g.pushbacks.Load(), Decreases: g.falls.Load(),
	}
	return policy.PolicySnapshot{Name: g.cfg.Name, Kind: feedbackKind, Shadow: g.cfg.Shadow, Limiter: l}
}
