package windows_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

var errDown = errors.New("down")

// How long a window of 10 s in 10 buckets remembers a call, by the moment at which it
// came.
func TestMemory(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b, err := breaker.New("", breaker.Config{Window: 10 * time.Second, Buckets: 10})
			require.NoError(t, err)
			p, err := policy.New("inventory", b)
			require.NoError(t, err)
			time.Sleep(at)
			_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, nil })
			require.NoError(t, err)
			start := time.Now()
			for b.Snapshot(time.Now()).Breaker.Calls == 1 {
				time.Sleep(time.Millisecond)
			}
			lasted := time.Since(start)
			t.Logf("a call at %5v counts for %v", at, lasted)
			assert.Equal(t, 10*time.Second-at, lasted)
		})
	}
}

// How long after the beginning of an outage a breaker opens, at 100 calls a second. It
// depends on where in a bucket the outage begins.
func TestDetection(t *testing.T) {
	t.Parallel()
	const every = 10 * time.Millisecond
	tests := []struct {
		window  time.Duration
		buckets int
		ratio   float64
	}{
		{10 * time.Second, 10, 0.5},
		{10 * time.Second, 10, 0.1},
		{10 * time.Second, 100, 0.5},
		{time.Second, 10, 0.5},
	}
	for _, tt := range tests {
		bucket := tt.window / time.Duration(tt.buckets)
		soonest, latest := time.Duration(1<<62), time.Duration(0)
		for phase := time.Duration(0); phase < bucket; phase += bucket / 10 {
			took := detection(t, tt.window, tt.buckets, tt.ratio, phase, every)
			soonest, latest = min(soonest, took), max(latest, took)
		}
		least := time.Duration(tt.ratio*float64(tt.window-bucket)) - every
		most := time.Duration(tt.ratio*float64(tt.window)) + every
		t.Logf("window %v in %d buckets, ratio %v: opens after %v to %v (bounds %v to %v)", tt.window, tt.buckets, tt.ratio, soonest, latest, least, most)
		assert.GreaterOrEqual(t, soonest, least)
		assert.LessOrEqual(t, latest, most)
	}
}

// detection measures one outage.
func detection(t *testing.T, window time.Duration, buckets int, ratio float64, phase, every time.Duration) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, err := breaker.New("", breaker.Config{Window: window, Buckets: buckets, FailureRatio: ratio})
		require.NoError(t, err)
		call := func(kind policy.Kind) bool {
			permit, err := b.Acquire()
			if err != nil {
				return false
			}
			permit.Done(kind)
			return true
		}
		for range (2*window + phase) / every {
			time.Sleep(every)
			require.True(t, call(policy.Success))
		}
		start := time.Now()
		for call(policy.Failure) {
			time.Sleep(every)
		}
		took = time.Since(start)
	})
	return took
}

// What a reserve of one retry per second lets through: twice the reserve of a window
// at the worst moments, and the reserve in the long run.
func TestReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := retry.New("", retry.Config{
			MaxAttempts: retry.Unlimited, BaseDelay: retry.Off,
			Budget: retry.BudgetConfig{Ratio: retry.Off, MinPerSecond: 1, Window: 10 * time.Second},
		})
		require.NoError(t, err)
		all := func() (n int) { // takes every retry there is
			for {
				s := policy.RetryState{Now: time.Now(), Started: time.Now(), Attempt: 1, Outcome: policy.Outcome{Kind: policy.Failure}, Err: errDown}
				if r.Decide(s).Stop != policy.StopNone {
					return n
				}
				n++
			}
		}
		start := time.Now()
		time.Sleep(time.Second - time.Nanosecond) // the end of the first bucket
		first := all()
		time.Sleep(9*time.Second + time.Nanosecond) // the beginning of the eleventh
		second := all()
		t.Logf("%d retries within %v", first+second, 9*time.Second+time.Nanosecond)
		assert.Equal(t, 10, first)
		assert.Equal(t, 10, second)

		n := first + second
		for time.Since(start) < time.Hour {
			time.Sleep(100 * time.Millisecond)
			n += all()
		}
		rate := float64(n) / time.Since(start).Seconds()
		t.Logf("%.4f retries per second in an hour", rate)
		assert.InDelta(t, 1, rate, 0.003)
	})
}
