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
		Waits:       b.lobby.longest() > 0,
		RefundsOnly: true,
		Shadow:      b.shadow,
		Warnings:    b.Config().warnings(),
	}, nil
}

// Peek implements [policy.Gate]: it reports that the bucket of the call's key has too
// few tokens, or that the wait for them would be refused, and takes none.
func (b *Buckets) Peek(a *policy.Attempt) error {
	return b.peek(a, a.Call())
}

// Enter implements [policy.Gate]: it takes the tokens that the call costs from the
// bucket of its key, waiting for them as [Buckets.Wait] does, or refuses at once where
// the attempt must not wait.
func (b *Buckets) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	return b.enter(ctx, a, a.Call(), slot)
}

// Leave implements [policy.Gate]: an attempt that never ran gets its tokens back.
func (b *Buckets) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	b.leave(a, a.Call(), slot, o)
}

func (b *Buckets) peek(a *policy.Attempt, c *policy.Call) error {
	return b.lobby.peek(a.Now(), c, a.Cost())
}

func (b *Buckets) enter(ctx context.Context, a *policy.Attempt, c *policy.Call, slot int) error {
	at, part := int64(a.Since(b.start)), 0
	if b.lobby.longest() == 0 || a.NoWait() {
		retryAfter, v, shared := b.take(at, c.Key, a.Cost())
		if v != taken {
			return rejection(b.name, v, retryAfter)
		}
		if shared {
			part = 1
		}
	} else {
		now := a.Now()
		when, from, err := b.lobby.take(ctx, now, c, a.Cost())
		if err != nil {
			return err
		}
		if when != now {
			a.Waited()
		}
		at, part = b.at(when), from
	}
	// When and where from, to the nanosecond before. The same bits come back in leave.
	a.Slot(slot).Word = uint64(at&^1 | int64(part)) //nolint:gosec // see above
	return nil
}

func (b *Buckets) leave(a *policy.Attempt, c *policy.Call, slot int, o policy.Outcome) {
	if o.Kind == policy.NotRun {
		word := int64(a.Slot(slot).Word) //nolint:gosec // see enter
		b.giveBackTo(b.now(), word&^1, c.Key, a.Cost(), int(word&1))
	}
}

// Config returns the effective configuration, with the limits as they are now.
func (b *Buckets) Config() Keyed {
	b.limitMu.Lock()
	defer b.limitMu.Unlock()
	l := *b.limit.Load()
	over := b.overflow.Config()
	cfg := Keyed{
		Name: b.name, Rate: l.Rate, Burst: l.Burst, MaxKeys: int(b.max.Load()), TTL: time.Duration(b.ttl.Load()),
		Overflow: Limit{Rate: over.Rate, Burst: over.Burst}, Shadow: b.shadow,
	}
	cfg.MaxWait, cfg.MaxWaiters = b.lobby.bounds()
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

			Waiting:    int(b.lobby.waiting.Load()),
			MaxWaiters: int(b.lobby.maxWaiters.Load()),

			Keyed: &policy.KeyedSnapshot{
				Keys:       b.Len(),
				MaxKeys:    int(b.max.Load()),
				Exceptions: len(*b.exceptions.Load()),
				Overflowed: b.overflowed.Load(),
				Top:        b.Top(now, topShown),
			},
		},
	}
}
