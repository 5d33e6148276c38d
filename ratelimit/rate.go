package ratelimit

import (
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Rate is a number of tokens per stretch of time. The zero Rate is unset, which a
// [TokenBucket] refuses.
//
// Only the quotient counts: 6 per minute and 1 per 10 s are the same rate. It is
// kept as an exact fraction, so that no error adds up over hours; a Tokens that is
// not a whole number stands for the simplest fraction that a float64 cannot tell
// from it, so that 0.2 per second is one each 5 s to the nanosecond, and 1.0/3 is one
// each 3 s.
type Rate struct {
	// Tokens is the number of tokens, above 0. [math.Inf](1) means no rate limit:
	// every call that costs no more than the burst passes.
	Tokens float64

	// Per is the time in which they arrive, above 0.
	Per time.Duration
}

// PerSecond returns the rate of n tokens per second.
func PerSecond(n float64) Rate { return Rate{Tokens: n, Per: time.Second} }

// PerMinute returns the rate of n tokens per minute.
func PerMinute(n float64) Rate { return Rate{Tokens: n, Per: time.Minute} }

// Per returns the rate of n tokens per d.
func Per(n float64, d time.Duration) Rate { return Rate{Tokens: n, Per: d} }

// Every returns the rate of one token per d.
func Every(d time.Duration) Rate { return Rate{Tokens: 1, Per: d} }

// String returns the rate like "6000/s" or "6/1m0s", and "unset" for the zero Rate.
func (r Rate) String() string {
	if r == (Rate{}) {
		return "unset"
	}
	format := byte('f')
	if a := math.Abs(r.Tokens); a != 0 && (a < 1e-6 || a >= 1e15) {
		format = 'g'
	}
	s := strconv.FormatFloat(r.Tokens, format, -1, 64) + "/"
	if r.Per == time.Second {
		return s + "s"
	}
	return s + r.Per.String()
}

// unlimited reports whether the rate is infinite.
func (r Rate) unlimited() bool { return math.IsInf(r.Tokens, 1) }

// perSecond returns the rate in tokens per second.
func (r Rate) perSecond() float64 { return r.Tokens / r.Per.Seconds() }

// perNano returns the rate in tokens per nanosecond, exactly. The rate must be valid
// and finite.
func (r Rate) perNano() *big.Rat {
	return new(big.Rat).Quo(simplest(r.Tokens), new(big.Rat).SetInt64(int64(r.Per)))
}

// simplest returns a fraction whose nearest float64 is x, with a denominator as small
// as a continued fraction finds it: 1/10 for 0.1. x must be finite and not negative.
func simplest(x float64) *big.Rat {
	exact := new(big.Rat).SetFloat64(x)
	num, den := new(big.Int).Set(exact.Num()), new(big.Int).Set(exact.Denom())
	// h/k and h1/k1 are the last two convergents.
	h, k := big.NewInt(1), big.NewInt(0)
	h1, k1 := big.NewInt(0), big.NewInt(1)
	for den.Sign() != 0 {
		q, rest := new(big.Int).QuoRem(num, den, new(big.Int))
		num, den = den, rest
		h, h1 = new(big.Int).Add(new(big.Int).Mul(q, h), h1), h
		k, k1 = new(big.Int).Add(new(big.Int).Mul(q, k), k1), k
		c := new(big.Rat).SetFrac(h, k)
		if f, _ := c.Float64(); f == x {
			return c
		}
	}
	return exact // the last convergent is exact, so this is not reached
}

// validate returns what is wrong with the rate.
func (r Rate) validate() []error {
	const unlimited = "(+Inf is no rate limit)"
	if r == (Rate{}) {
		return []error{&policy.ConfigError{Policy: kind, Field: "Rate", Value: r, Want: "want a rate above 0 " + unlimited}}
	}
	var errs []error
	if !(r.Tokens > 0) { // written so that NaN fails
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Rate.Tokens", Value: r.Tokens, Want: "want a number above 0 " + unlimited})
	}
	if r.Per <= 0 {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Rate.Per", Value: r.Per, Want: "want a duration above 0, such as 1s"})
	}
	return errs
}
