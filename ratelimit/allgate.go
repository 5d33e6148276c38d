package ratelimit

import (
	"context"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// BuildPolicy implements [policy.Policy]: pipelines that are given the same Bundle share
// it.
func (b *Bundle) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:        allKind,
		Name:        b.cfg.Name,
		Gate:        b,
		Place:       policy.PlaceRateLimit,
		Waits:       b.lobby.longest() > 0,
		RefundsOnly: len(b.hearers) == 0,
		Shadow:      b.cfg.Shadow,
		Warnings:    b.warnings,
	}, nil
}

// Peek implements [policy.Gate]: it reports that one of the limits has too few tokens, or
// that the wait for them would be refused, and takes none.
func (b *Bundle) Peek(a *policy.Attempt) error { return b.lobby.peek(a.Now(), a.Call(), a.Cost()) }

// Enter implements [policy.Gate]: it takes the tokens that the call costs from every
// limit, waiting for them as [Bundle.Wait] does, or refuses at once where the attempt
// must not wait.
func (b *Bundle) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	now := a.Now()
	if a.NoWait() {
		delay, v, part := b.try(now, a.Call(), a.Cost())
		if v != taken {
			return b.refusal(refusalOf(v, delay), part)
		}
		b.remember(a, slot, now)
		return nil
	}
	when, _, err := b.lobby.take(ctx, now, a.Call(), a.Cost())
	if err != nil {
		return err
	}
	if when != now {
		a.Waited()
	}
	b.remember(a, slot, when)
	return nil
}

// remember notes when the attempt took its tokens.
func (b *Bundle) remember(a *policy.Attempt, slot int, when time.Time) {
	a.Slot(slot).Word = uint64(when.Sub(b.start)) //nolint:gosec // the same bits come back in Leave
}

// Leave implements [policy.Gate]: an attempt that never ran gets its tokens back. How
// others ended is told to the limits that want to know.
func (b *Bundle) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	when := b.start.Add(time.Duration(a.Slot(slot).Word)) //nolint:gosec // see remember
	if o.Kind == policy.NotRun {
		b.giveBack(when, a.Call(), a.Cost(), 0)
		return
	}
	b.hear(a.Now(), when, o)
}

// Snapshot implements [policy.Snapshotter]. Refusals are counted for the limit that they
// name.
func (b *Bundle) Snapshot(now time.Time) policy.PolicySnapshot {
	s := &policy.LimiterSnapshot{}
	scarcest := math.Inf(1)
	for i := range b.parts {
		p := &b.parts[i]
		ps := b.cfg.Limits[i].(policy.Snapshotter).Snapshot(now)
		for r := range ps.Rejected {
			ps.Rejected[r] = p.refused[r].Load()
		}
		s.Limits = append(s.Limits, ps)
		if l := ps.Limiter; l != nil && l.Burst > 0 && l.Tokens/l.Burst < scarcest {
			scarcest = l.Tokens / l.Burst
			s.Tokens, s.Burst, s.Rate = l.Tokens, l.Burst, l.Rate
		}
	}
	s.Waiting, s.MaxWaiters = int(b.lobby.waiting.Load()), int(b.lobby.maxWaiters.Load())
	s.Delay, _, _ = b.worst(now, &unknownCall, 1)
	return policy.PolicySnapshot{Name: b.cfg.Name, Kind: allKind, Shadow: b.cfg.Shadow, Limiter: s}
}
