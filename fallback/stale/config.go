package stale

import (
	"errors"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// kind is the kind of policy, and the default of every instance name.
const kind = "stale"

const (
	defaultFresh        = time.Minute
	defaultMaxAgeFactor = 10
	defaultJitter       = 0.1
	defaultRetryIn      = time.Second
	defaultLoadTimeout  = 10 * time.Second
	defaultMaxRefreshes = 64
	defaultMaxEntries   = 10_000
	defaultNegativeFor  = 5 * time.Second
)

// Config configures a [Cache]. The zero value is valid.
type Config[T any] struct {
	// Name is the instance name: the policy label of metrics and events, unique within
	// a pipeline. Empty means "stale".
	Name string

	// Fresh is for how long a value is served as it is. Zero means 1m.
	Fresh time.Duration

	// MaxAge is the age above which a value is never served, counted from the start of
	// the first attempt of its load. It is at least Fresh. Zero means ten times Fresh;
	// there is no value that means "forever".
	MaxAge time.Duration

	// Jitter is the share of Fresh, in [0, 1), by which the freshness of each value is
	// shortened at random at most, so that values loaded together do not expire
	// together. Zero means 0.1; negative means none.
	Jitter float64

	// Wait is for how long a caller who finds a stale value waits for the load of a new
	// one before it takes the stale one. Zero means not at all: the load goes on in the
	// background. Negative means as long as the load takes.
	Wait time.Duration

	// RetryIn is the time after a failed load in which a stale value is served without
	// trying again, give or take Jitter. Zero means 1s; negative means none.
	RetryIn time.Duration

	// LoadTimeout bounds each load, whoever waits. Zero means 10s.
	LoadTimeout time.Duration

	// MaxRefreshes is the number of loads that may run at a time while stale values are
	// there to be served; further ones are not begun. Zero means 64.
	MaxRefreshes int

	// MaxEntries is the number of values and errors remembered; those that are used
	// least make room. Zero means 10000, unless MaxWeight is set.
	MaxEntries int

	// MaxWeight bounds the sum of the weights of all entries, in place of their number.
	// Zero means that their number counts.
	MaxWeight uint64

	// Weight is the weight of a value, such as its size in bytes; it belongs to
	// MaxWeight. It is called once for each value, on the goroutine that loaded it. A
	// remembered error weighs 1.
	Weight func(key string, v T) uint32

	// NegativeFor is for how long an error is remembered. Zero means 5s, but not longer
	// than Fresh; negative means that errors are not remembered.
	NegativeFor time.Duration

	// Negative says which errors take the place of the value and are remembered. It is
	// called on the goroutine of a load, and concurrently. Nil means those that the
	// pipeline classifies as permanent.
	Negative func(err error) bool

	// When says for which failures of a load the stale value stands in. It is called on
	// the goroutine of a load, and concurrently. Nil means [fallback.Handles].
	When func(f policy.FailedCall) bool

	// Otherwise answers where there is no value to serve: a default, or a chain of
	// fallbacks. What it answers is not remembered. Nil means that callers get the error.
	Otherwise policy.Fallback[T]
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config[T]) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
		}
	}
	check(c.Fresh >= 0, "Fresh", c.Fresh, "at least 0 (0 means 1m)")
	check(c.MaxAge >= 0, "MaxAge", c.MaxAge, "at least 0 (0 means ten times Fresh); a value is never served forever")
	if c.Fresh >= 0 && c.MaxAge > 0 {
		check(c.MaxAge >= c.withDefaults().Fresh, "MaxAge", c.MaxAge, "at least Fresh")
	}
	check(c.Jitter < 1, "Jitter", c.Jitter, "below 1 (0 means 0.1, negative means none)") // NaN fails
	check(c.LoadTimeout >= 0, "LoadTimeout", c.LoadTimeout, "at least 0 (0 means 10s)")
	check(c.MaxRefreshes >= 0, "MaxRefreshes", c.MaxRefreshes, "at least 0 (0 means 64)")
	check(c.MaxEntries >= 0, "MaxEntries", c.MaxEntries, "at least 0 (0 means 10000)")
	check(c.MaxWeight == 0 || c.MaxEntries == 0, "MaxEntries", c.MaxEntries, "want it zero beside a MaxWeight: one of them is the bound")
	check((c.MaxWeight > 0) == (c.Weight != nil), "Weight", nil, "want both MaxWeight and Weight, or neither")
	return errors.Join(errs...)
}

func (c Config[T]) withDefaults() Config[T] {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
		*d = max(*d, 0)
	}
	if c.Name == "" {
		c.Name = kind
	}
	set(&c.Fresh, defaultFresh)
	if c.MaxAge == 0 {
		c.MaxAge = math.MaxInt64
		if c.Fresh < math.MaxInt64/defaultMaxAgeFactor {
			c.MaxAge = defaultMaxAgeFactor * c.Fresh
		}
	}
	switch {
	case c.Jitter == 0:
		c.Jitter = defaultJitter
	case c.Jitter < 0:
		c.Jitter = 0
	}
	set(&c.RetryIn, defaultRetryIn)
	set(&c.LoadTimeout, defaultLoadTimeout)
	set(&c.NegativeFor, min(defaultNegativeFor, c.Fresh))
	if c.MaxRefreshes == 0 {
		c.MaxRefreshes = defaultMaxRefreshes
	}
	if c.MaxEntries == 0 && c.MaxWeight == 0 {
		c.MaxEntries = defaultMaxEntries
	}
	return c
}
