package ratelimit_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// scaled returns how much of a large test is run: all, or with the race detector and
// in short runs a tenth.
func scaled(n int) int {
	if testing.Short() || raceEnabled {
		return n / 10
	}
	return n
}

// A table of keys that nobody uses any more becomes empty, whatever the traffic.
func TestCaseB19KeysAreForgotten(t *testing.T) { //nolint:paralleltest // it measures the heap
	total := scaled(1_000_000)
	keys := manyKeys(total)
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{
			Rate: ratelimit.PerSecond(10), Burst: 10, MaxKeys: total + 1, TTL: time.Minute, Overflow: ratelimit.Limit{Rate: ratelimit.Every(time.Hour), Burst: 1},
		})
		baseline := heap()
		perTick := total / 10_000 // 100 ticks a second for 100 s
		hot, most := 0, 0
		for i, key := range keys {
			if !b.Allow(key) {
				require.Fail(t, "a new key is refused")
			}
			if i%perTick != 0 {
				continue
			}
			if b.Allow("hot") {
				hot++
			}
			time.Sleep(10 * ms)
			most = max(most, b.Len())
		}
		assert.Equal(t, 10+1000-1, hot, "the hot key's account is exact: its burst and 10 per second")
		// A key refills in 0.1 s, stays for a minute, and a sweep comes each 7.5 s.
		perSecond := total / 100
		assert.LessOrEqual(t, most, 68*perSecond)
		assert.GreaterOrEqual(t, most, 60*perSecond)
		assert.LessOrEqual(t, b.Len(), 68*perSecond+1)
		time.Sleep(time.Minute + 7500*ms + time.Second)
		assert.Zero(t, b.Len(), "without any call")
		assert.LessOrEqual(t, heap(), baseline+10<<20)

		require.True(t, b.AllowN("again", 10), "it works as before")
		require.False(t, b.Allow("again"))
	})
}

// Sweeps come although calls come much more often, and although all are refused.
func TestCaseB19SweepsUnderTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 2, TTL: 8 * time.Second})
		for i := range 1000 {
			require.True(t, b.AllowN(strconv.Itoa(i), 2))
		}
		refused := 0
		for range 1200 { // 12 s: 2 s to refill, 8 s, 1 s between sweeps
			time.Sleep(10 * ms)
			if !b.AllowN("busy", 2) {
				refused++
			}
		}
		assert.Equal(t, 1, b.Len(), "but the busy one")
		assert.Greater(t, refused, 1190)
	})
}

// Nobody is forgotten whose bucket is not full, however many others come.
func TestCaseB20FloodDoesNotReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.Per(10, time.Minute), Burst: 10, MaxKeys: 1000})
		start := time.Now()
		require.True(t, b.AllowN("victim", 10))
		passed, most := 0, 0
		for i := range 5000 {
			time.Sleep(200 * time.Microsecond)
			if b.Allow("attacker " + strconv.Itoa(i)) {
				passed++
			}
			most = max(most, b.Len())
		}
		require.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 1000, most)
		assert.Equal(t, 999+10, passed, "a place each, and then what they share")
		for range 100 {
			require.False(t, b.Allow("victim"))
		}
		time.Sleep(59 * time.Second)
		passed = 0
		for range 100 {
			if b.Allow("victim") {
				passed++
			}
		}
		assert.Equal(t, 10, passed)
		// Those of the attacker's keys that took one token have refilled.
		assert.True(t, b.AllowN("new", 10))
		assert.False(t, b.Allow("new"))
		assert.Equal(t, 1000, b.Len())
	})
}

// The same with ten million keys, while buckets refill and places change hands all the
// time.
func TestCaseB20FloodOfMillions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		flood := scaled(10_000_000)
		b := newBuckets(t, ratelimit.Keyed{
			Rate: ratelimit.Per(10, time.Minute), Burst: 10, MaxKeys: 10_000, Overflow: ratelimit.Limit{Rate: ratelimit.PerSecond(1000), Burst: 1000},
		})
		start := time.Now()
		require.True(t, b.AllowN("victim", 10))
		passed, victim := 0, 0
		key := []byte("attacker 00000000")
		tick := 60 * time.Second / time.Duration(flood/1000)
		for i := range flood {
			strconv.AppendInt(key[:9], int64(10_000_000+i), 10)
			if _, ok := b.Take(time.Now(), string(key), 1); ok {
				passed++
			}
			if i%1000 != 0 {
				continue
			}
			time.Sleep(tick)
			if b.Allow("victim") {
				victim++
			}
		}
		elapsed := time.Since(start).Seconds()
		assert.InDelta(t, 60, elapsed, 1)
		assert.LessOrEqual(t, float64(victim), elapsed/6, "a token each 6 s, no more")
		assert.GreaterOrEqual(t, float64(victim), elapsed/6-1)
		assert.Equal(t, 10_000, b.Len())
		// Each place can be had again when the token that was taken is back, after 6 s.
		assert.LessOrEqual(t, float64(passed), 10_000*(elapsed/6+1)+1000*(elapsed+1))
		assert.GreaterOrEqual(t, float64(passed), 10_000*(elapsed/6-1)+1000*(elapsed-1))
	})
}

// One hot shop at three times its limit among 10,000 that keep to theirs.
func TestIncidentAggregatorPerKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBuckets(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(100), Burst: 100})
		p := newPipeline(t, b)
		call := func(shop string) bool {
			_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Key: shop}), p, succeed)
			return err == nil
		}
		const seconds = 10
		hot, cold := [seconds]int{}, 0
		start := time.Now()
		shop := 0
		for time.Since(start) < seconds*time.Second {
			second := int(time.Since(start) / time.Second)
			if call("hot") {
				hot[second]++
			}
			for range 34 { // 300 times a second: each cold shop once a second
				require.True(t, call("cold "+strconv.Itoa(shop%10_000)))
				cold++
				shop++
			}
			time.Sleep(time.Second / 300)
		}
		assert.InDelta(t, 200, hot[0], 1, "its burst and the first second")
		for s, n := range hot[1:] {
			assert.InDelta(t, 100, n, 1, "second %d", s+1)
		}
		assert.GreaterOrEqual(t, cold, 100_000)
		assert.Equal(t, 10_001, b.Len())
		assert.Equal(t, "hot", b.Top(time.Now(), 1)[0].Key)
		time.Sleep(2 * time.Minute)
		assert.Zero(t, b.Len())
	})
}

// A cost above the burst is refused for ever, and takes nothing; one that equals it is
// not.
func TestCaseB14KeyedCostAboveBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		playKeys(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 300}, []keyStep{
			{0, "a", 301, policy.Never}, {0, "a", 1, 0}, {0, "a", 299, 0}, {0, "a", 1, time.Second},
		})
		playKeys(t, ratelimit.Keyed{Rate: ratelimit.PerMinute(5), Burst: 5}, []keyStep{
			{0, "a", 5, 0}, {0, "a", 5, time.Minute}, {time.Minute, "a", 5, 0},
		})
	})
}

// A refusal takes nothing of what is left.
func TestCaseB15KeyedRefusalTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := playKeys(t, ratelimit.Keyed{Rate: ratelimit.Every(time.Minute), Burst: 10}, []keyStep{
			{0, "a", 8, 0}, {0, "a", 5, 3 * time.Minute}, {0, "a", 1, 0},
		})
		assert.InDelta(t, 1, b.Tokens(time.Now(), "a"), 0)
	})
}

// The advertised time is exact.
func TestCaseB18KeyedRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		playKeys(t, ratelimit.Keyed{Rate: ratelimit.Per(6, time.Minute), Burst: 6}, []keyStep{
			{0, "a", 6, 0},
			{0, "a", 1, 10 * time.Second},
			{5 * time.Second, "a", 1, 5 * time.Second},
			{9999 * ms, "a", 1, ms},
			{10*time.Second - 1, "a", 1, 1},
			{10 * time.Second, "a", 1, 0},
			{10 * time.Second, "a", 1, 10 * time.Second},
		})
	})
}
