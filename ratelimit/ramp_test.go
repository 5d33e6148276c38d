package ratelimit_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/ratelimit"
)

func newRamp(tb testing.TB, cfg ratelimit.WarmUp) *ratelimit.Ramp {
	tb.Helper()
	r, err := ratelimit.NewRamp("", cfg)
	require.NoError(tb, err)
	return r
}

// saturate takes whatever there is until an end, by a clock of its own, and counts what
// is let in by second.
func saturate(l ratelimit.Limiter, start time.Time, length time.Duration) []int {
	perSecond := make([]int, int(math.Ceil(length.Seconds())))
	for at := time.Duration(0); at < length; {
		wait, ok := l.Take(start.Add(at), 1)
		if ok {
			perSecond[int(at.Seconds())]++
			continue
		}
		at += wait
	}
	return perSecond
}

func sum(ns []int) int {
	s := 0
	for _, n := range ns {
		s += n
	}
	return s
}

// From a third of the rate to all of it in a straight line: the trapezoid over ten
// seconds is 10 * (30 + 90) / 2.
func TestRampWarmsUpInAStraightLine(t *testing.T) {
	t.Parallel()
	r := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(90), ColdFactor: 3, Period: 10 * time.Second})
	start := time.Now()
	perSecond := saturate(r, start, 20*time.Second)
	for s, n := range perSecond {
		want := 90.0
		if s < 10 {
			want = 30 + 60*(float64(s)+0.5)/10
		}
		assert.InDelta(t, want, n, 1, "second %d", s)
	}
	assert.InDelta(t, 600, sum(perSecond[:10]), 2)
	s := r.Snapshot(start.Add(20 * time.Second)).Limiter
	assert.InDelta(t, 1, s.Warmth, 1e-3)
	assert.InDelta(t, 90, s.Rate, 0.1)
}

func TestRampCoolsWhenIdle(t *testing.T) {
	t.Parallel()
	r := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(90), Period: 10 * time.Second})
	start := time.Now()
	assert.InDelta(t, 0, r.Snapshot(start).Limiter.Warmth, 0)
	assert.InDelta(t, 30, r.Snapshot(start).Limiter.Rate, 1e-9, "a third")
	saturate(r, start, 10*time.Second)
	for idle, want := range map[time.Duration]float64{0: 1, 2500 * ms: 0.75, 5 * time.Second: 0.5, 10 * time.Second: 0, time.Hour: 0} {
		s := r.Snapshot(start.Add(10*time.Second + idle)).Limiter
		assert.InDelta(t, want, s.Warmth, 0.01, "after %s", idle)
		assert.InDelta(t, 30+60*want, s.Rate, 0.6)
	}
	// After a long pause it is cold again: it has the same to give as at first.
	assert.InDelta(t, 300+300, sum(saturate(r, start.Add(time.Hour), 10*time.Second)), 2)
}

// At a steady load the limit ends at twice of it, so that there is room; or at an end.
func TestRampSettlesAtTwiceTheLoad(t *testing.T) {
	t.Parallel()
	for _, burst := range []int{1, 20} {
		for load, want := range map[int]float64{20: 50, 30: 60, 40: 80, 60: 120, 100: 150} {
			r := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(150), Period: 10 * time.Second, Burst: burst})
			start, passed := time.Now(), 0
			for i := range 60 * load {
				if _, ok := r.Take(start.Add(time.Duration(i)*time.Second/time.Duration(load)), 1); ok && i >= 30*load {
					passed++
				}
			}
			assert.InDelta(t, want, r.Snapshot(start.Add(time.Minute)).Limiter.Rate, 2, "load %d", load)
			assert.Equal(t, 30*load, passed, "nobody is refused at load %d", load)
		}
	}
}

// Without pacing the burst may come at once; with it, calls are apart.
func TestRampWithAndWithoutPacing(t *testing.T) {
	t.Parallel()
	now := time.Now()
	paced := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(100)})
	assert.Equal(t, ratelimit.WarmUp{
		Name: "warm_up", Rate: ratelimit.PerSecond(100), ColdFactor: 3, Period: 10 * time.Second, Burst: 1,
	}, paced.Config())
	_, ok := paced.Take(now.Add(time.Minute), 1)
	assert.True(t, ok)
	wait, ok := paced.Take(now.Add(time.Minute), 1)
	assert.False(t, ok)
	assert.InDelta(t, 30*ms, wait, float64(ms), "an interval of the cold rate")
	bursts := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(100), Burst: 20})
	n := 0
	for ok := true; ok; n++ {
		_, ok = bursts.Take(now.Add(time.Minute), 1)
	}
	assert.Equal(t, 20, n-1)
}

// A large call is let in as soon as one would be; those after it pay for it.
func TestRampCost(t *testing.T) {
	t.Parallel()
	r := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(10), ColdFactor: 1, Burst: 2})
	now := time.Now().Add(time.Minute)
	_, ok := r.Take(now, 12)
	require.True(t, ok)
	wait, ok := r.Take(now, 1)
	assert.False(t, ok)
	assert.Equal(t, 1100*ms, wait)
	assert.InDelta(t, -10, r.Snapshot(now).Limiter.Tokens, 1e-9)
	_, ok = r.Take(now, math.MaxInt32)
	assert.False(t, ok)
	_, ok = r.Take(now.Add(wait), math.MaxInt32>>7)
	assert.True(t, ok)
}

func TestRampWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(30), Period: 10 * time.Second, MaxWait: 10 * time.Second, MaxWaiters: 1000})
		start := time.Now()
		released := make(chan time.Duration, 200)
		for range 200 {
			go func() {
				if r.Wait(t.Context(), 1) == nil {
					released <- time.Since(start)
				}
			}()
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		close(released)
		var all []time.Duration
		for at := range released {
			all = append(all, at)
		}
		// 10 s from cold to warm let in 200; the queue keeps it busy all the time.
		require.Len(t, all, 200)
		assert.InDelta(t, 10*time.Second, all[199], float64(50*ms))
		first, last := all[1]-all[0], all[199]-all[198]
		assert.InDelta(t, 100*ms, first, float64(3*ms))
		assert.InDelta(t, 33*ms, last, float64(ms))
	})
}

func TestRampSetLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(90), Period: 10 * time.Second, Burst: 10})
		saturate(r, time.Now(), 5*time.Second)
		time.Sleep(5 * time.Second)
		assert.False(t, r.Allow())
		require.NoError(t, r.SetLimit(ratelimit.PerSecond(900), 100))
		assert.False(t, r.Allow(), "a change grants nothing")
		s := r.Snapshot(time.Now()).Limiter
		assert.InDelta(t, 0.5, s.Warmth, 0.01, "it stays as warm as it is")
		assert.InDelta(t, 600, s.Rate, 5)
		time.Sleep(10 * ms)
		assert.InDelta(t, 6.5, drain(t, r), 0.6, "and what was there in part")
		require.NoError(t, r.SetRate(ratelimit.PerSecond(9)))
		assert.Equal(t, ratelimit.PerSecond(9), r.Config().Rate)
		assert.Equal(t, 100, r.Config().Burst)
		time.Sleep(time.Hour)
		require.NoError(t, r.SetLimit(ratelimit.PerSecond(9), 0))
		assert.Equal(t, 1, drain(t, r), "a smaller burst caps what is there")
		require.NoError(t, r.SetRate(ratelimit.PerSecond(math.Inf(1))))
		assert.True(t, r.AllowN(1e6))
		assert.True(t, r.AllowN(1e6))
		for _, rate := range []ratelimit.Rate{{}, ratelimit.PerSecond(-1), ratelimit.PerSecond(math.NaN())} {
			require.Error(t, r.SetRate(rate))
			require.Error(t, r.SetLimit(rate, 1))
		}
		require.Error(t, r.SetLimit(ratelimit.PerSecond(1), -1))
		assert.True(t, math.IsInf(r.Config().Rate.Tokens, 1), "what is invalid changes nothing")
	})
}
