package ratelimit_test

import (
	"context"
	"errors"
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

func newGovernor(tb testing.TB, cfg ratelimit.Feedback) *ratelimit.Governor {
	tb.Helper()
	g, err := ratelimit.NewFeedback("", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func TestFeedbackFallsAndRises(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(100), Burst: 10, Decrease: 0.5, RecoverIn: 10 * time.Second})
		start := time.Now()
		for i := range 100 { // 100 a second, which it lets through
			require.True(t, g.Allow(), i)
			time.Sleep(10 * ms)
		}
		rate := func() float64 { return g.Snapshot(time.Now()).Limiter.Rate }
		assert.InDelta(t, 100, rate(), 0)
		now := time.Now()
		g.Throttled(now, now.Add(-time.Millisecond), 0)
		assert.InDelta(t, 50, rate(), 0.01)
		wait, ok := g.Take(now, 1)
		assert.False(t, ok, "the bucket was emptied")
		assert.Equal(t, 20*ms, wait)

		// Objections to calls from before the fall are the same overload.
		for range 20 {
			g.Throttled(time.Now(), start, 0)
		}
		assert.InDelta(t, 50, rate(), 0.01)
		f := g.Snapshot(now).Limiter.Feedback
		assert.Equal(t, &policy.FeedbackSnapshot{Floor: 1, Ceiling: 100, Pushbacks: 21, Decreases: 1}, f)

		// It lets through what the curve gives: 90 in the first two seconds, with the
		// rate that rises from 50 to 74.
		passed := 0
		for range 2000 {
			time.Sleep(ms)
			if g.Allow() {
				passed++
			}
		}
		assert.InDelta(t, 74.4, rate(), 0.01)
		assert.InDelta(t, 126, passed, 3)
		time.Sleep(8 * time.Second)
		assert.InDelta(t, 100, rate(), 0, "without any call")
		for range 10 {
			require.True(t, g.Allow())
		}
		require.False(t, g.Allow())
	})
}

// What falls is the rate of the calls, not one that nobody makes use of.
func TestFeedbackFallsFromWhatIsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(1000), Decrease: 0.5})
		for range 30 {
			require.True(t, g.Allow())
			time.Sleep(100 * ms)
		}
		g.Throttled(time.Now(), time.Now(), 0)
		assert.InDelta(t, 10, g.Snapshot(time.Now()).Limiter.Rate, 0, "half of 10, but not below the floor")
		assert.InDelta(t, 20, g.Snapshot(time.Now().Add(10*time.Second)).Limiter.Rate, 1e-6)
	})
}

func TestFeedbackDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(10), Decrease: 0.5, MaxDrain: 20 * time.Second})
		start := time.Now()
		for range 10 {
			require.True(t, g.Allow())
		}
		g.Throttled(start, start, 5*time.Second)
		wait, ok := g.Take(start, 1)
		assert.False(t, ok)
		assert.Equal(t, 5200*ms, wait, "5 s, and then 5 a second")
		assert.Equal(t, 5*time.Second, g.Snapshot(start).Limiter.Feedback.Drain)
		time.Sleep(time.Second)
		g.Throttled(time.Now(), start, 3*time.Second) // shorter
		g.Throttled(time.Now(), start, -1)            // never again for that call
		assert.Equal(t, 4*time.Second, g.Snapshot(time.Now()).Limiter.Feedback.Drain)
		g.Throttled(time.Now(), start, 6*time.Second) // of a call before the fall: no other fall, but a longer drain
		assert.Equal(t, 6*time.Second, g.Snapshot(time.Now()).Limiter.Feedback.Drain)
		assert.Equal(t, uint64(1), g.Snapshot(start).Limiter.Feedback.Decreases)

		g.Refund(start, 5)
		assert.False(t, g.Allow(), "what was taken before it was emptied is lost")
		time.Sleep(6*time.Second + 199*ms)
		assert.False(t, g.Allow())
		time.Sleep(ms)
		assert.True(t, g.Allow())
		assert.False(t, g.Allow())
		g.Refund(time.Now(), 1)
		g.Refund(time.Now(), 0)
		assert.True(t, g.Allow())

		g.Throttled(time.Now(), time.Now(), time.Hour)
		assert.Equal(t, 20*time.Second, g.Snapshot(time.Now()).Limiter.Feedback.Drain)

		g = newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(10), Decrease: 0.5, MaxDrain: ratelimit.NoDrain})
		g.Throttled(time.Now(), time.Now(), time.Hour)
		wait, _ = g.Take(time.Now(), 1)
		assert.Equal(t, 200*ms, wait)
	})
}

// In a pipeline it hears of every outcome; those that say nothing about the rate change
// nothing.
func TestFeedbackGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &door{enter: func() error { return nil }}
		g := newGovernor(t, ratelimit.Feedback{Name: "vendor", Ceiling: ratelimit.PerSecond(10), Burst: 20, Decrease: 0.5})
		p := newPipeline(t, g, d)
		answer := func(err error) error {
			_, got := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, err })
			return got
		}
		rate := func() float64 { return limiterOfKind(t, p, "feedback").Rate }
		for _, err := range []error{nil, errShut, policy.AsPermanent(errShut), context.DeadlineExceeded, context.Canceled} {
			require.ErrorIs(t, answer(err), err)
		}
		assert.InDelta(t, 10, rate(), 0)
		d.enter = refuse
		require.ErrorIs(t, answer(nil), errShut)
		assert.InDelta(t, 15, limiterOfKind(t, p, "feedback").Tokens, 0, "given back")
		d.enter = func() error { return nil }
		time.Sleep(2 * time.Second)

		require.Error(t, answer(policy.AsBusy(errShut, 0)))
		time.Sleep(time.Nanosecond)
		assert.InDelta(t, 0.5, rate(), 1e-6, "that was one call in a second")
		err := answer(nil)
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, &policy.RejectedError{
			Dependency: "inventory", Policy: "vendor", Reason: policy.ReasonRate, RetryAfter: 2*time.Second - 1, Err: ratelimit.ErrLimited,
		}, re)
		time.Sleep(re.RetryAfter)
		require.Error(t, answer(policy.AsThrottled(errShut, 3*time.Second)))
		time.Sleep(time.Second)
		err = answer(nil)
		require.ErrorAs(t, err, &re)
		assert.Greater(t, re.RetryAfter, 2*time.Second)
		ps := p.Snapshot().Policies[0]
		assert.Equal(t, "vendor", ps.Name)
		assert.Equal(t, uint64(2), ps.Rejected[policy.ReasonRate])
		assert.Equal(t, uint64(2), ps.Limiter.Feedback.Pushbacks)
		assert.Equal(t, 2*time.Second, ps.Limiter.Feedback.Drain)
	})
}

func TestFeedbackShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(10), Burst: 1, MaxWait: time.Minute, Shadow: true})
		start := time.Now()
		for range 3 {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, policy.AsThrottled(errShut, 0) })
			require.ErrorIs(t, err, errShut)
		}
		assert.Equal(t, start, time.Now())
		ps := p.Snapshot().Policies[0]
		assert.Equal(t, uint64(2), ps.Rejected[policy.ReasonRate])
		assert.Equal(t, uint64(1), ps.Limiter.Feedback.Pushbacks, "of the one call that it would have let in")
	})
}

func TestFeedbackWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(10), Burst: 2, Decrease: 0.5, MaxWait: 5 * time.Second, MaxWaiters: 5, RecoverIn: time.Hour})
		v := &visits{start: time.Now()}
		wait := func(key string, n int) func() error {
			return func() error { return g.Wait(policy.WithCall(t.Context(), policy.Call{Key: key}), n) }
		}
		v.visit("a", wait("a", 2))
		v.visit("b", wait("b", 1)) // 100 ms
		v.visit("c", wait("a", 2)) // 300 ms: keys make no difference
		v.visit("d", wait("d", 1)) // 400 ms
		v.visit("none", wait("a", 0))
		v.visit("big", wait("a", 3))
		time.Sleep(200 * ms)
		// The rate falls to 1.5 a second, half of the 3 that came in the last one, and
		// nothing is let in for 4 s.
		g.Throttled(time.Now(), time.Now(), 4*time.Second)
		synctest.Wait()
		_, out := v.results()
		assert.Equal(t, []string{"big 0s cost " + policy.Never.String(), "c 200ms wait 333.333334ms"}, out, "its two tokens would take 5.33 s, not the 5 s that it may wait")
		v.Wait()
		in, _ := v.results()
		assert.Equal(t, []string{"a 0s", "none 0s", "b 100ms", "d 4.866666667s"}, in)

		g = newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(1), Burst: 1})
		require.NoError(t, g.Wait(t.Context(), 1))
		err := g.Wait(t.Context(), 1)
		re, ok := errors.AsType[*policy.RejectedError](err)
		require.True(t, ok)
		assert.Equal(t, policy.ReasonRate, re.Reason, "by default nobody waits")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, g.Wait(ctx, 1), context.Canceled)
		r := g.Reserve(time.Now(), 1)
		assert.False(t, r.OK())
		assert.Equal(t, time.Second, r.Delay())
	})
}

func TestFeedbackSetRange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(100), Burst: 50, Decrease: 0.5})
		rate := func() float64 { return g.Snapshot(time.Now()).Limiter.Rate }
		for range 50 {
			require.True(t, g.Allow())
		}
		require.NoError(t, g.SetRate(ratelimit.PerSecond(200)))
		assert.InDelta(t, 200, rate(), 0, "it was at the ceiling, and is")
		assert.False(t, g.Allow(), "nothing is granted")
		assert.Equal(t, ratelimit.PerSecond(2), g.Config().Floor, "a floor that was not set follows")
		time.Sleep(2 * time.Second)
		for range 50 {
			require.True(t, g.Allow())
		}
		g.Throttled(time.Now(), time.Now(), 0)
		assert.InDelta(t, 25, rate(), 0)
		time.Sleep(time.Second)
		require.NoError(t, g.SetRate(ratelimit.PerSecond(100)))
		assert.InDelta(t, 31.775, rate(), 0.01, "it goes on rising from where it is")
		require.NoError(t, g.SetRate(ratelimit.PerSecond(10)))
		assert.InDelta(t, 10, rate(), 0)
		require.NoError(t, g.SetRange(ratelimit.PerSecond(5), ratelimit.PerSecond(100)))
		assert.InDelta(t, 100, rate(), 0)
		g.Throttled(time.Now(), time.Now(), 2*time.Second)
		assert.InDelta(t, 25, rate(), 0)
		require.NoError(t, g.SetRange(ratelimit.PerSecond(40), ratelimit.PerSecond(100)))
		assert.InDelta(t, 40, rate(), 0)
		wait, ok := g.Take(time.Now(), 1)
		assert.False(t, ok)
		assert.Equal(t, 2025*ms, wait, "it goes on draining")
		time.Sleep(12 * time.Second)
		assert.InDelta(t, 80, rate(), 1e-6)

		cfg := g.Config()
		assert.Equal(t, []string{"Floor"}, faultsOf(t, "feedback", g.SetRate(ratelimit.PerSecond(10))))
		assert.Equal(t, []string{"Ceiling"}, faultsOf(t, "feedback", g.SetRange(ratelimit.Rate{}, ratelimit.Rate{})))
		assert.Equal(t, cfg, g.Config())
	})
}

// A limit of a bundle hears what the dependency says of its calls.
func TestFeedbackInAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(10), Decrease: 0.5})
		inner := ratelimit.All{Name: "inner", Limits: []policy.Policy{g}}
		p := newPipeline(t, ratelimit.All{Limits: []policy.Policy{ample, inner}})
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, policy.AsThrottled(errShut, time.Second) })
		require.ErrorIs(t, err, errShut)
		assert.Equal(t, time.Second, g.Snapshot(time.Now()).Limiter.Feedback.Drain)
		_, err = policy.Do(t.Context(), p, succeed)
		pe, ok := errors.AsType[*ratelimit.PartError](err)
		require.True(t, ok)
		assert.Equal(t, "inner", pe.Part)
	})
}

// A dependency takes 50 calls a second, and answers 429 to what is beyond. Callers want
// 200. Nobody has told the limiter about the 50.
func TestFeedbackFindsTheQuota(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		recovery ratelimit.Recovery
		in       time.Duration
		after    time.Duration // Retry-After
	}{
		{ratelimit.RecoverCubic, 10 * time.Second, 0},
		{ratelimit.RecoverCubic, 10 * time.Second, time.Second},
		{ratelimit.RecoverAdditive, time.Minute, 0},
	} {
		t.Run(fmt.Sprintf("%s, retry after %s", tt.recovery, tt.after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, ratelimit.Feedback{Ceiling: ratelimit.PerSecond(150), Burst: 5, Recovery: tt.recovery, RecoverIn: tt.in})
				vendor := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(50), Burst: 10})
				served, objected, refused := 0, 0, 0
				for i := range 200 * 120 {
					_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
						if !vendor.Allow() {
							return 0, policy.AsThrottled(errShut, tt.after)
						}
						return 1, nil
					})
					switch {
					case i < 200*20: // it has 20 s to find out
					case err == nil:
						served++
					case errors.Is(err, policy.ErrRejected):
						refused++
					default:
						objected++
					}
					time.Sleep(5 * ms)
				}
				t.Logf("of 50 per second %.1f are served, %.2f are answered with 429, %.1f are refused", float64(served)/100, float64(objected)/100, float64(refused)/100)
				assert.Greater(t, served, 100*50*80/100, "most of the quota is used")
				assert.Less(t, objected, served/50, "and the vendor hardly ever objects")
			})
		})
	}
}

func TestFeedbackValidate(t *testing.T) {
	t.Parallel()
	ok := ratelimit.PerSecond(10)
	for _, tt := range []struct {
		name string
		cfg  ratelimit.Feedback
		want []string
	}{
		{"ceiling alone", ratelimit.Feedback{Ceiling: ok}, nil},
		{"everything", ratelimit.Feedback{
			Name: "vendor", Ceiling: ok, Floor: ok, Burst: 5, Decrease: 0.9, Recovery: ratelimit.RecoverAdditive, RecoverIn: time.Hour,
			MaxDrain: ratelimit.NoDrain, MaxWait: time.Second, MaxWaiters: 5, Shadow: true,
		}, nil},
		{"zero", ratelimit.Feedback{}, []string{"Ceiling"}},
		{"infinite", ratelimit.Feedback{Ceiling: ratelimit.PerSecond(math.Inf(1)), Floor: ratelimit.PerSecond(math.Inf(1))}, []string{"Ceiling", "Floor"}},
		{"too large to be told per second", ratelimit.Feedback{Ceiling: ratelimit.Per(1e300, 1)}, []string{"Ceiling"}},
		{"too small", ratelimit.Feedback{Ceiling: ratelimit.Per(5e-324, time.Hour)}, []string{"Ceiling"}},
		{"hardly large enough", ratelimit.Feedback{Ceiling: ratelimit.PerSecond(5e-324)}, nil},
		{"floor above ceiling", ratelimit.Feedback{Ceiling: ok, Floor: ratelimit.PerSecond(11)}, []string{"Floor"}},
		{"not a number", ratelimit.Feedback{Ceiling: ok, Decrease: math.NaN()}, []string{"Decrease"}},
		{
			"all at once",
			ratelimit.Feedback{
				Ceiling: ratelimit.Per(-1, -1), Floor: ratelimit.PerSecond(-1), Burst: -1, Decrease: 1, Recovery: 2, RecoverIn: -1, MaxDrain: -2, MaxWait: -1, MaxWaiters: -1,
			},
			[]string{"Ceiling.Tokens", "Ceiling.Per", "Floor.Tokens", "Burst", "Decrease", "Recovery", "RecoverIn", "MaxDrain", "MaxWait", "MaxWaiters"},
		},
	} {
		assert.Equal(t, tt.want, faultsOf(t, "feedback", tt.cfg.Validate()), tt.name)
		g, err := ratelimit.NewFeedback("", tt.cfg)
		assert.Equal(t, tt.want, faultsOf(t, "feedback", err), tt.name)
		assert.Equal(t, tt.want == nil, g != nil, tt.name)
	}
	_, err := policy.New("inventory", ratelimit.Feedback{Name: "vendor", Ceiling: ok, Decrease: 2})
	assert.EqualError(t, err, "inventory.vendor.Decrease: 2: want a number in (0, 1), or 0 (0.7)")
}

func TestFeedbackConfigIsEffective(t *testing.T) {
	t.Parallel()
	g := newGovernor(t, ratelimit.Feedback{Ceiling: ratelimit.PerMinute(600)})
	assert.Equal(t, ratelimit.Feedback{
		Name: "feedback", Ceiling: ratelimit.PerMinute(600), Floor: ratelimit.PerMinute(6), Burst: 10, Decrease: 0.7,
		RecoverIn: 10 * time.Second, MaxDrain: time.Minute,
	}, g.Config())
	require.NoError(t, g.Config().Validate())
	g, err := ratelimit.NewFeedback("a", ratelimit.Feedback{Name: "b", Ceiling: ratelimit.PerSecond(1), Burst: 1, MaxWait: time.Second})
	require.NoError(t, err)
	assert.Equal(t, "a", g.Config().Name)
	assert.Equal(t, 100, g.Config().MaxWaiters)
	part, err := g.BuildPolicy()
	require.NoError(t, err)
	assert.Len(t, part.Warnings, 1, "a burst of 1")
	assert.True(t, part.Waits)
}

// Whatever is accepted can be used.
func FuzzFeedbackConfig(f *testing.F) {
	f.Add(10.0, int64(time.Second), 1.0, int64(time.Second), 5, 0.5, int64(time.Second), int64(time.Second))
	f.Add(math.NaN(), int64(-1), -1.0, int64(0), -1, 2.0, int64(-1), int64(-5))
	f.Add(1e-300, int64(math.MaxInt64), 0.0, int64(0), math.MaxInt, 1e-300, int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(1.0, int64(time.Second), 0.5, int64(time.Second), 5, 5e-324, int64(1), int64(1))
	f.Add(1e300, int64(1), 1e299, int64(1), 1, 0.99, int64(1), int64(0))
	f.Fuzz(func(t *testing.T, ceiling float64, per int64, floor float64, floorPer int64, burst int, decrease float64, in, drain int64) {
		cfg := ratelimit.Feedback{
			Ceiling: ratelimit.Per(ceiling, time.Duration(per)), Floor: ratelimit.Per(floor, time.Duration(floorPer)), Burst: burst,
			Decrease: decrease, RecoverIn: time.Duration(in), MaxDrain: time.Duration(drain),
		}
		g, err := ratelimit.NewFeedback("", cfg)
		require.Equal(t, err == nil, cfg.Validate() == nil)
		if err != nil {
			return
		}
		effective := g.Config()
		require.NoError(t, effective.Validate())
		now := time.Now()
		_, ok := g.Take(now, effective.Burst)
		require.True(t, ok, "it begins with all of its burst")
		for range 5 {
			now = now.Add(time.Second)
			g.Throttled(now, now, time.Second)
			_, ok = g.Take(now, 1)
			require.False(t, ok, "it was emptied")
			rate := g.Snapshot(now).Limiter.Rate
			require.GreaterOrEqual(t, rate, effective.Floor.Tokens/effective.Floor.Per.Seconds())
			require.LessOrEqual(t, rate, effective.Ceiling.Tokens/effective.Ceiling.Per.Seconds())
			now = now.Add(time.Hour)
			g.Take(now, 1)
		}
	})
}
