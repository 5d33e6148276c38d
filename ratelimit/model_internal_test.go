package ratelimit

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// counterModel is a bucket without reservations, in fractions of any size: tokens
// that have arrived since an origin, and tokens used.
type counterModel struct {
	rate   *big.Rat // tokens per nanosecond
	burst  *big.Rat
	used   *big.Rat
	origin int64
	eras   rateEras
}

func ratOf(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func maxRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func newCounterModel(r Rate, burst, initial int64) *counterModel {
	return &counterModel{rate: minRat(r.perNano(), ratOf(burst)), burst: ratOf(burst), used: ratOf(-initial)}
}

func (m *counterModel) arrived(at int64) *big.Rat {
	return new(big.Rat).Mul(m.rate, ratOf(max(at-m.origin, 0)))
}

func (m *counterModel) usedAt(at int64) *big.Rat {
	return maxRat(m.used, new(big.Rat).Sub(m.arrived(at), m.burst))
}

func (m *counterModel) tokens(at int64) *big.Rat {
	return new(big.Rat).Sub(m.arrived(at), m.usedAt(at))
}

func (m *counterModel) take(at, n int64) (time.Duration, bool) {
	switch {
	case n <= 0:
		return 0, true
	case ratOf(n).Cmp(m.burst) > 0:
		return policy.Never, false
	}
	after := new(big.Rat).Add(m.usedAt(at), ratOf(n))
	if after.Cmp(m.arrived(at)) <= 0 {
		m.used = after
		return 0, true
	}
	// The first nanosecond at which that many have arrived, seen from at.
	quo := new(big.Rat).Quo(after, m.rate)
	wait := new(big.Int).Neg(floorOf(new(big.Rat).Neg(quo)))
	when := wait.Add(wait, big.NewInt(m.origin))
	if !when.IsInt64() || when.Int64() == math.MaxInt64 {
		return policy.Never, false
	}
	if wait.Sub(when, big.NewInt(at)); !wait.IsInt64() {
		return policy.Never, false
	}
	return time.Duration(wait.Int64()), false
}

func (m *counterModel) refund(n int64) {
	if n > 0 {
		m.used = maxRat(new(big.Rat).Sub(m.used, ratOf(n)), new(big.Rat).Neg(m.burst))
	}
}

// move makes at the origin.
func (m *counterModel) move(at int64) {
	balance := m.tokens(at)
	m.used = balance.Neg(balance)
	m.origin = max(at, m.origin)
}

func (m *counterModel) setLimit(at int64, r Rate, burst, unit int64) {
	m.move(at)
	next := minRat(r.perNano(), ratOf(burst))
	m.eras.change(m.origin, m.rate, next)
	m.rate, m.burst = next, ratOf(burst)
	balance := new(big.Rat).Neg(m.used)
	balance.Mul(balance, ratOf(unit))
	balance.SetFrac(floorOf(balance), big.NewInt(unit)) // the only rounding: to a unit
	m.used = new(big.Rat).Neg(minRat(balance, m.burst))
}

// ops yields the choices of a random run: from rapid or from the bytes of a fuzz run.
type ops interface {
	intn(name string, n int) int // in [0, n)
	int64n(name string, n int64) int64
}

type rapidOps struct{ t *rapid.T }

func (o rapidOps) intn(name string, n int) int { return rapid.IntRange(0, n-1).Draw(o.t, name) }

func (o rapidOps) int64n(name string, n int64) int64 {
	return rapid.Int64Range(0, n-1).Draw(o.t, name)
}

type byteOps struct{ data []byte }

func (o *byteOps) intn(_ string, n int) int {
	if len(o.data) == 0 {
		return 0
	}
	b := o.data[0]
	o.data = o.data[1:]
	return int(b) % n
}

func (o *byteOps) int64n(_ string, n int64) int64 {
	var b [8]byte
	o.data = o.data[copy(b[:], o.data):]
	return int64(binary.LittleEndian.Uint64(b[:]) % uint64(n))
}

// exactRates are rates of all sizes of which a token is a whole number of units at
// any burst that chooseBurst returns.
var exactRates = []Rate{
	PerSecond(1),
	PerSecond(0.2),
	PerSecond(1.0 / 3),
	PerSecond(2.5),
	PerSecond(6000),
	PerSecond(6001),
	PerMinute(6),
	PerSecond(1e9),
	PerSecond(7e9),
	PerSecond(1e12),
	PerSecond(1e18),
	Per(3, 7),
	Every(1),
	Every(time.Hour),
	Every(24 * time.Hour * 365),
	PerSecond(1e-8),
}

func chooseRate(o ops) Rate { return exactRates[o.intn("rate", len(exactRates))] }

func chooseBurst(o ops) int64 { return int64([]int{1, 2, 5, 10}[o.intn("burst", 4)]) }

// chooseStep chooses how far time moves: mostly forward, by anything from nothing to
// centuries, now and then back.
func chooseStep(o ops) int64 {
	scale := []int64{1, 10, 1000, 1e6, 1e9, 60e9, 3600e9, 365 * 86400e9, 1 << 60}[o.intn("scale", 9)]
	step := o.int64n("step", scale)
	switch o.intn("direction", 8) {
	case 0:
		return -step
	case 1:
		return 0
	default:
		return step
	}
}

// runCounterModel runs the same random operations on a bucket and on the model, and
// requires the same answers, to the last unit and nanosecond.
func runCounterModel(t require.TestingT, o ops, steps int) {
	rate, burst := chooseRate(o), chooseBurst(o)
	initial := []int{0, 1, StartEmpty}[o.intn("initial", 3)]
	b, err := New("", TokenBucket{Rate: rate, Burst: int(burst), Initial: initial})
	require.NoError(t, err)
	stored := int64(initial)
	switch initial {
	case 0:
		stored = burst
	case StartEmpty:
		stored = 0
	}
	m := newCounterModel(rate, burst, stored)
	at := int64(0)
	for range steps {
		// Keep away from the end of time, where differences stop.
		at = max(-1<<60, min(at+chooseStep(o), math.MaxInt64-1<<60))
		if s := b.state.Load(); s.elapsed(at) > s.horizon {
			b.move(s, at)
			m.move(at)
		}
		switch o.intn("op", 8) {
		case 0:
			n := o.intn("n", 12) - 1
			b.giveBack(at, at, n)
			m.refund(int64(n))
		case 1:
			rate, burst := chooseRate(o), chooseBurst(o)
			b.setLimit(at, rate, burst)
			m.setLimit(at, rate, burst, b.state.Load().unit)
		default:
			n := o.intn("n", 12) - 1
			wantWait, want := m.take(at, int64(n))
			if n > 0 {
				wait, v := b.look(at, n)
				require.Equal(t, want, v == taken, "look(%d) at %d", n, at)
				require.Equal(t, wantWait, wait, "look(%d) at %d", n, at)
			}
			take := b.take
			if n > 0 && o.intn("locked", 2) == 1 {
				take = func(at int64, n int) (time.Duration, verdict) { return b.claim(at, n, 0) }
			}
			wait, v := take(at, n)
			require.Equal(t, want, v == taken, "take(%d) at %d", n, at)
			require.Equal(t, wantWait, wait, "take(%d) at %d", n, at)
		}
		s := b.state.Load()
		if s.shift != 0 {
			return // a slow rate, and so much was owed that its unit is too small: the model is exact
		}
		require.Equal(t, m.origin, s.origin)
		_, free := b.free(at)
		require.Zero(t, m.tokens(at).Cmp(big.NewRat(free, s.unit)), "at %d: %d of %d units, want %v tokens", at, free, s.unit, m.tokens(at))
	}
}

func TestPropCounterModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { runCounterModel(t, rapidOps{t}, 60) })
}

func FuzzCounterModel(f *testing.F) {
	for seed := range 16 {
		f.Add(slices.Repeat([]byte{byte(seed), 3, 200, 17, byte(31 * seed), 5, 6}, 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runCounterModel(t, &byteOps{data}, min(len(data), 200))
	})
}

// bucketModel is a bucket with reservations, played through: tokens arrive, overflow,
// and are spent at the time that was promised. It counts in units: rate and unit are
// small enough for a search of every nanosecond.
type bucketModel struct {
	rate, unit, full int64 // units per ns, in a token, in a full bucket
	stock, now       int64
	promises         []promise
}

// spend returns the stock after p came true, given that of an earlier time. What
// arrives in the last nanosecond does not overflow.
func (m *bucketModel) spend(stock, now int64, p promise) int64 {
	if now < p.at {
		stock = min(m.full, stock+m.rate*(p.at-1-now)) + m.rate
	}
	return stock - p.tokens*m.unit
}

// advance plays the bucket forward to the given time.
func (m *bucketModel) advance(to int64) {
	for len(m.promises) > 0 && m.promises[0].at <= to {
		p := m.promises[0]
		m.promises = m.promises[1:] // a copy of the model keeps its own
		m.stock = m.spend(m.stock, m.now, p)
		m.now = p.at
	}
	m.stock = min(m.full, m.stock+m.rate*(to-m.now))
	m.now = to
}

// fits reports whether n tokens can be spent now without breaking a promise that
// would be kept otherwise.
func (m *bucketModel) fits(n int64) bool {
	with, without := m.stock-n*m.unit, m.stock
	if with < 0 {
		return false
	}
	now := m.now
	for _, p := range m.promises {
		with, without = m.spend(with, now, p), m.spend(without, now, p)
		if with < 0 && with != without {
			return false
		}
		now = p.at
	}
	return true
}

// earliest searches for the first nanosecond at which n tokens can be spent.
func (m *bucketModel) earliest(n int64) int64 {
	c := *m
	for !c.fits(n) {
		c.advance(c.now + 1)
	}
	return c.now
}

func (m *bucketModel) promise(at, n int64) {
	m.promises = append(slices.Clone(m.promises), promise{at: at, tokens: n})
	slices.SortStableFunc(m.promises, func(a, b promise) int { return int(a.at - b.at) })
}

// smallRates have few nanoseconds per token and few units per nanosecond.
var smallRates = []struct{ rate, unit int64 }{{1, 1}, {1, 2}, {1, 7}, {2, 3}, {3, 7}, {5, 6}, {1, 20}}

// runBucketModel runs reservations, cancellations and everything that may come between
// on a bucket and on the model, and requires the same times and tokens.
func runBucketModel(t require.TestingT, o ops, steps int) {
	choose := func() (Rate, int64, int64, int64) {
		r := smallRates[o.intn("rate", len(smallRates))]
		return Per(float64(r.rate), time.Duration(r.unit)), r.rate, r.unit, int64(1 + o.intn("burst", 5))
	}
	rate, perNano, unit, burst := choose()
	b, err := New("", TokenBucket{Rate: rate, Burst: int(burst)})
	require.NoError(t, err)
	m := &bucketModel{rate: perNano, unit: unit, full: burst * unit, stock: burst * unit}
	var reservations []Reservation
	at := int64(0)
	for range steps {
		at += int64(o.intn("step", 4) * o.intn("more", 8))
		m.advance(at)
		n := int64(1 + o.intn("n", int(burst)))
		switch op := o.intn("op", 10); op {
		case 0, 1, 2, 3:
			when := m.earliest(n)
			r := b.Reserve(b.start.Add(time.Duration(at)), int(n))
			require.True(t, r.OK())
			require.Equal(t, when, at+int64(r.Delay()), "reserve %d at %d", n, at)
			if when == at {
				m.stock -= n * unit
			} else {
				m.promise(when, n)
				reservations = append(reservations, r)
			}
		case 4, 5, 6:
			if len(reservations) == 0 {
				continue
			}
			i := o.intn("which", len(reservations))
			owed := reservations[i].owed
			reservations[i].Cancel(b.start.Add(time.Duration(at)))
			reservations = slices.Delete(reservations, i, i+1)
			if j := slices.IndexFunc(m.promises, func(p promise) bool { return p.at == owed.at && p.tokens == owed.tokens }); at < owed.at {
				require.GreaterOrEqual(t, j, 0)
				m.promises = slices.Delete(slices.Clone(m.promises), j, j+1)
			}
		case 7:
			if !b.refund(at, at, int(n)) {
				b.refundLocked(at, at, int(n), promise{})
			}
			m.stock = min(m.stock+n*unit, m.full)
		case 8:
			if o.intn("change", 4) > 0 {
				continue
			}
			from := unit
			rate, perNano, unit, burst = choose()
			b.setLimit(at, rate, burst)
			stock := floorOf(big.NewRat(m.stock*unit, from)).Int64()
			m.rate, m.unit, m.full = perNano, unit, burst*unit
			m.stock = min(stock, m.full)
		default:
			when := m.earliest(n)
			wait, v := b.look(at, int(n))
			require.Equal(t, when, at+int64(wait), "look %d at %d", n, at)
			require.Equal(t, when == at, v == taken)
			wait, v = b.take(at, int(n))
			require.Equal(t, when, at+int64(wait), "take %d at %d", n, at)
			require.Equal(t, when == at, v == taken)
			if when == at {
				m.stock -= n * unit
			}
		}
		// Tokens says what can be taken.
		_, free := b.free(at)
		for n := int64(1); n <= burst; n++ {
			require.Equal(t, m.fits(n), n*unit <= free, "%d tokens at %d: %d free of %d", n, at, free, unit)
		}
	}
}

func TestPropBucketModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { runBucketModel(t, rapidOps{t}, 60) })
}

func FuzzBucketModel(f *testing.F) {
	for seed := range 16 {
		f.Add(slices.Repeat([]byte{byte(seed), 1, 2, byte(7 * seed), 4, 1, 0, 9}, 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runBucketModel(t, &byteOps{data}, min(len(data), 200))
	})
}
