package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/ratelimit"
)

// guava is the shape of the write-ups: a capacity of rate + 1, one token at the start.
func guava(rate int) ratelimit.TokenBucket {
	return ratelimit.TokenBucket{Rate: ratelimit.PerSecond(float64(rate)), Burst: rate + 1, Initial: 1}
}

// admittedPerSecond offers calls at an even spacing and counts those that pass.
func admittedPerSecond(t *testing.T, cfg ratelimit.TokenBucket, spacing, length time.Duration) (perSecond []int, total int, first bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, start := newBucket(t, cfg), time.Now()
		perSecond = make([]int, length/time.Second)
		for at := time.Duration(0); at < length; at += spacing {
			if _, ok := b.Take(start.Add(at), 1); ok {
				perSecond[at/time.Second]++
				total++
				first = first || at == 0
			}
		}
	})
	return perSecond, total, first
}

func TestIncidentCaptcha(t *testing.T) {
	t.Parallel()
	t.Run("burst of 50 at 1/s", func(t *testing.T) {
		t.Parallel()
		b, now, passed := newBucket(t, guava(1)), time.Now(), 0
		for range 50 {
			if _, ok := b.Take(now, 1); ok {
				passed++
			}
		}
		assert.Equal(t, 1, passed)
	})
	t.Run("2.5 req/s for 12 s at 1/s", func(t *testing.T) {
		t.Parallel()
		perSecond, total, first := admittedPerSecond(t, guava(1), 400*ms, 12*time.Second)
		assert.Equal(t, 12, total)
		assert.True(t, first)
		for s, n := range perSecond {
			assert.Equal(t, 1, n, "second %d", s)
		}
		// A capacity of 1 loses what is due while it is full.
		_, total, _ = admittedPerSecond(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1}, 400*ms, 12*time.Second)
		assert.Equal(t, 10, total)
	})
	t.Run("20 req/s for 10 s at 10/s", func(t *testing.T) {
		t.Parallel()
		perSecond, total, _ := admittedPerSecond(t, guava(10), 50*ms, 10*time.Second)
		assert.InDelta(t, 100, total, 2)
		for s, n := range perSecond {
			assert.InDelta(t, 10, n, 1, "second %d", s)
		}
	})
}

func TestIncidentAggregator(t *testing.T) {
	t.Parallel()
	spacing := time.Second / 1100
	for _, burst := range []int{2, 10, 100} {
		_, total, _ := admittedPerSecond(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: burst}, spacing, 10*time.Second)
		assert.InDelta(t, 10_000, total, 100, "burst %d", burst)
	}
	_, total, _ := admittedPerSecond(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: 1}, spacing, 10*time.Second)
	assert.InDelta(t, 5_500, total, 10, "a burst of 1 lets in every other call")
}
