package retry

import (
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// When says when an outcome of some kind is retried. The zero value is [Usual].
type When uint8

// The answers.
const (
	// Usual is what the package comment says: failures, timeouts and busy ones are
	// retried, throttled ones if the dependency said when.
	Usual When = iota

	// Always retries, after the delay or after the time that the dependency asked
	// for, whichever is longer.
	Always

	// AwaitPushback retries only if the dependency said when, and not before.
	AwaitPushback

	// Never does not retry.
	Never

	numWhens
)

var whenNames = [numWhens]string{"usual", "always", "await_pushback", "never"}

// String returns "usual", "always", "await_pushback" or "never".
func (w When) String() string {
	if w < numWhens {
		return whenNames[w]
	}
	return "unknown"
}

// Rule says how outcomes of one kind are retried, where that is not how the others
// are. The zero value changes nothing.
type Rule struct {
	// Retry says whether they are. Zero is [Usual].
	Retry When

	// MaxAttempts is the largest number of attempts of a call, all of them counted,
	// after which such an outcome is still followed by another: with 2 it is retried
	// once, and only where it was the first. Zero means that of the Config, which
	// it must not exceed.
	MaxAttempts int

	// Delay is the time before the next attempt, exactly, in place of the backoff. A
	// pushback that is longer comes first. Zero means the backoff; [Off] means at
	// once.
	Delay time.Duration
}

// rules are the effective rules, by kind of outcome.
type rules [policy.NumKinds]Rule

// fields returns the rules of a Config, with the names of their fields.
func (c Config) fields() [4]struct {
	name string
	kind policy.Kind
	rule Rule
} {
	return [4]struct {
		name string
		kind policy.Kind
		rule Rule
	}{
		{"Failure", policy.Failure, c.Failure},
		{"Timeout", policy.Timeout, c.Timeout},
		{"Busy", policy.Busy, c.Busy},
		{"Throttled", policy.Throttled, c.Throttled},
	}
}

// rules returns the effective rules of an effective Config.
func (c Config) rules() (all rules) {
	for k := range all {
		all[k].Retry = Never
	}
	for _, f := range c.fields() {
		r := f.rule
		if r.Retry == Usual {
			r.Retry = Always
			if f.kind == policy.Throttled {
				// Over a limit, and nobody knows for how long, unless its author does.
				r.Retry = AwaitPushback
				if r.Delay != 0 {
					r.Retry = Always
				}
			}
		}
		if r.MaxAttempts == 0 {
			r.MaxAttempts = c.MaxAttempts
		}
		all[f.kind] = r
	}
	return all
}

// validate reports every invalid field of a rule. most is the MaxAttempts of the
// Config, as it was written.
func (r Rule) validate(most int) error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
	}
	if r.Retry >= numWhens {
		fault("Retry", uint8(r.Retry), "want Usual, Always, AwaitPushback or Never")
	}
	if most == 0 {
		most = defaultMaxAttempts
	}
	switch {
	case r.MaxAttempts < 0:
		fault("MaxAttempts", r.MaxAttempts, "want at least 1, or 0 (that of the policy)")
	case most >= 0 && r.MaxAttempts > most:
		fault("MaxAttempts", r.MaxAttempts, fmt.Sprintf("want at most that of the policy, which is %d", most))
	}
	if r.Delay < 0 && r.Delay != Off {
		fault("Delay", r.Delay, "want above 0, or 0 (the backoff), or Off")
	}
	if r.Retry == Never && (r.MaxAttempts != 0 || r.Delay != 0) {
		fault("Retry", r.Retry, "it is Never, so MaxAttempts and Delay say nothing; leave them out")
	}
	return errors.Join(errs...)
}
