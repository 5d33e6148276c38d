package ratelimit_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// faults returns the fields of every ConfigError in err.
func faults(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "%v is not joined", err)
	var fields []string
	for _, e := range joined.Unwrap() {
		ce, ok := errors.AsType[*policy.ConfigError](e)
		require.True(t, ok, "%v is not a ConfigError", e)
		assert.Equal(t, "ratelimit", ce.Policy)
		assert.NotEmpty(t, ce.Want)
		fields = append(fields, ce.Field)
	}
	return fields
}

// hugeBurst returns the fault of the largest int as a burst, which there is where an
// int has 64 bits.
func hugeBurst() []string {
	if math.MaxInt > math.MaxInt32 {
		return []string{"Burst"}
	}
	return nil
}

func TestValidate(t *testing.T) {
	t.Parallel()
	ok := ratelimit.PerSecond(10)
	for _, tt := range []struct {
		name string
		cfg  ratelimit.TokenBucket
		want []string
	}{
		{"rate alone", ratelimit.TokenBucket{Rate: ok}, nil},
		{"everything", ratelimit.TokenBucket{Name: "quota", Rate: ok, Burst: 20, Initial: 20, MaxWaiters: 5, Shadow: true}, nil},
		{"start empty", ratelimit.TokenBucket{Rate: ok, Initial: ratelimit.StartEmpty}, nil},
		{"no limit", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(1))}, nil},
		{"largest burst", ratelimit.TokenBucket{Rate: ok, Burst: math.MaxInt32}, nil},
		{"zero", ratelimit.TokenBucket{}, []string{"Rate"}},
		{"initial above burst", ratelimit.TokenBucket{Rate: ok, Burst: 20, Initial: 21}, []string{"Initial"}},
		{"initial above the default burst", ratelimit.TokenBucket{Rate: ok, Initial: 11}, []string{"Initial"}},
		{"negative initial", ratelimit.TokenBucket{Rate: ok, Initial: -2}, []string{"Initial"}},
		{"negative waiters", ratelimit.TokenBucket{Rate: ok, MaxWaiters: -1}, []string{"MaxWaiters"}},
		{"negative burst", ratelimit.TokenBucket{Rate: ok, Burst: -1}, []string{"Burst"}},
		{"huge burst", ratelimit.TokenBucket{Rate: ok, Burst: math.MaxInt}, hugeBurst()},
		{"minus infinity", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(-1))}, []string{"Rate.Tokens"}},
		{
			"all at once",
			ratelimit.TokenBucket{Rate: ratelimit.Per(math.NaN(), -1), Burst: -1, Initial: -2},
			[]string{"Rate.Tokens", "Rate.Per", "Burst", "Initial"},
		},
	} {
		assert.Equal(t, tt.want, faults(t, tt.cfg.Validate()), tt.name)
		b, err := ratelimit.New("", tt.cfg)
		assert.Equal(t, tt.want, faults(t, err), tt.name)
		assert.Equal(t, tt.want == nil, b != nil, tt.name)
	}
}

func TestValidateSays(t *testing.T) {
	t.Parallel()
	_, err := policy.New("inventory", ratelimit.TokenBucket{Name: "quota", Burst: -3})
	assert.EqualError(t, err, "inventory.quota.Rate: unset: want a rate above 0 (+Inf is no rate limit)\n"+
		"inventory.quota.Burst: -3: want at least 0 (0 means what arrives in a second)")
}

func TestConfigIsEffective(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, given    string
		cfg            ratelimit.TokenBucket
		wantName       string
		burst, initial int
		warns          bool
	}{
		{"defaults", "", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(6000)}, "ratelimit", 6000, 6000, false},
		{"one second's worth, rounded up", "", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(2.5)}, "ratelimit", 3, 3, false},
		{"per minute", "", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(6)}, "ratelimit", 1, 1, true},
		{"the same rate per minute", "", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(150)}, "ratelimit", 3, 3, false},
		{"name", "a", ratelimit.TokenBucket{Name: "b", Rate: ratelimit.PerSecond(1), Burst: 2, Initial: 1}, "a", 2, 1, false},
		{"name of the config", "", ratelimit.TokenBucket{Name: "b", Rate: ratelimit.PerSecond(1), Burst: 2, Initial: ratelimit.StartEmpty}, "b", 2, ratelimit.StartEmpty, false},
		{"burst 1", "", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(100), Burst: 1}, "ratelimit", 1, 1, true},
		{"burst 1, no limit", "", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(1)), Burst: 1}, "ratelimit", 1, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, err := ratelimit.New(tt.given, tt.cfg)
			require.NoError(t, err)
			got := b.Config()
			want := ratelimit.TokenBucket{Name: tt.wantName, Rate: tt.cfg.Rate, Burst: tt.burst, Initial: tt.initial, MaxWaiters: 100, Shadow: tt.cfg.Shadow}
			assert.Equal(t, want, got)
			assert.NoError(t, got.Validate(), "the effective configuration is a valid one")
			part, err := b.BuildPolicy()
			require.NoError(t, err)
			assert.Equal(t, tt.warns, len(part.Warnings) == 1)
		})
	}
}

// Every combination of odd settings is refused with a typed error, or does what is
// documented.
func TestCaseB03OddSettings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for _, tokens := range []float64{0, math.Copysign(0, -1), -1, math.NaN(), math.Inf(-1), math.Inf(1), 1} {
			for _, per := range []time.Duration{0, -time.Second, time.Second} {
				for _, burst := range []int{-1, 0, 1} {
					cfg := ratelimit.TokenBucket{Rate: ratelimit.Per(tokens, per), Burst: burst}
					b, err := ratelimit.New("", cfg)
					if !(tokens > 0) || per <= 0 || burst < 0 {
						assert.NotEmpty(t, faults(t, err), "%+v", cfg)
						continue
					}
					require.NoError(t, err)
					passed := 0
					for range 1000 {
						for _, cost := range []int{0, -1, math.MinInt} {
							before := b.Tokens(start)
							assert.True(t, b.AllowN(cost), "a cost of nothing is allowed")
							b.Refund(start, cost)
							assert.Equal(t, before, b.Tokens(start), "and changes nothing")
						}
						if _, ok := b.Take(start, 1); ok {
							passed++
						}
					}
					if math.IsInf(tokens, 1) {
						assert.Equal(t, 1000, passed, "no limit")
						continue
					}
					// A burst of 0 is the default, one second's worth.
					assert.Equal(t, 1, passed, "%+v", cfg)
				}
			}
		}
	})
}

// An infinite rate is no limit but on the cost of one call.
func TestCaseB03InfiniteRate(t *testing.T) {
	t.Parallel()
	b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(1)), Burst: 5})
	now := time.Now()
	for range 1000 {
		_, ok := b.Take(now, 5)
		require.True(t, ok)
	}
	wait, ok := b.Take(now, 6)
	assert.False(t, ok)
	assert.Equal(t, policy.Never, wait)
	r := b.Reserve(now, 5)
	assert.True(t, r.OK())
	assert.Zero(t, r.Delay())
	require.NoError(t, b.Wait(t.Context(), 5))
	assert.InDelta(t, 5.0, b.Tokens(now), 0)

	b = newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(1))})
	assert.True(t, b.AllowN(math.MaxInt32), "by default nothing is too large")
}

// A capacity derived from a huge rate is positive, on 32 bits as well.
func TestCaseB04DerivedCapacity(t *testing.T) {
	t.Parallel()
	const tebi = 1 << 40
	for _, rate := range []float64{2 * tebi * 4 / 256, 2 * tebi, 1e18, math.MaxFloat64} {
		b := newBucket(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(rate)})
		burst := b.Config().Burst
		assert.GreaterOrEqual(t, burst, math.MaxInt32, "%v", rate)
		assert.LessOrEqual(t, float64(burst), rate)
		now := time.Now()
		_, ok := b.Take(now, burst)
		assert.True(t, ok, "%v", rate)
		wait, ok := b.Take(now, burst)
		assert.False(t, ok, "%v", rate)
		assert.Positive(t, wait)
		assert.LessOrEqual(t, wait, time.Second)
		_, ok = b.Take(now.Add(wait), burst)
		assert.True(t, ok, "%v", rate)
	}
}

func FuzzNew(f *testing.F) {
	f.Add(6000.0, int64(time.Second), 600, 0, 1)
	f.Add(1e-11, int64(time.Second), 1, 0, 1)
	f.Add(1e18, int64(time.Second), 5, -1, 5)
	f.Add(math.Inf(1), int64(time.Second), 0, 0, 7)
	f.Add(math.NaN(), int64(-1), -1, -2, 0)
	f.Add(5e-324, int64(math.MaxInt64), math.MaxInt32, 1, math.MaxInt32)
	f.Fuzz(func(t *testing.T, tokens float64, per int64, burst, initial, n int) {
		cfg := ratelimit.TokenBucket{Rate: ratelimit.Per(tokens, time.Duration(per)), Burst: burst, Initial: initial}
		b, err := ratelimit.New("", cfg)
		assert.Equal(t, cfg.Validate() == nil, err == nil)
		if err != nil {
			return
		}
		// Accepted means usable.
		cfg = b.Config()
		require.NoError(t, cfg.Validate())
		now := time.Now()
		wait, ok := b.Take(now, n)
		assert.Equal(t, ok, wait == 0)
		if n > cfg.Burst {
			assert.Equal(t, policy.Never, wait)
		}
		if n <= max(cfg.Initial, 0) {
			assert.True(t, ok, "%d of %+v", n, cfg)
		}
		if !ok && wait < 100*365*24*time.Hour {
			_, early := b.Take(now.Add(wait-1), n)
			assert.False(t, early)
			_, ok = b.Take(now.Add(wait), n)
			assert.True(t, ok)
		}
	})
}
