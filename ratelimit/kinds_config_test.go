package ratelimit_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// validator is a configuration.
type validator interface {
	policy.Policy
	Validate() error
}

// fieldsOf returns the fields that an error names, in order.
func fieldsOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%T", err)
	var fields []string
	for _, err := range joined.Unwrap() {
		var fault *policy.ConfigError
		require.ErrorAs(t, err, &fault)
		assert.NotEmpty(t, fault.Want)
		fields = append(fields, fault.Field)
	}
	return strings.Join(fields, " ")
}

func TestKindsValidate(t *testing.T) {
	t.Parallel()
	ok := ratelimit.PerSecond(1)
	lane := func(change func(l *ratelimit.LaneConfig)) ratelimit.Lanes {
		second := ratelimit.LaneConfig{Name: "b", Rate: ok, Burst: 5, YieldTo: "a", YieldBelow: 2}
		change(&second)
		return ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: ok, Burst: 4}, second}}
	}
	for _, tt := range []struct {
		cfg  validator
		want string
	}{
		{ratelimit.Pacer{}, "Rate"},
		{ratelimit.Pacer{Rate: ok}, ""},
		{ratelimit.Pacer{Rate: ratelimit.PerSecond(math.Inf(1)), Burst: 3, MaxWait: time.Second}, ""},
		{ratelimit.Pacer{Rate: ratelimit.Rate{Tokens: math.NaN(), Per: -1}, Burst: -1, MaxWait: -1, MaxWaiters: -1}, "Rate.Tokens Rate.Per Burst MaxWait MaxWaiters"},
		{ratelimit.Pacer{Rate: ok, MaxWaiters: 5}, "MaxWaiters"},
		{ratelimit.Pacer{Rate: ok, MaxWait: 366 * 24 * time.Hour}, "MaxWait"},
		{ratelimit.Pacer{Rate: ok, MaxWait: 365 * 24 * time.Hour, MaxWaiters: 1}, ""},

		{ratelimit.FixedWindow{}, "Limit Window"},
		{ratelimit.FixedWindow{Limit: -1, Window: -1, MaxWait: -1}, "Limit Window MaxWait"},
		{ratelimit.FixedWindow{Limit: 1, Window: 101 * 365 * 24 * time.Hour}, "Window"},
		{ratelimit.FixedWindow{Limit: 1, Window: 1}, ""},

		{ratelimit.SlidingWindow{}, "Limit Window"},
		{ratelimit.SlidingWindow{Limit: 1 << 20, Window: 1}, ""},
		{ratelimit.SlidingWindow{Limit: 1<<20 + 1, Window: 1}, "Limit"},
		{ratelimit.SlidingWindow{Limit: math.MaxInt >> (10 * (math.MaxInt >> 62)), Window: 1, Approximate: true}, ""},

		{ratelimit.WarmUp{}, "Rate"},
		{ratelimit.WarmUp{Rate: ok, ColdFactor: 0.5, Period: -1, Burst: -1}, "ColdFactor Period Burst"},
		{ratelimit.WarmUp{Rate: ok, ColdFactor: math.NaN()}, "ColdFactor"},
		{ratelimit.WarmUp{Rate: ok, ColdFactor: math.Inf(1)}, "ColdFactor"},
		{ratelimit.WarmUp{Rate: ok, ColdFactor: 1, Period: 1}, ""},

		{ratelimit.Lanes{}, "Lanes"},
		{ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{}}}, "Lanes[0].Rate Lanes[0].Name"},
		{lane(func(*ratelimit.LaneConfig) {}), ""},
		{lane(func(l *ratelimit.LaneConfig) { l.Name = "a" }), "Lanes[1].Name Lanes[1].YieldTo"},
		{lane(func(l *ratelimit.LaneConfig) { l.Name = string([]byte{0xff}) }), "Lanes[1].Name"},
		{lane(func(l *ratelimit.LaneConfig) { l.Name = "two\nlines" }), "Lanes[1].Name"},
		{lane(func(l *ratelimit.LaneConfig) { l.Name = "turned\u202earound" }), "Lanes[1].Name"},
		{lane(func(l *ratelimit.LaneConfig) { l.Name = strings.Repeat("x", 129) }), "Lanes[1].Name"},
		{lane(func(l *ratelimit.LaneConfig) { l.Name = "Straße 7" }), ""},
		{lane(func(l *ratelimit.LaneConfig) { l.YieldTo = "b" }), "Lanes[1].YieldTo"},
		{lane(func(l *ratelimit.LaneConfig) { l.YieldTo = "c" }), "Lanes[1].YieldTo"},
		{lane(func(l *ratelimit.LaneConfig) { l.YieldTo, l.Floor = "", ok }), "Lanes[1].YieldBelow Lanes[1].Floor"},
		{lane(func(l *ratelimit.LaneConfig) { l.YieldBelow = 0 }), "Lanes[1].YieldBelow"},
		{lane(func(l *ratelimit.LaneConfig) { l.YieldBelow = 5 }), "Lanes[1].YieldBelow"},
		{lane(func(l *ratelimit.LaneConfig) { l.YieldBelow = 4 }), ""},
		{lane(func(l *ratelimit.LaneConfig) { l.Floor = ratelimit.Rate{Tokens: -1} }), ""},
		{lane(func(l *ratelimit.LaneConfig) { l.Floor = ratelimit.Rate{Tokens: 1} }), "Lanes[1].Floor.Per"},
		{lane(func(l *ratelimit.LaneConfig) { l.Floor = ratelimit.PerSecond(math.NaN()) }), "Lanes[1].Floor.Tokens"},
		{lane(func(l *ratelimit.LaneConfig) { l.Floor = ratelimit.PerSecond(math.Inf(1)) }), "Lanes[1].Floor"},
		{lane(func(l *ratelimit.LaneConfig) { l.LendAbove = -1 }), "Lanes[1].LendAbove"},
		{lane(func(l *ratelimit.LaneConfig) { l.LendAbove = 6 }), "Lanes[1].LendAbove"},
		{lane(func(l *ratelimit.LaneConfig) { l.LendAbove = 5 }), ""},
		{lane(func(l *ratelimit.LaneConfig) { l.Priority = policy.PriorityCritical + 1 }), "Lanes[1].Priority"},
		{lane(func(l *ratelimit.LaneConfig) { l.Priority = policy.PriorityLow - 1 }), "Lanes[1].Priority"},
		{lane(func(l *ratelimit.LaneConfig) { l.Burst, l.Initial, l.MaxWaiters = -1, -2, 1 }), "Lanes[1].Burst Lanes[1].Initial Lanes[1].MaxWaiters"},
		{ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: ok}}, Total: ratelimit.SlidingWindow{Limit: 1}}, "Total.Window"},
		{ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: ok}}, Total: ratelimit.SlidingWindow{Limit: 1, Window: 1, MaxWait: 1}}, "Total"},
	} {
		assert.Equal(t, tt.want, fieldsOf(t, tt.cfg.Validate()), "%+v", tt.cfg)
		_, err := tt.cfg.BuildPolicy()
		assert.Equal(t, tt.want, fieldsOf(t, err), "%+v", tt.cfg)
	}
}

// Whatever a rate, burst, period or cost may be: an error or the documented meaning, and
// never no limit by accident.
func TestCaseB03KindsZeroNegativeNaNAndInfinite(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for _, tokens := range []float64{0, -1, math.NaN(), inf, 1} {
		for _, per := range []time.Duration{0, -time.Second, time.Second} {
			for _, burst := range []int{-1, 0, 1} {
				rate := ratelimit.Per(tokens, per)
				for name, cfg := range map[string]validator{
					"pacer":   ratelimit.Pacer{Rate: rate, Burst: burst},
					"warm-up": ratelimit.WarmUp{Rate: rate, Burst: burst},
					"lanes":   ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate, Burst: burst}}},
					"fixed":   ratelimit.FixedWindow{Limit: burst, Window: per},
					"sliding": ratelimit.SlidingWindow{Limit: burst, Window: per},
					"counter": ratelimit.SlidingWindow{Limit: burst, Window: per, Approximate: true},
				} {
					t.Run(fmt.Sprintf("%s %v burst %d", name, rate, burst), func(t *testing.T) {
						t.Parallel()
						valid := tokens > 0 && per > 0 && burst >= 0
						unlimited := tokens == inf
						if name == "fixed" || name == "sliding" || name == "counter" {
							valid, unlimited = per > 0 && burst > 0, false
						}
						part, err := cfg.BuildPolicy()
						if !valid {
							var fault *policy.ConfigError
							require.ErrorAs(t, err, &fault)
							return
						}
						require.NoError(t, err)
						l, ok := part.Gate.(ratelimit.Limiter)
						require.True(t, ok)
						for _, cost := range []int{0, -1, math.MinInt} {
							before := l.Snapshot(time.Now()).Limiter.Tokens
							_, ok := l.Take(time.Now(), cost)
							assert.True(t, ok)
							assert.InDelta(t, before, l.Snapshot(time.Now()).Limiter.Tokens, 0.5)
						}
						now, passed := time.Now(), 0
						for range 1000 {
							if _, ok := l.Take(now, 1); ok {
								passed++
							}
						}
						if unlimited {
							assert.Equal(t, 1000, passed)
						} else {
							assert.Equal(t, 1, passed)
						}
					})
				}
			}
		}
	}
}

func TestKindsEffectiveConfig(t *testing.T) {
	t.Parallel()
	p := newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(30), MaxWait: time.Second})
	assert.Equal(t, ratelimit.Pacer{Name: "pacer", Rate: ratelimit.PerSecond(30), Burst: 1, MaxWait: time.Second, MaxWaiters: 30}, p.Config())
	p = newPace(t, ratelimit.Pacer{Name: "spare", Rate: ratelimit.PerSecond(1000), MaxWait: time.Minute})
	assert.Equal(t, 100, p.Config().MaxWaiters, "as many as are served, at most 100")
	assert.Equal(t, "spare", p.Config().Name)
	p = newPace(t, ratelimit.Pacer{Rate: ratelimit.PerMinute(1), MaxWait: time.Second})
	assert.Equal(t, 1, p.Config().MaxWaiters, "one at least")
	p = newPace(t, ratelimit.Pacer{Rate: ratelimit.PerSecond(math.Inf(1)), MaxWait: time.Second, MaxWaiters: 7})
	assert.Equal(t, 7, p.Config().MaxWaiters)
	named, err := ratelimit.NewPace("other", ratelimit.Pacer{Name: "spare", Rate: ratelimit.PerSecond(1)})
	require.NoError(t, err)
	assert.Equal(t, "other", named.Config().Name)

	w := newWindow(t, ratelimit.FixedWindow{Limit: 10, Window: time.Second, MaxWait: 3 * time.Second, AlignToClock: true})
	assert.Equal(t, ratelimit.FixedWindow{Name: "fixed_window", Limit: 10, Window: time.Second, AlignToClock: true, MaxWait: 3 * time.Second, MaxWaiters: 30}, w.Config())
	for _, approximate := range []bool{false, true} {
		s := newSliding(t, ratelimit.SlidingWindow{Limit: 10, Window: time.Second, Approximate: approximate})
		assert.Equal(t, ratelimit.SlidingWindow{Name: "sliding_window", Limit: 10, Window: time.Second, Approximate: approximate}, s.Config())
	}
	set, err := ratelimit.NewLaneSet("quota", ratelimit.Lanes{
		Lanes: []ratelimit.LaneConfig{
			{Name: "a", Rate: ratelimit.PerSecond(6), LendAbove: 1},
			{Name: "b", Rate: ratelimit.PerSecond(4), Burst: 10, YieldTo: "a", YieldBelow: 2, MaxWait: time.Second},
			{Name: "c", Rate: ratelimit.PerMinute(6), YieldTo: "a", YieldBelow: 2},
			{Name: "d", Rate: ratelimit.PerMinute(6), YieldTo: "a", YieldBelow: 2, Floor: ratelimit.Rate{Tokens: -1}, Initial: ratelimit.StartEmpty},
		},
		Total: ratelimit.SlidingWindow{Limit: 10, Window: time.Second},
	})
	require.NoError(t, err)
	want := ratelimit.Lanes{
		Name: "quota",
		Lanes: []ratelimit.LaneConfig{
			{Name: "a", Rate: ratelimit.PerSecond(6), Burst: 6, Initial: 6, LendAbove: 1},
			{Name: "b", Rate: ratelimit.PerSecond(4), Burst: 10, Initial: 10, YieldTo: "a", YieldBelow: 2, MaxWait: time.Second, MaxWaiters: 4, Floor: ratelimit.PerSecond(0.5)},
			{Name: "c", Rate: ratelimit.PerMinute(6), Burst: 1, Initial: 1, YieldTo: "a", YieldBelow: 2, Floor: ratelimit.PerMinute(6)},
			{Name: "d", Rate: ratelimit.PerMinute(6), Burst: 1, Initial: ratelimit.StartEmpty, YieldTo: "a", YieldBelow: 2, Floor: ratelimit.Rate{Tokens: -1}},
		},
		Total: ratelimit.SlidingWindow{Limit: 10, Window: time.Second},
	}
	assert.Equal(t, want, set.Config())
	again, err := ratelimit.NewLaneSet("", set.Config())
	require.NoError(t, err, "an effective configuration is valid")
	assert.Equal(t, want, again.Config())
}

func TestKindsSetRate(t *testing.T) {
	eachKind(t, func(t trial) {
		l := t.new(limit{tokens: 10, per: 10 * time.Second, wait: time.Minute, waiters: 5})
		n := drain(t, l)
		for range 100 {
			require.NoError(t, l.SetRate(ratelimit.PerSecond(1)))
			require.False(t, l.Allow(), "the same rate again grants nothing")
		}
		assert.InDelta(t, 1, l.Snapshot(time.Now()).Limiter.Rate, 1e-9)
		time.Sleep(time.Hour)
		require.Equal(t, n, drain(t, l))
		require.NoError(t, l.SetRate(ratelimit.PerSecond(2)))
		assert.InDelta(t, 2, l.Snapshot(time.Now()).Limiter.Rate, 1e-9)
		for _, bad := range []ratelimit.Rate{{}, ratelimit.PerSecond(0), ratelimit.PerSecond(-1), ratelimit.PerSecond(math.NaN()), ratelimit.Per(1, 0)} {
			err := l.SetRate(bad)
			var fault *policy.ConfigError
			require.True(t, errors.As(err, &fault), "%v", bad)
		}
		assert.InDelta(t, 2, l.Snapshot(time.Now()).Limiter.Rate, 1e-9, "what is invalid changes nothing")
	})
}

// Waiters follow a change of the rate: sooner, or not at all.
func TestKindsSetRateMovesWaiters(t *testing.T) {
	t.Parallel()
	eachKindOf(t, []string{"pacer", "warm-up"}, func(t trial) {
		l := t.new(limit{tokens: 1, per: 10 * time.Second, wait: time.Minute, waiters: 5})
		require.True(t, l.Allow())
		start := time.Now()
		done := make(chan time.Duration, 3)
		for range 3 {
			go func() {
				if err := l.Wait(t.Context(), 1); err != nil {
					assert.Equal(t, policy.ReasonWait, rejected(t, err).Reason)
					done <- -time.Since(start)
					return
				}
				done <- time.Since(start)
			}()
		}
		synctest.Wait()
		require.NoError(t, l.SetRate(ratelimit.PerSecond(1)))
		assert.Equal(t, time.Second, <-done)
		require.NoError(t, l.SetRate(ratelimit.Every(25*time.Second)))
		synctest.Wait()
		assert.Equal(t, 2, l.Snapshot(time.Now()).Limiter.Waiting)
		require.NoError(t, l.SetRate(ratelimit.Every(40*time.Second)))
		assert.Equal(t, -time.Second, <-done, "at 81 s it would have waited for longer than a minute")
		assert.Equal(t, 41*time.Second, <-done)
	})
}
