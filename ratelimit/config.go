package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/breakwater-go/breakwater/policy"
)

// StartEmpty as Initial means that the bucket has no token at the start.
const StartEmpty = -1

// maxBurst is the largest burst: 2^53-1, the largest number of tokens that every
// view of it (a metric, JSON) can show, or what an int holds.
const maxBurst = math.MaxInt >> (10 * (math.MaxInt >> 62))

// TokenBucket configures a token bucket; it is handed to [policy.New] as it is, or
// to [New] for a live [Bucket]. Rate is required. New copies the TokenBucket; later
// changes have no effect.
type TokenBucket struct {
	// Name is the instance name, the policy label everywhere. Empty means
	// "ratelimit".
	Name string

	// Rate is the number of tokens per time that arrive. It has no default: the
	// zero Rate is an error. An infinite one is no rate limit.
	Rate Rate

	// Burst is the number of tokens the bucket can hold, from 1 to 2^53-1: as many
	// can be taken at one instant after a pause, and no call may cost more. In any
	// stretch of time t no more than Burst + Rate*t are taken.
	//
	// Zero means what arrives in one second, rounded up: 6000 at 6000/s, 1 at
	// 6/1m0s. It is the same for the same rate, however that is written (60/1m0s
	// and 1/s both give 1), and bounds the first second after a pause to twice the
	// rate. At an infinite rate zero means the largest burst.
	//
	// A burst of 1 keeps calls apart by the full interval, and loses the fraction
	// of a token that is due while it is full: at 2.5 calls per second a rate of
	// 1/s then passes 10 in 12 s, with a burst of 2 it passes 12.
	Burst int

	// Initial is the number of tokens at the start, at most Burst. Zero means
	// Burst, a full bucket; [StartEmpty] means none, for a limit whose past is
	// unknown, such as a vendor's quota at a restart.
	Initial int

	// MaxWaiters is the largest number of calls that wait in [Bucket.Wait] at the same
	// time. Zero means 100. A pipeline never waits.
	MaxWaiters int

	// Shadow makes the gate watch only: it decides, its decision is counted and
	// reported, the call runs in any case, and one that would have been refused
	// takes nothing. It has no effect on the methods of [Bucket].
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c TokenBucket) Validate() error {
	errs := c.Rate.validate()
	fail := func(field string, value any, format string, args ...any) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	switch {
	case c.Burst < 0:
		fail("Burst", c.Burst, "want at least 0 (0 means what arrives in a second)")
	case c.Burst > maxBurst:
		fail("Burst", c.Burst, "want at most %d", maxBurst)
	}
	if c.MaxWaiters < 0 {
		fail("MaxWaiters", c.MaxWaiters, "want at least 0 (0 means %d)", defaultWaiters)
	}
	switch {
	case c.Initial < StartEmpty:
		fail("Initial", c.Initial, "want at least 0 (0 means full), or StartEmpty (%d)", StartEmpty)
	case len(errs) == 0 && c.Initial > c.burst():
		fail("Initial", c.Initial, "want at most Burst, which is %d", c.burst())
	}
	return errors.Join(errs...)
}

// burst returns the effective burst. The rate must be valid.
func (c TokenBucket) burst() int {
	if c.Burst > 0 {
		return c.Burst
	}
	if c.Rate.unlimited() {
		return maxBurst
	}
	perSecond := c.Rate.perNano()
	perSecond.Mul(perSecond, new(big.Rat).SetInt64(1e9))
	if perSecond.Cmp(new(big.Rat).SetInt64(maxBurst)) >= 0 {
		return maxBurst
	}
	return int(ceil(perSecond)) //nolint:gosec // at most maxBurst
}

// withDefaults returns the effective configuration. c must be valid.
func (c TokenBucket) withDefaults() TokenBucket {
	if c.Name == "" {
		c.Name = kind
	}
	c.Burst = c.burst()
	if c.Initial == 0 {
		c.Initial = c.Burst
	}
	if c.MaxWaiters == 0 {
		c.MaxWaiters = defaultWaiters
	}
	return c
}

// warnings returns what works and is likely to surprise. c must be effective.
func (c TokenBucket) warnings() []string {
	if c.Burst == 1 && !c.Rate.unlimited() {
		return []string{"Burst 1 loses the fraction of a token that is due while the bucket is full, so uneven traffic below the rate is refused too; 2 or more keeps it"}
	}
	return nil
}

// BuildPolicy implements [policy.Policy] with a new [Bucket]: each pipeline that is
// given the TokenBucket has a limit of its own. To share one, give both the Bucket.
func (c TokenBucket) BuildPolicy() (policy.Part, error) {
	b, err := New(c.Name, c)
	if err != nil {
		return policy.Part{Kind: kind, Name: c.Name}, err
	}
	return b.BuildPolicy()
}
