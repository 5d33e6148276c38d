package ratelimit

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rampModel is a limit that warms up, in numbers of 300 bits.
type rampModel struct {
	cold, warm, rise, period, burst *big.Float
	at                              int64
	tokens, warmth                  *big.Float
	wanted                          bool
}

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(x) }

func bigInt(n int64) *big.Float { return new(big.Float).SetPrec(300).SetInt64(n) }

func add(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(300).Add(a, b) }
func sub(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(300).Sub(a, b) }
func mul(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(300).Mul(a, b) }
func quo(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(300).Quo(a, b) }

func minBig(a, b *big.Float) *big.Float {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func newRampModel(c WarmUp) *rampModel {
	m := &rampModel{period: bigInt(int64(c.Period)), burst: bigInt(int64(c.Burst)), warmth: bigOf(0)}
	m.warm = minBig(quo(bigOf(c.Rate.Tokens), bigInt(int64(c.Rate.Per))), m.burst)
	m.cold = quo(m.warm, bigOf(c.ColdFactor))
	m.rise = quo(sub(m.warm, m.cold), m.period)
	m.tokens = m.burst
	return m
}

func (m *rampModel) rate() *big.Float { return add(m.cold, mul(m.rise, m.warmth)) }

// climb lets a time pass during which tokens arrive and the rate rises.
func (m *rampModel) climb(t *big.Float) {
	rising := minBig(t, sub(m.period, m.warmth))
	area := add(mul(m.rate(), rising), quo(mul(m.rise, mul(rising, rising)), bigOf(2)))
	area = add(area, mul(m.warm, sub(t, rising)))
	m.tokens = minBig(add(m.tokens, area), m.burst)
	m.warmth = minBig(add(m.warmth, t), m.period)
}

// full returns the time until the bucket is.
func (m *rampModel) full() *big.Float {
	missing := sub(m.burst, m.tokens)
	rising := sub(m.period, m.warmth)
	area := add(mul(m.rate(), rising), quo(mul(m.rise, mul(rising, rising)), bigOf(2)))
	if missing.Cmp(area) >= 0 {
		return add(rising, quo(sub(missing, area), m.warm))
	}
	if m.rise.Sign() == 0 {
		return quo(missing, m.warm)
	}
	root := add(mul(m.rate(), m.rate()), mul(bigOf(2), mul(m.rise, missing)))
	return quo(sub(root.Sqrt(root), m.rate()), m.rise)
}

func (m *rampModel) advance(at int64) {
	if at <= m.at {
		return
	}
	t, full := bigInt(at-m.at), m.full()
	m.at = at
	if t.Cmp(full) < 0 {
		m.climb(t)
		return
	}
	m.climb(full)
	m.tokens = m.burst
	if m.wanted {
		if again := quo(bigOf(1), m.rate()); add(full, again).Cmp(t) < 0 {
			m.climb(again)
			full = add(full, again)
		} else {
			m.climb(sub(t, full))
			return
		}
	}
	m.wanted = false
	if m.warmth = sub(m.warmth, sub(t, full)); m.warmth.Sign() < 0 {
		m.warmth = bigOf(0)
	}
}

// Tokens, warmth and the time of the next token, held against numbers that do not round.
func TestPropRampModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := WarmUp{
			Rate:       Per(rapid.SampledFrom([]float64{1, 2.5, 7, 1000, 1e6, 1e9}).Draw(t, "tokens"), rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour}).Draw(t, "per")),
			ColdFactor: rapid.SampledFrom([]float64{1, 1.5, 3, 100}).Draw(t, "cold"),
			Period:     rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, 10 * time.Second, time.Hour}).Draw(t, "period"),
			Burst:      rapid.SampledFrom([]int{1, 2, 10, 1000}).Draw(t, "burst"),
		}
		s, m := newSlope(cfg), newRampModel(cfg)
		g := glow{tokens: s.burst}
		near := func(got float64, want *big.Float, delta float64, what string) {
			w, _ := want.Float64()
			require.InDelta(t, w, got, delta, "%s of %+v", what, cfg)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step := rapid.Int64Range(0, rapid.SampledFrom([]int64{1, 1000, 1e6, 1e9, 1e10, 1e13}).Draw(t, "scale")).Draw(t, "step")
			at := g.at + step
			if rapid.Bool().Draw(t, "wait") {
				if when := s.when(g, at); when != never {
					at = when
				}
			}
			// When it says that there is one, there is; and a moment before there
			// is none.
			when := s.when(g, at)
			require.GreaterOrEqual(t, when, at)
			if when < never {
				require.GreaterOrEqual(t, s.at(g, when).tokens, 1.0)
				if when > at {
					require.Less(t, s.at(g, when-1).tokens, 1.0)
				}
			}
			g = s.at(g, at)
			m.advance(at)
			near(g.tokens, m.tokens, 1e-9*(1+s.burst), "tokens")
			near(g.warmth, m.warmth, 1e-9*s.period+1e-15*float64(step)+1, "warmth")
			m.wanted = g.wanted // to the nanosecond, which rounding may decide
			if g.tokens >= 1 {
				m.wanted = false
				n := rapid.SampledFrom([]int64{1, 1, 1, 2, 5}).Draw(t, "n")
				g = s.use(g, at, n)
				m.tokens = sub(m.tokens, bigInt(n))
			} else if near := m.full(); cfg.Burst == 1 && near.Cmp(bigOf(1e12)) < 0 {
				// With a burst of 1 the next token is when it is full.
				w, _ := near.Float64()
				require.InDelta(t, w, s.when(g, at)-at, 1+1e-9*w)
			}
			if g.tokens < 1 && rapid.Bool().Draw(t, "wanted") {
				m.wanted, g.wanted = true, true
			}
		}
	})
}

// A promise is for a moment that is rounded up to a nanosecond; what arrives in that is
// not lost. So a queue goes at the full rate.
func TestRampKeepsFractionsOfPromises(t *testing.T) {
	t.Parallel()
	s := newSlope(WarmUp{Rate: PerSecond(300_000_007), ColdFactor: 1, Period: time.Second, Burst: 1})
	g := glow{tokens: 1}
	const calls = 300_000
	for range calls {
		g = s.keep(g, s.when(g, g.at), 1)
	}
	require.InDelta(t, float64(calls)/300_000_007*1e9, g.at, 10)
}

func TestRampAcrossCenturies(t *testing.T) {
	t.Parallel()
	s := newSlope(WarmUp{Rate: PerSecond(1e-11), ColdFactor: 3, Period: time.Hour, Burst: 1})
	g := s.use(glow{tokens: 1}, 0, 1)
	require.Equal(t, int64(never), s.when(g, 0))
	require.Equal(t, int64(never), s.when(g, 1<<62))
	s = newSlope(WarmUp{Rate: PerSecond(1e18), ColdFactor: 3, Period: 1, Burst: 5})
	g = s.use(glow{tokens: 5}, 0, 5)
	require.Equal(t, int64(1), s.when(g, 0))
	require.InDelta(t, 5, s.at(g, 2).tokens, 0)
	require.InDelta(t, 5, s.at(g, never).tokens, 0)
	require.InDelta(t, 5, s.at(glow{at: -1 << 63, tokens: 0}, never).tokens, 0)
}
