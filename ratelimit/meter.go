package ratelimit

import (
	"math"
	"math/big"
	"math/bits"
)

const (
	// maxUnits bounds what a bucket holds and what is granted between two changes
	// of origin; maxAhead bounds what can be reserved, so that sums of a few of
	// them do not overflow.
	maxUnits = 1 << 60
	maxAhead = 1 << 62

	// maxArrived is where a count of what has arrived may stop: it is more than
	// anything it is compared with.
	maxArrived = maxAhead + maxUnits

	// maxPaceLog bounds the units per nanosecond, as a power of two. It leaves more
	// than half an hour between two changes of origin, and for reservations.
	maxPaceLog = 19

	// maxElapsed is the longest time between two changes of origin.
	maxElapsed = 1 << 62

	// never is the time of what does not happen within 292 years.
	never = math.MaxInt64
)

// meter turns time into tokens. It is immutable.
//
// A token is cut into units, and mult/2^shift units arrive each nanosecond. Where
// possible the cut is such that this is a whole number, and everything is exact:
// 6000/s is 3/500000 of a token per nanosecond, so a token is 500000 units, 3 of
// which arrive each nanosecond. Where it is not (a rate whose fraction is too long),
// a token is a power of two units and mult is rounded up in its 64th bit, so that
// what is due is never missed, and the error of a century is less than a unit or
// than a nanosecond.
type meter struct {
	mult    uint64
	frac    uint64 // fraction of a unit due at the origin, times 2^shift
	unit    int64  // units in a token
	full    int64  // units in a full bucket
	horizon int64  // longest time for which granted may be asked
	burst   int64
	shift   uint8 // 0 when exact, otherwise up to 64

	unlimited bool // nothing is counted
}

// newMeter makes the meter of a valid rate. need is a number of tokens that must be
// representable although it is more than burst.
func newMeter(r Rate, burst, need int64) meter {
	if r.unlimited() {
		return meter{unit: 1, full: burst, horizon: never, burst: burst, unlimited: true}
	}
	need = min(max(need, burst), maxUnits)
	// As no time is shorter than a nanosecond, more than a burst in one is the same
	// as a burst.
	rate := r.perNano()
	if b := new(big.Rat).SetInt64(burst); rate.Cmp(b) > 0 {
		rate = b
	}
	m := meter{burst: burst}
	if num, den := rate.Num(), rate.Denom(); num.BitLen() <= maxPaceLog && den.IsInt64() && den.Int64() <= maxUnits/need {
		m.mult, m.unit = num.Uint64(), den.Int64()
	} else {
		byPace := floorLog2(new(big.Rat).Quo(pow2(maxPaceLog), rate))
		bySize := bits.Len64(maxUnits/uint64(need)) - 1 //nolint:gosec // need is at least 1
		unitLog := max(0, min(byPace, bySize))
		m.unit = 1 << unitLog
		pace := rate.Mul(rate, pow2(unitLog))
		shift := min(64, floorLog2(new(big.Rat).Quo(pow2(63), pace)))
		m.shift = uint8(shift) //nolint:gosec // pace is at most the largest burst, below 2^63
		m.mult = ceil(pace.Mul(pace, pow2(shift)))
	}
	m.full = burst * m.unit
	m.horizon = min(maxElapsed, m.crossing(maxUnits)-1)
	return m
}

// pow2 returns 2^n.
func pow2(n int) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(n)))
}

// floorLog2 returns the largest n with 2^n <= x, and 0 if that is negative.
func floorLog2(x *big.Rat) int {
	// The lengths alone give n or n+1.
	n := max(0, x.Num().BitLen()-x.Denom().BitLen())
	if n > 0 && pow2(n).Cmp(x) > 0 {
		n--
	}
	return n
}

// ceil returns the smallest whole number that is not below x, which must be between
// 0 and 2^63.
func ceil(x *big.Rat) uint64 {
	q, rest := new(big.Int).QuoRem(x.Num(), x.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		return q.Uint64() + 1
	}
	return q.Uint64()
}

// granted returns the units that have arrived after elapsed ns, which must be
// between 0 and the horizon.
func (m *meter) granted(elapsed int64) int64 {
	if m.shift == 0 {
		return elapsed * int64(m.mult) //nolint:gosec // the horizon keeps it below maxUnits
	}
	hi, lo := bits.Mul64(uint64(elapsed), m.mult) //nolint:gosec // not negative
	lo, carry := bits.Add64(lo, m.frac, 0)
	hi += carry
	return int64(hi<<(64-m.shift) | lo>>m.shift) //nolint:gosec // as above
}

// grantedAny is granted without a bound on elapsed: the units, at most
// [math.MaxInt64], and the fraction of a unit that has arrived beyond them.
func (m *meter) grantedAny(elapsed int64) (units int64, frac uint64) {
	hi, lo := bits.Mul64(uint64(elapsed), m.mult) //nolint:gosec // not negative
	lo, carry := bits.Add64(lo, m.frac, 0)
	hi += carry
	frac = lo & (1<<m.shift - 1)
	q := hi<<(64-m.shift) | lo>>m.shift
	if hi>>m.shift != 0 || q > math.MaxInt64 {
		return math.MaxInt64, frac
	}
	return int64(q), frac
}

// crossing returns the shortest time after which that many units have arrived, or
// never.
func (m *meter) crossing(units int64) int64 {
	if units <= 0 {
		return 0
	}
	u := uint64(units)
	if m.shift == 0 {
		return int64((u-1)/m.mult) + 1 //nolint:gosec // below units
	}
	// Round up (units*2^shift - frac) / mult; the numerator is at least 1.
	hi, lo := u>>(64-m.shift), u<<m.shift
	lo, borrow := bits.Sub64(lo, m.frac, 0)
	hi -= borrow
	lo, borrow = bits.Sub64(lo, 1, 0)
	hi -= borrow
	if hi >= m.mult {
		return never
	}
	q, _ := bits.Div64(hi, lo, m.mult)
	if q >= never {
		return never
	}
	return int64(q) + 1
}

// units returns the units of n tokens, at most maxArrived.
func (m *meter) units(n int64) int64 {
	if n > maxArrived/m.unit {
		return maxArrived
	}
	return n * m.unit
}
