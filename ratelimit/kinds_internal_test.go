package ratelimit

import (
	"math"
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// wait returns how long it takes until one more is let in, [policy.Never] when that is too
// far away.
func (m *paceModel) wait(at int64) (time.Duration, bool) {
	after := new(big.Rat).Add(m.usedAt(at), ratOf(1))
	if after.Cmp(m.arrived(at)) <= 0 {
		return 0, true
	}
	// Rounded up to a nanosecond.
	quo := new(big.Rat).Quo(after, m.rate)
	when := new(big.Int).Neg(floorOf(quo.Neg(quo)))
	when.Add(when, big.NewInt(m.origin))
	if !when.IsInt64() || when.Int64() == math.MaxInt64 {
		return policy.Never, false
	}
	if when.Sub(when, big.NewInt(at)); !when.IsInt64() {
		return policy.Never, false
	}
	return time.Duration(when.Int64()), false
}

// move makes at the origin.
func (m *paceModel) move(at int64) {
	m.used = new(big.Rat).Sub(m.usedAt(at), m.arrived(at))
	m.origin = max(at, m.origin)
}

// runPaceModel runs random operations on a pacer and on the model, at rates of all sizes
// and over centuries, and requires the same answers to the last nanosecond.
func runPaceModel(t require.TestingT, o ops, steps int) {
	rate, burst := chooseRate(o), chooseBurst(o)
	p, err := NewPace("", Pacer{Rate: rate, Burst: int(burst)})
	require.NoError(t, err)
	unit := func() int64 { return p.paces.state.Load().unit }
	m := &paceModel{rate: minRat(rate.perNano(), ratOf(burst)), burst: ratOf(burst), used: ratOf(-burst), units: unit}
	at := int64(0)
	for range steps {
		at = max(-1<<60, min(at+chooseStep(o), math.MaxInt64-1<<60))
		if s := p.paces.state.Load(); s.elapsed(at) > s.horizon {
			p.lock(at)
			p.unlock()
			m.move(at)
		}
		n := int64(o.intn("n", 12) - 1)
		switch op := o.intn("op", 8); {
		case op == 0 && n > 0:
			taken := at - o.int64n("since", 1e9)
			p.refund(at, taken, int(n))
			m.refund(at, taken, n)
		case op == 1:
			rate, burst := chooseRate(o), chooseBurst(o)
			p.lock(at)
			p.paces.setLimit(at, rate, int(burst))
			p.unlock()
			m.setLimit(max(at, m.origin), rate, burst)
			m.rate = minRat(m.rate, m.burst) // more is not to be had in a nanosecond
		case n <= 0:
			delay, v := p.take(at, int(n))
			require.Equal(t, taken, v)
			require.Zero(t, delay)
		case n > p.paces.most():
			delay, v := p.take(at, int(n))
			require.Equal(t, tooBig, v)
			require.Equal(t, policy.Never, delay)
		default:
			wantDelay, want := m.wait(at)
			delay, v := p.look(at, int(n))
			require.Equal(t, want, v == taken, "look %d at %d", n, at)
			require.Equal(t, wantDelay, delay, "look %d at %d", n, at)
			delay, v = p.take(at, int(n))
			require.Equal(t, want, v == taken, "take %d at %d", n, at)
			require.Equal(t, wantDelay, delay, "take %d at %d", n, at)
			if want {
				m.take(at, n, false)
			}
		}
		if p.paces.state.Load().shift != 0 {
			return // so much was owed that its unit is too small: the model is exact
		}
	}
}

func TestPropPaceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { runPaceModel(t, rapidOps{t}, 60) })
}

func FuzzPaceModel(f *testing.F) {
	for seed := range 16 {
		f.Add(slices.Repeat([]byte{byte(seed), 3, 200, 17, byte(31 * seed), 5, 6}, 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runPaceModel(t, &byteOps{data}, min(len(data), 200))
	})
}

// Limits up to the largest and windows up to a century: the time that is advertised is
// the first at which it fits, counted in numbers of any size.
func TestPropCounterLargeNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int64{1, 10, 1000, 1 << 31, maxBurst}).Draw(t, "most")
		limit := rapid.Int64Range(1, most).Draw(t, "limit")
		window := rapid.Int64Range(1, rapid.SampledFrom([]int64{10, 1e9, 3600e9, int64(maxWindow)}).Draw(t, "longest")).Draw(t, "window")
		s := &counterState{limit: limit, window: window}
		c := counts{
			start:  rapid.Int64Range(0, 1<<60).Draw(t, "start"),
			before: rapid.Int64Range(0, limit).Draw(t, "before"), used: rapid.Int64Range(0, limit).Draw(t, "used"),
		}
		n := rapid.Int64Range(1, limit).Draw(t, "n")
		at := c.start + rapid.Int64Range(0, min(3*(window/2), 1<<61)).Draw(t, "elapsed")
		fits := func(at int64) bool {
			now := c.at(at, window)
			sum := new(big.Rat).SetFrac(
				new(big.Int).Mul(big.NewInt(now.before), big.NewInt(window-(at-now.start))), big.NewInt(window))
			sum.Add(sum, ratOf(now.used))
			return sum.Add(sum, ratOf(n)).Cmp(ratOf(limit)) <= 0
		}
		when := s.when(c, at, n)
		require.GreaterOrEqual(t, when, at)
		if when == never {
			return // beyond the end of time
		}
		require.LessOrEqual(t, when-at, 2*window)
		require.True(t, fits(when))
		if when > at {
			require.False(t, fits(when-1))
		}
	})
}

// scriptOf makes a script of the bytes of a fuzz run.
func scriptOf(data []byte) (wait time.Duration, waiters int, script []lineOp) {
	o := &byteOps{data}
	wait = time.Duration([]int{10, 30, 100}[o.intn("wait", 3)])
	waiters = []int{1, 3, 10}[o.intn("waiters", 3)]
	for len(o.data) > 0 && len(script) < 100 {
		script = append(script, lineOp{
			step: []int64{0, 0, 0, 1, 2, 3, 5, 8, 20, 60}[o.intn("step", 10)],
			op:   o.intn("op", 10), n: []int64{1, 1, 1, 2, 3, 6}[o.intn("n", 6)],
			which: o.intn("which", 100), limit: o.intn("limit", lineLimits),
		})
	}
	return wait, waiters, script
}

func fuzzSeeds(f *testing.F) {
	f.Helper()
	for seed := range 16 {
		f.Add(slices.Repeat([]byte{byte(seed), 2, 0, byte(3 * seed), 8, byte(5 * seed), 3}, 30))
	}
}

// Any sequence of operations on any limiter with a line, held against its model.
func FuzzLines(f *testing.F) {
	fuzzSeeds(f)
	kinds := []lineKind{paceKind(), windowKind(), slidingKindOf(false), slidingKindOf(true)}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		k := kinds[int(data[0])%len(kinds)]
		wait, waiters, script := scriptOf(data[1:])
		synctest.Test(t, func(t *testing.T) {
			if diff := runLine(t, k, wait, waiters, script); diff != "" {
				t.Fatal(diff)
			}
		})
	})
}

func FuzzLanes(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		configs := laneConfigs()
		_, _, script := scriptOf(data[1:])
		synctest.Test(t, func(t *testing.T) {
			if diff := runLanes(t, configs[int(data[0])%len(configs)], script); diff != "" {
				t.Fatal(diff)
			}
		})
	})
}

// What Validate accepts can be used, and nothing panics.
func FuzzKindsConfig(f *testing.F) {
	f.Add(1.0, int64(time.Second), 5, int64(time.Second), 3, 2.0, int64(time.Second), 1)
	f.Add(math.NaN(), int64(0), -1, int64(-1), -1, math.Inf(1), int64(-1), 0)
	f.Add(1e-300, int64(1), math.MaxInt, int64(math.MaxInt64), math.MaxInt, 1e300, int64(math.MaxInt64), math.MinInt)
	f.Add(1e300, int64(math.MaxInt64), 1, int64(1), 1, 1.0, int64(1), math.MaxInt)
	f.Fuzz(func(t *testing.T, tokens float64, per int64, burst int, wait int64, waiters int, cold float64, period int64, n int) {
		rate, maxWait := Per(tokens, time.Duration(per)), time.Duration(wait)
		for _, cfg := range []interface {
			policy.Policy
			Validate() error
		}{
			Pacer{Rate: rate, Burst: burst, MaxWait: maxWait, MaxWaiters: waiters},
			FixedWindow{Limit: burst, Window: time.Duration(per), MaxWait: maxWait, MaxWaiters: waiters, AlignToClock: n%2 == 0},
			SlidingWindow{Limit: burst, Window: time.Duration(per), MaxWait: maxWait, MaxWaiters: waiters},
			SlidingWindow{Limit: burst, Window: time.Duration(per), MaxWait: maxWait, MaxWaiters: waiters, Approximate: true},
			WarmUp{Rate: rate, Burst: burst, MaxWait: maxWait, MaxWaiters: waiters, ColdFactor: cold, Period: time.Duration(period)},
			Lanes{
				Lanes: []LaneConfig{
					{Name: "a", Rate: rate, Burst: burst, MaxWait: maxWait, MaxWaiters: waiters, LendAbove: n},
					{Name: "b", Rate: rate, YieldTo: "a", YieldBelow: n},
				},
				Total: SlidingWindow{Limit: waiters, Window: time.Duration(period), Approximate: n%2 == 0},
			},
		} {
			part, err := cfg.BuildPolicy()
			require.Equal(t, cfg.Validate() == nil, err == nil, "%+v: %v", cfg, err)
			if err != nil {
				var fault *policy.ConfigError
				require.ErrorAs(t, err, &fault)
				continue
			}
			l, ok := part.Gate.(Limiter)
			require.True(t, ok)
			now := time.Now()
			for _, n := range []int{n, 1, 0, -1} {
				for _, at := range []time.Time{now, now.Add(time.Duration(per)), now.Add(time.Duration(period)), now} {
					delay, ok := l.Take(at, n)
					require.Equal(t, ok, delay == 0 || n <= 0, "take %d: %v, %v", n, delay, ok)
					require.GreaterOrEqual(t, delay, time.Duration(0))
				}
			}
			r := l.Reserve(now, 1)
			require.False(t, r.OK() && r.Delay() > maxDelay)
			r.Cancel(now)
			s := l.Snapshot(now).Limiter
			require.False(t, math.IsNaN(s.Tokens) || math.IsNaN(s.Rate) || math.IsNaN(s.Warmth))
			require.LessOrEqual(t, s.Tokens, s.Burst)
			require.NoError(t, l.SetRate(PerSecond(3)))
		}
	})
}
