package grpcx

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/breakwater-go/breakwater/internal/rpc"
)

// statusError is an error of a pipeline, with the status that it is to gRPC.
type statusError struct {
	error
	st *status.Status
}

// GRPCStatus is what [status.FromError] asks for.
func (e *statusError) GRPCStatus() *status.Status { return e.st }

func (e *statusError) Unwrap() error { return e.error }

// withStatus gives a status to an error that has none: a refusal, or the error of a context
// that ended before anything was sent. The text stays as it is.
func withStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	if re, ok := rpc.Rejected(err); ok {
		return &statusError{error: err, st: refusal(re, CodeOf(re), true)}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &statusError{error: err, st: status.New(codes.Canceled, err.Error())}
	case errors.Is(err, context.DeadlineExceeded):
		return &statusError{error: err, st: status.New(codes.DeadlineExceeded, err.Error())}
	default:
		return err
	}
}

// withRetryInfo adds the time to come back, unless it is unknown or never, or the status has
// one already.
func withRetryInfo(st *status.Status, after time.Duration) *status.Status {
	if after <= 0 || retryDelay(st.Err()) > 0 {
		return st
	}
	more, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if err != nil {
		return st // of code OK, to which nothing can be added
	}
	return more
}
