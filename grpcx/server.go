package grpcx

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

// ServerConfig configures a [Server]. The zero value is valid: every field documents what
// zero means. [NewServer] copies it; later changes have no effect.
//
// The functions run on the goroutine of the RPC and may run concurrently.
type ServerConfig struct {
	// Key says what keyed policies of the server's pipeline count an RPC by, such as the
	// caller's identity. The pipelines below it do not see it. Nil means no key.
	Key func(ctx context.Context, method string) string

	// Classify judges the error of a handler for the server's pipeline. [policy.NotRun]
	// leaves it to [KindOf]. It is not asked when the caller has given up. Nil judges
	// nothing.
	Classify func(method string, err error) policy.Kind

	// Code says which code a refusal has for the caller, in place of [CodeOf], which it
	// may ask: a quota of ours at a vendor, for one, is nothing that the caller has used
	// up. [codes.OK] leaves it to CodeOf. Nil always does.
	Code func(re *policy.RejectedError) codes.Code

	// Expose tells callers which dependency, policy and reason are behind a refusal, in
	// the status's message and an ErrorInfo. Otherwise they get a text that is the same
	// for all.
	Expose bool

	// Trust says whether the sender of an RPC is one of ours, so that its marks are
	// believed. It must go by what the sender cannot choose: its address if no proxy
	// stands between ([TrustNetworks]), its certificate, a token that was checked. Nil
	// trusts nobody.
	Trust func(ctx context.Context) bool
}

// Server has the interceptors of a server. It is made by [NewServer] and safe for concurrent
// use.
type Server struct {
	cfg ServerConfig
	p   *policy.Pipeline
}

// NewServer makes interceptors that let RPCs in through p, which may be nil, and answer for
// the refusals of all pipelines below.
func NewServer(p *policy.Pipeline, cfg ServerConfig) *Server { return &Server{cfg: cfg, p: p} }

// Config returns the effective settings.
func (s *Server) Config() ServerConfig { return s.cfg }

// ServerOptions returns what [grpc.NewServer] needs: both interceptors, innermost of those
// given before. Recovering from panics belongs outside of them.
func (s *Server) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream)}
}

// Unary is a [grpc.UnaryServerInterceptor]. A panic of the handler passes through, after
// everything that the pipeline holds for the RPC has been given back.
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, known := s.read(ctx)
	var (
		resp any
		err  error
	)
	if s.p == nil {
		resp, err = handler(ctx, req)
	} else {
		x := serving{s: s, method: info.FullMethod, run: func(ctx context.Context) (any, error) { return handler(ctx, req) }}
		resp, err = policy.DoAttempt(ctx, s.p, s.callOf(ctx, info.FullMethod), x, serve, nil)
	}
	if err == nil {
		return resp, nil
	}
	trailer, err := s.answer(err, known)
	if trailer != nil {
		_ = grpc.SetTrailer(ctx, trailer) // fails where there is no RPC, in a test of the interceptor
	}
	return nil, err
}

// read believes the marks of an RPC that is trusted.
func (s *Server) read(ctx context.Context) (context.Context, *policy.Hop) {
	if s.cfg.Trust == nil || !s.cfg.Trust(ctx) {
		return ctx, nil
	}
	return read(ctx)
}

// callOf returns what the server's pipeline is told about an RPC.
func (s *Server) callOf(ctx context.Context, method string) *policy.Call {
	if s.cfg.Key == nil {
		return rpc.ServerCall(ctx, nil)
	}
	return rpc.ServerCall(ctx, func() string { return s.cfg.Key(ctx, method) })
}

// serving is one RPC that is served by one attempt.
type serving struct {
	s      *Server
	method string
	run    func(context.Context) (any, error)
}

func serve(ctx context.Context, x serving, at *policy.Attempt) (any, error) {
	resp, err := x.run(ctx)
	at.Judging()
	if err != nil {
		if k := x.s.judge(ctx, x.method, err); k != policy.NotRun {
			at.SetOutcome(k, 0)
		}
	}
	return resp, err
}

func (s *Server) judge(ctx context.Context, method string, err error) policy.Kind {
	if rpc.DeadlinePassed(ctx) {
		return policy.Timeout
	}
	own := policy.NotRun
	if s.cfg.Classify != nil && !errors.Is(ctx.Err(), context.Canceled) {
		own = s.cfg.Classify(method, err)
	}
	return judge(ctx, s.p, err, own)
}

// answer makes of an error what a gRPC caller understands, and the trailer that says when to
// come back, if anything is known about that.
func (s *Server) answer(err error, known *policy.Hop) (metadata.MD, error) {
	var pushback time.Duration
	st, has := status.FromError(err)
	if re, ok := rpc.Rejected(err); ok {
		st, has, pushback = refusal(re, s.code(re), s.cfg.Expose), true, rpc.Asked(re)
		err = st.Err()
	} else if o := policy.Classify(context.Background(), err); o.Kind == policy.Busy || o.Kind == policy.Throttled {
		// Marked by the handler.
		pushback = o.Pushback
		if !has {
			st, has = status.New(codes.Code(rpc.CodeOfKind(o.Kind)), err.Error()), true
			err = st.Err()
		}
	}
	if known.Spent() && rpc.MayChange(KindOf(codeAsSent(st, err, has))) {
		pushback = -1
	}
	if pushback == 0 {
		return nil, err
	}
	if has {
		if more := withRetryInfo(st, pushback); more != st {
			err = more.Err()
		}
	}
	return metadata.Pairs(hop.PushbackKey, hop.FormatPushback(pushback)), err
}

func (s *Server) code(re *policy.RejectedError) codes.Code {
	if s.cfg.Code != nil {
		if c := s.cfg.Code(re); c != codes.OK {
			return c
		}
	}
	return CodeOf(re)
}

// codeAsSent returns the code that gRPC makes of an error.
func codeAsSent(st *status.Status, err error, has bool) codes.Code {
	if has {
		return st.Code()
	}
	return status.FromContextError(err).Code()
}
