package ratelimit_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func newPace(tb testing.TB, cfg ratelimit.Pacer) *ratelimit.Pace {
	tb.Helper()
	p, err := ratelimit.NewPace("", cfg)
	require.NoError(tb, err)
	return p
}

func newWindow(tb testing.TB, cfg ratelimit.FixedWindow) *ratelimit.Window {
	tb.Helper()
	w, err := ratelimit.NewWindow("", cfg)
	require.NoError(tb, err)
	return w
}

func newSliding(tb testing.TB, cfg ratelimit.SlidingWindow) *ratelimit.Sliding {
	tb.Helper()
	s, err := ratelimit.NewSliding("", cfg)
	require.NoError(tb, err)
	return s
}

// releases lets so many callers wait at this instant, and returns when they are let in.
func releases(t *testing.T, l ratelimit.Limiter, start time.Time, n int) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var at []time.Duration
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			assert.NoError(t, l.Wait(t.Context(), 1))
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(start))
		})
	}
	wg.Wait()
	slices.Sort(at)
	return at
}

func TestCaseB01KindsIdlePeriodGrantsNoBurst(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]func() ratelimit.Limiter{
		"pacer": func() ratelimit.Limiter {
			return newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(1), Burst: 3, MaxWait: time.Hour, MaxWaiters: 100})
		},
		"warm-up": func() ratelimit.Limiter {
			return newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(1), ColdFactor: 1, Burst: 3, MaxWait: time.Hour, MaxWaiters: 100})
		},
	} {
		t.Run(name+", a burst of 3", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, start := l(), time.Now()
				_, ok := l.Take(start, 1)
				require.True(t, ok)
				time.Sleep(4 * time.Second)
				var want []time.Duration
				for i := range 100 {
					want = append(want, time.Duration(4+max(0, i-2))*time.Second)
				}
				require.Equal(t, 101*time.Second, want[99])
				assert.Equal(t, want, releases(t, l, start, 100))
			})
		})
	}
	eachKindOf(t, []string{"pacer", "warm-up"}, func(t trial) {
		l := t.new(limit{tokens: 1, per: time.Second, wait: time.Minute, waiters: 10})
		start := time.Now()
		time.Sleep(30 * time.Second)
		for i, at := range releases(t.T, l, start, 8) {
			assert.Equal(t, time.Duration(30+i)*time.Second, at)
		}
		l = t.new(limit{tokens: 100, per: time.Second, wait: time.Minute, waiters: 10})
		start = time.Now()
		for i, at := range releases(t.T, l, start, 10) {
			assert.InDelta(t, time.Duration(i)*10*ms, at, 1)
		}
	})
}

// However long the pause, no more than the burst is there after it.
func TestCaseB01KindsDecadesOfIdleness(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 3, per: time.Second})
		start := time.Now()
		for _, after := range []time.Duration{0, time.Hour, 1000 * time.Hour, 200 * 365 * 24 * time.Hour, 291 * 365 * 24 * time.Hour} {
			n := 0
			for {
				if _, ok := l.Take(start.Add(after), 1); !ok {
					break
				}
				n++
			}
			assert.Equal(t, t.kind.burst(limit{tokens: 3}), n, "after %s", after)
		}
		// And the time that goes back adds nothing.
		for _, at := range []time.Time{start, start.Add(-time.Hour), start.Add(-200 * 365 * 24 * time.Hour), start.Add(time.Hour)} {
			wait, ok := l.Take(at, 1)
			assert.False(t, ok)
			assert.Positive(t, wait)
		}
	})
}

func TestCaseB04KindsVerySmallAndVeryLargeRates(t *testing.T) {
	t.Parallel()
	small, large := ratelimit.PerSecond(1e-11), []ratelimit.Rate{ratelimit.PerSecond(1e12), ratelimit.PerSecond(1e18)}
	for name, l := range map[string]func(rate ratelimit.Rate, burst int, wait time.Duration) byHand{
		"pacer": func(rate ratelimit.Rate, burst int, wait time.Duration) byHand {
			return newPace(t, ratelimit.Pacer{Rate: rate, Burst: burst, MaxWait: wait})
		},
		"warm-up": func(rate ratelimit.Rate, burst int, wait time.Duration) byHand {
			return newRamp(t, ratelimit.WarmUp{Rate: rate, Burst: burst, MaxWait: wait})
		},
		"lane": func(rate ratelimit.Rate, burst int, wait time.Duration) byHand {
			s, err := ratelimit.NewLaneSet("", ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate, Burst: burst, MaxWait: wait}}})
			require.NoError(t, err)
			return s.Lane("a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l1 := l(small, 1, 1000*time.Hour)
			require.True(t, l1.Allow())
			for range 3 {
				wait, ok := l1.Take(time.Now(), 1)
				assert.False(t, ok)
				assert.Equal(t, policy.Never, wait)
				err := l1.Wait(t.Context(), 1)
				assert.Equal(t, policy.ReasonWait, rejected(t, err).Reason)
				assert.Equal(t, policy.Never, rejected(t, err).RetryAfter)
				assert.Contains(t, rejected(t, err).Err.Error(), "wait exceeds maximum")
				r := l1.Reserve(time.Now(), 1)
				assert.False(t, r.OK())
			}
			for _, rate := range large {
				l5, now := l(rate, 5, 0), time.Now()
				n := 0
				for {
					if _, ok := l5.Take(now, 1); !ok {
						break
					}
					n++
				}
				assert.Equal(t, 5, n)
				_, ok := l5.Take(now.Add(time.Second), 1)
				assert.True(t, ok)
			}
		})
	}
}

func TestCaseB06KindsSubMillisecondSpacing(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{160, 170, 1000, 1001, 2000, 5000} {
		for _, l := range []ratelimit.Limiter{
			newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(float64(rate))}),
			newRamp(t, ratelimit.WarmUp{Rate: ratelimit.PerSecond(float64(rate)), ColdFactor: 1}),
		} {
			start, passed := time.Now().Add(time.Second), 0
			for i := range 20_000 {
				if _, ok := l.Take(start.Add(time.Duration(i)*50*time.Microsecond), 1); ok {
					passed++
				}
			}
			assert.InDelta(t, rate, passed, 1, "%T", l)
		}
	}
	p, start := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(0.2)}), time.Now().Add(time.Hour)
	for i := range 20 {
		_, ok := p.Take(start.Add(time.Duration(i)*time.Second), 1)
		assert.Equal(t, i%5 == 0, ok, "second %d", i)
	}
}

func TestCaseB15RefusedRequestsEatNoQuota(t *testing.T) {
	t.Parallel()
	eachKindOf(t, []string{"fixed window", "sliding log", "sliding counter", "lane"}, func(t trial) {
		l := t.new(limit{tokens: 10, per: time.Hour})
		require.True(t, l.AllowN(8))
		for range 10 {
			assert.False(t, l.AllowN(5))
		}
		assert.InDelta(t, 2, l.Snapshot(time.Now()).Limiter.Tokens, 0)
		assert.True(t, l.Allow())
		assert.InDelta(t, 1, l.Snapshot(time.Now()).Limiter.Tokens, 0)
	})
	// A pacer lets a call of any cost in when one token is there. What is there
	// stays for others while none is.
	eachKindOf(t, []string{"pacer", "warm-up"}, func(t trial) {
		l := t.new(limit{tokens: 10, per: time.Second})
		require.True(t, l.Allow())
		time.Sleep(50 * ms)
		for range 100 {
			assert.False(t, l.AllowN(5))
		}
		time.Sleep(50 * ms)
		assert.True(t, l.Allow())
	})
	s, start := newSliding(t, ratelimit.SlidingWindow{Limit: 10, Window: 600 * time.Second}), time.Now()
	var passed []int
	for at := 0; at <= 1170; at += 30 {
		if _, ok := s.Take(start.Add(time.Duration(at)*time.Second), 1); ok {
			passed = append(passed, at)
		}
	}
	var want []int
	for _, from := range []int{0, 600} {
		for i := range 10 {
			want = append(want, from+30*i)
		}
	}
	assert.Equal(t, want, passed)
}

func TestCaseB17WindowBoundary(t *testing.T) {
	t.Parallel()
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	batch := func(l ratelimit.Limiter, at time.Time) int {
		n := 0
		for range 60 {
			if _, ok := l.Take(at, 1); ok {
				n++
			}
		}
		return n
	}
	synctest.Test(t, func(t *testing.T) { // the first window begins at 0
		start := time.Now()
		fixed := newWindow(t, ratelimit.FixedWindow{Limit: 60, Window: time.Minute})
		assert.Equal(t, 60, batch(fixed, start.Add(seconds(59.9))))
		assert.Equal(t, 60, batch(fixed, start.Add(seconds(60.1))), "this is what a fixed window does")
		assert.Equal(t, 0, batch(fixed, start.Add(seconds(119.9))))
		assert.Equal(t, 60, batch(fixed, start.Add(seconds(120))))

		exact := newSliding(t, ratelimit.SlidingWindow{Limit: 60, Window: time.Minute})
		assert.Equal(t, 60, batch(exact, start.Add(seconds(59.9))))
		assert.Equal(t, 0, batch(exact, start.Add(seconds(60.1))))
		wait, _ := exact.Take(start.Add(seconds(60.1)), 1)
		assert.Equal(t, seconds(59.8), wait)
		assert.Equal(t, 0, batch(exact, start.Add(seconds(119.9)-1)))
		assert.Equal(t, 60, batch(exact, start.Add(seconds(119.9))), "open at its old end")

		counter := newSliding(t, ratelimit.SlidingWindow{Limit: 60, Window: time.Minute, Approximate: true})
		assert.Equal(t, 60, batch(counter, start.Add(seconds(59.9))))
		assert.Equal(t, 0, batch(counter, start.Add(seconds(60.1))))
		assert.Equal(t, 30, batch(counter, start.Add(seconds(90))))

		for _, approximate := range []bool{false, true} {
			s := newSliding(t, ratelimit.SlidingWindow{Limit: 3, Window: time.Second, Approximate: approximate})
			assert.Equal(t, 3, batch(s, start))
			_, ok := s.Take(start.Add(1001*ms), 1)
			assert.Equal(t, !approximate, ok, "what is no longer in the window does not count")
			_, ok = s.Take(start.Add(2001*ms), 1)
			assert.True(t, ok)
		}
		stale := newWindow(t, ratelimit.FixedWindow{Limit: 3, Window: time.Second})
		assert.Equal(t, 3, batch(stale, start))
		_, ok := stale.Take(start.Add(1001*ms), 1)
		assert.True(t, ok)
	})
}

// Six per minute: the time to the next one, and never a moment too short.
func TestCaseB18KindsRetryAfter(t *testing.T) {
	t.Parallel()
	eachKindOf(t, []string{"pacer with a burst", "warm-up with a burst", "lane"}, func(t trial) {
		l := t.new(limit{tokens: 6, per: time.Minute})
		for range 6 {
			wait, ok := l.Take(time.Now(), 1)
			require.True(t, ok)
			require.Zero(t, wait)
		}
		for _, step := range []struct{ sleep, want time.Duration }{{0, 10 * time.Second}, {5 * time.Second, 5 * time.Second}, {4999 * ms, ms}} {
			time.Sleep(step.sleep)
			wait, ok := l.Take(time.Now(), 1)
			require.False(t, ok)
			require.Equal(t, step.want, wait)
		}
		time.Sleep(ms)
		wait, ok := l.Take(time.Now(), 1)
		assert.True(t, ok)
		assert.Zero(t, wait)
	})
	// Windows say when the window does: the fixed one at its end, the sliding one
	// when its oldest call has left it.
	eachKindOf(t, []string{"fixed window", "sliding log"}, func(t trial) {
		l := t.new(limit{tokens: 6, per: time.Minute})
		time.Sleep(7 * time.Second)
		require.Equal(t, 6, drain(t, l))
		want := map[string]time.Duration{"fixed window": 53 * time.Second, "sliding log": time.Minute}[t.kind.name]
		wait, _ := l.Take(time.Now(), 1)
		assert.Equal(t, want, wait)
		time.Sleep(want - 1)
		wait, _ = l.Take(time.Now(), 6)
		assert.Equal(t, time.Duration(1), wait)
		time.Sleep(1 * time.Nanosecond)
		assert.True(t, l.AllowN(6))
	})
	eachKindOf(t, []string{"sliding counter"}, func(t trial) {
		l := t.new(limit{tokens: 6, per: time.Minute})
		require.Equal(t, 6, drain(t, l))
		// One is let in when no more than 5 of the 6 weigh: after a sixth of the
		// next window.
		wait, _ := l.Take(time.Now(), 1)
		assert.Equal(t, 70*time.Second, wait)
		wait, _ = l.Take(time.Now(), 6)
		assert.Equal(t, 2*time.Minute, wait)
	})
}

// eachKindOf is eachKind for some of them.
func eachKindOf(t *testing.T, names []string, f func(t trial)) {
	t.Helper()
	for _, k := range kinds {
		if !slices.Contains(names, k.name) {
			continue
		}
		t.Run(fmt.Sprintf("%s/%s", t.Name(), k.name), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(trial{t, k}) })
		})
	}
}
