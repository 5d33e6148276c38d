package ratelimit

import (
	"math"
	"math/big"
	"slices"
)

// rateEras are the rates that a model had before the one it has, and when they began.
type rateEras struct {
	eras    []rateEra
	changed int64 // when the present rate began, if there was another one
}

type rateEra struct {
	from int64
	rate *big.Rat
}

// change notes that a rate ended and another one began.
func (r *rateEras) change(at int64, rate, next *big.Rat) {
	if rate.Cmp(next) == 0 {
		return
	}
	from := r.changed
	if len(r.eras) == 0 {
		from = math.MinInt64
	}
	r.eras = append(slices.Clone(r.eras), rateEra{from, rate})
	if len(r.eras) > maxEras {
		oldest := maxRat(r.eras[0].rate, r.eras[1].rate)
		r.eras = r.eras[1:]
		r.eras[0] = rateEra{math.MinInt64, oldest}
	}
	r.changed = at
}

// arrived returns the tokens that have arrived since some were taken, at the rate that
// there is and, rounded up to a unit, at those before.
func (r *rateEras) arrived(rate *big.Rat, at, taken, unit int64) *big.Rat {
	from := taken
	if len(r.eras) > 0 {
		from = max(taken, r.changed)
	}
	sum := new(big.Rat).Mul(rate, ratOf(max(at-from, 0)))
	until := min(r.changed, at)
	for _, e := range slices.Backward(r.eras) {
		if max(taken, e.from) < until {
			then := new(big.Rat).Mul(e.rate, ratOf(until-max(taken, e.from)))
			then.Neg(then.Mul(then, ratOf(unit)))
			then.SetFrac(floorOf(then), big.NewInt(unit))
			sum.Sub(sum, then)
		}
		until = min(until, e.from)
	}
	return sum
}
