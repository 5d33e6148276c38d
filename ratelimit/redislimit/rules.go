package redislimit

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// exact is the largest integer up to which the numbers of a script, which are doubles, are
// exact.
const exact = 1 << 53

const (
	maxTokens = math.MaxInt >> (10 * (math.MaxInt >> 62)) // 2^53-1, or what an int holds
	maxLog    = 100_000
	maxPeriod = 100 * 365 * 24 * time.Hour
)

// Rule is how a limit counts: a [TokenBucket], [FixedWindow], [SlidingWindow] or
// [SlidingLog].
type Rule interface {
	// plan returns the rule for one of a number of shards, and what is wrong with it.
	plan(shards int) (plan, []error)
}

// plan is a rule as the scripts know it.
type plan struct {
	kind  kind
	rate  ratelimit.Rate // in the long run, over all shards
	burst int            // of a shard
	total int            // over all shards

	// args are the arguments of shard i.
	args func(shard int) []any
}

// kind is the algorithm.
type kind uint8

const (
	bucket kind = iota
	fixed
	sliding
	log
)

// name is what the keys of the algorithm end with: a limit that is counted in another way
// begins anew.
func (k kind) name() string { return [...]string{"tb", "fw", "sw", "sl"}[k] }

func fault(field string, value any, format string, args ...any) error {
	return &policy.ConfigError{Policy: kindName, Field: field, Value: value, Want: fmt.Sprintf(format, args...)}
}

// part returns what shard i has of n things.
func part(n, shards, i int) int {
	share := n / shards
	if i < n%shards {
		share++
	}
	return share
}

// TokenBucket lets tokens arrive at a steady rate, up to a burst of them. It is what
// [ratelimit.TokenBucket] is in memory.
type TokenBucket struct {
	// Rate is the number of tokens per time that arrive. It has no default, and must be
	// finite.
	Rate ratelimit.Rate

	// Burst is the number of tokens the bucket can hold, at least 1; no call may cost
	// more. Zero means what arrives in one second, rounded up. With shards each has its
	// part of it.
	Burst int
}

func (r TokenBucket) plan(shards int) (plan, []error) {
	period, tokens, errs := fraction(r.Rate)
	burst := r.Burst
	if len(errs) == 0 && burst == 0 {
		burst = int(min(math.Ceil(r.Rate.Tokens/r.Rate.Per.Seconds()*(1-1e-12)), maxTokens))
		burst = max(burst, 1)
	}
	if len(errs) == 0 {
		period *= int64(shards)
		if period > exact/int64(max(burst, 1)) {
			period, tokens = scaled(period, tokens, exact/int64(burst))
		}
		if period == 0 || tokens == 0 {
			errs = append(errs, fault("Burst", r.Burst, "want fewer: so many tokens at %s cannot be counted", r.Rate))
		}
	}
	switch {
	case r.Burst < 0:
		errs = append(errs, fault("Burst", r.Burst, "want at least 0 (0 means what arrives in a second)"))
	case len(errs) == 0 && burst < shards:
		errs = append(errs, fault("Burst", burst, "want at least one token for each of %d Shards", shards))
	}
	return plan{
		kind: bucket, rate: r.Rate, burst: burst / shards, total: burst,
		args: func(i int) []any {
			return []any{period, tokens, int64(part(burst, shards, i)) * period, fmt.Sprintf(":%d:%d:", period, tokens)}
		},
	}, errs
}

// fraction returns the rate as a number of tokens in a number of microseconds.
func fraction(r ratelimit.Rate) (period, tokens int64, errs []error) {
	if !(r.Tokens > 0 && !math.IsInf(r.Tokens, 1)) { // written so that NaN fails
		errs = append(errs, fault("Rate.Tokens", r.Tokens, "want a finite number above 0"))
	}
	if r.Per <= 0 || r.Per > maxPeriod {
		errs = append(errs, fault("Rate.Per", r.Per, "want a duration above 0, such as 1s"))
	}
	if len(errs) > 0 {
		return 0, 0, errs
	}
	n, _ := new(big.Rat).SetString(strconv.FormatFloat(r.Tokens, 'f', -1, 64)) // a decimal fraction: never fails
	interval := new(big.Rat).Quo(big.NewRat(int64(r.Per), 1000), n)            // of one token, µs
	period, tokens = nearest(interval, exact>>20)
	if period == 0 {
		errs = append(errs, fault("Rate", r, "want at most 2^33 tokens in a microsecond"))
	}
	return period, tokens, errs
}

// nearest returns the convergent of a fraction with the largest numerator and denominator
// that are no larger than a bound: exactly the fraction where that fits. The numerator is 0
// when the fraction is too small for it.
func nearest(x *big.Rat, bound int64) (num, den int64) {
	n, d := new(big.Int).Set(x.Num()), new(big.Int).Set(x.Denom())
	h, k, h1, k1 := big.NewInt(1), big.NewInt(0), big.NewInt(0), big.NewInt(1)
	most := big.NewInt(bound)
	for d.Sign() != 0 {
		q, rest := new(big.Int).QuoRem(n, d, new(big.Int))
		n, d = d, rest
		h2 := new(big.Int).Add(new(big.Int).Mul(q, h), h1)
		k2 := new(big.Int).Add(new(big.Int).Mul(q, k), k1)
		if k2.Cmp(most) > 0 || h2.Cmp(most) > 0 && h.Sign() > 0 && k.Sign() > 0 {
			break
		}
		h1, k1, h, k = h, k, h2, k2
	}
	if !h.IsInt64() || !k.IsInt64() {
		return 0, 0
	}
	return h.Int64(), k.Int64()
}

// scaled returns a fraction near another, with a numerator no larger than a bound.
func scaled(num, den, bound int64) (n, d int64) {
	if bound < 1 {
		return 0, 0
	}
	return nearest(big.NewRat(num, den), bound)
}

// FixedWindow lets so many tokens through in each window of time. The window of a key
// begins with its first call, in microseconds it is as long as it is configured, and ends
// with the count.
type FixedWindow struct {
	// Limit is the number of tokens in each window, at least 1. It has no default. No
	// call may cost more.
	Limit int

	// Window is the length of a window, at least 1 ms, in whole milliseconds. It has no
	// default.
	Window time.Duration
}

func (r FixedWindow) plan(shards int) (plan, []error) {
	errs := window(r.Limit, maxTokens, r.Window, shards)
	if r.Window%time.Millisecond != 0 {
		errs = append(errs, fault("Window", r.Window, "want whole milliseconds"))
	}
	return plan{
		kind: fixed, rate: ratelimit.Per(float64(r.Limit), r.Window), burst: r.Limit / shards, total: r.Limit,
		args: func(i int) []any { return []any{part(r.Limit, shards, i), r.Window.Milliseconds()} },
	}, errs
}

// window checks a limit per window.
func window(limit, most int, length time.Duration, shards int) (errs []error) {
	if limit < 1 || limit > most {
		errs = append(errs, fault("Limit", limit, "want 1 to %d", most))
	} else if limit < shards {
		errs = append(errs, fault("Limit", limit, "want at least one for each of %d Shards", shards))
	}
	if length < time.Millisecond || length > maxPeriod {
		errs = append(errs, fault("Window", length, "want 1ms to %s", maxPeriod))
	}
	return errs
}

// SlidingWindow lets so many tokens through in any stretch of time as long as the window,
// nearly: the calls of the last window count as if they had come evenly. It costs two
// numbers for each key.
type SlidingWindow struct {
	// Limit is the number of tokens, at least 1. It has no default. No call may cost
	// more.
	Limit int

	// Window is the length of the window, at least 1 ms. It has no default.
	Window time.Duration
}

func (r SlidingWindow) plan(shards int) (plan, []error) {
	errs := window(r.Limit, maxTokens, r.Window, shards)
	// Time is counted in units so large that Limit x Window is exact.
	unit := int64(1)
	if len(errs) == 0 {
		for r.Window.Microseconds()/unit > exact/int64(r.Limit) {
			unit *= 10
		}
	}
	length := max(r.Window.Microseconds()/unit, 1)
	if len(errs) == 0 && unit > r.Window.Microseconds()/100 && unit > 1 {
		errs = append(errs, fault("Limit", r.Limit, "want fewer: so many cannot be weighed exactly"))
	}
	return plan{
		kind: sliding, rate: ratelimit.Per(float64(r.Limit), r.Window), burst: r.Limit / shards, total: r.Limit,
		args: func(i int) []any { return []any{part(r.Limit, shards, i), length, unit} },
	}, errs
}

// SlidingLog lets so many tokens through in any stretch of time as long as the window,
// exactly. It remembers when each was taken: some 80 bytes in the store for each of them.
type SlidingLog struct {
	// Limit is the number of tokens, from 1 to 100,000. It has no default. No call may
	// cost more.
	Limit int

	// Window is the length of the window, at least 1 ms. It has no default.
	Window time.Duration
}

func (r SlidingLog) plan(shards int) (plan, []error) {
	return plan{
		kind: log, rate: ratelimit.Per(float64(r.Limit), r.Window), burst: r.Limit / shards, total: r.Limit,
		args: func(i int) []any { return []any{part(r.Limit, shards, i), r.Window.Microseconds()} },
	}, window(r.Limit, maxLog, r.Window, shards)
}

// validate joins what is wrong with a rule.
func validate(r Rule, shards int) error {
	_, errs := r.plan(shards)
	return errors.Join(errs...)
}
