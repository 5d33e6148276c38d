package ratelimit_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// A bubble begins at midnight UTC of a day of January 2000.
func TestWindowAlignsToTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12*time.Second + 345*ms)
		aligned := newWindow(t, ratelimit.FixedWindow{Limit: 2, Window: time.Minute, AlignToClock: true})
		plain := newWindow(t, ratelimit.FixedWindow{Limit: 2, Window: time.Minute})
		require.Equal(t, 2, drain(t, aligned))
		require.Equal(t, 2, drain(t, plain))
		wait, _ := aligned.Take(time.Now(), 1)
		assert.Equal(t, 47*time.Second+655*ms, wait)
		wait, _ = plain.Take(time.Now(), 1)
		assert.Equal(t, time.Minute, wait)
		time.Sleep(47*time.Second + 655*ms)
		assert.Zero(t, time.Now().Second())
		assert.True(t, aligned.AllowN(2))
		assert.False(t, plain.Allow())

		// Another window is aligned too, and what was taken counts until it begins.
		time.Sleep(10 * time.Second)
		require.NoError(t, aligned.SetLimit(3, 15*time.Minute))
		assert.Equal(t, 1, drain(t, aligned))
		wait, _ = aligned.Take(time.Now(), 1)
		assert.Equal(t, 13*time.Minute+50*time.Second, wait)
		require.NoError(t, aligned.SetLimit(3, 15*time.Minute))
		again, _ := aligned.Take(time.Now(), 1)
		assert.Equal(t, wait, again)
	})
}

func TestWindowSetLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		limit          int
		window         time.Duration
		left           int           // at 30 s of a minute, 8 of 10 taken
		next           time.Duration // until the next window
		inTheNext      int
		andTheOneAfter time.Duration
	}{
		{"the same", 10, time.Minute, 2, 30 * time.Second, 10, time.Minute},
		{"more", 20, time.Minute, 12, 30 * time.Second, 20, time.Minute},
		{"less", 9, time.Minute, 1, 30 * time.Second, 9, time.Minute},
		{"less than was taken", 5, time.Minute, 0, 30 * time.Second, 5, time.Minute},
		{"longer", 10, time.Hour, 2, time.Hour - 30*time.Second, 10, time.Hour},
		{"shorter", 10, time.Second, 2, time.Second, 10, time.Second},
		{"shorter, and longer than what is left", 10, 40 * time.Second, 2, 30 * time.Second, 10, 40 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWindow(t, ratelimit.FixedWindow{Limit: 10, Window: time.Minute})
				require.True(t, w.AllowN(8))
				time.Sleep(30 * time.Second)
				for range 3 { // again is nothing new
					require.NoError(t, w.SetLimit(tt.limit, tt.window))
				}
				assert.Equal(t, tt.limit, w.Config().Limit)
				assert.Equal(t, tt.window, w.Config().Window)
				assert.Equal(t, tt.left, drain(t, w))
				wait, _ := w.Take(time.Now(), 1)
				assert.Equal(t, tt.next, wait)
				time.Sleep(wait)
				assert.Equal(t, tt.inTheNext, drain(t, w))
				wait, _ = w.Take(time.Now(), 1)
				assert.Equal(t, tt.andTheOneAfter, wait)
			})
		})
	}
}

func TestWindowsSetLimitInvalid(t *testing.T) {
	t.Parallel()
	w := newWindow(t, ratelimit.FixedWindow{Limit: 10, Window: time.Minute})
	s := newSliding(t, ratelimit.SlidingWindow{Limit: 10, Window: time.Minute})
	for _, limit := range []int{0, -1} {
		require.Error(t, w.SetLimit(limit, time.Second))
		require.Error(t, s.SetLimit(limit, time.Second))
	}
	require.Error(t, w.SetLimit(1, 0))
	require.Error(t, s.SetLimit(1<<20+1, time.Second))
	assert.Equal(t, 10, w.Config().Limit)
	assert.Equal(t, 10, s.Config().Limit)
	assert.Equal(t, time.Minute, s.Config().Window)
}

// A rate for a window is as many as come in one, at least one.
func TestWindowsSetRate(t *testing.T) {
	t.Parallel()
	for _, l := range []interface {
		ratelimit.Limiter
		SetLimit(limit int, window time.Duration) error
	}{
		newWindow(t, ratelimit.FixedWindow{Limit: 10, Window: 10 * time.Second}),
		newSliding(t, ratelimit.SlidingWindow{Limit: 10, Window: 10 * time.Second}),
		newSliding(t, ratelimit.SlidingWindow{Limit: 10, Window: 10 * time.Second, Approximate: true}),
	} {
		for _, tt := range []struct {
			rate ratelimit.Rate
			want float64
		}{
			{ratelimit.PerSecond(2), 20},
			{ratelimit.PerSecond(0.7), 7}, // which is a little less than 0.7 in a float64
			{ratelimit.PerSecond(0.79), 7},
			{ratelimit.PerSecond(0.001), 1},
			{ratelimit.PerMinute(60), 10},
		} {
			require.NoError(t, l.SetRate(tt.rate))
			assert.InDelta(t, tt.want, l.Snapshot(time.Now()).Limiter.Burst, 0, "%T %v", l, tt.rate)
			assert.InDelta(t, tt.want/10, l.Snapshot(time.Now()).Limiter.Rate, 1e-9)
		}
		require.NoError(t, l.SetRate(ratelimit.PerSecond(math.Inf(1))))
		assert.GreaterOrEqual(t, l.Snapshot(time.Now()).Limiter.Burst, float64(1<<20))
	}
}

// A window takes back what is its own, and no other does.
func TestWindowRefund(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(t, ratelimit.FixedWindow{Limit: 5, Window: time.Second})
		first := time.Now()
		require.True(t, w.AllowN(5))
		w.Refund(first, 2)
		assert.Equal(t, 2, drain(t, w))
		time.Sleep(time.Second)
		require.True(t, w.AllowN(5))
		w.Refund(first, 5)
		assert.False(t, w.Allow())
		w.Refund(time.Now(), 100)
		assert.Equal(t, 5, drain(t, w), "never more than the limit")
		w.Refund(time.Now(), 0)
		w.Refund(time.Now(), -3)
		assert.False(t, w.Allow())

		// What was taken beyond a limit that was lowered since goes back first.
		require.NoError(t, w.SetLimit(3, time.Second))
		w.Refund(time.Now(), 2)
		assert.False(t, w.Allow())
		assert.InDelta(t, 0, w.Snapshot(time.Now()).Limiter.Tokens, 0)
		w.Refund(time.Now(), 1)
		assert.True(t, w.Allow())
	})
}

func TestSlidingRefund(t *testing.T) {
	t.Parallel()
	for _, approximate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSliding(t, ratelimit.SlidingWindow{Limit: 5, Window: time.Second, Approximate: approximate})
			first := time.Now()
			require.True(t, s.AllowN(4))
			time.Sleep(500 * ms)
			require.True(t, s.Allow())
			s.Refund(first, 3)
			assert.Equal(t, 3, drain(t, s))
			time.Sleep(700 * ms)
			// Exactly, 4 of 0.7 s ago count and nothing of 1.2 s ago. Approximately, the
			// 4 that are left of the first window weigh 3.2, which is 4.
			s.Refund(first, 1)
			s.Refund(time.Now(), 1)
			assert.Equal(t, 1, drain(t, s))
		})
	}
}

// Under full load the two counters let in one call less than the limit in each window,
// and at a limit of 1 half.
func TestSlidingCounterUnderLoad(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{1: 51, 2: 102, 10: 902, 100: 9902, 1000: 99_902} {
		s, start := newSliding(t, ratelimit.SlidingWindow{Limit: limit, Window: time.Second, Approximate: true}), time.Now()
		assert.Equal(t, want, sum(saturate(s, start, 100*time.Second+1)), "limit %d", limit)
	}
}

// A window is counted anew before its figures grow too large.
func TestWindowMovesOn(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt >> (10 * (math.MaxInt >> 62))
	w, start := newWindow(t, ratelimit.FixedWindow{Limit: most, Window: 1}), time.Now()
	for i := range 1000 {
		_, ok := w.Take(start.Add(time.Duration(i)+1), most)
		require.True(t, ok, "window %d", i)
		wait, ok := w.Take(start.Add(time.Duration(i)+1), 1)
		require.False(t, ok)
		require.Equal(t, time.Duration(1), wait)
	}
	assert.InDelta(t, most, w.Snapshot(start.Add(time.Hour)).Limiter.Tokens, 0)
}

func TestWindowsInASnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []byHand{
			newWindow(t, ratelimit.FixedWindow{Limit: 4, Window: 2 * time.Second, MaxWait: time.Minute, MaxWaiters: 3}),
			newSliding(t, ratelimit.SlidingWindow{Limit: 4, Window: 2 * time.Second, MaxWait: time.Minute, MaxWaiters: 3}),
		} {
			require.True(t, l.AllowN(3))
			want := policy.LimiterSnapshot{Tokens: 1, Burst: 4, Rate: 2, MaxWaiters: 3}
			assert.Equal(t, &want, l.Snapshot(time.Now()).Limiter)
			go func() { _ = l.Wait(t.Context(), 3) }()
			synctest.Wait()
			want.Tokens, want.Waiting, want.Delay = -2, 1, 2*time.Second
			assert.Equal(t, &want, l.Snapshot(time.Now()).Limiter)
			time.Sleep(2 * time.Second)
			want.Tokens, want.Waiting, want.Delay = 1, 0, 0
			assert.Equal(t, &want, l.Snapshot(time.Now()).Limiter)
		}
	})
}
