package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// keyedKind is the kind of [Keyed], and its default instance name.
const keyedKind = "keyed"

const (
	defaultMaxKeys = 100_000
	maxMaxKeys     = 1 << 28 // above it the hash of a key has too few bits to spread them
	defaultTTL     = time.Minute
)

// Limit is a rate and a burst, as [TokenBucket] explains them. The zero Limit is
// unset.
type Limit struct {
	// Rate is the number of tokens per time that arrive.
	Rate Rate

	// Burst is the largest number of tokens that are stored. Zero means what
	// arrives in one second, rounded up.
	Burst int
}

// Keyed configures a limit for each key: for each user, shop, address or whatever
// [policy.Call] Key says. It is handed to [policy.New] as it is, or to [NewKeyed] for
// live [Buckets]. Rate is required. NewKeyed copies the Keyed; later changes have no
// effect.
//
// Every key has a token bucket of its own, full at first. Calls without a key share
// one, that of the empty key.
type Keyed struct {
	// Name is the instance name, the policy label everywhere. Empty means "keyed".
	Name string

	// Rate is the number of tokens per time that arrive for each key. It has no
	// default: the zero Rate is an error. At an infinite one no key is limited, and
	// none is remembered.
	Rate Rate

	// Burst is the number of tokens that the bucket of one key can hold, see
	// [TokenBucket].
	Burst int

	// Exceptions are the keys with a limit of their own. They do not count for
	// MaxKeys and are never forgotten. Nil means none.
	Exceptions map[string]Limit

	// MaxKeys is the largest number of keys that are remembered, from 1 to
	// 268,435,456. In a full table each takes 55 to 75 bytes beside its own. Zero means
	// 100,000.
	//
	// Once there are so many, a new key takes the place of one whose bucket has
	// refilled, for which to be forgotten makes no difference. If there is none,
	// the new key has no bucket of its own but shares that of Overflow: nobody gets a
	// fresh bucket because the table is full. So MaxKeys should be above the number
	// of keys that are seen while a bucket refills, which takes Burst / Rate.
	MaxKeys int

	// TTL is how long a key is remembered once its bucket is full. That makes no
	// difference to the limit: it keeps keys that come back from being forgotten
	// and learned anew, at the price of memory. It must not be negative; zero
	// means 1 minute.
	TTL time.Duration

	// Overflow is the limit of all keys together that find no room, see MaxKeys.
	// Zero means that of one key, Rate and Burst; an Overflow with a Rate and no
	// Burst has that of [TokenBucket].
	Overflow Limit

	// MaxWait is the longest time that a call waits for its tokens, up to a year. Zero
	// means that nobody waits: a call that finds too few is refused at once. One that
	// would have to wait for longer, or until its deadline, is refused before it
	// waits.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time, over all
	// keys. Zero means 100. It needs MaxWait.
	MaxWaiters int

	// Shadow makes the gate watch only, see [TokenBucket]. It never waits.
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Keyed) Validate() error {
	errs := c.limit().validate("")
	fail := func(field string, value any, format string, args ...any) {
		errs = append(errs, &policy.ConfigError{Policy: keyedKind, Field: field, Value: value, Want: fmt.Sprintf(format, args...)})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Exceptions)) { // a fixed order
		errs = append(errs, c.Exceptions[key].validate(fmt.Sprintf("Exceptions[%q].", shortened(key)))...)
	}
	if c.MaxKeys < 0 || c.MaxKeys > maxMaxKeys {
		fail("MaxKeys", c.MaxKeys, "want 1 to %d, or 0 (%d)", maxMaxKeys, defaultMaxKeys)
	}
	if c.TTL < 0 {
		fail("TTL", c.TTL, "want a positive duration, or 0 (%s)", defaultTTL)
	}
	errs = append(errs, waitFaults(keyedKind, c.MaxWait, c.MaxWaiters)...)
	if c.Overflow != (Limit{}) {
		errs = append(errs, c.Overflow.validate("Overflow.")...)
	}
	return errors.Join(errs...)
}

// validate returns what is wrong with the limit. The fields are named with a prefix.
func (l Limit) validate(prefix string) []error {
	errs := l.Rate.validate()
	switch {
	case l.Burst < 0:
		errs = append(errs, &policy.ConfigError{Field: "Burst", Value: l.Burst, Want: "want at least 0 (0 means what arrives in a second)"})
	case l.Burst > maxBurst:
		errs = append(errs, &policy.ConfigError{Field: "Burst", Value: l.Burst, Want: fmt.Sprintf("want at most %d", maxBurst)})
	}
	for _, err := range errs {
		if ce, ok := errors.AsType[*policy.ConfigError](err); ok {
			ce.Policy, ce.Field = keyedKind, prefix+ce.Field
		}
	}
	return errs
}

// bucket returns the token bucket with this limit.
func (l Limit) bucket() TokenBucket { return TokenBucket{Rate: l.Rate, Burst: l.Burst} }

// effective returns the limit with its burst filled in. It must be valid.
func (l Limit) effective() Limit { return Limit{Rate: l.Rate, Burst: l.bucket().burst()} }

// limit returns the limit of a key that is no exception.
func (c Keyed) limit() Limit { return Limit{Rate: c.Rate, Burst: c.Burst} }

// withDefaults returns the effective configuration, which shares nothing with c. c
// must be valid.
func (c Keyed) withDefaults() Keyed {
	if c.Name == "" {
		c.Name = keyedKind
	}
	c.Burst = c.limit().effective().Burst
	c.Exceptions = maps.Clone(c.Exceptions)
	for key, l := range c.Exceptions {
		c.Exceptions[key] = l.effective()
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	c.MaxWaiters = guests(c.MaxWait, c.MaxWaiters)
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Overflow == (Limit{}) {
		c.Overflow = c.limit()
	}
	c.Overflow = c.Overflow.effective()
	return c
}

// shortened returns a key as far as a message should show it.
func shortened(key string) string {
	const most = 32
	if len(key) <= most {
		return key
	}
	return key[:most] + "…"
}

// BuildPolicy implements [policy.Policy] with new [Buckets]: each pipeline that is
// given the Keyed has limits of its own. To share them, give both the Buckets.
func (c Keyed) BuildPolicy() (policy.Part, error) {
	b, err := NewKeyed(c.Name, c)
	if err != nil {
		return policy.Part{Kind: keyedKind, Name: c.Name}, err
	}
	return b.BuildPolicy()
}
