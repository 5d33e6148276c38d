package stale

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// BuildPolicy returns a part for calls of any type.
func (c *Cache[T]) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: kind, Name: c.cfg.Name, Fallback: untyped[T]{c}}, nil
}

// Handles reports whether the stale value stands in for f.
func (c *Cache[T]) Handles(f policy.FailedCall) bool { return c.cfg.When(f) }

// Answer returns the value that stands in for a load that failed; of another call, that of
// its [policy.Call] Key. The error is [ErrNoValue] when there is none, or it is too old, or
// a remembered one.
func (c *Cache[T]) Answer(ctx context.Context, _ policy.FailedCall) (policy.Answer[T], error) {
	var e *entry[T]
	f, _ := ctx.Value(flightKey[T]{c}).(*flight[T])
	if f != nil && f.entry != nil {
		e = f.entry
	} else {
		e, _ = c.entries.GetIfPresent(policy.CallFrom(ctx).Key)
	}
	if e == nil {
		return policy.Answer[T]{}, ErrNoValue
	}
	age := c.now() - e.loaded
	switch {
	case !e.usable(age, c.cfg.MaxAge):
		return policy.Answer[T]{}, ErrNoValue
	case e.err != nil:
		return policy.Answer[T]{}, e.err
	case f != nil:
		f.stood = true // its callers are counted
	default:
		c.served(age)
	}
	return policy.Answer[T]{Value: e.value, Age: age}, nil
}

type untyped[T any] struct{ *Cache[T] }

func (u untyped[T]) Answer(ctx context.Context, f policy.FailedCall) (policy.Answer[any], error) {
	a, err := u.Cache.Answer(ctx, f)
	return policy.Answer[any]{Value: a.Value, Age: a.Age}, err
}

// Snapshot returns the state of the cache. A pipeline adds how often a stale value stood in
// for a load.
func (c *Cache[T]) Snapshot(time.Time) policy.PolicySnapshot {
	s := &policy.StaleSnapshot{
		Hits: c.hits.Load(), Misses: c.misses.Load(), Stale: c.stale.Load(), Negative: c.negative.Load(), Shared: c.shared.Load(),
		Loads: c.loads.Load(), Failures: c.failures.Load(), Skipped: c.skipped.Load(),
		Entries: c.entries.EstimatedSize(), MaxEntries: c.cfg.MaxEntries,
		MaxWeight: c.cfg.MaxWeight, Evicted: c.evicted.Load(), OldestAge: time.Duration(c.oldest.Load()),
		Fresh: c.cfg.Fresh, MaxAge: c.cfg.MaxAge,
	}
	if c.cfg.MaxWeight > 0 {
		s.Weight = c.entries.WeightedSize()
	}
	c.mu.Lock()
	s.Loading = len(c.running)
	c.mu.Unlock()
	return policy.PolicySnapshot{Name: c.cfg.Name, Kind: kind, Fallback: &policy.FallbackSnapshot{Stale: s}}
}
