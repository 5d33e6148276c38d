package ratelimit

import (
	"context"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// What limits tell about themselves (policy.Quoter). Those that are shared by several processes
// know a part only, and tell nothing.
var (
	_ policy.Quoter = (*Bucket)(nil)
	_ policy.Quoter = (*Buckets)(nil)
	_ policy.Quoter = (*Bundle)(nil)
	_ policy.Quoter = (*Governor)(nil)
	_ policy.Quoter = (*Lane)(nil)
	_ policy.Quoter = (*LaneSet)(nil)
	_ policy.Quoter = (*Window)(nil)
	_ policy.Quoter = (*Sliding)(nil)
	_ policy.Quoter = (*Pace)(nil)
	_ policy.Quoter = (*Ramp)(nil)
)

// quoteFor appends a quota. A burst that comes back in less than a second says little about a
// limit of thousands per second: then the quota is what comes in a second. look says when n
// tokens are there.
func quoteFor(list []policy.Quota, tokens, burst, perSecond float64, look func(n int) (time.Duration, verdict)) []policy.Quota {
	if !(burst >= 1) || !(perSecond > 0) || math.IsInf(perSecond, 1) {
		return list
	}
	q := policy.Quota{
		Limit: whole(burst), Window: spell(burst / perSecond), Remaining: int(min(max(tokens, 0), burst, math.MaxInt32)),
	}
	if q.Window < time.Second && perSecond > burst {
		q.Limit, q.Window = whole(perSecond), time.Second
	}
	q.Remaining = min(q.Remaining, q.Limit)
	if q.Remaining > 0 {
		// There may be a queue in front, or an error of rounding.
		if _, v := look(q.Remaining); v != taken {
			q.Remaining = most(q.Remaining-1, look)
		}
	}
	if delay, v := look(whole(burst)); v == short && delay != policy.Never {
		q.Reset = delay
	}
	return append(list, q)
}

// whole rounds down, but for what is a whole number up to the errors of floating point.
func whole(tokens float64) int {
	n := math.Floor(tokens*(1+1e-12) + 1e-9)
	return int(min(n, math.MaxInt32))
}

// spell converts seconds, as long as they fit.
func spell(seconds float64) time.Duration {
	if ns := math.Round(seconds * 1e9); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}

// Quotas implements [policy.Quoter].
func (b *Bucket) Quotas(_ context.Context, now time.Time, _ *policy.Call, list []policy.Quota) []policy.Quota {
	at := b.at(now)
	s, free := b.free(at)
	return quoteFor(list, float64(free)/float64(s.unit), float64(s.burst), s.rate.perSecond(), func(n int) (time.Duration, verdict) { return b.look(at, n) })
}

// Quotas implements [policy.Quoter], for the key of the call.
func (b *Buckets) Quotas(_ context.Context, now time.Time, c *policy.Call, list []policy.Quota) []policy.Quota {
	l := *b.limit.Load()
	if own := b.exception(c.Key); own != nil {
		s := own.state.Load()
		l = Limit{Rate: s.rate, Burst: int(s.burst)}
	}
	at := b.at(now)
	return quoteFor(list, b.Tokens(now, c.Key), float64(l.Burst), l.Rate.perSecond(), func(n int) (time.Duration, verdict) { return b.look(at, c.Key, n) })
}

// Quotas implements [policy.Quoter], for the given key.
func (k *keyLimiter) Quotas(ctx context.Context, now time.Time, _ *policy.Call, list []policy.Quota) []policy.Quota {
	return k.b.Quotas(ctx, now, &k.call, list)
}

// Quotas implements [policy.Quoter], with the rate as it is now.
func (g *Governor) Quotas(_ context.Context, now time.Time, _ *policy.Call, list []policy.Quota) []policy.Quota {
	at := g.bucket.at(now)
	s, free := g.bucket.free(at)
	return quoteFor(list, float64(free)/float64(s.unit), float64(s.burst), s.rate.perSecond(), func(n int) (time.Duration, verdict) { return g.bucket.look(at, n) })
}

// Quotas implements [policy.Quoter].
func (l *line) Quotas(_ context.Context, now time.Time, _ *policy.Call, list []policy.Quota) []policy.Quota {
	at := l.at(now)
	var s policy.LimiterSnapshot
	l.lock(at)
	defer l.unlock()
	l.books.describe(at, &s)
	for p := l.first; p != nil; p = p.next {
		s.Tokens -= float64(p.n)
	}
	return quoteFor(list, s.Tokens, s.Burst, s.Rate, func(n int) (time.Duration, verdict) { return l.lookLocked(at, int64(n)) })
}

// Quotas implements [policy.Quoter], each limit under its name.
func (b *Bundle) Quotas(ctx context.Context, now time.Time, c *policy.Call, list []policy.Quota) []policy.Quota {
	for i := range b.parts {
		q, ok := b.parts[i].member.(policy.Quoter)
		if !ok {
			continue
		}
		begin := len(list)
		list = q.Quotas(ctx, now, c, list)
		nameParts(list[begin:], b.parts[i].title())
	}
	return list
}

func nameParts(list []policy.Quota, name string) {
	for i := range list {
		if list[i].Policy == "" {
			list[i].Policy = name
		} else {
			list[i].Policy = name + "." + list[i].Policy
		}
	}
}

// Quotas implements [policy.Quoter], for the lane of the call.
func (s *LaneSet) Quotas(ctx context.Context, now time.Time, c *policy.Call, list []policy.Quota) []policy.Quota {
	l := s.from(ctx, c)
	begin := len(list)
	list = l.Quotas(ctx, now, c, list)
	nameParts(list[begin:], l.cfg.Name)
	return list
}

// Quotas implements [policy.Quoter]: what is left is what the lane would let in, with all that
// it has to make way for.
func (l *Lane) Quotas(_ context.Context, now time.Time, _ *policy.Call, list []policy.Quota) []policy.Quota {
	at := l.at(now)
	l.set.lock(at)
	defer l.set.mu.Unlock()
	ask := func(n int) (time.Duration, verdict) {
		a := l.answerLocked(at, int64(n))
		switch {
		case a.when <= at:
			return 0, taken
		case a.cause == laneTooBig:
			return policy.Never, tooBig
		}
		return delayFrom(at, a.when), short
	}
	burst := float64(l.purse.s.burst)
	return quoteFor(list, burst, burst, l.purse.s.rate.perSecond(), ask)
}

// most returns the largest n up to limit for which there are tokens.
func most(limit int, ask func(n int) (time.Duration, verdict)) int {
	low, high := 0, limit
	for low < high {
		n := low + (high-low+1)/2
		if _, v := ask(n); v == taken {
			low = n
		} else {
			high = n - 1
		}
	}
	return low
}
