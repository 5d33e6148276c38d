package ratelimit

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Policy      = Keyed{}
	_ policy.Policy      = (*Buckets)(nil)
	_ policy.Gate        = (*Buckets)(nil)
	_ policy.Snapshotter = (*Buckets)(nil)
)

// BuildPolicy implements [policy.Policy]: pipelines that are given the same Buckets
// share them.
func (b *Buckets) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:        keyedKind,
		Name:        b.name,
		Gate:        b,
		Place:       policy.PlaceRateLimit,
		RefundsOnly: true,
		Shadow:      b.shadow,
		Warnings:    b.Config().warnings(),
	}, nil
}

// Peek implements [policy.Gate]: it reports that the bucket of the call's key has too
// few tokens, and takes none.
func (b *Buckets) Peek(a *policy.Attempt) error {
	if retryAfter, v := b.look(b.at(a.Now()), a.Call().Key, a.Cost()); v != taken {
		return rejection(b.name, v, retryAfter)
	}
	return nil
}

// Enter implements [policy.Gate]: it takes the tokens that the call costs from the
// bucket of its key, or refuses at once. It never waits.
func (b *Buckets) Enter(_ context.Context, a *policy.Attempt, slot int) error {
	retryAfter, v, shared := b.take(b.at(a.Now()), a.Call().Key, a.Cost())
	if v != taken {
		return rejection(b.name, v, retryAfter)
	}
	a.Slot(slot).Word = 0
	if shared {
		a.Slot(slot).Word = 1
	}
	return nil
}

// Leave implements [policy.Gate]: an attempt that never ran gets its tokens back.
func (b *Buckets) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	switch {
	case o.Kind != policy.NotRun:
	case a.Slot(slot).Word != 0:
		b.overflow.Refund(a.Cost())
	default:
		b.Refund(a.Call().Key, a.Cost())
	}
}

// Config returns the effective configuration, with the limits as they are now.
func (b *Buckets) Config() Keyed {
	b.limitMu.Lock()
	defer b.limitMu.Unlock()
	l := *b.limit.Load()
	over := b.overflow.Config()
	cfg := Keyed{
		Name: b.name, Rate: l.Rate, Burst: l.Burst, MaxKeys: int(b.max), TTL: time.Duration(b.ttl),
		Overflow: Limit{Rate: over.Rate, Burst: over.Burst}, Shadow: b.shadow,
	}
	if m := *b.exceptions.Load(); len(m) > 0 {
		cfg.Exceptions = make(map[string]Limit, len(m))
		for key, own := range m {
			c := own.Config()
			cfg.Exceptions[key] = Limit{Rate: c.Rate, Burst: c.Burst}
		}
	}
	return cfg
}

// warnings returns what works and is likely to surprise. c must be effective.
func (c Keyed) warnings() []string {
	return TokenBucket{Rate: c.Rate, Burst: c.Burst}.warnings()
}

// Snapshot implements [policy.Snapshotter].
func (b *Buckets) Snapshot(now time.Time) policy.PolicySnapshot {
	l := *b.limit.Load()
	return policy.PolicySnapshot{
		Name: b.name, Kind: keyedKind, Shadow: b.shadow,
		Limiter: &policy.LimiterSnapshot{
			Tokens: float64(l.Burst),
			Burst:  float64(l.Burst),
			Rate:   l.Rate.perSecond(),
			Keyed: &policy.KeyedSnapshot{
				Keys:       b.Len(),
				MaxKeys:    int(b.max),
				Exceptions: len(*b.exceptions.Load()),
				Overflowed: b.overflowed.Load(),
				Top:        b.Top(now, topShown),
			},
		},
	}
}
