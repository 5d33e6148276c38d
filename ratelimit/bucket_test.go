package ratelimit_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

const ms = time.Millisecond

// step is one Take of a script, at a time since the start.
type step struct {
	at   time.Duration
	n    int
	wait time.Duration // 0: the tokens are taken
}

// play runs a script on a new bucket.
func play(t *testing.T, cfg ratelimit.TokenBucket, steps []step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, cfg), time.Now()
		for i, s := range steps {
			wait, ok := b.Take(start.Add(s.at), s.n)
			require.Equal(t, s.wait == 0, ok, "step %d: take %d at %s: wait %s", i, s.n, s.at, wait)
			require.Equal(t, s.wait, wait, "step %d: take %d at %s", i, s.n, s.at)
		}
	})
}

func TestTake(t *testing.T) {
	t.Parallel()
	const never = policy.Never
	for _, tt := range []struct {
		name  string
		cfg   ratelimit.TokenBucket
		steps []step
	}{
		{
			"full at the start, refills at the rate",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 2},
			[]step{{0, 1, 0}, {0, 1, 0}, {0, 1, 100 * ms}, {50 * ms, 1, 50 * ms}, {100 * ms, 1, 0}, {100 * ms, 1, 100 * ms}},
		},
		{
			"stores no more than the burst",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 3},
			[]step{{time.Hour, 3, 0}, {time.Hour, 1, 100 * ms}, {2 * time.Hour, 4, never}, {2 * time.Hour, 3, 0}, {2 * time.Hour, 3, 300 * ms}},
		},
		{
			"partly full at the start",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 5, Initial: 2},
			[]step{{0, 3, time.Second}, {0, 2, 0}, {0, 1, time.Second}},
		},
		{
			"empty at the start",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 5, Initial: ratelimit.StartEmpty},
			[]step{{0, 1, time.Second}, {0, 5, 5 * time.Second}, {time.Second, 1, 0}},
		},
		{
			"fractions",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(2.5), Burst: 1},
			[]step{{0, 1, 0}, {0, 1, 400 * ms}, {400*ms - 1, 1, 1}, {400 * ms, 1, 0}},
		},
		{
			"one third",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1.0 / 3), Burst: 1},
			[]step{{0, 1, 0}, {0, 1, 3 * time.Second}, {3*time.Second - 1, 1, 1}, {3 * time.Second, 1, 0}},
		},
		{
			"one tenth",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(0.1), Burst: 2},
			[]step{{0, 2, 0}, {0, 2, 20 * time.Second}, {0, 1, 10 * time.Second}, {10 * time.Second, 1, 0}, {20*time.Second - 1, 1, 1}},
		},
		{
			"rounded up to the nanosecond",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(6000), Burst: 3},
			[]step{{0, 3, 0}, {0, 1, 166_667}, {0, 2, 333_334}, {0, 3, 500 * time.Microsecond}, {166_666, 1, 1}, {166_667, 1, 0}, {166_667, 1, 166_667}, {500_000, 2, 0}},
		},
		{
			"one per nanosecond",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e9), Burst: 2},
			[]step{{0, 2, 0}, {0, 2, 2}, {1, 1, 0}, {1, 1, 1}, {4, 2, 0}},
		},
		{
			"several per nanosecond",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(3e9), Burst: 10},
			[]step{{0, 10, 0}, {0, 10, 4}, {0, 3, 1}, {1, 3, 0}, {1, 1, 1}},
		},
		{
			"time goes back",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2},
			[]step{
				{10 * time.Second, 2, 0}, // those of 8 s and earlier are lost
				{9 * time.Second, 1, 2 * time.Second},
				{5 * time.Second, 1, 6 * time.Second},
				{11 * time.Second, 1, 0},
				{10 * time.Second, 1, 2 * time.Second},
			},
		},
		{
			"before the start",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2, Initial: 1},
			[]step{{-time.Hour, 1, 0}, {-time.Hour, 1, time.Hour + time.Second}, {math.MinInt64, 1, never}, {0, 1, time.Second}, {time.Second, 1, 0}},
		},
		{
			"decades",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: 5},
			[]step{{0, 5, 0}, {40 * 365 * 24 * time.Hour, 5, 0}, {40 * 365 * 24 * time.Hour, 1, ms}, {math.MaxInt64 - 1, 5, 0}, {math.MaxInt64 - 1, 1, never}},
		},
		{
			"nothing",
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1},
			[]step{{0, 1, 0}, {0, 0, 0}, {0, -5, 0}, {0, 1, time.Second}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			play(t, tt.cfg, tt.steps)
		})
	}
}

func TestCaseB04ExtremeRates(t *testing.T) {
	t.Parallel()
	play(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e-11), Burst: 1}, []step{
		{0, 1, 0}, {0, 1, policy.Never}, {math.MaxInt64, 1, policy.Never},
	})
	for _, rate := range []float64{1e12, 1e18, 1e300} {
		play(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(rate), Burst: 5}, []step{
			{0, 1, 0},
			{0, 1, 0},
			{0, 1, 0},
			{0, 1, 0},
			{0, 1, 0},
			{0, 1, 1},
			{0, 5, 1},
			{1, 5, 0},
			{1, 1, 1},
			{time.Hour, 5, 0},
			{time.Hour, 1, 1},
		})
	}
	// A token of decades is exact.
	decades := 30 * 365 * 24 * time.Hour
	play(t, ratelimit.TokenBucket{Rate: ratelimit.Every(decades), Burst: 1}, []step{
		{0, 1, 0}, {0, 1, decades}, {decades - 1, 1, 1}, {decades, 1, 0},
	})
	// A burst so large that the slow rate is in its last units.
	play(t, ratelimit.TokenBucket{Rate: ratelimit.Every(24 * time.Hour), Burst: math.MaxInt32}, []step{
		{0, math.MaxInt32, 0}, {0, 1, 24 * time.Hour}, {24 * time.Hour, 1, 0},
	})
}

// polled returns how many of the calls at every interval of one second are let in.
func polled(t *testing.T, cfg ratelimit.TokenBucket, interval, length time.Duration) (admitted int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, cfg), time.Now()
		for at := time.Duration(0); at < length; at += interval {
			if _, ok := b.Take(start.Add(at), 1); ok {
				admitted++
			}
		}
	})
	return admitted
}

func TestCaseB06SubMillisecondSpacing(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{160, 170, 1000, 1001, 2000, 5000} {
		got := polled(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(rate), Burst: 1}, 50*time.Microsecond, time.Second)
		assert.InDelta(t, rate, got, 1)
	}
	// 0.2/s: one each 5 s.
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(0.2), Burst: 1}), time.Now()
		for at := time.Duration(0); at < 20*time.Second; at += 50 * time.Microsecond {
			if _, ok := b.Take(start.Add(at), 1); ok != (at%(5*time.Second) == 0) {
				assert.Fail(t, "wrong answer", "%v at %s", ok, at)
			}
		}
	})
}

func TestCaseB14CostAboveCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 300})
		wait, ok := b.Take(start, 301)
		assert.False(t, ok)
		assert.Equal(t, policy.Never, wait)
		assert.InDelta(t, 300, b.Tokens(start), 0, "the balance stays")
		assert.False(t, b.AllowN(301))
		r := b.Reserve(start, 301)
		assert.False(t, r.OK())
		assert.Equal(t, policy.Never, r.Delay())

		err := b.Wait(t.Context(), 301)
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, policy.ReasonCost, re.Reason)
		assert.Equal(t, policy.Never, re.RetryAfter)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		require.NotErrorIs(t, err, ratelimit.ErrLimited)
		assert.Zero(t, time.Since(start), "at once")

		assert.True(t, b.Allow())
		assert.InDelta(t, 299, b.Tokens(start), 0)
	})
	// A cost of just the capacity.
	play(t, ratelimit.TokenBucket{Rate: ratelimit.Per(5, time.Minute), Burst: 5}, []step{
		{0, 5, 0}, {0, 5, time.Minute}, {time.Minute - 1, 5, 1}, {time.Minute, 5, 0},
	})
}

func TestCaseB15RefusalsTakeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, now := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 10}), time.Now()
		require.True(t, b.AllowN(8))
		for range 1000 {
			assert.False(t, b.AllowN(5))
			assert.InDelta(t, 2, b.Tokens(now), 0)
		}
		assert.True(t, b.Allow())
		assert.InDelta(t, 1, b.Tokens(now), 0)
	})
	// A client that retries all the time is not locked out.
	got := polled(t, ratelimit.TokenBucket{Rate: ratelimit.Per(10, 10*time.Minute), Burst: 10}, time.Second, 20*time.Minute)
	assert.Equal(t, 10+19, got, "the burst, and one a minute but at 0")
}

func TestCaseB18RetryAfterIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p, err := policy.New("dep", ratelimit.TokenBucket{Rate: ratelimit.Per(6, time.Minute), Burst: 6})
		require.NoError(t, err)
		for range 6 {
			h, err := p.Enter(t.Context())
			require.NoError(t, err)
			h.Leave(nil)
		}
		for _, tt := range []struct {
			at, want time.Duration
			seconds  int
		}{
			{0, 10 * time.Second, 10},
			{5 * time.Second, 5 * time.Second, 5},
			{8500 * ms, 1500 * ms, 2},
			{9800 * ms, 200 * ms, 1},
			{9999 * ms, 1 * ms, 1},
			{10*time.Second - 1, 1, 1},
		} {
			time.Sleep(tt.at - time.Since(start))
			_, err := p.Enter(t.Context())
			var re *policy.RejectedError
			require.ErrorAs(t, err, &re, "%s", tt.at)
			assert.Equal(t, tt.want, re.RetryAfter, "%s", tt.at)
			seconds, ok := re.RetryAfterSeconds()
			assert.True(t, ok)
			assert.Equal(t, tt.seconds, seconds, "%s", tt.at)
		}
		time.Sleep(time.Nanosecond)
		_, err = p.Enter(t.Context())
		assert.NoError(t, err)
	})
}

// Over hours not one token is lost or won.
func TestNoDrift(t *testing.T) {
	t.Parallel()
	for _, tokens := range []float64{6000, 6001, 999_983, 123.456789, math.Pi * 1000} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// The bucket holds more than is taken at once: it never overflows.
				const n = 100
				b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(tokens), Burst: 2 * n, Initial: ratelimit.StartEmpty}), time.Now()
				at, taken := time.Duration(0), 0
				for at < 10*time.Hour && taken < 1_000_000 {
					wait, ok := b.Take(start.Add(at), n)
					if ok {
						taken += n
						continue
					}
					at += wait
					// The moment of the last token, to the nanosecond.
					require.InDelta(t, float64(taken+n)/tokens*1e9, float64(at), 1.01)
				}
			})
		})
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 4}), time.Now()
		require.True(t, b.AllowN(4))
		assert.InDelta(t, 0, b.Tokens(start), 0)
		assert.InDelta(t, 2.5, b.Tokens(start.Add(250*ms)), 0)
		assert.InDelta(t, 4, b.Tokens(start.Add(time.Hour)), 0)
		assert.InDelta(t, 0, b.Tokens(start.Add(-time.Hour)), 0)
		assert.InDelta(t, 4, b.Tokens(start.Add(math.MaxInt64)), 0)
		r := b.Reserve(start, 3)
		require.True(t, r.OK())
		assert.InDelta(t, -3, b.Tokens(start), 0, "reserved ahead")
		assert.Equal(t, policy.PolicySnapshot{
			Name: "ratelimit", Kind: "ratelimit",
			Limiter: &policy.LimiterSnapshot{Tokens: -1, Burst: 4, Rate: 10, MaxWaiters: 100, Delay: 200 * ms},
		}, b.Snapshot(start.Add(200*ms)))
	})
}

func TestRefund(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 5}), time.Now()
		require.True(t, b.AllowN(4))
		b.Refund(start, 3)
		assert.InDelta(t, 4, b.Tokens(start), 0)
		b.Refund(start, 2)
		assert.InDelta(t, 5, b.Tokens(start), 0, "never above the burst")
		for range 100 {
			b.Refund(start, math.MaxInt)
		}
		assert.InDelta(t, 5, b.Tokens(start), 0)
		assert.True(t, b.AllowN(5))
		assert.False(t, b.Allow(), "what was too much is not kept")

		time.Sleep(time.Hour) // full again
		b.Refund(time.Now(), 5)
		assert.True(t, b.AllowN(5))
		assert.False(t, b.Allow())

		// What has arrived meanwhile would have overflowed.
		taken := time.Now()
		time.Sleep(3 * time.Second)
		b.Refund(taken, 5)
		assert.InDelta(t, 5, b.Tokens(time.Now()), 0)
		assert.True(t, b.AllowN(5))
		time.Sleep(time.Hour)
		b.Refund(taken, 5)
		assert.True(t, b.AllowN(5))
		b.Refund(taken, 5)
		assert.False(t, b.Allow(), "an hour later nothing of it is left")
	})
}

func TestSetLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 10, Initial: 7})
		tokens := func() float64 { return b.Tokens(time.Now()) }

		require.NoError(t, b.SetLimit(ratelimit.PerSecond(2), 20))
		assert.InDelta(t, 7, tokens(), 0, "a larger burst grants nothing")
		assert.Equal(t, ratelimit.TokenBucket{Name: "ratelimit", Rate: ratelimit.PerSecond(2), Burst: 20, Initial: 7, MaxWaiters: 100}, b.Config())
		time.Sleep(time.Second)
		assert.InDelta(t, 9, tokens(), 0, "the new rate holds from the change on")

		require.NoError(t, b.SetLimit(ratelimit.PerSecond(2), 4))
		assert.InDelta(t, 4, tokens(), 0, "a smaller burst caps")
		assert.Equal(t, 4, b.Config().Initial)
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(3), 0))
		assert.Equal(t, 3, b.Config().Burst, "the default")
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(2), 10))
		assert.InDelta(t, 3, tokens(), 0, "what was cut off stays lost")

		require.True(t, b.AllowN(3))
		time.Sleep(250 * ms)
		for range 1000 {
			require.NoError(t, b.SetLimit(ratelimit.PerSecond(2), 10))
		}
		assert.InDelta(t, 0.5, tokens(), 0, "a change to the same limit is none")

		err := b.SetLimit(ratelimit.PerSecond(-1), -1)
		assert.Equal(t, []string{"Rate.Tokens", "Burst"}, faults(t, err))
		assert.Equal(t, ratelimit.PerSecond(2), b.Config().Rate, "an invalid one changes nothing")
		assert.InDelta(t, 0.5, tokens(), 0)

		require.NoError(t, b.SetLimit(ratelimit.PerSecond(math.Inf(1)), 5))
		for range 100 {
			require.True(t, b.AllowN(5))
		}
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(1), 50))
		assert.InDelta(t, 5, tokens(), 0, "an infinite rate has filled the bucket")
	})
}

// What is owed is not forgiven, whatever the new limit.
func TestSetLimitKeepsDebt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A gigabyte ahead at a gigabyte per second; then 1 kB/s.
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e9), Burst: 1e9})
		require.True(t, b.AllowN(1e9))
		r := b.Reserve(time.Now(), 1e9)
		require.Equal(t, time.Second, r.Delay())
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(1000.7), 10))
		time.Sleep(time.Second) // it acts, and its tokens are owed
		wait, ok := b.Take(time.Now(), 10)
		assert.False(t, ok)
		assert.InDelta(t, 1e9/1000.7, wait.Seconds(), 1e-6, "the bucket was full just before")
		time.Sleep(wait - 1)
		_, ok = b.Take(time.Now(), 10)
		assert.False(t, ok)
		time.Sleep(time.Nanosecond)
		_, ok = b.Take(time.Now(), 10)
		assert.True(t, ok)
	})
}
