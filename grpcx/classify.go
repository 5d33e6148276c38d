package grpcx

import (
	"context"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
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
func KindOf(c codes.Code) policy.Kind { return rpc.KindOf(rpc.Code(c)) }

// CodeOf says what a refusal is to a gRPC caller: RESOURCE_EXHAUSTED where a rate limit
// refused, since the caller asks for more than it is allowed; UNAVAILABLE for all else (no
// permit, overload, an open breaker, a pipeline that is closed), which is nothing that the
// caller has done.
func CodeOf(re *policy.RejectedError) codes.Code { return codes.Code(rpc.CodeOf(re)) }

// judge is [rpc.Judge] of an error of gRPC.
func judge(ctx context.Context, p *policy.Pipeline, err error, own policy.Kind) policy.Kind {
	return rpc.Judge(ctx, p, err, own, func(err error) (rpc.Code, bool) {
		st, ok := status.FromError(err)
		return rpc.Code(st.Code()), ok
	})
}

// pushbackOf returns what a server has asked for with an error, in the trailer or in the
// status.
func pushbackOf(err error, trailer metadata.MD, most time.Duration) time.Duration {
	return rpc.Pushback(trailer.Get(hop.PushbackKey), retryDelay(err), most)
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
	st := status.New(code, rpc.Text(re, rpc.Code(code), expose))
	if expose {
		info := &errdetails.ErrorInfo{
			Reason: strings.ToUpper(re.Reason.String()), Domain: "breakwater",
			Metadata: map[string]string{"dependency": re.Dependency, "policy": re.Policy},
		}
		if more, err := st.WithDetails(info); err == nil {
			st = more
		}
	}
	return withRetryInfo(st, rpc.Asked(re))
}
