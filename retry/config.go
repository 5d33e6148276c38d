package retry

import (
	"errors"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// kind is the kind of policy, and the default of every instance name.
const kind = "retry"

const (
	// Unlimited is the MaxAttempts that sets no limit to the number of attempts.
	Unlimited = -1

	// Off is the value of a setting that is turned off where zero means a default: of
	// BaseDelay, of the Delay of a rule, and of the settings of a budget.
	Off = -1
)

const (
	defaultMaxAttempts = 3
	defaultBaseDelay   = 100 * time.Millisecond
	defaultMaxDelay    = 10 * time.Second
	defaultFactor      = 2
	defaultGrowth      = 3 // of a decorrelated backoff: that of its author
	defaultMaxPushback = 30 * time.Second
)

// Config configures a [Retrier]. The zero value is valid: every field documents what
// zero means. [New] copies it; later changes have no effect.
type Config struct {
	// Name is the instance name: the policy label of metrics and events, unique
	// within a pipeline. Empty means "retry".
	Name string

	// MaxAttempts is the largest number of attempts of one call, the first one
	// included, so 1 never retries. Attempts that a gate refused count too. Zero
	// means 3. [Unlimited] means no limit: MaxDuration, the budget and the deadline
	// of the call then end it.
	MaxAttempts int

	// Failure, Timeout, Busy and Throttled say how outcomes of these kinds are
	// retried, where that is not how the others are. Zero means as the package
	// comment says. An outcome of another kind is never retried.
	Failure, Timeout, Busy, Throttled Rule

	// Backoff says how the delay grows. Zero is [Exponential].
	Backoff Backoff

	// BaseDelay is the backoff before the first retry. Zero means 100ms, or
	// MaxDelay if that is shorter. [Off] means that retries follow at once (a
	// pushback is still honoured).
	BaseDelay time.Duration

	// MaxDelay is the longest backoff, jitter included. It must not be shorter than
	// BaseDelay, and does not bound the Delay of a rule, nor a pushback: MaxPushback
	// does. Zero means 10s, or BaseDelay if that is longer.
	MaxDelay time.Duration

	// Factor is what the backoff is multiplied by after each retry, at least 1. A
	// constant backoff has none. Zero means 2, and 3 for a decorrelated backoff.
	Factor float64

	// Jitter says how much of the backoff is left to chance. Zero is [FullJitter].
	// A decorrelated backoff has chance of its own, and no other.
	Jitter Jitter

	// MaxDuration bounds the time from the beginning of the call to the beginning
	// of its last attempt, delays included: an attempt that would begin later is
	// not made. It does not cut a running attempt short; policy.Timeouts does. Zero
	// means no bound.
	MaxDuration time.Duration

	// MaxPushback is the longest time that the dependency may ask to be left alone
	// for (Retry-After) before a retry. A longer one ends the call: to retry earlier
	// would be against its wish. Zero means 30s.
	MaxPushback time.Duration

	// Budget bounds the retries of all calls together: a [BudgetConfig], a
	// [TokenBudgetConfig], an [InFlightBudgetConfig], or a live one that is shared.
	// Nil means a budget of this policy's own with the defaults of BudgetConfig: 20 %
	// of the calls and 10 per second. [NoBudget] means none.
	Budget BudgetSource

	// RetryRejected also retries attempts that a gate of this pipeline refused,
	// after the refusal's RetryAfter or the backoff, whichever is longer, unless
	// the refusal says that no waiting helps. MaxPushback bounds the RetryAfter.
	// It is off by default: a refusal is meant to end the call at once, and an open
	// breaker to be left alone.
	RetryRejected bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
	}
	if c.MaxAttempts < 0 && c.MaxAttempts != Unlimited {
		fault("MaxAttempts", c.MaxAttempts, "want at least 1, or 0 (3), or Unlimited")
	}
	for _, f := range c.fields() {
		for _, err := range flatten(f.rule.validate(c.MaxAttempts)) {
			if ce, ok := err.(*policy.ConfigError); ok { //nolint:errorlint // it was made above
				ce.Field = f.name + "." + ce.Field
			}
			errs = append(errs, err)
		}
	}
	if c.Backoff >= numBackoffs {
		fault("Backoff", uint8(c.Backoff), "want Exponential, Constant or Decorrelated")
	}
	if c.BaseDelay < 0 && c.BaseDelay != Off {
		fault("BaseDelay", c.BaseDelay, "want above 0, or 0 (100ms), or Off")
	}
	switch {
	case c.MaxDelay < 0:
		fault("MaxDelay", c.MaxDelay, "want above 0, or 0 (10s)")
	case c.MaxDelay > 0 && c.MaxDelay < c.BaseDelay:
		fault("MaxDelay", c.MaxDelay, "want at least BaseDelay, which is "+c.BaseDelay.String())
	}
	switch {
	case c.Factor != 0 && !(c.Factor >= 1 && c.Factor <= math.MaxFloat64):
		fault("Factor", c.Factor, "want at least 1, or 0 (2, and 3 for a decorrelated backoff)")
	case c.Backoff == Constant && c.Factor > 1:
		fault("Factor", c.Factor, "a constant backoff does not grow; leave Factor out")
	}
	switch {
	case c.Jitter >= numJitters:
		fault("Jitter", uint8(c.Jitter), "want FullJitter, EqualJitter or NoJitter")
	case c.Backoff == Decorrelated && c.Jitter != FullJitter:
		fault("Jitter", c.Jitter, "a decorrelated backoff has jitter of its own; leave Jitter out")
	}
	if c.MaxDuration < 0 {
		fault("MaxDuration", c.MaxDuration, "want above 0, or 0 (no bound)")
	}
	if c.MaxPushback < 0 {
		fault("MaxPushback", c.MaxPushback, "want above 0, or 0 (30s)")
	}
	return errors.Join(append(errs, checkBudget(c.Budget)...)...)
}

// flatten takes joined errors apart, so that joining them with others gives one list.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// BuildPolicy returns a part with a retrier of its own, and with a budget of its own
// unless Budget is a live one. To share them, hand over a [Retrier].
func (c Config) BuildPolicy() (policy.Part, error) {
	r, err := New(c.Name, c)
	if err != nil {
		return policy.Part{Kind: kind, Name: c.Name}, err
	}
	_, own := r.set.Load().source.(interface{ Validate() error })
	return r.part(!own), nil
}

// withDefaults returns what a valid c means, with every field but Budget filled in.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = kind
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = defaultMaxAttempts
	}
	if c.BaseDelay == 0 {
		c.BaseDelay = defaultBaseDelay
		if c.MaxDelay > 0 {
			c.BaseDelay = min(c.BaseDelay, c.MaxDelay)
		}
	}
	if c.MaxDelay == 0 {
		c.MaxDelay = max(defaultMaxDelay, c.BaseDelay)
	}
	if c.Factor == 0 {
		switch c.Backoff {
		case Constant:
			c.Factor = 1
		case Decorrelated:
			c.Factor = defaultGrowth
		default:
			c.Factor = defaultFactor
		}
	}
	if c.MaxPushback == 0 {
		c.MaxPushback = defaultMaxPushback
	}
	return c
}

// warnings returns what a valid, effective c is likely to surprise with.
func (c Config) warnings() []string {
	var list []string
	if c.MaxAttempts == Unlimited && c.MaxDuration == 0 {
		list = append(list, "MaxAttempts is Unlimited and MaxDuration is 0: a call without a deadline is retried for as long as it fails")
	}
	if _, none := c.Budget.(NoBudget); none && c.MaxAttempts != 1 {
		list = append(list, "there is no retry budget: when every call fails, the dependency gets its load times the number of attempts")
	}
	return list
}
