package ratelimit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSimplest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		x    float64
		want string
	}{
		{6000, "6000/1"},
		{0.2, "1/5"},
		{0.1, "1/10"},
		{1.0 / 3, "1/3"},
		{2.5, "5/2"},
		{2.0 / 7, "2/7"},
		{1e-11, "1/100000000000"},
		{12345.678, "6172839/500"},
		{1e18, "1000000000000000000/1"},
		{math.Pi, "245850922/78256779"},
	} {
		assert.Equal(t, tt.want, simplest(tt.x).String(), "%v", tt.x)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(0, math.MaxFloat64).Draw(t, "x")
		got, _ := simplest(x).Float64()
		require.Equal(t, x, got)
	})
}

// The cut of a token is exact for rates as people write them.
func TestMeterIsExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate  Rate
		burst int64
		mult  uint64
		unit  int64
	}{
		{PerSecond(6000), 600, 3, 500_000},
		{PerSecond(0.2), 1, 1, 5e9},
		{PerSecond(1.0 / 3), 1, 1, 3e9},
		{PerMinute(6), 6, 1, 10e9},
		{PerSecond(6001), 6001, 6001, 1e9},
		{PerSecond(1e9), 5, 1, 1},
		{PerSecond(1e12), 5, 5, 1}, // a burst per nanosecond
		{PerSecond(1e18), 5, 5, 1},
		{Every(24 * time.Hour), 1000, 1, 86400e9},
	} {
		m := newMeter(tt.rate, tt.burst, 0)
		assert.Zero(t, m.shift, "%v", tt.rate)
		assert.Equal(t, tt.mult, m.mult, "%v", tt.rate)
		assert.Equal(t, tt.unit, m.unit, "%v", tt.rate)
		assert.Equal(t, tt.burst*tt.unit, m.full, "%v", tt.rate)
	}
}

// drawRate draws rates of every size, simple ones and arbitrary floats.
func drawRate(t *rapid.T) Rate {
	tokens := rapid.OneOf(
		rapid.Map(rapid.IntRange(1, 10_000), func(n int) float64 { return float64(n) }),
		rapid.Map(rapid.IntRange(1, 10_000), func(n int) float64 { return float64(n) / 10 }),
		rapid.Map(rapid.Float64Range(-40, 80), math.Exp2),
		rapid.Float64Range(math.SmallestNonzeroFloat64, math.MaxFloat64),
	).Draw(t, "tokens")
	per := rapid.OneOf(
		rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, time.Millisecond}),
		rapid.Map(rapid.Int64Range(1, math.MaxInt64), func(n int64) time.Duration { return time.Duration(n) }),
	).Draw(t, "per")
	return Rate{Tokens: tokens, Per: per}
}

func drawBurst(t *rapid.T) int64 {
	return int64(rapid.OneOf(
		rapid.IntRange(1, 100),
		rapid.IntRange(1, maxBurst),
		rapid.Just(maxBurst),
	).Draw(t, "burst"))
}

// drawElapsed draws times of every size, up to limit.
func drawElapsed(t *rapid.T, name string, limit int64) int64 {
	return min(limit, rapid.OneOf(
		rapid.Int64Range(0, 1000),
		rapid.Map(rapid.Float64Range(0, 62.9), func(x float64) int64 { return int64(math.Exp2(x)) }),
		rapid.Just(limit),
	).Draw(t, name))
}

// pace returns the meter's units per nanosecond, exactly.
func (m *meter) pace() *big.Rat {
	return new(big.Rat).Quo(new(big.Rat).SetInt(new(big.Int).SetUint64(m.mult)), pow2(int(m.shift)))
}

// granting returns the units after elapsed ns before rounding, from first principles.
func (m *meter) granting(elapsed int64) *big.Rat {
	x := new(big.Rat).Mul(m.pace(), new(big.Rat).SetInt64(elapsed))
	frac := new(big.Rat).SetInt(new(big.Int).SetUint64(m.frac))
	return x.Add(x, frac.Quo(frac, pow2(int(m.shift))))
}

func floorOf(x *big.Rat) *big.Int { return new(big.Int).Div(x.Num(), x.Denom()) }

// The meter's rate is the configured one, or above it by less than can be seen.
func TestPropMeterRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, burst := drawRate(t), drawBurst(t)
		need := int64(rapid.IntRange(0, math.MaxInt).Draw(t, "need"))
		m := newMeter(r, burst, need)

		require.Positive(t, m.unit)
		require.LessOrEqual(t, burst, maxUnits/m.unit)
		require.Equal(t, burst*m.unit, m.full)
		require.Positive(t, m.horizon)
		require.LessOrEqual(t, m.shift, uint8(64))

		want := r.perNano()
		if b := new(big.Rat).SetInt64(burst); want.Cmp(b) > 0 {
			want = b
		}
		want.Mul(want, new(big.Rat).SetInt64(m.unit))
		got := m.pace()
		if m.shift == 0 {
			require.Zero(t, got.Cmp(want), "exact means exact")
			return
		}
		require.GreaterOrEqual(t, got.Cmp(want), 0, "what is due must not be missed")
		// In a century: less than a unit, or less than a nanosecond's worth.
		century := new(big.Rat).SetInt64(int64(100 * 365 * 24 * time.Hour))
		excess := new(big.Rat).Sub(got, want)
		excess.Mul(excess, century)
		require.True(t, excess.Cmp(pow2(0)) < 0 || excess.Cmp(want) < 0, "off by %v units", excess)
	})
}

// granted is the floor of elapsed times pace, and crossing its inverse.
func TestPropMeterArithmetic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMeter(drawRate(t), drawBurst(t), 0)
		if m.shift > 0 {
			m.frac = rapid.Uint64().Draw(t, "frac") >> (64 - m.shift)
		}
		elapsed := drawElapsed(t, "elapsed", m.horizon)
		want := floorOf(m.granting(elapsed))
		require.Equal(t, want.Int64(), m.granted(elapsed))
		require.LessOrEqual(t, m.granted(elapsed), int64(maxUnits)+1)

		long := drawElapsed(t, "long", math.MaxInt64)
		exact := m.granting(long)
		units, frac := m.grantedAny(long)
		if floor := floorOf(exact); floor.IsInt64() {
			require.Equal(t, floor.Int64(), units)
		} else {
			require.Equal(t, int64(math.MaxInt64), units)
		}
		rest := new(big.Rat).Sub(exact, new(big.Rat).SetInt(floorOf(exact)))
		rest.Mul(rest, pow2(int(m.shift)))
		require.Zero(t, rest.Cmp(new(big.Rat).SetInt(new(big.Int).SetUint64(frac))), "fraction")

		target := rapid.Int64Range(1, maxArrived).Draw(t, "units")
		c := m.crossing(target)
		if c == never {
			require.Negative(t, m.granting(never-1).Cmp(new(big.Rat).SetInt64(target)))
			return
		}
		require.GreaterOrEqual(t, m.granting(c).Cmp(new(big.Rat).SetInt64(target)), 0, "there at the crossing")
		require.Negative(t, m.granting(c-1).Cmp(new(big.Rat).SetInt64(target)), "not a nanosecond earlier")
	})
}

func TestMeterCrossingOfNothing(t *testing.T) {
	t.Parallel()
	m := newMeter(PerSecond(1), 1, 0)
	assert.Zero(t, m.crossing(0))
	assert.Zero(t, m.crossing(math.MinInt64))
}

func TestMeterHorizon(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate  Rate
		burst int64
		least time.Duration
	}{
		{PerSecond(6000), 600, 10 * 365 * 24 * time.Hour},
		{PerSecond(math.Pi), 100, 30 * time.Minute},
		{PerSecond(999_999_937), 1000, 30 * time.Minute},
		{PerSecond(1e9 / math.Pi), 1 << 40, 30 * time.Minute},
	} {
		m := newMeter(tt.rate, tt.burst, 0)
		assert.GreaterOrEqual(t, time.Duration(m.horizon), tt.least, "%v", tt.rate)
	}
}

func TestRescale(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ stock, from, to, want int64 }{
		{10, 10, 10, 10},
		{7, 2, 3, 10},
		{-7, 2, 3, -11},
		{math.MaxInt64, 1, 1000, maxAhead},
		{-1 << 62, 1, 1 << 60, -maxAhead},
		{-1 << 62, 1, 2, -maxAhead},
	} {
		assert.Equal(t, tt.want, rescale(tt.stock, tt.from, tt.to), "%v", tt)
	}
}
