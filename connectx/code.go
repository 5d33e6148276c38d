package connectx

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

// retryAfter is HTTP's own way to say when to come back, for clients that are none of
// Connect's.
const retryAfter = "Retry-After"

// KindOf says what a code means to a pipeline:
//
//   - unavailable is [policy.Busy], also where no connection could be made
//   - resource_exhausted is [policy.Throttled]; at a client, where the server did not send
//     it, a message is too large for the client's own bounds, which is [policy.Permanent]
//   - deadline_exceeded is a [policy.Timeout]
//   - canceled is [policy.Canceled]
//   - internal, unknown, data_loss and codes that Connect does not know are a [policy.Failure]
//   - the others are [policy.Permanent]: an answer about the request, which another attempt
//     would get again. aborted is among them, since what is to be repeated is more than the
//     one RPC.
func KindOf(c connect.Code) policy.Kind { return rpc.KindOf(rpc.Code(c)) }

// CodeOf says what a refusal is to a caller: resource_exhausted where a rate limit refused,
// since the caller asks for more than it is allowed; unavailable for all else (no permit,
// overload, an open breaker, a pipeline that is closed), which is nothing that the caller
// has done.
func CodeOf(re *policy.RejectedError) connect.Code { return connect.Code(rpc.CodeOf(re)) }

// codeOf returns the code of an error that has one.
func codeOf(err error) (rpc.Code, bool) {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return 0, false
	}
	return rpc.Code(ce.Code()), true
}

// codeOfAnswer is codeOf at the client. What exhausts no resource of the server's is a message
// that is too large for the client's own bounds.
func codeOfAnswer(err error) (rpc.Code, bool) {
	c, ok := codeOf(err)
	if c == rpc.ResourceExhausted && !connect.IsWireError(err) {
		c = rpc.InvalidArgument
	}
	return c, ok
}

// pushbackOf returns what a server has asked for with an error.
func pushbackOf(err error, most time.Duration) time.Duration {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return 0
	}
	elsewhere := retryDelay(ce)
	if s, err := strconv.ParseUint(ce.Meta().Get(retryAfter), 10, 31); err == nil {
		elsewhere = max(elsewhere, time.Duration(s)*time.Second)
	}
	return rpc.Pushback(ce.Meta().Values(hop.PushbackKey), elsewhere, most)
}

// retryDelay returns the delay in the RetryInfo of an error, 0 when there is none.
func retryDelay(ce *connect.Error) time.Duration {
	for _, d := range ce.Details() {
		if d.Type() != "google.rpc.RetryInfo" {
			continue
		}
		v, err := d.Value()
		if info, ok := v.(*errdetails.RetryInfo); err == nil && ok && info.GetRetryDelay().CheckValid() == nil {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}

// withCode gives a code to an error of a pipeline that has none: a refusal, or the error of
// a context that ended before anything was sent. The text stays as it is.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](err); ok {
		return err
	}
	switch re, rejected := rpc.Rejected(err); {
	case rejected:
		ce := connect.NewError(CodeOf(re), err)
		comeBack(ce, rpc.Asked(re))
		return ce
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	default:
		return err
	}
}

// refusal makes an error for a caller of a refusal.
func refusal(re *policy.RejectedError, code connect.Code, expose bool) *connect.Error {
	ce := connect.NewError(code, errors.New(rpc.Text(re, rpc.Code(code), expose)))
	if expose {
		d, err := connect.NewErrorDetail(&errdetails.ErrorInfo{
			Reason: strings.ToUpper(re.Reason.String()), Domain: "breakwater",
			Metadata: map[string]string{"dependency": re.Dependency, "policy": re.Policy},
		})
		if err == nil {
			ce.AddDetail(d)
		}
	}
	return ce
}

// comeBack adds to an error when its caller may come back, in every way that one may read:
// 0 is unknown and negative never.
func comeBack(ce *connect.Error, after time.Duration) {
	if after == 0 {
		return
	}
	ce.Meta().Set(hop.PushbackKey, hop.FormatPushback(after))
	if after < 0 {
		return
	}
	if ce.Meta().Get(retryAfter) == "" {
		ce.Meta().Set(retryAfter, strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
	if retryDelay(ce) == 0 {
		if d, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}); err == nil {
			ce.AddDetail(d)
		}
	}
}

// mark says in a header what an attempt is. Marks that are there already came from somewhere
// else, with a request that is passed on: whoever trusts us must not read them as ours.
func mark(ctx context.Context, h http.Header, at *policy.Attempt) {
	put(h, hop.AttemptsKey, hop.FormatPrevious(policy.HopFrom(ctx).Next(at.Number())))
	put(h, hop.PriorityKey, hop.FormatPriority(at.Call().Priority))
}

func put(h http.Header, key, value string) {
	if value == "" {
		h.Del(key)
		return
	}
	h.Set(key, value)
}
