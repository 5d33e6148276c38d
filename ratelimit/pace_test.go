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

// At a rate whose interval is no whole number of nanoseconds a queue does not drift.
func TestPaceDoesNotDrift(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{3, 6001, 7e6, 1e9 / math.Pi} {
			p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(rate), MaxWait: time.Hour, MaxWaiters: 1000})
			start := time.Now()
			at := releases(t, p, start, 1000)
			assert.Zero(t, at[0])
			for i := range at {
				assert.InDelta(t, float64(i)/rate*1e9, at[i], 1, "call %d at %v/s", i, rate)
			}
		}
	})
}

// A call of cost n takes n intervals, from when one would be let in.
func TestPaceCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(10), MaxWait: 10 * time.Second})
		start := time.Now()
		require.NoError(t, p.Wait(t.Context(), 20))
		assert.Equal(t, start, time.Now())
		assert.InDelta(t, -19, p.Snapshot(time.Now()).Limiter.Tokens, 0)
		assert.Equal(t, 2*time.Second, p.Snapshot(time.Now()).Limiter.Delay)
		var wg sync.WaitGroup
		wg.Go(func() {
			assert.NoError(t, p.Wait(t.Context(), 5))
			assert.Equal(t, 2*time.Second, time.Since(start))
		})
		synctest.Wait()
		require.NoError(t, p.Wait(t.Context(), 1))
		assert.Equal(t, 2500*ms, time.Since(start))
		wg.Wait()
		// One that would keep the others out for more than a year is refused.
		err := p.Wait(t.Context(), math.MaxInt32)
		require.ErrorIs(t, err, ratelimit.ErrExceedsBurst)
		slow := newPace(t, ratelimit.Pacer{Rate: ratelimit.Every(100 * 24 * time.Hour)})
		_, ok := slow.Take(time.Now(), 4)
		assert.False(t, ok)
		_, ok = slow.Take(time.Now(), 3)
		assert.True(t, ok)
		slow = newPace(t, ratelimit.Pacer{Rate: ratelimit.Every(10_000 * time.Hour)})
		assert.True(t, slow.Allow(), "a single one always may")
	})
}

func TestPaceSetLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(1)})
		require.True(t, p.Allow())
		time.Sleep(500 * ms)
		for range 100 {
			require.NoError(t, p.SetLimit(ratelimit.PerSecond(1), 1))
		}
		wait, _ := p.Take(time.Now(), 1)
		assert.Equal(t, 500*ms, wait)
		// Half an interval has passed. The other half passes at the new rate.
		require.NoError(t, p.SetRate(ratelimit.PerSecond(0.1)))
		wait, _ = p.Take(time.Now(), 1)
		assert.Equal(t, 5*time.Second, wait)
		require.NoError(t, p.SetRate(ratelimit.PerSecond(100)))
		wait, _ = p.Take(time.Now(), 1)
		assert.Equal(t, 5*ms, wait)
		require.NoError(t, p.SetLimit(ratelimit.PerSecond(100), 10))
		wait, _ = p.Take(time.Now(), 1)
		assert.Equal(t, 5*ms, wait, "a larger burst is not there at once")
		assert.Equal(t, 10, p.Config().Burst)
		time.Sleep(time.Second)
		assert.Equal(t, 10, drain(t, p))
		time.Sleep(time.Second)
		require.NoError(t, p.SetLimit(ratelimit.PerSecond(100), 0))
		assert.Equal(t, 1, drain(t, p))

		// What is owed is not forgiven.
		require.NoError(t, p.SetRate(ratelimit.PerSecond(1)))
		time.Sleep(time.Second)
		require.True(t, p.AllowN(1000))
		require.NoError(t, p.SetRate(ratelimit.PerSecond(1e9)))
		wait, _ = p.Take(time.Now(), 1)
		assert.Equal(t, 1000*time.Nanosecond, wait)
		require.NoError(t, p.SetRate(ratelimit.PerSecond(1)))
		wait, _ = p.Take(time.Now(), 1)
		assert.Equal(t, 1000*time.Second, wait)

		require.NoError(t, p.SetRate(ratelimit.PerSecond(math.Inf(1))))
		assert.True(t, p.AllowN(1000))
		assert.True(t, p.Allow())
		assert.True(t, math.IsInf(p.Snapshot(time.Now()).Limiter.Rate, 1))
		require.NoError(t, p.SetRate(ratelimit.PerSecond(1)))
		assert.True(t, p.Allow())
		assert.False(t, p.Allow())
		require.Error(t, p.SetLimit(ratelimit.PerSecond(1), -1))
		require.Error(t, p.SetLimit(ratelimit.Rate{}, 1))
	})
}

// What a reservation that was cancelled leaves goes to who comes next, and nobody who
// has one is hurt by it.
func TestPaceReservations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, order := range [][2]int{{1, 2}, {2, 1}} {
			p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(1), MaxWait: time.Minute})
			var rs [3]ratelimit.Reservation
			for i := range rs {
				rs[i] = p.Reserve(time.Now(), 1)
				require.True(t, rs[i].OK())
				require.Equal(t, time.Duration(i)*time.Second, rs[i].Delay())
			}
			rs[0].Cancel(time.Now()) // its time has come: nothing
			rs[order[0]].Cancel(time.Now())
			rs[order[0]].Cancel(time.Now())
			rs[order[1]].Cancel(time.Now())
			r := p.Reserve(time.Now(), 1)
			assert.Equal(t, time.Second, r.Delay())
		}
		p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(1), MaxWait: time.Minute})
		require.True(t, p.Allow())
		first, last := p.Reserve(time.Now(), 1), p.Reserve(time.Now(), 1)
		require.Equal(t, 2*time.Second, last.Delay())
		wait, _ := p.Take(time.Now(), 1)
		assert.Equal(t, 3*time.Second, wait)
		first.Cancel(time.Now())
		wait, _ = p.Take(time.Now(), 1)
		assert.Equal(t, time.Second, wait)
		start := time.Now()
		require.NoError(t, p.Wait(t.Context(), 1))
		assert.Equal(t, time.Second, time.Since(start))
		last.Cancel(time.Now().Add(time.Second)) // too late
		wait, _ = p.Take(time.Now(), 1)
		assert.Equal(t, 2*time.Second, wait)
		assert.False(t, p.Allow())
		time.Sleep(2 * time.Second)
		assert.True(t, p.Allow())
		var zero ratelimit.Reservation
		assert.False(t, zero.OK())
		zero.Cancel(time.Now())
	})
}

// A reservation in the line: those behind it move up only as far as it lets them.
func TestPaceReservationInTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(1), MaxWait: time.Minute})
		require.True(t, p.Allow())
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(ctx context.Context, want time.Duration) {
			go func() {
				if err := p.Wait(ctx, 1); want > 0 {
					assert.NoError(t, err)
					assert.Equal(t, want, time.Since(start))
				}
			}()
			synctest.Wait()
		}
		wait(ctx, 0)                     // 1 s, and gives up
		wait(t.Context(), time.Second)   // 2 s
		r := p.Reserve(time.Now(), 1)    // 3 s
		wait(t.Context(), 2*time.Second) // 4 s
		wait(t.Context(), 4*time.Second) // 5 s
		require.Equal(t, 3*time.Second, r.Delay())
		cancel()
		synctest.Wait()
		assert.Equal(t, 3, p.Snapshot(time.Now()).Limiter.Waiting)
		time.Sleep(time.Minute)
	})
}

// Whoever asks for a time to come while others wait gets in front of nobody.
func TestPaceLooksAheadOfWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(1), MaxWait: time.Minute})
		require.True(t, p.Allow())
		start := time.Now()
		done := make(chan time.Duration, 1)
		go func() {
			assert.NoError(t, p.Wait(t.Context(), 1))
			done <- time.Since(start)
		}()
		synctest.Wait()
		wait, ok := p.Take(start.Add(1500*ms), 1)
		assert.False(t, ok)
		assert.Equal(t, 500*ms, wait)
		wait, ok = p.Take(start.Add(10*time.Second), 1)
		assert.True(t, ok, "the waiter will have been let in by then")
		assert.Zero(t, wait)
		assert.Equal(t, time.Second, <-done)
		_, ok = p.Take(start.Add(10*time.Second+999*ms), 1)
		assert.False(t, ok)
		_, ok = p.Take(start.Add(11*time.Second), 1)
		assert.True(t, ok)
	})
}

func TestKindsWarn(t *testing.T) {
	t.Parallel()
	even, some := ratelimit.PerSecond(1), ratelimit.PerSecond(math.Inf(1))
	for _, tt := range []struct {
		cfg  policy.Policy
		want int
	}{
		{ratelimit.Pacer{Rate: even}, 1},
		{ratelimit.Pacer{Rate: even, Burst: 2}, 0},
		{ratelimit.Pacer{Rate: even, MaxWait: 1}, 0},
		{ratelimit.Pacer{Rate: some}, 0},
		{ratelimit.WarmUp{Rate: even}, 1},
		{ratelimit.WarmUp{Rate: even, MaxWait: 1}, 0},
		{ratelimit.FixedWindow{Limit: 1, Window: 1}, 0},
		{ratelimit.SlidingWindow{Limit: 1, Window: 1}, 0},
		{ratelimit.SlidingWindow{Limit: 9, Window: 1, Approximate: true}, 1},
		{ratelimit.SlidingWindow{Limit: 10, Window: 1, Approximate: true}, 0},
	} {
		assert.Len(t, newPipeline(t, tt.cfg).Warnings(), tt.want, "%+v", tt.cfg)
	}
}
