package ratelimit_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// waitFor lets a call wait and reports when it was let in.
func waitFor(ctx context.Context, t *testing.T, l ratelimit.Limiter, n int, start time.Time) <-chan time.Duration {
	t.Helper()
	done := make(chan time.Duration, 1)
	go func() {
		if l.Wait(ctx, n) == nil {
			done <- time.Since(start)
		}
		close(done)
	}()
	synctest.Wait() // one after the other
	return done
}

func TestBucketWaitHasABoundOnWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1, MaxWaiters: 2})
		require.True(t, b.Allow())
		start := time.Now()
		first, second := waitFor(t.Context(), t, b, 1, start), waitFor(t.Context(), t, b, 1, start)
		s := b.Snapshot(time.Now()).Limiter
		assert.Equal(t, 2, s.Waiting)
		assert.Equal(t, 2, s.MaxWaiters)
		assert.Equal(t, 3*time.Second, s.Delay)
		err := b.Wait(t.Context(), 1)
		re := rejected(t, err)
		assert.Equal(t, policy.ReasonWaiters, re.Reason)
		assert.Equal(t, time.Second, re.RetryAfter)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		assert.Equal(t, start, time.Now(), "at once")
		assert.Equal(t, time.Second, <-first)
		third := waitFor(t.Context(), t, b, 1, start)
		assert.Equal(t, 2*time.Second, <-second)
		assert.Equal(t, 3*time.Second, <-third)
		synctest.Wait()
		assert.Zero(t, b.Snapshot(time.Now()).Limiter.Waiting)
	})
}

func TestBucketWaitersMoveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 3, Initial: ratelimit.StartEmpty})
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		gone := waitFor(ctx, t, b, 2, start)
		first := waitFor(t.Context(), t, b, 1, start)
		second := waitFor(t.Context(), t, b, 3, start)
		time.Sleep(500 * ms)
		cancel()
		_, ok := <-gone
		assert.False(t, ok)
		assert.Equal(t, time.Second, <-first, "and not after 3 s")
		wait, ok := b.Take(time.Now(), 1)
		assert.False(t, ok, "nobody gets in front of who waits")
		assert.Equal(t, 4*time.Second, wait)

		// What a call that did not run gives back lets in who waits for it, and more of
		// a rate does.
		taken := time.Now()
		b.Refund(taken, 1)
		require.NoError(t, b.SetLimit(ratelimit.PerSecond(2), 3))
		assert.Equal(t, 2*time.Second, <-second, "two more at twice the rate")

		// A lower rate keeps nobody from the time that was promised.
		start = time.Now()
		third := waitFor(t.Context(), t, b, 1, start)
		fourth := waitFor(t.Context(), t, b, 1, start)
		require.NoError(t, b.SetRate(ratelimit.Every(time.Hour)))
		assert.Equal(t, 500*ms, <-third)
		assert.Equal(t, time.Second, <-fourth)
		fifth := waitFor(t.Context(), t, b, 1, start)
		require.NoError(t, b.SetRate(ratelimit.PerSecond(math.Inf(1))))
		assert.Equal(t, time.Second, <-fifth, "without a limit there is nothing to wait for")
	})
}

// Many who wait give up at the same moment.
func TestBucketWaitersLeaveConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1, MaxWaiters: 200})
		require.True(t, b.Allow())
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { assert.ErrorIs(t, b.Wait(ctx, 1), context.Canceled) })
		}
		synctest.Wait()
		last := waitFor(t.Context(), t, b, 1, start)
		time.Sleep(500 * ms)
		cancel()
		wg.Wait()
		assert.Equal(t, time.Second, <-last)
		assert.Zero(t, b.Snapshot(time.Now()).Limiter.Waiting)
		time.Sleep(time.Hour)
		assert.True(t, b.Allow())
		assert.False(t, b.Allow())
	})
}
