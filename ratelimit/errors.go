package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// ErrLimited is the cause of a refusal because the limit has too few tokens left.
// It comes inside a [*policy.RejectedError], whose RetryAfter is the time until they
// are there, unless others take them first.
var ErrLimited = errors.New("ratelimit: too few tokens left")

// ErrExceedsBurst is the cause of a refusal because the call costs more than the
// limit can ever hold. It comes inside a [*policy.RejectedError] whose RetryAfter is
// [policy.Never].
var ErrExceedsBurst = errors.New("ratelimit: the cost exceeds the burst")

// ErrUnavailable is the cause of a refusal because the store that a shared limit is kept
// in cannot be asked, and the limit was configured to let nobody in meanwhile. It comes
// inside a [*policy.RejectedError].
var ErrUnavailable = errors.New("ratelimit: the store of the limit cannot be asked")

// errDeadline and errTooFar say more about a refused wait. Both match ErrLimited.
var (
	errDeadline = &limitedError{"ratelimit: the tokens come no earlier than the context's deadline", context.DeadlineExceeded}
	errTooFar   = &limitedError{"ratelimit: wait exceeds maximum", nil}
)

// limitedError is a more exact ErrLimited, with another error that it matches too.
type limitedError struct {
	text string
	also error
}

// Error returns the text.
func (e *limitedError) Error() string { return e.text }

// Unwrap lets [errors.Is] find [ErrLimited] and the other error.
func (e *limitedError) Unwrap() []error {
	if e.also == nil {
		return []error{ErrLimited}
	}
	return []error{ErrLimited, e.also}
}

// verdict is a limiter's answer to a request for tokens.
type verdict uint8

const (
	taken  verdict = iota // the tokens are the caller's
	short                 // too few tokens now
	tooBig                // more than there can ever be
)

// rejection is the error for a verdict other than taken.
func rejection(name string, v verdict, retryAfter time.Duration) error {
	if v == tooBig {
		return &policy.RejectedError{Policy: name, Reason: policy.ReasonCost, RetryAfter: policy.Never, Err: ErrExceedsBurst}
	}
	return &policy.RejectedError{Policy: name, Reason: policy.ReasonRate, RetryAfter: retryAfter, Err: ErrLimited}
}

// contextError returns the error of a context that is done, matching its cause too.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
