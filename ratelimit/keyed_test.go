package ratelimit_test

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// keyStep is one Take of a script for several keys.
type keyStep struct {
	at   time.Duration
	key  string
	n    int
	wait time.Duration // 0: the tokens are taken
}

func playKeys(t *testing.T, cfg ratelimit.Keyed, steps []keyStep) *ratelimit.Buckets {
	t.Helper()
	b, start := newBuckets(t, cfg), time.Now()
	for i, s := range steps {
		wait, ok := b.Take(start.Add(s.at), s.key, s.n)
		require.Equal(t, s.wait == 0, ok, "step %d: take %d of %s at %s: wait %s", i, s.n, s.key, s.at, wait)
		require.Equal(t, s.wait, wait, "step %d: take %d of %s at %s", i, s.n, s.key, s.at)
	}
	return b
}

func TestKeyedTake(t *testing.T) {
	t.Parallel()
	long, other := strings.Repeat("x", 129), strings.Repeat("x", 128)+"y"
	ten := ratelimit.Keyed{Rate: ratelimit.PerSecond(10), Burst: 2}
	for _, tt := range []struct {
		name  string
		cfg   ratelimit.Keyed
		steps []keyStep
	}{
		{"each key has its own bucket", ten, []keyStep{
			{0, "a", 2, 0}, {0, "a", 1, 100 * ms}, {0, "b", 1, 0}, {50 * ms, "a", 1, 50 * ms}, {50 * ms, "b", 1, 0}, {100 * ms, "a", 1, 0}, {100 * ms, "b", 1, 0}, {100 * ms, "b", 1, 100 * ms},
		}},
		{"stores no more than the burst", ten, []keyStep{{time.Hour, "a", 3, policy.Never}, {time.Hour, "a", 2, 0}, {2 * time.Hour, "a", 2, 0}, {2 * time.Hour, "a", 1, 100 * ms}}},
		{"calls without a key share one", ten, []keyStep{{0, "", 2, 0}, {0, "", 1, 100 * ms}, {0, "a", 1, 0}}},
		{"a long key, and one with the same beginning", ten, []keyStep{
			{0, long, 2, 0}, {0, long, 1, 100 * ms}, {0, other, 2, 0}, {0, other, 1, 100 * ms}, {0, long[:128], 2, 0}, {0, long[:128], 1, 100 * ms},
		}},
		{"exceptions", ratelimit.Keyed{Rate: ratelimit.PerSecond(10), Burst: 2, Exceptions: map[string]ratelimit.Limit{
			"big": {Rate: ratelimit.PerSecond(1000), Burst: 4}, "none": {Rate: ratelimit.PerSecond(math.Inf(1)), Burst: 9}, long: {Rate: ratelimit.PerSecond(1)},
		}}, []keyStep{
			{0, "big", 4, 0}, {0, "big", 1, ms}, {0, "none", 9, 0}, {0, "none", 9, 0}, {0, "none", 10, policy.Never}, {0, long, 1, 0}, {0, long, 1, time.Second}, {0, "a", 2, 0}, {0, "a", 1, 100 * ms},
		}},
		{"no limit", ratelimit.Keyed{Rate: ratelimit.PerSecond(math.Inf(1)), Burst: 5}, []keyStep{{0, "a", 5, 0}, {0, "a", 5, 0}, {0, "a", 6, policy.Never}}},
		{"nothing", ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 1}, []keyStep{{0, "a", 1, 0}, {0, "a", 0, 0}, {0, "a", -5, 0}, {0, "a", 1, time.Second}}},
		{"time goes back", ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 2}, []keyStep{{10 * time.Second, "a", 2, 0}, {9 * time.Second, "a", 1, 2 * time.Second}, {11 * time.Second, "a", 1, 0}}},
		{"decades", ratelimit.Keyed{Rate: ratelimit.PerSecond(1000), Burst: 5}, []keyStep{
			{0, "a", 5, 0}, {40 * 365 * 24 * time.Hour, "a", 5, 0}, {40 * 365 * 24 * time.Hour, "a", 1, ms}, {math.MaxInt64 - 1, "a", 5, 0}, {math.MaxInt64 - 1, "a", 1, policy.Never},
		}},
		{"B04: a rate of decades per token", ratelimit.Keyed{Rate: ratelimit.PerSecond(1e-11), Burst: 1}, []keyStep{{0, "a", 1, 0}, {0, "a", 1, policy.Never}, {math.MaxInt64, "a", 1, policy.Never}, {0, "b", 1, 0}}},
		{"B04: a rate of many tokens per nanosecond", ratelimit.Keyed{Rate: ratelimit.PerSecond(1e18), Burst: 5}, []keyStep{{0, "a", 5, 0}, {0, "a", 1, 1}, {1, "a", 5, 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playKeys(t, tt.cfg, tt.steps) })
		})
	}
}

// A digest is not the key that reads the same.
func TestKeyedDigest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.Every(time.Hour), Burst: 1})
		require.True(t, b.Allow(strings.Repeat("k", 200)))
		require.False(t, b.Allow(strings.Repeat("k", 200)))
		top := b.Top(time.Now(), 5)
		require.Len(t, top, 1)
		digest, ok := strings.CutPrefix(top[0].Key, "sha256:")
		require.True(t, ok, top[0].Key)
		raw := make([]byte, 32)
		for i := range raw {
			raw[i] = unhex(digest[2*i])<<4 | unhex(digest[2*i+1])
		}
		assert.True(t, b.Allow(string(raw)))
		assert.Equal(t, 2, b.Len())
	})
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// A key may be part of a buffer that its owner uses again.
func TestKeyedCopiesTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.Every(time.Hour), Burst: 1})
		for _, key := range []string{"", "1234567", "12345678", strings.Repeat("k", 128)} {
			require.True(t, b.Allow(key))
			require.False(t, b.Allow(key))
			assert.Contains(t, b.Top(time.Now(), 9), policy.KeySnapshot{Key: key, Calls: 1, Refused: 1})
		}
	})
}

func TestKeyedRefund(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 5, Exceptions: map[string]ratelimit.Limit{"x": {Rate: ratelimit.PerSecond(1), Burst: 5}}})
		for _, key := range []string{"a", "x"} {
			now := time.Now()
			b.Refund(now, key, 3) // not seen yet
			require.True(t, b.AllowN(key, 5))
			b.Refund(now, key, 2)
			b.Refund(now, key, 0)
			b.Refund(now, key, -3)
			assert.InDelta(t, 2, b.Tokens(now, key), 0)
			b.Refund(now, key, math.MaxInt)
			assert.InDelta(t, 5, b.Tokens(now, key), 0, "never above the burst")
			assert.True(t, b.AllowN(key, 5))
			assert.False(t, b.Allow(key))
			assert.InDelta(t, 5, b.Tokens(now.Add(time.Hour), key), 0)
			assert.InDelta(t, 1.5, b.Tokens(now.Add(1500*ms), key), 0)

			// What has arrived since is lost.
			time.Sleep(1500 * ms)
			b.Refund(now, key, 2)
			assert.InDelta(t, 2, b.Tokens(time.Now(), key), 0)
			b.Refund(now, key, 1)
			assert.InDelta(t, 2, b.Tokens(time.Now(), key), 0)
		}
		assert.InDelta(t, 5, b.Tokens(time.Now(), "never seen"), 0)
	})
}

// No change of the limit grants a token or forgets one, whether or not the key is
// remembered.
func TestCaseB59KeyedSetLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(10), Burst: 10, TTL: time.Second})
		require.True(t, b.AllowN("drained", 10))
		require.True(t, b.AllowN("half", 5))
		for range 100 {
			require.NoError(t, b.SetLimit(ratelimit.PerSecond(10), 10))
		}
		assert.False(t, b.Allow("drained"))
		assert.False(t, b.AllowN("half", 6))

		require.NoError(t, b.SetLimit(ratelimit.PerSecond(20), 20))
		now := time.Now()
		for key, want := range map[string]float64{"drained": 0, "half": 5, "new": 10} {
			assert.InDelta(t, want, b.Tokens(now, key), 0, key)
			assert.InDelta(t, want+10, b.Tokens(now.Add(500*ms), key), 0, key)
		}
		assert.InDelta(t, 10, b.Tokens(now.Add(500*ms), "drained"), 0)
		assert.False(t, b.AllowN("new", 11), "its bucket was full, not fuller")
		assert.Equal(t, 2, b.Len(), "a refusal is not worth a place")
		assert.True(t, b.AllowN("new", 10))
		wait, ok := b.Take(now, "newer", 11)
		assert.False(t, ok)
		assert.Equal(t, 50*ms, wait)

		time.Sleep(time.Hour) // all are full again, and forgotten
		assert.Zero(t, b.Len())
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(20), 3))
		assert.True(t, b.AllowN("drained", 3))
		assert.False(t, b.Allow("drained"))
		assert.False(t, b.AllowN("drained", 4), "no call may cost more")

		cfg := b.Config()
		assert.Equal(t, ratelimit.Limit{Rate: ratelimit.PerSecond(20), Burst: 3}, ratelimit.Limit{Rate: cfg.Rate, Burst: cfg.Burst})
		assert.Equal(t, ratelimit.Limit{Rate: ratelimit.PerSecond(20), Burst: 3}, cfg.Overflow, "it was not set, so it follows")

		assert.Equal(t, []string{"Rate.Tokens", "Burst"}, keyedFaults(t, b.SetLimit(ratelimit.PerSecond(-1), -1)))
		assert.Equal(t, cfg, b.Config())

		require.NoError(t, b.SetLimit(ratelimit.PerSecond(math.Inf(1)), 100))
		assert.Zero(t, b.Len(), "nothing is counted")
		assert.True(t, b.AllowN("drained", 100))
		require.NoError(t, b.SetLimit(ratelimit.Every(time.Hour), 2))
		assert.True(t, b.AllowN("drained", 2))
		assert.False(t, b.Allow("drained"))
	})
}

func TestKeyedExceptionsLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 10})
		require.True(t, b.AllowN("vip", 7))
		require.NoError(t, b.SetException("vip", ratelimit.Limit{Rate: ratelimit.PerSecond(100), Burst: 100}))
		assert.Zero(t, b.Len())
		assert.InDelta(t, 3, b.Tokens(time.Now(), "vip"), 0, "nothing is granted")
		assert.True(t, b.AllowN("vip", 3))
		assert.False(t, b.Allow("vip"))
		require.NoError(t, b.SetException("new", ratelimit.Limit{Rate: ratelimit.PerSecond(100), Burst: 100}))
		assert.InDelta(t, 10, b.Tokens(time.Now(), "new"), 0, "its bucket was full, not fuller")

		time.Sleep(20 * ms)
		require.NoError(t, b.SetException("vip", ratelimit.Limit{Rate: ratelimit.PerSecond(1), Burst: 100}))
		assert.InDelta(t, 2, b.Tokens(time.Now(), "vip"), 0)
		assert.Equal(t, map[string]ratelimit.Limit{
			"vip": {Rate: ratelimit.PerSecond(1), Burst: 100}, "new": {Rate: ratelimit.PerSecond(100), Burst: 100},
		}, b.Config().Exceptions)

		b.RemoveException("vip")
		b.RemoveException("new") // 12 tokens
		b.RemoveException("neither")
		assert.Empty(t, b.Config().Exceptions)
		assert.InDelta(t, 2, b.Tokens(time.Now(), "vip"), 0, "nothing is forgotten")
		assert.InDelta(t, 10, b.Tokens(time.Now(), "new"), 0)
		assert.Equal(t, 1, b.Len(), "a full bucket is not worth a place")
		assert.True(t, b.AllowN("vip", 2))
		assert.False(t, b.Allow("vip"))

		err := b.SetException(strings.Repeat("k", 50), ratelimit.Limit{Burst: -1})
		assert.Equal(t, []string{`Exceptions["` + strings.Repeat("k", 32) + `…"].Rate`, `Exceptions["` + strings.Repeat("k", 32) + `…"].Burst`}, keyedFaults(t, err))
		assert.Empty(t, b.Config().Exceptions)
	})
}

func TestKeyedGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &door{enter: func() error { return nil }}
		b := newBuckets(t, ratelimit.Keyed{Name: "per shop", Rate: ratelimit.PerSecond(4), Burst: 4, MaxKeys: 1})
		p := newPipeline(t, b, d)
		call := func(key string, cost int) error {
			_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Key: key, Cost: cost}), p, succeed)
			return err
		}
		require.NoError(t, call("a", 3))
		start := time.Now()
		err := call("a", 2)
		assert.Equal(t, start, time.Now(), "it never waits")
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, &policy.RejectedError{
			Dependency: "inventory", Policy: "per shop", Reason: policy.ReasonRate, RetryAfter: 250 * ms, Err: ratelimit.ErrLimited,
		}, re)
		require.ErrorAs(t, call("a", 5), &re)
		assert.Equal(t, policy.ReasonCost, re.Reason)

		d.enter = refuse
		require.ErrorIs(t, call("a", 1), errShut)
		assert.InDelta(t, 1, b.Tokens(time.Now(), "a"), 0, "given back")
		require.ErrorIs(t, call("b", 4), errShut)
		require.ErrorIs(t, call("c", 4), errShut, "what b took of the shared bucket was given back")
		d.enter = func() error { return nil }
		require.NoError(t, call("b", 3))
		require.ErrorIs(t, call("c", 2), ratelimit.ErrLimited, "they find no room, and share a bucket")
		require.NoError(t, call("c", 1))

		ps := p.Snapshot().Policies[0]
		require.NotNil(t, ps.Limiter)
		assert.Equal(t, "per shop", ps.Name)
		assert.Equal(t, "keyed", ps.Kind)
		assert.Equal(t, uint64(2), ps.Rejected[policy.ReasonRate])
		require.NotNil(t, ps.Limiter.Keyed)
		keyed := *ps.Limiter.Keyed
		assert.Equal(t, uint64(1), keyed.Top[0].Refused)
		keyed.Top = nil
		assert.Equal(t, policy.KeyedSnapshot{Keys: 1, MaxKeys: 1, Overflowed: 5}, keyed)
		assert.InDelta(t, 4, ps.Limiter.Tokens, 0)
		assert.InDelta(t, 4, ps.Limiter.Burst, 0)
		assert.InDelta(t, 4, ps.Limiter.Rate, 0)
	})
}

// Peek refuses what Enter would refuse, and takes nothing.
func TestKeyedPeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &door{enter: func() error { return nil }, waits: true}
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 2, MaxKeys: 1, Exceptions: map[string]ratelimit.Limit{"x": {Rate: ratelimit.PerSecond(2), Burst: 2}}})
		p := newPipeline(t, d, b)
		for _, key := range []string{"a", "b", "x"} { // in the table, without a place in it, an exception
			ctx := policy.WithCall(t.Context(), policy.Call{Key: key, Cost: 2})
			_, err := policy.Do(ctx, p, succeed)
			require.NoError(t, err, key)
			before := d.entered
			_, err = policy.Do(ctx, p, succeed)
			require.ErrorIs(t, err, ratelimit.ErrLimited, key)
			_, err = policy.Do(policy.WithCall(ctx, policy.Call{Key: key, Cost: 3}), p, succeed)
			require.ErrorIs(t, err, ratelimit.ErrExceedsBurst, key)
			assert.Equal(t, before, d.entered, "the door was not asked")
		}
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(math.Inf(1)), 2))
		_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Key: "a"}), p, succeed)
		require.NoError(t, err)
	})
}

func TestKeyedShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, ratelimit.Keyed{Rate: ratelimit.Every(time.Hour), Burst: 1, Shadow: true})
		for range 5 {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 1, nil })
			require.NoError(t, err)
		}
		ps := p.Snapshot().Policies[0]
		assert.True(t, ps.Shadow)
		assert.Equal(t, uint64(4), ps.Rejected[policy.ReasonRate])
	})
}

// The hot keys are found among many others, at the cost of a few counters.
func TestKeyedTop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(100), Burst: 100})
		for i, key := range manyKeys(20_000) {
			b.Allow(key)
			if i%4 == 0 {
				b.Allow("hot")
			}
			if i%2 == 0 {
				b.AllowN("warm", 0) // costs nothing, so it is no call
				b.Allow("warm")
			}
			if i%20 == 0 {
				time.Sleep(10 * ms)
			}
		}
		top := b.Top(time.Now(), 2)
		require.Len(t, top, 2)
		assert.ElementsMatch(t, []string{"hot", "warm"}, []string{top[0].Key, top[1].Key})
		assert.Equal(t, "warm", top[0].Key, "twice as many are refused")
		for i, calls := range []int{10_000, 5_000} {
			assert.InDelta(t, calls, top[i].Calls, 2500, top[i].Key)
			assert.InDelta(t, calls-1100, float64(top[i].Refused), 2500, top[i].Key)
		}
		assert.LessOrEqual(t, len(b.Top(time.Now(), 1<<20)), 2048)
		assert.Empty(t, b.Top(time.Now(), 0))
		assert.Empty(t, b.Top(time.Now(), -1))
		time.Sleep(time.Minute)
		assert.NotEmpty(t, b.Top(time.Now(), 1), "of the last minute")
		time.Sleep(2 * time.Minute)
		assert.Empty(t, b.Top(time.Now(), 1))
	})
}

// The timer does not keep alive what nobody uses.
func TestKeyedIsCollected(t *testing.T) {
	t.Parallel()
	p := func() weak.Pointer[ratelimit.Buckets] {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.Every(time.Hour), Burst: 1})
		require.True(t, b.Allow("a"))
		return weak.Make(b)
	}()
	runtime.GC()
	runtime.GC()
	assert.Nil(t, p.Value())
}
