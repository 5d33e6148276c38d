package grpcx

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

// Stream is a [grpc.StreamServerInterceptor]. The permit is kept until the handler returns.
// The RPC counts as a success, and its duration is taken, when the handler sends a header or
// its first message, or returns without one; the attempt's timeout ends there too. A handler
// that fails after that corrects the success. On a pool (bulkhead.Pool) the handler is an
// attempt like any other, from its beginning to its end.
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, known := s.read(ss.Context())
	if s.p == nil && known == nil {
		return s.tell(ss, handler(srv, ss), nil)
	}
	return s.tell(ss, s.stream(ctx, srv, ss, info.FullMethod, handler), known)
}

// tell makes of the error of a stream what its caller gets.
func (s *Server) tell(ss grpc.ServerStream, err error, known *policy.Hop) error {
	if err == nil {
		return nil
	}
	trailer, err := s.answer(err, known)
	if trailer != nil {
		ss.SetTrailer(trailer)
	}
	return err
}

func (s *Server) stream(ctx context.Context, srv any, ss grpc.ServerStream, method string, handler grpc.StreamHandler) error {
	if s.p == nil {
		return handler(srv, &serverStream{ServerStream: ss, ctx: ctx})
	}
	call := s.callOf(ctx, method)
	h, err := s.p.Enter(policy.WithCall(ctx, *call))
	if errors.Is(err, policy.ErrPooled) {
		x := serving{s: s, method: method, run: func(ctx context.Context) (any, error) {
			return nil, handler(srv, &serverStream{ServerStream: ss, ctx: ctx})
		}}
		_, err = policy.DoAttempt(ctx, s.p, call, x, serve, nil)
		return err
	}
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			h.Amend(policy.Failure) // a panic, after a success; before one it is a failure as it is
		}
		h.Release()
	}()
	// The pipelines below get what the context has said about their calls, and the deadline
	// that it has: the attempt's own ends with the first message.
	inner := policy.WithCall(rpc.Undated{Context: h.Context(), Caller: ctx}, policy.CallFrom(ctx))
	err = handler(srv, &serverStream{ServerStream: ss, ctx: inner, answered: func() { h.Settle(policy.Success, 0) }})
	returned = true
	s.settle(h, method, err)
	return err
}

// settle tells how a stream has ended.
func (s *Server) settle(h policy.Handle, method string, err error) {
	ctx := h.Context()
	if err == nil {
		h.Settle(policy.Success, 0)
		return
	}
	kind := s.judge(ctx, method, err)
	if kind == policy.NotRun {
		kind = s.p.Classify(ctx, err).Kind
		if h.Leave(err) {
			return
		}
	} else if h.Settle(kind, 0) {
		return
	}
	if rpc.MayChange(kind) {
		h.Amend(kind)
	}
}

// serverStream is a stream under the context of an attempt.
type serverStream struct {
	grpc.ServerStream

	ctx      context.Context //nolint:containedctx // it is what the handler asks the stream for
	answered func()          // nil when nobody wants to know
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) SendHeader(md metadata.MD) error {
	err := s.ServerStream.SendHeader(md)
	s.sent(err)
	return err
}

func (s *serverStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	s.sent(err)
	return err
}

func (s *serverStream) sent(err error) {
	if err == nil && s.answered != nil {
		s.answered()
	}
}
