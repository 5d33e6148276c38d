// Package rpc is what the codes of gRPC mean to a pipeline, and its refusals to a caller.
// Connect has the same codes, with the same numbers; so the adapters of both ask here.
package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Code is a status code.
type Code uint32

// The codes, as https://grpc.github.io/grpc/core/md_doc_statuscodes.html numbers them.
const (
	OK Code = iota
	Canceled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

// KindOf says what a code means to a pipeline. The adapters document it.
func KindOf(c Code) policy.Kind {
	switch c {
	case OK:
		return policy.Success
	case Unavailable:
		return policy.Busy
	case ResourceExhausted:
		return policy.Throttled
	case DeadlineExceeded:
		return policy.Timeout
	case Canceled:
		return policy.Canceled
	case InvalidArgument, NotFound, AlreadyExists, PermissionDenied, Unauthenticated, FailedPrecondition, Aborted,
		OutOfRange, Unimplemented:
		return policy.Permanent
	case Unknown, Internal, DataLoss:
	}
	return policy.Failure
}

// CodeOf says what a refusal is to a caller.
func CodeOf(re *policy.RejectedError) Code {
	if re.Reason == policy.ReasonRate || re.Reason == policy.ReasonCost || errors.Is(re, ratelimit.ErrLimited) {
		return ResourceExhausted
	}
	return Unavailable
}

// CodeOfKind returns the code of an error that a handler has marked as busy or throttled.
func CodeOfKind(k policy.Kind) Code {
	if k == policy.Throttled {
		return ResourceExhausted
	}
	return Unavailable
}

// MayChange reports whether another attempt may have another outcome: the kinds whose
// pushback means something.
func MayChange(k policy.Kind) bool { return k.IsFailure() || k == policy.Throttled }

// Judge classifies an error of an attempt that ran under ctx. It returns [policy.NotRun] for
// what is to be left to the pipeline: what that knows better than the code says, such as a
// caller who has given up, a refusal further down, or a deadline of its own.
//
// own is what the user's classifier has said, if that was asked; code finds the code of an
// error that has one.
func Judge(ctx context.Context, p *policy.Pipeline, err error, own policy.Kind, code func(error) (Code, bool)) policy.Kind {
	if errors.Is(ctx.Err(), context.Canceled) {
		return policy.NotRun
	}
	if own != policy.NotRun {
		return own
	}
	if p.Classify(ctx, err).Kind != policy.Failure {
		return policy.NotRun
	}
	c, ok := code(err)
	if !ok {
		return policy.NotRun
	}
	return KindOf(c)
}

// jitter is how long before its deadline a server takes the end of an RPC for the deadline.
// The time that is left for an RPC is sent as such and counted from its arrival, and the
// client's cancellation at its own deadline has the same way to go: they arrive together, give
// or take what one of them was held up.
const jitter = 20 * time.Millisecond

// DeadlinePassed reports whether the deadline of an RPC is why its context is done, on the
// side of the server. A client whose deadline has passed cancels, and the server mostly sees
// that first.
func DeadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && ctx.Err() != nil && time.Until(deadline) <= jitter
}

// Pushback returns what a server has asked for, in the values of [hop.PushbackKey] and
// elsewhere, at most the given time: 0 when nothing, and negative when the RPC is not to be
// sent again. Of two wishes the longer counts.
func Pushback(values []string, elsewhere, most time.Duration) time.Duration {
	switch len(values) {
	case 0:
	case 1:
		p := hop.ParsePushback(values[0])
		if p < 0 {
			return p
		}
		elsewhere = max(elsewhere, p)
	default:
		return -1
	}
	return min(elsewhere, most)
}

// Rejected returns the refusal that err is: not one that kept a call which has failed
// from another attempt.
func Rejected(err error) (*policy.RejectedError, bool) {
	if policy.Classify(context.Background(), err).Kind != policy.NotRun {
		return nil, false
	}
	return errors.AsType[*policy.RejectedError](err)
}

// Asked returns the pushback of a refusal.
func Asked(re *policy.RejectedError) time.Duration {
	if re.RetryAfter == policy.Never {
		return -1
	}
	return re.RetryAfter
}

// Text is the message of a refusal. Its caller need not know who refused, and a stranger
// should not, so details are optional.
func Text(re *policy.RejectedError, c Code, expose bool) string {
	switch {
	case expose:
		return re.Error()
	case c == ResourceExhausted:
		return "over the limit"
	default:
		return "overloaded, try again later"
	}
}

// AttemptOf returns the number of the attempt that an RPC is, from the values of
// [hop.AttemptsKey]. There is one value of a pipeline and one of the service config's
// retries, which know nothing of each other: the attempts before this one are those of both.
// What cannot be read counts as absent.
func AttemptOf(values []string) int {
	n := 1
	for _, v := range values {
		if next, ok := hop.ParsePrevious(v); ok {
			n = min(n+next-1, hop.MaxAttempt)
		}
	}
	return n
}

// Known returns the context of an RPC that is trusted, from the values of [hop.AttemptsKey]
// and [hop.PriorityKey].
func Known(ctx context.Context, attempts, priority []string) (context.Context, *policy.Hop) {
	known := policy.NewHop(AttemptOf(attempts))
	ctx = policy.WithHop(ctx, known)
	if len(priority) == 1 {
		if p, ok := hop.ParsePriority(priority[0]); ok {
			ctx = policy.WithPriority(ctx, p)
		}
	}
	return ctx, known
}

// The calls of nearly all RPCs: whose context says nothing about them. They are shared and
// never change.
var (
	repeatable = policy.Call{Idempotent: true}
	once       = policy.Call{NoRetry: true}
)

// ClientCall returns what the pipeline is told about an RPC: what its context says, and
// whether it may be sent again, of which idempotent is asked unless it is settled.
func ClientCall(ctx context.Context, never bool, idempotent func() bool) *policy.Call {
	call := policy.CallFrom(ctx)
	again := !never && (call.Idempotent || idempotent())
	if call == (policy.Call{}) {
		if again {
			return &repeatable
		}
		return &once
	}
	own := call // call itself must not escape
	own.Idempotent = again
	own.NoRetry = call.NoRetry || !again
	return &own
}

// ServerCall returns what the server's pipeline is told about an RPC. A handler runs once.
func ServerCall(ctx context.Context, key func() string) *policy.Call {
	call := policy.CallFrom(ctx)
	if call == (policy.Call{}) && key == nil {
		return &once
	}
	own := call // call itself must not escape
	own.NoRetry, own.Idempotent = true, false
	if key != nil {
		own.Key = key()
	}
	return &own
}

// Undated is the context of an attempt with the deadline of the caller: the attempt's own
// ends when the stream is open, but the client tells the server what it finds here, which
// would hold to it.
type Undated struct {
	context.Context //nolint:containedctx // it is one

	Caller context.Context //nolint:containedctx // it is part of one
}

// Deadline implements [context.Context].
func (c Undated) Deadline() (time.Time, bool) { return c.Caller.Deadline() }
