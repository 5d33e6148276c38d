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

// oddLimits makes every kind of limit from a rate, a burst and a period. By rate says that
// the rate counts, and by burst that a burst of zero is no default but an error.
var oddLimits = []struct {
	name            string
	byRate, noBurst bool
	make            func(rate ratelimit.Rate, burst int, period time.Duration) validator
}{
	{"token bucket", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.TokenBucket{Rate: r, Burst: n}
	}},
	{"keyed", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.Keyed{Rate: r, Burst: n}
	}},
	{"exception", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 1e6, Exceptions: map[string]ratelimit.Limit{"": {Rate: r, Burst: n}}}
	}},
	{"pacer", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.Pacer{Rate: r, Burst: n}
	}},
	{"warm-up", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.WarmUp{Rate: r, Burst: n}
	}},
	{"lane", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: r, Burst: n}}}
	}},
	{"feedback", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.Feedback{Ceiling: r, Burst: n}
	}},
	{"all", true, false, func(r ratelimit.Rate, n int, _ time.Duration) validator {
		return ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Rate: r, Burst: n}, ratelimit.Pacer{Rate: ratelimit.PerSecond(1e9), Burst: 1e6}}}
	}},
	{"fixed window", false, true, func(_ ratelimit.Rate, n int, p time.Duration) validator {
		return ratelimit.FixedWindow{Limit: n, Window: p}
	}},
	{"aligned window", false, true, func(_ ratelimit.Rate, n int, p time.Duration) validator {
		return ratelimit.FixedWindow{Limit: n, Window: p, AlignToClock: true}
	}},
	{"sliding log", false, true, func(_ ratelimit.Rate, n int, p time.Duration) validator {
		return ratelimit.SlidingWindow{Limit: n, Window: p}
	}},
	{"sliding counter", false, true, func(_ ratelimit.Rate, n int, p time.Duration) validator {
		return ratelimit.SlidingWindow{Limit: n, Window: p, Approximate: true}
	}},
	{"total", false, true, func(_ ratelimit.Rate, n int, p time.Duration) validator {
		total := ratelimit.SlidingWindow{Limit: n, Window: p}
		if total == (ratelimit.SlidingWindow{}) {
			total.Approximate = true // nothing at all is no total, which is what it says
		}
		return ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: ratelimit.PerSecond(1e9), Burst: 1e6}}, Total: total}
	}},
}

// Of whatever numbers a limit is made: it is refused with a typed error that names the
// field, or it limits as it says. It is never unlimited by accident, also not after a
// change, and a cost that it can never hold is refused for ever.
func TestOddInputIsNeverUnlimited(t *testing.T) {
	t.Parallel()
	rates := []float64{0, math.Copysign(0, -1), -1, math.NaN(), math.Inf(-1), 5e-324, 1e-11, 1, 1e18, math.MaxFloat64, math.Inf(1)}
	for _, kind := range oddLimits {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, tokens := range rates {
					for _, period := range []time.Duration{math.MinInt64, -1, 0, 1, time.Second, 100 * 365 * 24 * time.Hour} {
						for _, burst := range []int{math.MinInt, -1, 0, 1, 3} {
							rate := ratelimit.Per(tokens, period)
							what := fmt.Sprintf("%v, burst %d, period %s", rate, burst, period)
							cfg := kind.make(rate, burst, period)
							valid := period > 0 && burst >= 0
							if kind.byRate {
								valid = valid && tokens > 0
							}
							if kind.noBurst {
								valid = valid && burst > 0
							}
							if kind.name == "feedback" {
								perSecond := tokens / period.Seconds() // which it computes with
								valid = valid && perSecond > 0 && !math.IsInf(perSecond, 1)
							}
							part, err := cfg.BuildPolicy()
							if !valid {
								require.NotEmpty(t, fieldsOf(t, err), what)
								continue
							}
							require.NoError(t, err, what)
							l, ok := part.Gate.(ratelimit.Limiter)
							if b, keyed := part.Gate.(*ratelimit.Buckets); keyed {
								l, ok = b.For(""), true
							}
							require.True(t, ok)
							checkOddLimit(t, l, what, kind.byRate && math.IsInf(tokens, 1), burst)
						}
					}
				}
			})
		})
	}
}

// checkOddLimit takes more than there is, at one instant.
func checkOddLimit(t *testing.T, l ratelimit.Limiter, what string, unlimited bool, burst int) {
	t.Helper()
	now := time.Now()
	take := func(n int) bool {
		wait, ok := l.Take(now, n)
		require.Equal(t, ok, wait == 0, what)
		return ok
	}
	for _, n := range []int{0, -1, math.MinInt} {
		before := l.Snapshot(now).Limiter.Tokens
		require.True(t, take(n), what)
		l.Refund(now, n)
		require.InDelta(t, before, l.Snapshot(now).Limiter.Tokens, 0, what)
	}
	if burst == 0 {
		burst = int(min(l.Snapshot(now).Limiter.Burst, 2000)) // the default: a second's worth
	}
	passed := 0
	for range 2000 {
		if take(1) {
			passed++
		}
	}
	if unlimited {
		require.Equal(t, 2000, passed, what)
		return
	}
	require.Equal(t, burst, passed, what)
	for _, rate := range []ratelimit.Rate{{}, ratelimit.PerSecond(0), ratelimit.PerSecond(-1), ratelimit.PerSecond(math.NaN()), ratelimit.Per(1, 0), ratelimit.Per(1, -1)} {
		require.Error(t, l.SetRate(rate), what)
	}
	if passed < 2000 {
		require.False(t, take(1), "%s: what is invalid changes nothing", what)
	}
	wait, ok := l.Take(now, math.MaxInt)
	require.False(t, ok, what)
	require.Equal(t, policy.Never, wait, what)
}

// The other settings of the kinds, each of which could lift the limit.
func TestOddSettingsOfOtherFields(t *testing.T) {
	t.Parallel()
	one := ratelimit.PerSecond(1)
	for _, nan := range []float64{math.NaN(), -1, math.Inf(-1)} {
		for name, cfg := range map[string]validator{
			"cold factor": ratelimit.WarmUp{Rate: one, ColdFactor: nan},
			"decrease":    ratelimit.Feedback{Ceiling: one, Decrease: nan},
			"floor":       ratelimit.Feedback{Ceiling: one, Floor: ratelimit.PerSecond(nan)},
			"CPU":         ratelimit.System{CPU: func() (float64, error) { return 0, nil }, MaxCPU: nan},
			"overflow":    ratelimit.Keyed{Rate: one, Overflow: ratelimit.Limit{Rate: ratelimit.PerSecond(nan)}},
		} {
			assert.NotEmpty(t, fieldsOf(t, cfg.Validate()), "%s %v", name, nan)
		}
	}
	for name, cfg := range map[string]validator{
		"warm-up period": ratelimit.WarmUp{Rate: one, Period: -1},
		"recover in":     ratelimit.Feedback{Ceiling: one, RecoverIn: -1},
		"sample":         ratelimit.System{Sample: -1},
		"window":         ratelimit.System{Window: -1},
		"TTL":            ratelimit.Keyed{Rate: one, TTL: -1},
		"keys":           ratelimit.Keyed{Rate: one, MaxKeys: -1},
		"waiters":        ratelimit.TokenBucket{Rate: one, MaxWaiters: -1},
		"lane's floor": ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{
			{Name: "a", Rate: one}, {Name: "b", Rate: one, YieldTo: "a", YieldBelow: 1, Floor: ratelimit.PerSecond(math.NaN())},
		}},
	} {
		assert.NotEmpty(t, fieldsOf(t, cfg.Validate()), name)
	}
}
