package policy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/breakwater-go/breakwater/internal/engine"
)

// Kind says how an attempt ended. It is a closed set: the same value feeds the
// breaker, the retry policy, the limits and the metrics, so that all of them agree.
//
// Slow is not a Kind: it is the breaker's judgement of [Outcome.Duration], so an
// attempt can be both failed and slow.
type Kind uint8

// The kinds of outcome.
const (
	// NotRun means that the attempt never ran: a gate refused it, or its context
	// was already done. It is the zero value. A classifier that returns it, or a
	// kind that does not exist, leaves the decision to the default classification.
	NotRun Kind = iota

	// Success means that the dependency answered.
	Success

	// Failure means that the dependency failed, or that the function panicked.
	Failure

	// Timeout means that a deadline expired while the attempt ran, whoever set it.
	Timeout

	// Busy means that the dependency said it is overloaded (HTTP 503, a full
	// queue). It counts as a failure.
	Busy

	// Throttled means that the dependency refused because its caller is over a
	// limit (HTTP 429, quota). The dependency is healthy, so a breaker does not
	// count it as a failure.
	Throttled

	// Permanent means that the dependency answered and the answer is an error which
	// another attempt cannot change (bad input, not found). The dependency is
	// healthy: a breaker counts it as a success, a retry policy never retries it.
	Permanent

	// Canceled means that the caller gave up. It is neutral everywhere.
	Canceled

	// NumKinds is the number of kinds, for arrays indexed by Kind.
	NumKinds
)

var kindNames = [NumKinds]string{
	"not_run", "success", "failure", "timeout", "busy", "throttled", "permanent", "canceled",
}

// String returns the kind's name in lower case, as metrics and logs show it.
func (k Kind) String() string {
	if k < NumKinds {
		return kindNames[k]
	}
	return "unknown"
}

// IsFailure reports whether the kind says that the dependency is unhealthy:
// [Failure], [Timeout] or [Busy].
func (k Kind) IsFailure() bool { return k == Failure || k == Timeout || k == Busy }

// IsAnswer reports whether the kind says that the dependency is healthy and
// answered: [Success] or [Permanent].
func (k Kind) IsAnswer() bool { return k == Success || k == Permanent }

// Outcome is how an attempt ended.
type Outcome struct {
	// Kind is the classification of the attempt.
	Kind Kind

	// Code is the status code of the answer in its own protocol, such as 503, as set
	// by [Attempt.SetCode]; 0 when there is none. It is for texts only.
	Code uint16

	// Duration is the time from the moment the last gate let the attempt in until
	// the function returned. Time spent in the pipeline's own queues is not in it.
	// It is never negative, and zero for an attempt that did not run.
	Duration time.Duration

	// Pushback is the dependency's own wish: how long to stay away (Retry-After).
	// Zero means that it said nothing; negative means that it asked never to be
	// asked again for this call.
	Pushback time.Duration
}

// classifiedError is an error that carries its own classification.
type classifiedError struct {
	err      error
	kind     Kind
	pushback time.Duration
}

func (e *classifiedError) Error() string { return e.err.Error() }
func (e *classifiedError) Unwrap() error { return e.err }

// AsPermanent marks err as [Permanent]: it is returned to the caller, never
// retried, and does not count against the dependency. The mark survives wrapping.
// A nil error stays nil.
func AsPermanent(err error) error { return mark(err, Permanent, 0) }

// AsBusy marks err as [Busy], with the time the dependency asked to be left alone
// for; zero means that it did not say, and negative that it is not to be asked again for
// this call: that a layer below has retried it already, for one. A nil error stays nil.
func AsBusy(err error, retryAfter time.Duration) error { return mark(err, Busy, retryAfter) }

// AsThrottled marks err as [Throttled], with the time after which the dependency
// accepts calls again; zero means that it did not say, and negative that it is not to be
// asked again for this call. A nil error stays nil.
func AsThrottled(err error, retryAfter time.Duration) error {
	return mark(err, Throttled, retryAfter)
}

func mark(err error, kind Kind, pushback time.Duration) error {
	if err == nil {
		return nil
	}
	return &classifiedError{err: err, kind: kind, pushback: pushback}
}

// judges reports whether a classifier that returned k has decided.
func (k Kind) judges() bool { return k != NotRun && k < NumKinds }

// find returns the first error of type E in the tree of err, like [errors.AsType],
// but in what the dependency said only: not in why there was no further attempt, nor
// in what a fallback said.
func find[E error](err error) (found E, ok bool) {
	for err != nil {
		if e, ok := err.(E); ok { //nolint:errorlint // this is what walks the tree
			return e, true
		}
		if as, ok := err.(interface{ As(target any) bool }); ok {
			if e, ok := asked[E](as); ok {
				return e, true
			}
		}
		switch e := err.(type) { //nolint:errorlint // likewise
		case *GaveUpError:
			err = e.Last
		case *unansweredError:
			err = e.call
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range e.Unwrap() {
				if found, ok := find[E](e); ok {
					return found, true
				}
			}
			return found, false
		default:
			return found, false
		}
	}
	return found, false
}

// asked asks an error that answers for itself. It is apart because what it hands over is
// allocated, which the others need not pay for.
func asked[E error](err interface{ As(target any) bool }) (found E, ok bool) {
	ok = err.As(&found)
	return found, ok
}

// Classify is the default classification of an attempt that ran under ctx and
// returned err. Duration is left zero. In this order:
//
//   - nil is a [Success]
//   - if the caller has cancelled ctx, any error is [Canceled]
//   - a mark set by [AsPermanent], [AsBusy] or [AsThrottled], also deep inside
//   - an [*AnswerError] of a pipeline further down keeps its kind
//   - a [*RejectedError] of a pipeline further down is [NotRun], with its
//     retry-after as pushback: the dependency was not reached, so nobody counts it
//   - a deadline that expired (of ctx, of the attempt, of a socket, of a failsafe-go
//     timeout) is a [Timeout]
//   - an error that matches [context.Canceled] is [Canceled]
//   - anything else is a [Failure]
//
// What a pipeline further down has added to the error of a call that ran is looked
// through: a refusal of the retry, or an error of the fallback, hides no failure.
func Classify(ctx context.Context, err error) Outcome {
	if err == nil {
		return Outcome{Kind: Success}
	}
	ctxErr := ctx.Err()
	if errors.Is(ctxErr, context.Canceled) {
		return Outcome{Kind: Canceled}
	}
	if ce, ok := find[*classifiedError](err); ok {
		return Outcome{Kind: ce.kind, Pushback: ce.pushback}
	}
	if ae, ok := find[*AnswerError](err); ok && ae.Kind.judges() {
		return Outcome{Kind: ae.Kind}
	}
	if re, ok := find[*RejectedError](err); ok {
		if re.RetryAfter == Never {
			return Outcome{Kind: NotRun, Pushback: -1}
		}
		return Outcome{Kind: NotRun, Pushback: re.RetryAfter}
	}
	for {
		ue, ok := find[*unansweredError](err)
		if !ok {
			break
		}
		err = ue.call
	}
	if ctxErr != nil || isTimeout(err) {
		return Outcome{Kind: Timeout}
	}
	if errors.Is(err, context.Canceled) {
		return Outcome{Kind: Canceled}
	}
	return Outcome{Kind: Failure}
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return (ok && ne.Timeout()) || engine.IsTimeout(err)
}

// pushbackOf returns the pushback that err carries, 0 when it carries none.
func pushbackOf(err error) time.Duration {
	if ce, ok := find[*classifiedError](err); ok {
		return ce.pushback
	}
	return 0
}

// contextError returns the error of a context that is done, with its cause, and nil
// for one that is not.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if cause != context.Canceled && cause != context.DeadlineExceeded { //nolint:errorlint // the plain ones say nothing new
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
