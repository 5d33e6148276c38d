package ratelimit_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// faultsOf returns the fields of every ConfigError in err, all of one kind of policy.
func faultsOf(t *testing.T, kind string, err error) []string {
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
		assert.Equal(t, kind, ce.Policy)
		assert.NotEmpty(t, ce.Want)
		fields = append(fields, ce.Field)
	}
	return fields
}

func keyedFaults(t *testing.T, err error) []string {
	t.Helper()
	return faultsOf(t, "keyed", err)
}

func TestKeyedValidate(t *testing.T) {
	t.Parallel()
	ok := ratelimit.PerSecond(10)
	for _, tt := range []struct {
		name string
		cfg  ratelimit.Keyed
		want []string
	}{
		{"rate alone", ratelimit.Keyed{Rate: ok}, nil},
		{"everything", ratelimit.Keyed{
			Name: "shops", Rate: ok, Burst: 20, Exceptions: map[string]ratelimit.Limit{"": {Rate: ok}}, MaxKeys: 1 << 28,
			TTL: time.Second, Overflow: ratelimit.Limit{Rate: ok, Burst: 1}, Shadow: true,
		}, nil},
		{"no limit", ratelimit.Keyed{Rate: ratelimit.PerSecond(math.Inf(1))}, nil},
		{"zero", ratelimit.Keyed{}, []string{"Rate"}},
		{"overflow without a rate", ratelimit.Keyed{Rate: ok, Overflow: ratelimit.Limit{Burst: 5}}, []string{"Overflow.Rate"}},
		{
			"all at once",
			ratelimit.Keyed{
				Rate: ratelimit.Per(math.NaN(), -1), Burst: -1, MaxKeys: -1, TTL: -1,
				Exceptions: map[string]ratelimit.Limit{"b": {Rate: ok, Burst: -1}, "a": {Rate: ratelimit.PerSecond(0)}},
				Overflow:   ratelimit.Limit{Rate: ratelimit.PerSecond(-3)},
			},
			[]string{"Rate.Tokens", "Rate.Per", "Burst", `Exceptions["a"].Rate.Tokens`, `Exceptions["b"].Burst`, "MaxKeys", "TTL", "Overflow.Rate.Tokens"},
		},
		{"waits", ratelimit.Keyed{Rate: ok, MaxWait: time.Second, MaxWaiters: 5}, nil},
		{"waiters without a wait", ratelimit.Keyed{Rate: ok, MaxWaiters: 5}, []string{"MaxWaiters"}},
		{"waits for decades", ratelimit.Keyed{Rate: ok, MaxWait: math.MaxInt64, MaxWaiters: -1}, []string{"MaxWait", "MaxWaiters"}},
		{"a negative wait", ratelimit.Keyed{Rate: ok, MaxWait: -1}, []string{"MaxWait"}},
		{"too many keys", ratelimit.Keyed{Rate: ok, MaxKeys: 1<<28 + 1}, []string{"MaxKeys"}},
	} {
		assert.Equal(t, tt.want, keyedFaults(t, tt.cfg.Validate()), tt.name)
		b, err := ratelimit.NewKeyed("", tt.cfg)
		assert.Equal(t, tt.want, keyedFaults(t, err), tt.name)
		assert.Equal(t, tt.want == nil, b != nil, tt.name)
	}
	_, err := policy.New("inventory", ratelimit.Keyed{Name: "shops", Rate: ok, Burst: -3})
	assert.EqualError(t, err, "inventory.shops.Burst: -3: want at least 0 (0 means what arrives in a second)")
	_, err = policy.New("inventory", ratelimit.Keyed{Rate: ok, MaxKeys: -1})
	assert.EqualError(t, err, "inventory.keyed.MaxKeys: -1: want 1 to 268435456, or 0 (100000)")
}

func TestKeyedConfigIsEffective(t *testing.T) {
	t.Parallel()
	exceptions := map[string]ratelimit.Limit{"vip": {Rate: ratelimit.PerSecond(7)}}
	b, err := ratelimit.NewKeyed("", ratelimit.Keyed{Rate: ratelimit.PerSecond(2.5), Exceptions: exceptions})
	require.NoError(t, err)
	want := ratelimit.Keyed{
		Name: "keyed", Rate: ratelimit.PerSecond(2.5), Burst: 3, MaxKeys: 100_000, TTL: time.Minute,
		Exceptions: map[string]ratelimit.Limit{"vip": {Rate: ratelimit.PerSecond(7), Burst: 7}},
		Overflow:   ratelimit.Limit{Rate: ratelimit.PerSecond(2.5), Burst: 3},
	}
	exceptions["vip"] = ratelimit.Limit{} // a copy was taken
	assert.Equal(t, want, b.Config())
	require.NoError(t, b.Config().Validate())
	got := b.Config()
	got.Exceptions["vip"] = ratelimit.Limit{}
	assert.Equal(t, want, b.Config())

	given := ratelimit.Keyed{
		Name: "b", Rate: ratelimit.PerSecond(1), Burst: 2, MaxKeys: 5, TTL: time.Hour,
		Overflow: ratelimit.Limit{Rate: ratelimit.PerSecond(3), Burst: 30}, MaxWait: time.Second, Shadow: true,
	}
	b, err = ratelimit.NewKeyed("a", given)
	require.NoError(t, err)
	given.Name, given.MaxWaiters = "a", 100
	assert.Equal(t, given, b.Config())
	require.NoError(t, b.SetLimit(ratelimit.PerSecond(9), 9))
	assert.Equal(t, given.Overflow, b.Config().Overflow, "it was set, so it stays")

	for burst, warns := range map[int]bool{1: true, 2: false} {
		part, err := ratelimit.Keyed{Rate: ratelimit.PerSecond(100), Burst: burst}.BuildPolicy()
		require.NoError(t, err)
		assert.Equal(t, warns, len(part.Warnings) > 0, burst)
	}
}

// Whatever is accepted can be used, and lets no more through than it says.
func FuzzKeyedConfig(f *testing.F) {
	f.Add(10.0, int64(time.Second), 5, 100, int64(time.Minute), 1.0, int64(time.Second), 0)
	f.Add(math.NaN(), int64(-1), -1, -1, int64(-1), math.Inf(1), int64(0), 1<<30)
	f.Add(1e-300, int64(math.MaxInt64), math.MaxInt, 1, int64(1), 1e300, int64(1), 1)
	f.Fuzz(func(t *testing.T, tokens float64, per int64, burst, keys int, ttl int64, over float64, overPer int64, overBurst int) {
		cfg := ratelimit.Keyed{
			Rate: ratelimit.Per(tokens, time.Duration(per)), Burst: burst, MaxKeys: keys, TTL: time.Duration(ttl),
			Overflow: ratelimit.Limit{Rate: ratelimit.Per(over, time.Duration(overPer)), Burst: overBurst},
		}
		b, err := ratelimit.NewKeyed("", cfg)
		require.Equal(t, err == nil, cfg.Validate() == nil)
		if err != nil {
			return
		}
		effective := b.Config()
		require.NoError(t, effective.Validate())
		now := time.Now()
		_, ok := b.Take(now, "a", effective.Burst)
		require.True(t, ok, "a new key has all of its burst")
		if math.IsInf(tokens, 1) {
			return
		}
		wait, ok := b.Take(now, "a", 1)
		require.False(t, ok)
		require.Positive(t, wait)
	})
}
