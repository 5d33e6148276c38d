package breaker

import (
	"errors"
	"math/bits"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// keyedKind is the kind of policy, and the name of a keyed breaker that is given none.
const keyedKind = "keyed_breaker"

const (
	defaultMaxKeys = 1000
	maxMaxKeys     = 100_000
	defaultTTL     = 10 * time.Minute
)

// Keyed configures a [KeyedBreaker]: a breaker for each key of the calls, such as a
// host, a shard or a route. The zero value is valid. It can be handed to [policy.New]
// as it is; each pipeline then gets breakers of its own.
//
// The key of a call is [policy.Call] Key. Calls without one share the breaker of the
// empty key.
type Keyed struct {
	// Config is that of the breaker of each key. Its Name, Shadow and OnStateChange
	// are those of the whole; an empty Name means "keyed_breaker".
	Config

	// MaxKeys is the largest number of keys that are remembered, up to 100,000. One
	// more takes the place of the key that was used least recently: of one that is
	// closed, or if there is none, of one that is not. Keys under a command are the
	// last to go. Zero means 1000.
	MaxKeys int

	// TTL is how long a key must not have been used to be forgotten, at least 1ms
	// and not less than Window; one that is open, counted from the end of its open
	// time. It may live longer by 2 % and until some other key is used. Zero means
	// 10m.
	TTL time.Duration

	// MaxOpenShare is the largest share of the keys, in (0, 1], that may be open or
	// half-open at once, rounded down but not below one key. When as many are, the
	// breakers of other keys stay closed whatever their calls, so that a fault of
	// our own, such as a broken network, does not take away every host there is.
	// Breakers that are forced open count, and are not held back. Zero means 1: no
	// bound.
	MaxOpenShare float64
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Keyed) Validate() error {
	f := faults{kind: keyedKind}
	c.validate(&f)
	f.between("MaxKeys", c.MaxKeys, maxMaxKeys, "1000")
	f.duration("TTL", c.TTL, "10m")
	if window := orDefault(c.Window, defaultWindow); c.LastCalls == 0 && c.TTL >= minDuration && c.TTL < window {
		f.addf("TTL", c.TTL, "is shorter than Window, %s: keys would be forgotten together with calls that still count", window)
	}
	if !(c.MaxOpenShare >= 0 && c.MaxOpenShare <= 1) { // written so that NaN fails
		f.add("MaxOpenShare", c.MaxOpenShare, "want above 0 and at most 1 (0 means 1, no bound)")
	}
	return errors.Join(f.errs...)
}

// effective returns c with every default filled in.
func (c Keyed) effective() Keyed {
	c.Name = orDefault(c.Name, keyedKind)
	c.Config = c.Config.effective()
	c.MaxKeys = orDefault(c.MaxKeys, defaultMaxKeys)
	c.TTL = orDefault(c.TTL, max(defaultTTL, c.Window))
	c.MaxOpenShare = orDefault(c.MaxOpenShare, 1)
	return c
}

// BuildPolicy implements [policy.Policy]: every pipeline that is given the Keyed gets
// breakers of its own. To share them, hand over a [*KeyedBreaker].
func (c Keyed) BuildPolicy() (policy.Part, error) {
	k, err := NewKeyed(c.Name, c)
	if err != nil {
		return policy.Part{Kind: keyedKind, Name: c.Name}, err
	}
	return k.BuildPolicy()
}

// of returns the ratio of n, rounded down. The ratio must not exceed 1.
func (r ratio) of(n uint64) uint64 {
	hi, lo := bits.Mul64(n, r.num)
	q, _ := bits.Div64(hi, lo, r.den)
	return q
}
