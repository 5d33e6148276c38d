package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// perKind runs a test for each algorithm with a server of its own, and a rule of 10 in a
// window.
func perKind(t *testing.T, window time.Duration, f func(t *testing.T, c redis.UniversalClient, rule redislimit.Rule)) {
	t.Helper()
	for name, rule := range map[string]redislimit.Rule{
		"token bucket":   redislimit.TokenBucket{Rate: per(10, window), Burst: 10},
		"fixed window":   redislimit.FixedWindow{Limit: 10, Window: window},
		"sliding window": redislimit.SlidingWindow{Limit: 10, Window: window},
		"sliding log":    redislimit.SlidingLog{Limit: 10, Window: window},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, client(t, startRedis(t).Addr), rule)
		})
	}
}

// withoutEnd returns the keys that nothing will delete.
func withoutEnd(tb testing.TB, c redis.UniversalClient) (keys []string) {
	tb.Helper()
	all, err := c.Keys(tb.Context(), "*").Result()
	require.NoError(tb, err)
	for _, k := range all {
		if left, err := c.PTTL(tb.Context(), k).Result(); err == nil && left == -1 {
			keys = append(keys, k)
		}
	}
	return keys
}

// B22: a key without an end gets one from the next call, even one that is refused; a call
// that is refused gives none a longer life; and no connection that breaks leaves one.
func TestCaseB22KeyWithoutTTL(t *testing.T) {
	t.Parallel()
	perKind(t, 500*time.Millisecond, func(t *testing.T, c redis.UniversalClient, rule redislimit.Rule) {
		t.Helper()
		l := limiter(t, one(c, rule))
		for allow(l) { // the state of a key that is used up
		}
		keys, err := c.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 1)
		if _, is := rule.(redislimit.FixedWindow); is {
			require.NoError(t, c.Set(t.Context(), keys[0], 11, 0).Err())
		} else {
			require.NoError(t, c.Persist(t.Context(), keys[0]).Err())
		}
		require.False(t, allow(l))
		assert.Empty(t, withoutEnd(t, c))
		eventually(t, 2*time.Second, "served again within a window, or the two that a sliding one weighs", func() bool { return allow(l) })

		last := time.Hour
		for allow(l) {
		}
		for range 20 {
			left, err := c.PTTL(t.Context(), keys[0]).Result()
			require.NoError(t, err)
			if left <= 0 {
				break
			}
			require.LessOrEqual(t, left, last, "a refusal gave the key a longer life")
			last = left
			if allow(l) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	})

	t.Run("killed connections", func(t *testing.T) {
		t.Parallel()
		s := startRedis(t)
		admin := client(t, s.Addr)
		cfg := one(client(t, s.Addr), redislimit.FixedWindow{Limit: 3, Window: time.Minute})
		cfg.Limits[0].Keyed = true
		cfg.Settings.StandIn = sharedlimit.LetIn
		l := limiter(t, cfg)
		var wg sync.WaitGroup
		done := make(chan struct{})
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes")
					time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				}
			}
		})
		for i := range 2500 {
			wg.Go(func() {
				for j := range 4 {
					_ = l.Wait(byKey(fmt.Sprint(i%500, j)), 1)
				}
			})
			if i%8 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		close(done)
		wg.Wait()
		assert.Empty(t, withoutEnd(t, client(t, s.Addr)))
		assert.Positive(t, shared(l).Errors, "no connection was killed in use")
	})
}

// counter counts commands by name.
type counter struct {
	mu    sync.Mutex
	names map[string]int
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.mu.Lock()
		c.names[cmd.Name()]++
		c.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names[name]
}

// B23: a server that has lost its scripts gets them again, and no caller hears of it.
func TestCaseB23ScriptCacheLost(t *testing.T) {
	t.Parallel()
	perKind(t, time.Hour, func(t *testing.T, c redis.UniversalClient, rule redislimit.Rule) {
		t.Helper()
		commands := &counter{names: map[string]int{}}
		c.AddHook(commands)
		l := limiter(t, one(c, rule))
		for range 5 {
			require.True(t, allow(l))
		}
		require.NoError(t, c.ScriptFlush(t.Context()).Err())
		require.True(t, allow(l))
		rest := 0
		for allow(l) {
			rest++
		}
		assert.Equal(t, 4, rest)
		assert.Zero(t, shared(l).Errors)

		// A hundred at once after a flush: each sends the script once at most.
		require.NoError(t, c.FlushAll(t.Context()).Err())
		require.NoError(t, c.ScriptFlush(t.Context()).Err())
		before := commands.of("eval")
		var passed atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if allow(l) {
					passed.Add(1)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 10, passed.Load())
		assert.LessOrEqual(t, commands.of("eval")-before, 100)
		assert.Zero(t, shared(l).Errors)
	})

	t.Run("a restart without data", func(t *testing.T) {
		t.Parallel()
		s := startRedis(t)
		l := limiter(t, one(client(t, s.Addr), redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 10}))
		for range 10 {
			require.True(t, allow(l))
		}
		s.Stop()
		s.Start(t)
		passed := 0
		for range 20 {
			if allow(l) {
				passed++
			}
		}
		assert.Contains(t, []int{10, 11}, passed, "a full bucket, and one call that a broken connection let the local share decide")
	})

	t.Run("other errors are not tried again", func(t *testing.T) {
		t.Parallel()
		c := client(t, startRedis(t).Addr)
		commands := &counter{names: map[string]int{}}
		cfg := one(c, redislimit.TokenBucket{Rate: ratelimit.PerSecond(10)})
		cfg.Settings.StandIn = sharedlimit.Refuse
		l := limiter(t, cfg)
		require.True(t, allow(l))
		keys, err := c.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.NoError(t, c.Del(t.Context(), keys[0]).Err())
		require.NoError(t, c.LPush(t.Context(), keys[0], "x").Err()) // WRONGTYPE
		c.AddHook(commands)
		require.ErrorIs(t, l.Wait(t.Context(), 1), ratelimit.ErrUnavailable)
		assert.Equal(t, 1, commands.of("evalsha"))
		assert.Zero(t, commands.of("eval"))
		assert.EqualValues(t, 1, shared(l).Errors)
	})
}

// keyRecorder remembers the keys of the scripts that were run.
type keyRecorder struct {
	counter
	last []string
}

func (k *keyRecorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		n := args[2].(int)
		k.last = k.last[:0]
		for _, a := range args[3 : 3+n] {
			k.last = append(k.last, a.(string))
		}
		cmd.(*redis.Cmd).SetVal([]any{int64(1), int64(0), int64(0), int64(0)})
		return nil
	}
}

// slotOf is the slot of a key, as the cluster specification has it.
func slotOf(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

// B24: all keys of a call lie in one slot, whatever the subject is called, and no tag brings
// all subjects together.
func TestCaseB24OneSlotForACall(t *testing.T) {
	t.Parallel()
	rec := &keyRecorder{}
	c := client(t, "127.0.0.1:1")
	c.AddHook(rec)
	rule := redislimit.TokenBucket{Rate: ratelimit.PerSecond(10)}
	byUser := limiter(t, redislimit.Config{Client: c, Settings: sharedlimit.Settings{Nodes: 1}, Limits: []redislimit.Limit{
		{Name: "second", Rule: rule, Keyed: true},
		{Name: "minute", Rule: redislimit.FixedWindow{Limit: 100, Window: time.Minute}, Keyed: true},
	}})
	mixed := limiter(t, redislimit.Config{Client: c, Settings: sharedlimit.Settings{Nodes: 1}, Limits: []redislimit.Limit{
		{Name: "user", Rule: rule, Keyed: true},
		{Name: "route", Rule: rule, KeyOf: func(context.Context, *policy.Call) string { return "/a}{b" }},
		{Name: "all", Rule: rule},
	}})
	subjects := []string{"", " ", "{", "}", "{}", "}{", "a{b}c", "{a}{b}", ":", "a b", "%7D", strings.Repeat("x", 1024), strings.Repeat("}", 1024)}
	const letters = "ab{}: %|#\x00é"
	for len(subjects) < 10_000 {
		var b strings.Builder
		for range rand.IntN(40) {
			b.WriteByte(letters[rand.IntN(len(letters))])
		}
		fmt.Fprint(&b, len(subjects))
		subjects = append(subjects, b.String())
	}
	slots, all := map[uint16]int{}, map[string]string{}
	for _, subject := range subjects {
		for l, n := range map[*sharedlimit.Limiter]int{byUser: 2, mixed: 3} {
			require.NoError(t, l.Wait(byKey(subject), 1))
			require.Len(t, rec.last, n)
			for _, k := range rec.last {
				require.Equal(t, slotOf(rec.last[0]), slotOf(k), "%q", rec.last)
			}
			if l == byUser {
				slots[slotOf(rec.last[0])]++
				other, taken := all[rec.last[0]]
				require.False(t, taken && other != subject, "%q and %q have one key", other, subject)
				all[rec.last[0]] = subject
			}
		}
	}
	assert.Greater(t, len(slots), 6000, "10,000 subjects spread over the slots")
}

// B26: what happens while the store cannot be asked is a choice that was made.
func TestCaseB26StoreAway(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for name, addr := range map[string]string{"refused": "127.0.0.1:1", "silent": silent.Addr().String()} {
		away := func(t *testing.T, in sharedlimit.StandIn) *sharedlimit.Limiter {
			t.Helper()
			cfg := one(client(t, addr), redislimit.TokenBucket{Rate: ratelimit.PerSecond(100), Burst: 100})
			cfg.Settings = sharedlimit.Settings{StandIn: in, Nodes: 4}
			return limiter(t, cfg)
		}
		decide := func(t *testing.T, l *sharedlimit.Limiter) error {
			t.Helper()
			start := time.Now()
			err := l.Wait(t.Context(), 1)
			assert.Less(t, time.Since(start), 50*time.Millisecond+scheduling)
			return err
		}
		t.Run("let in/"+name, func(t *testing.T) {
			t.Parallel()
			l := away(t, sharedlimit.LetIn)
			require.NoError(t, decide(t, l))
			assert.EqualValues(t, 1, shared(l).StoodIn)
		})
		t.Run("refuse/"+name, func(t *testing.T) {
			t.Parallel()
			l := away(t, sharedlimit.Refuse)
			err := decide(t, l)
			require.ErrorIs(t, err, ratelimit.ErrUnavailable)
			require.NotErrorIs(t, err, ratelimit.ErrLimited)
			re := &policy.RejectedError{}
			require.ErrorAs(t, err, &re)
			assert.Equal(t, policy.ReasonUnavailable, re.Reason)
			assert.EqualValues(t, 1, shared(l).StoodIn)
		})
		t.Run("local/"+name, func(t *testing.T) {
			t.Parallel()
			l := away(t, sharedlimit.LocalShare)
			start := time.Now()
			for range 5 {
				require.NoError(t, decide(t, l))
			}
			// The store is not asked any more, but by probes.
			assert.Equal(t, policy.SharedModeLocal, shared(l).Mode)
			trips, passed, asked := shared(l).RoundTrips, 5, time.Now()
			for range 100 {
				if allow(l) {
					passed++
				}
			}
			assert.LessOrEqual(t, shared(l).RoundTrips-trips, uint64(time.Since(asked)/(250*time.Millisecond))+1)
			assert.GreaterOrEqual(t, passed, 25, "a quarter of 100")
			assert.LessOrEqual(t, float64(passed), 25+25*time.Since(start).Seconds())
		})
	}

	t.Run("recovers without a restart", func(t *testing.T) {
		t.Parallel()
		s := startRedis(t)
		s.Stop()
		l := limiter(t, one(client(t, s.Addr), redislimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 10}))
		for range 5 {
			require.True(t, allow(l))
		}
		require.Equal(t, policy.SharedModeLocal, shared(l).Mode)
		s.Start(t)
		eventually(t, 2*time.Second, "asks again", func() bool { return shared(l).Mode == policy.SharedModeShared })
		errors, passed := shared(l).Errors, 0
		for range 20 {
			if allow(l) {
				passed++
			}
		}
		assert.Equal(t, 5, passed, "what was let through alone counts")
		assert.Equal(t, errors, shared(l).Errors)
	})
}
