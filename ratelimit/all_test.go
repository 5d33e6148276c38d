package ratelimit_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func newBundle(tb testing.TB, cfg ratelimit.All) *ratelimit.Bundle {
	tb.Helper()
	b, err := ratelimit.NewAll("", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// layers are limits per user, per route and over all.
func layers() (*ratelimit.Buckets, *ratelimit.Bucket, []policy.Policy) {
	user, err1 := ratelimit.NewKeyed("user", ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 2})
	route, err2 := ratelimit.New("route", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(2), Burst: 4})
	if err := errors.Join(err1, err2); err != nil {
		panic(err)
	}
	return user, route, []policy.Policy{user, route, ratelimit.Pacer{Name: "global", Rate: ratelimit.PerSecond(10), Burst: 10}}
}

func TestAllIsAllOrNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		user, route, limits := layers()
		b := newBundle(t, ratelimit.All{Limits: limits})
		now := time.Now()
		call := func(key string, cost int) *policy.Call { return &policy.Call{Key: key, Cost: cost} }
		take := func(key string, cost int) time.Duration {
			wait, ok := b.TakeFor(now, call(key, cost))
			require.Equal(t, wait == 0, ok)
			return wait
		}
		balances := func(a, all float64) {
			t.Helper()
			assert.InDelta(t, a, user.Tokens(now, "a"), 0)
			assert.InDelta(t, all, route.Tokens(now), 0)
		}
		assert.Zero(t, take("a", 2))
		balances(0, 2)
		assert.Equal(t, time.Second, take("a", 1), "the user has none left")
		balances(0, 2)
		assert.Zero(t, take("b", 2))
		balances(0, 0)
		assert.Equal(t, 500*ms, take("c", 1), "the route has none left")
		assert.InDelta(t, 2, user.Tokens(now, "c"), 0)
		assert.Equal(t, time.Second, take("a", 1), "neither has, and the user waits for longer")
		assert.Equal(t, policy.Never, take("c", 3), "more than a user can ever have")
		b.RefundFor(now, call("a", 2))
		b.RefundFor(now, call("b", 0))
		balances(2, 3)
		assert.Zero(t, take("a", 0), "the least cost is 1")
		wait, ok := b.Take(now, 0)
		assert.True(t, ok)
		assert.Zero(t, wait)
		balances(1, 2)
	})
}

func TestAllInAPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		user, route, limits := layers()
		d := &door{enter: func() error { return nil }}
		p := newPipeline(t, ratelimit.All{Name: "quotas", Limits: limits}, d)
		call := func(key string, cost int) error {
			_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Key: key, Cost: cost}), p, succeed)
			return err
		}
		refused := func(err error) (re *policy.RejectedError, part string) {
			pe, ok := errors.AsType[*ratelimit.PartError](err)
			require.True(t, ok, "%v", err)
			require.ErrorAs(t, err, &re)
			assert.Equal(t, "quotas", re.Policy)
			return re, pe.Part
		}
		require.NoError(t, call("a", 2))
		re, part := refused(call("a", 1))
		assert.Equal(t, "user", part)
		assert.Equal(t, policy.ReasonRate, re.Reason)
		assert.Equal(t, time.Second, re.RetryAfter)
		require.ErrorIs(t, re, ratelimit.ErrLimited)
		assert.EqualError(t, re.Err, "user: ratelimit: too few tokens left")
		require.NoError(t, call("b", 2))
		_, part = refused(call("c", 1))
		assert.Equal(t, "route", part)
		re, part = refused(call("c", 3))
		assert.Equal(t, "user", part)
		assert.Equal(t, policy.ReasonCost, re.Reason)
		require.ErrorIs(t, re, ratelimit.ErrExceedsBurst)

		d.enter = refuse
		time.Sleep(time.Second)
		require.ErrorIs(t, call("a", 1), errShut)
		assert.InDelta(t, 1, user.Tokens(time.Now(), "a"), 0, "every limit got its tokens back")
		assert.InDelta(t, 2, route.Tokens(time.Now()), 0)

		l := limiterOfKind(t, p, "all")
		require.Len(t, l.Limits, 3)
		for i, want := range []string{"user", "route", "global"} {
			assert.Equal(t, want, l.Limits[i].Name)
		}
		assert.Equal(t, uint64(1), l.Limits[0].Rejected[policy.ReasonRate])
		assert.Equal(t, uint64(1), l.Limits[0].Rejected[policy.ReasonCost])
		assert.Equal(t, uint64(1), l.Limits[1].Rejected[policy.ReasonRate])
		assert.InDelta(t, 2, l.Tokens, 0, "the scarcest is the route")
		assert.InDelta(t, 4, l.Burst, 0)
		assert.InDelta(t, 2, l.Rate, 0)
		ps := p.Snapshot().Policies[0]
		assert.Equal(t, uint64(2), ps.Rejected[policy.ReasonRate])
	})
}

func TestAllPeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, limits := layers()
		d := &door{enter: func() error { return nil }, waits: true}
		p := newPipeline(t, d, ratelimit.All{Limits: limits})
		ctx := policy.WithCall(t.Context(), policy.Call{Key: "a", Cost: 2})
		_, err := policy.Do(ctx, p, succeed)
		require.NoError(t, err)
		_, err = policy.Do(ctx, p, succeed)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		assert.Equal(t, 1, d.entered)
	})
}

func TestAllShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, route, limits := layers()
		d := &door{enter: func() error { return nil }}
		p := newPipeline(t, ratelimit.All{Limits: limits, MaxWait: time.Minute, Shadow: true}, d)
		start := time.Now()
		for range 4 {
			_, err := policy.Do(t.Context(), p, succeed)
			require.NoError(t, err)
		}
		assert.Equal(t, start, time.Now())
		assert.Equal(t, uint64(2), p.Snapshot().Policies[0].Rejected[policy.ReasonRate])
		assert.InDelta(t, 2, route.Tokens(start), 0, "what would be refused takes nothing")
		time.Sleep(time.Second)
		d.enter = refuse
		_, err := policy.Do(t.Context(), p, succeed)
		require.ErrorIs(t, err, errShut)
		assert.InDelta(t, 4, route.Tokens(time.Now()), 0)
	})
}

// A call waits until every limit lets it in, and takes nothing meanwhile.
func TestAllWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		user, route, limits := layers()
		b := newBundle(t, ratelimit.All{Limits: limits, MaxWait: 3 * time.Second, MaxWaiters: 4})
		v := &visits{start: time.Now()}
		wait := func(key string, cost int) func() error {
			ctx := policy.WithCall(t.Context(), policy.Call{Key: key})
			return func() error { return b.Wait(ctx, cost) }
		}
		v.visit("a1", wait("a", 2))
		v.visit("b1", wait("b", 2))
		v.visit("a2", wait("a", 2)) // its user at 2 s
		v.visit("c1", wait("c", 1)) // the route at 0.5 s
		v.visit("d1", wait("d", 1)) // the route at 1 s: what is ahead has other keys, so it is told 0.5 s
		v.visit("a3", wait("a", 2)) // its user at 4 s
		v.visit("none", wait("a", 0))
		v.visit("big", wait("a", 3))
		v.visit("e1", wait("e", 1))
		v.visit("e2", wait("e", 1)) // no place
		in, out := v.results()
		assert.Equal(t, []string{"a1 0s", "b1 0s", "none 0s"}, in)
		assert.Equal(t, []string{"a3 0s wait 1s", "big 0s cost " + policy.Never.String(), "e2 0s waiters 500ms"}, out)
		assert.Equal(t, 4, b.Snapshot(time.Now()).Limiter.Waiting)
		assert.InDelta(t, 2, user.Tokens(time.Now(), "c"), 0, "nothing is taken from those that could let it in")
		v.Wait()
		in, out = v.results()
		assert.Equal(t, []string{"a1 0s", "b1 0s", "none 0s", "c1 500ms", "d1 1s", "e1 1.5s", "a2 2.5s"}, in)
		assert.Len(t, out, 3)
		assert.InDelta(t, 0, route.Tokens(time.Now()), 0)

		ctx, cancel := context.WithCancelCause(t.Context())
		v.visit("canceled", func() error { return b.Wait(ctx, 1) })
		cancel(errors.New("gone"))
		v.Wait()
		_, out = v.results()
		assert.Equal(t, "canceled 2.5s context canceled: gone", out[3])
		require.ErrorIs(t, b.Wait(ctx, 1), context.Canceled)
		deadline, stop := context.WithTimeout(t.Context(), 500*ms)
		defer stop()
		err := b.Wait(deadline, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		pe, ok := errors.AsType[*ratelimit.PartError](err)
		require.True(t, ok)
		assert.Equal(t, "route", pe.Part)
		assert.Equal(t, time.Since(v.start), 2500*ms, "at once")
	})
}

// Whoever gives back tokens lets waiters in.
func TestAllRefundLetsIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, _, limits := layers()
		b := newBundle(t, ratelimit.All{Limits: limits, MaxWait: time.Minute})
		now := time.Now()
		_, ok := b.TakeFor(now, &policy.Call{Key: "a", Cost: 2})
		require.True(t, ok)
		v := &visits{start: now}
		v.visit("a", func() error { return b.Wait(policy.WithCall(t.Context(), policy.Call{Key: "a"}), 1) })
		b.RefundFor(now, &policy.Call{Key: "a"})
		v.Wait()
		in, _ := v.results()
		assert.Equal(t, []string{"a 0s"}, in)
	})
}

func TestAllOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		user, route, limits := layers()
		inner := newBundle(t, ratelimit.All{Name: "inner", Limits: limits})
		b := newBundle(t, ratelimit.All{Limits: []policy.Policy{inner, ratelimit.FixedWindow{Limit: 3, Window: time.Minute}}})
		now := time.Now()
		for range 2 {
			_, ok := b.Take(now, 1)
			require.True(t, ok)
		}
		wait, ok := b.Take(now, 1)
		assert.False(t, ok)
		assert.Equal(t, time.Second, wait)
		r := b.Reserve(now.Add(time.Second), 1)
		assert.True(t, r.OK())
		r = b.Reserve(now.Add(5*time.Second), 1)
		assert.False(t, r.OK(), "nothing is reserved ahead of time")
		assert.Equal(t, 55*time.Second, r.Delay())
		r.Cancel(now)
		assert.InDelta(t, 2, user.Tokens(now.Add(5*time.Second), ""), 0, "the others were not asked")
		assert.InDelta(t, 4, route.Tokens(now.Add(5*time.Second)), 0)
		p := newPipeline(t, b)
		require.Len(t, limiterOfKind(t, p, "all").Limits[0].Limiter.Limits, 3)
	})
}

func TestAllValidate(t *testing.T) {
	t.Parallel()
	bucket := ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2}
	live := newBucket(t, bucket)
	for _, tt := range []struct {
		name string
		cfg  ratelimit.All
		want []string
	}{
		{"one", ratelimit.All{Limits: []policy.Policy{bucket}}, nil},
		{"live", ratelimit.All{Limits: []policy.Policy{live, ratelimit.Keyed{Rate: ratelimit.PerSecond(1)}}, MaxWait: time.Second, MaxWaiters: 1}, nil},
		{"none", ratelimit.All{}, []string{"Limits"}},
		{"the same twice", ratelimit.All{Limits: []policy.Policy{live, live}}, []string{"Limits[1].Name"}},
		{"faults of limits", ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Burst: -1}, nil, ratelimit.All{Limits: []policy.Policy{ratelimit.Pacer{}}}}}, []string{"Limits[0].Rate", "Limits[0].Burst", "Limits[1]", "Limits[2].Limits[0].Rate"}},
		{"name", ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Name: "a\n", Rate: ratelimit.PerSecond(1), Burst: 2}}}, []string{"Limits[0].Name"}},
		{"no limiter", ratelimit.All{Limits: []policy.Policy{&door{}, policy.Timeouts{Total: time.Second}}}, []string{"Limits[0]", "Limits[1]"}},
		{"limits that wait or watch", ratelimit.All{Limits: []policy.Policy{
			ratelimit.Pacer{Rate: ratelimit.PerSecond(1), MaxWait: time.Second}, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Shadow: true},
		}}, []string{"Limits[0].MaxWait", "Limits[1].Shadow"}},
		{"wait", ratelimit.All{Limits: []policy.Policy{bucket}, MaxWait: -1, MaxWaiters: -1}, []string{"MaxWait", "MaxWaiters"}},
		{"waiters without a wait", ratelimit.All{Limits: []policy.Policy{bucket}, MaxWaiters: 5}, []string{"MaxWaiters"}},
	} {
		assert.Equal(t, tt.want, faultsOf(t, "all", tt.cfg.Validate()), tt.name)
		b, err := ratelimit.NewAll("", tt.cfg)
		assert.Equal(t, tt.want, faultsOf(t, "all", err), tt.name)
		assert.Equal(t, tt.want == nil, b != nil, tt.name)
	}
	_, err := policy.New("inventory", ratelimit.All{Name: "quotas", Limits: []policy.Policy{ratelimit.TokenBucket{}}})
	assert.EqualError(t, err, "inventory.quotas.Limits[0].Rate: unset: want a rate above 0 (+Inf is no rate limit)")
}

func TestAllConfigIsEffective(t *testing.T) {
	t.Parallel()
	user, route, limits := layers()
	given := []policy.Policy{limits[0], limits[1], ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1}}
	b, err := ratelimit.NewAll("quotas", ratelimit.All{Limits: given, MaxWait: time.Second})
	require.NoError(t, err)
	given[0] = nil // a copy was taken
	cfg := b.Config()
	assert.Equal(t, "quotas", cfg.Name)
	assert.Equal(t, 100, cfg.MaxWaiters)
	require.Len(t, cfg.Limits, 3)
	assert.Same(t, user, cfg.Limits[0])
	assert.Same(t, route, cfg.Limits[1])
	assert.IsType(t, &ratelimit.Bucket{}, cfg.Limits[2])
	cfg.Limits[0] = nil
	require.NoError(t, b.Config().Validate())
	part, err := b.BuildPolicy()
	require.NoError(t, err)
	require.Len(t, part.Warnings, 1)
	assert.True(t, strings.HasPrefix(part.Warnings[0], "ratelimit: Burst 1"), part.Warnings[0])
	assert.Equal(t, []string{"Rate"}, faultsOf(t, "all", b.SetRate(ratelimit.PerSecond(1))))
}

// Whatever is asked for at once, no limit lets more through, none loses a token, and what
// is taken is the same in all.
func TestAllConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const users = 4
		user := newBuckets(t, ratelimit.Keyed{Name: "user", Rate: ratelimit.PerSecond(1), Burst: 400})
		global := newBucket(t, ratelimit.TokenBucket{Name: "global", Rate: ratelimit.PerSecond(1), Burst: 1000})
		b := newBundle(t, ratelimit.All{Limits: []policy.Policy{user, global}, MaxWait: time.Millisecond})
		now := time.Now()
		var kept [users]atomic.Int64
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 1000 {
					k := (i + g) % users
					c := &policy.Call{Key: strconv.Itoa(k), Cost: 1 + i%3}
					switch i % 5 {
					case 0:
						if b.Wait(policy.WithCall(t.Context(), *c), c.Cost) == nil {
							kept[k].Add(int64(c.Cost))
						}
					case 1:
						if _, ok := b.TakeFor(now, c); ok {
							b.RefundFor(now, c)
						}
					default:
						if _, ok := b.TakeFor(now, c); ok {
							kept[k].Add(int64(c.Cost))
						}
					}
				}
			})
		}
		wg.Wait()
		sum := int64(0)
		for k := range kept {
			assert.LessOrEqual(t, kept[k].Load(), int64(400))
			assert.InDelta(t, float64(400-kept[k].Load()), user.Tokens(now, strconv.Itoa(k)), 0)
			sum += kept[k].Load()
		}
		assert.LessOrEqual(t, sum, int64(1000))
		assert.InDelta(t, float64(1000-sum), global.Tokens(now), 0)
	})
}
