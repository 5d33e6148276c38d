package ratelimit

import (
	"math"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const second = int64(time.Second)

func TestCurve(t *testing.T) {
	t.Parallel()
	cfg := Feedback{Ceiling: PerSecond(100), Floor: PerSecond(5), Decrease: 0.5, RecoverIn: 10 * time.Second}.withDefaults()
	cubic := newCurve(cfg)
	cfg.Recovery = RecoverAdditive
	additive := newCurve(cfg)
	for _, c := range []curve{cubic, additive} {
		assert.InDelta(t, 100, c.at(-5), 0, "at the ceiling from the start")
		assert.InDelta(t, 100, c.at(1000*second), 0)
	}
	for _, tt := range []struct {
		name string
		c    curve
		want map[int64]float64 // by seconds since the fall, which is at 3 s
	}{
		// From 80 to 40; at 10 s it is at 80 again, where it hardly rises.
		{"cubic", cubic.fall(80, 3*second), map[int64]float64{-3: 40, 0: 40, 5: 75, 9: 79.96, 10: 80, 11: 80.04, 15: 85, 18: 100, 1000: 100}},
		// A fall from the ceiling, by 50, is made good in 10 s.
		{"additive", additive.fall(80, 3*second), map[int64]float64{-3: 40, 0: 40, 5: 65, 10: 90, 12: 100, 1000: 100}},
		{"cubic, to the floor", cubic.fall(6, 3*second), map[int64]float64{0: 5, 10: 10, 20: 15}},
		{"cubic, below the floor", cubic.fall(1, 3*second), map[int64]float64{0: 5, 10: 10}},
		{"additive, below the floor", additive.fall(1, 3*second), map[int64]float64{0: 5, 10: 55}},
		{"a second fall", cubic.fall(80, 3*second).fall(40, 3*second), map[int64]float64{0: 20, 10: 40, 20: 60}},
	} {
		for at, want := range tt.want {
			assert.InDelta(t, want, tt.c.at((at+3)*second), 1e-9, "%s, %d s after the fall", tt.name, at)
		}
		last := 0.0
		for at := int64(0); at < 60*second; at += second / 10 {
			rate := tt.c.at(at)
			require.GreaterOrEqual(t, rate, last, "%s: it only rises", tt.name)
			last = rate
		}
	}
	assert.Equal(t, []string{"cubic", "additive", "unknown"}, []string{RecoverCubic.String(), RecoverAdditive.String(), Recovery(9).String()})
}

func TestThroughput(t *testing.T) {
	t.Parallel()
	var p throughput
	for _, s := range []struct {
		at, add int64
		want    float64
	}{
		{0, 10, 10},
		{second / 2, 10, 20},
		{second, 4, 24},
		{second + second/4, 0, 19}, // three quarters of the last second
		{second - 1, 1, 25},        // late: it counts now
		{2 * second, 0, 5},
		{4 * second, 0, 0},
		{5 * second, 7, 7},
		{6 * second, 0, 7},
		{7 * second, 0, 0},
	} {
		if s.add > 0 {
			p.add(s.at, s.add)
		}
		assert.InDelta(t, s.want, p.rate(s.at), 1e-6, "at %d", s.at)
	}
	// What is asked of a time that has not begun changes nothing.
	assert.InDelta(t, 0, p.rate(100*second), 0)
	assert.InDelta(t, 7, p.rate(5*second), 0)
}

func TestThroughputConcurrentSafe(t *testing.T) {
	t.Parallel()
	var p throughput
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				p.add(int64(i)*second/500+int64(g), 1)
				p.rate(int64(i) * second / 500)
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, p.rate(2*second-1), 4000.0)
}

// feedbackModel is a governor in fractions of any size, with the curve written down once
// more.
type feedbackModel struct {
	cfg            Feedback
	bucket         *counterModel
	low, high      float64
	began, fell    int64
	drain, next    int64
	seconds        map[int64]int64
	floor, ceiling float64
}

func (m *feedbackModel) rateAt(at int64) float64 {
	if at <= m.began {
		return m.low
	}
	t := float64(at-m.began) / 1e9 / m.cfg.RecoverIn.Seconds()
	rate := m.low + m.ceiling*(1-m.cfg.Decrease)*t
	if m.cfg.Recovery == RecoverCubic {
		rate = m.high - (m.high-m.low)*(1-t)*(1-t)*(1-t)
	}
	return math.Max(m.low, math.Min(rate, m.ceiling))
}

func (m *feedbackModel) measured(at int64) float64 {
	s := at / second
	return float64(m.seconds[s]) + float64(m.seconds[s-1])*(1-float64(at%second)/1e9)
}

// runFeedbackModel runs the same random calls and objections on a governor and on the
// model. Their rates must agree to rounding, and their verdicts where that cannot matter.
func runFeedbackModel(t require.TestingT, o ops, steps int) {
	cfg := Feedback{
		Ceiling:   PerSecond([]float64{1, 10, 100, 5000}[o.intn("ceiling", 4)]),
		Burst:     []int{1, 5, 50}[o.intn("burst", 3)],
		Decrease:  []float64{0.2, 0.5, 0.7, 0.9}[o.intn("decrease", 4)],
		Recovery:  Recovery(o.intn("recovery", 2)),
		RecoverIn: []time.Duration{time.Second, 10 * time.Second, time.Minute}[o.intn("in", 3)],
		MaxDrain:  []time.Duration{NoDrain, time.Second, time.Minute}[o.intn("drain", 3)],
	}
	cfg.Floor = PerSecond(cfg.Ceiling.Tokens * []float64{0.01, 0.3, 1}[o.intn("floor", 3)])
	g, err := NewFeedback("", cfg)
	require.NoError(t, err)
	cfg = g.Config()
	m := &feedbackModel{
		cfg: cfg, bucket: newCounterModel(cfg.Ceiling, int64(cfg.Burst), int64(cfg.Burst)), low: cfg.Ceiling.Tokens, high: cfg.Ceiling.Tokens,
		fell: math.MinInt64, next: never, seconds: map[int64]int64{}, floor: cfg.Floor.Tokens, ceiling: cfg.Ceiling.Tokens,
	}
	setRate := func(at int64, rate float64) {
		m.bucket.move(at)
		m.bucket.rate = new(big.Rat).Mul(new(big.Rat).SetFloat64(rate), big.NewRat(1, second))
	}
	arm := func(at int64, rate float64) {
		m.next = never
		if rate < m.ceiling {
			m.next = at + max(10_000_000, min(int64(cfg.RecoverIn)/100, second))
		}
	}
	let := []int64{0} // times at which calls were let in
	at := int64(0)
	for range steps {
		at += o.int64n("step", []int64{1, 1e6, 1e8, 3e9, 200e9}[o.intn("scale", 5)])
		if o.intn("op", 4) == 0 {
			taken := let[len(let)-1-o.intn("which", min(len(let), 5))]
			pushback := []time.Duration{0, 0, 300 * time.Millisecond, 5 * time.Second, time.Hour, -1}[o.intn("pushback", 6)]
			g.object(at, taken, pushback)
			until := at
			if pushback > 0 && cfg.MaxDrain > 0 {
				until += int64(min(pushback, cfg.MaxDrain))
			}
			switch {
			case taken > m.fell:
				rate := m.rateAt(at)
				if p := m.measured(at); p > 0 {
					rate = min(rate, p)
				}
				m.drain = max(m.drain, until)
				m.low = max(m.floor, rate*cfg.Decrease)
				m.high, m.began, m.fell = max(rate, m.low/cfg.Decrease), m.drain, at
			case until > m.drain:
				m.drain, m.began = until, until
			default:
				continue
			}
			m.bucket.move(at)
			setRate(m.drain, m.low)
			m.bucket.used = new(big.Rat)
			arm(m.drain, m.low)
			continue
		}
		if at >= m.next {
			rate := m.rateAt(at)
			setRate(at, rate)
			arm(at, rate)
		}
		n := 1 + o.intn("n", cfg.Burst+1)
		tokens, _ := m.bucket.tokens(at).Float64()
		wait, v := g.take(at, n)
		require.InEpsilon(t, m.rateAt(at), g.curve.at(at), 1e-9, "rate at %d", at)
		switch {
		case n > cfg.Burst:
			require.Equal(t, tooBig, v)
			continue
		case tokens >= float64(n)+1e-6:
			require.Equal(t, taken, v, "take %d at %d: %v tokens", n, at, tokens)
		case tokens <= float64(n)-1e-6:
			require.Equal(t, short, v, "take %d at %d: %v tokens", n, at, tokens)
			if m.drain > at {
				require.Greater(t, int64(wait), m.drain-at, "nothing is let in before %d", m.drain)
			}
		}
		if v == taken {
			m.bucket.used = new(big.Rat).Add(m.bucket.usedAt(at), ratOf(int64(n)))
			m.seconds[at/second] += int64(n)
			let = append(let, at)
		} else {
			require.Positive(t, wait)
		}
		_, free := g.bucket.free(at)
		have := float64(free) / float64(g.bucket.state.Load().unit)
		tokens, _ = m.bucket.tokens(at).Float64()
		require.InDelta(t, tokens, have, 1e-6+math.Abs(tokens)*1e-9, "tokens at %d", at)
	}
}

func TestPropFeedbackModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { runFeedbackModel(t, rapidOps{t}, 80) })
}

func FuzzFeedbackModel(f *testing.F) {
	for seed := range 16 {
		f.Add(slices.Repeat([]byte{byte(seed), 3, 200, 17, byte(31 * seed), 5, 6, 1}, 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runFeedbackModel(t, &byteOps{data}, min(len(data), 200))
	})
}

// Whatever the dependency says and when: no more is let in than the bucket held and the
// ceiling gives, and after a fall no more than the curve gives.
func TestPropFeedbackBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ceiling := rapid.Float64Range(0.5, 2000).Draw(t, "ceiling")
		burst := rapid.IntRange(1, 100).Draw(t, "burst")
		g, err := NewFeedback("", Feedback{Ceiling: PerSecond(ceiling), Burst: burst, RecoverIn: time.Duration(rapid.IntRange(1, 60).Draw(t, "in")) * time.Second})
		require.NoError(t, err)
		type entry struct {
			at int64
			n  int
		}
		var all, since []entry
		fallen := curve{}
		at := int64(0)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			at += rapid.Int64Range(0, 500_000_000).Draw(t, "step")
			if rapid.IntRange(0, 9).Draw(t, "op") == 0 {
				if g.objected(at, at-rapid.Int64Range(0, second).Draw(t, "taken"), time.Duration(rapid.Int64Range(0, 3*second).Draw(t, "pushback"))) {
					since, fallen = nil, g.curve
				}
				continue
			}
			n := rapid.IntRange(1, burst).Draw(t, "n")
			wait, v := g.take(at, n)
			if v == short { // a rate that rises makes it sooner, never later
				at += int64(wait)
				_, v = g.take(at, n)
			}
			require.Equal(t, taken, v)
			all = append(all, entry{at, n})
			since = append(since, entry{at, n})
			sum := 0
			for _, e := range slices.Backward(all) {
				sum += e.n
				require.LessOrEqual(t, float64(sum), float64(burst)+ceiling*float64(at-e.at)/1e9+1e-6)
			}
			if fallen.over > 0 {
				require.GreaterOrEqual(t, at, fallen.began)
				sum, area := 0, 0.0
				for _, e := range since {
					sum += e.n
				}
				const parts = 1000
				for i := range parts {
					area += fallen.at(fallen.began+(at-fallen.began)*int64(i+1)/parts) * float64(at-fallen.began) / 1e9 / parts
				}
				require.LessOrEqual(t, float64(sum), area+1e-6)
			}
		}
	})
}

// At one instant nothing arrives: what was taken at most is what there was, whatever is
// changed meanwhile.
func TestFeedbackConcurrentSafe(t *testing.T) {
	t.Parallel()
	g, err := NewFeedback("", Feedback{Ceiling: PerSecond(1000), Burst: 10_000, RecoverIn: time.Second})
	require.NoError(t, err)
	var mu sync.Mutex
	sum := 0
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			got := 0
			for i := range 3000 {
				switch {
				case i%1000 == 999:
					g.object(1, 0, time.Second)
				case i%300 == 299 && worker == 0:
					g.mu.Lock()
					cfg := g.cfg
					cfg.Ceiling = PerSecond(float64(500 + i))
					g.setRangeLocked(1, cfg)
					g.mu.Unlock()
				case i%7 == 0:
					if _, v := g.take(1, 1); v == taken {
						g.refund(1, 1)
					}
				default:
					if _, v := g.take(1, 1+i%3); v == taken {
						got += 1 + i%3
					}
					g.Snapshot(g.bucket.start)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum += got
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, sum, 10_000)
	assert.Positive(t, sum)
	_, v := g.take(1, 1)
	assert.Equal(t, short, v, "it was emptied")
	assert.Equal(t, uint64(12), g.pushbacks.Load())
	assert.Equal(t, uint64(1), g.falls.Load(), "all of them are about calls of before the first fall")
}
