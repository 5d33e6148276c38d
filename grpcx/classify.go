package grpcx

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// KindOf says what a status code means to a pipeline:
//
//   - OK is a [policy.Success]
//   - UNAVAILABLE is [policy.Busy], also where no connection could be made
//   - RESOURCE_EXHAUSTED is [policy.Throttled]
//   - DEADLINE_EXCEEDED is a [policy.Timeout]
//   - CANCELLED is [policy.Canceled]
//   - INTERNAL, UNKNOWN, DATA_LOSS and codes that gRPC does not know are a [policy.Failure]
//   - the others are [policy.Permanent]: an answer about the request, which another attempt
//     would get again. ABORTED is among them, since what is to be repeated is more than
//     the one RPC.
func KindOf(c codes.Code) policy.Kind {
	switch c {
	case codes.OK:
		return policy.Success
	case codes.Unavailable:
		return policy.Busy
	case codes.ResourceExhausted:
		return policy.Throttled
	case codes.DeadlineExceeded:
		return policy.Timeout
	case codes.Canceled:
		return policy.Canceled
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented:
		return policy.Permanent
	default:
		return policy.Failure
	}
}

// CodeOf says what a refusal is to a gRPC caller: RESOURCE_EXHAUSTED where a rate limit
// refused, since the caller asks for more than it is allowed; UNAVAILABLE for all else (no
// permit, overload, an open breaker, a pipeline that is closed), which is nothing that the
// caller has done.
func CodeOf(re *policy.RejectedError) codes.Code {
	if re.Reason == policy.ReasonRate || re.Reason == policy.ReasonCost || errors.Is(re, ratelimit.ErrLimited) {
		return codes.ResourceExhausted
	}
	return codes.Unavailable
}

// mayChange reports whether another attempt may have another outcome: the kinds whose
// pushback means something.
func mayChange(k policy.Kind) bool { return k.IsFailure() || k == policy.Throttled }

// judge classifies an error of an attempt that ran under ctx. It returns [policy.NotRun] for
// what is to be left to the pipeline: what that knows better than the code says, such as a
// caller who has given up, a refusal further down, or a deadline of its own.
func judge(ctx context.Context, p *policy.Pipeline, err error, own policy.Kind) policy.Kind {
	if errors.Is(ctx.Err(), context.Canceled) {
		return policy.NotRun
	}
	if own != policy.NotRun {
		return own
	}
	if p.Classify(ctx, err).Kind != policy.Failure {
		return policy.NotRun
	}
	st, ok := status.FromError(err)
	if !ok {
		return policy.NotRun
	}
	return KindOf(st.Code())
}

// pushbackOf returns what a server has asked for with an error, at most the given time: 0
// when nothing, and negative when the RPC is not to be sent again. Of two wishes the longer
// counts.
func pushbackOf(err error, trailer metadata.MD, most time.Duration) time.Duration {
	pushback := retryDelay(err)
	switch values := trailer.Get(hop.PushbackKey); len(values) {
	case 0:
	case 1:
		p := hop.ParsePushback(values[0])
		if p < 0 {
			return p
		}
		pushback = max(pushback, p)
	default:
		return -1
	}
	return min(pushback, most)
}

// retryDelay returns the delay in the RetryInfo of a status, 0 when there is none.
func retryDelay(err error) time.Duration {
	st, ok := status.FromError(err)
	if !ok {
		return 0
	}
	for _, d := range st.Proto().GetDetails() {
		info := new(errdetails.RetryInfo)
		if d.MessageIs(info) && d.UnmarshalTo(info) == nil && info.GetRetryDelay().CheckValid() == nil {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}

// refusal makes a status of a refusal. Its caller need not know who refused, and a stranger
// should not, so details are optional.
func refusal(re *policy.RejectedError, code codes.Code, expose bool) *status.Status {
	text := "overloaded, try again later"
	if code == codes.ResourceExhausted {
		text = "over the limit"
	}
	if expose {
		text = re.Error()
	}
	st := status.New(code, text)
	if expose {
		info := &errdetails.ErrorInfo{
			Reason: strings.ToUpper(re.Reason.String()), Domain: "breakwater",
			Metadata: map[string]string{"dependency": re.Dependency, "policy": re.Policy},
		}
		if more, err := st.WithDetails(info); err == nil {
			st = more
		}
	}
	return withRetryInfo(st, asked(re))
}

// asked returns the pushback of a refusal.
func asked(re *policy.RejectedError) time.Duration {
	if re.RetryAfter == policy.Never {
		return -1
	}
	return re.RetryAfter
}
