package connectx

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"time"

	"connectrpc.com/connect"

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
	Key func(ctx context.Context, in Incoming) string

	// Classify judges the error of a handler for the server's pipeline. [policy.NotRun]
	// leaves it to [KindOf]. It is not asked when the caller has given up. Nil judges
	// nothing.
	Classify func(spec connect.Spec, err error) policy.Kind

	// Code says which code a refusal has for the caller, in place of [CodeOf], which it
	// may ask: a quota of ours at a vendor, for one, is nothing that the caller has used
	// up. Zero leaves it to CodeOf. Nil always does.
	Code func(re *policy.RejectedError) connect.Code

	// Expose tells callers which dependency, policy and reason are behind a refusal, in
	// the error's message and an ErrorInfo. Otherwise they get a text that is the same
	// for all.
	Expose bool

	// Trust says whether the sender of an RPC is one of ours, so that its marks are
	// believed. It must go by what the sender cannot choose: its address if no proxy
	// stands between ([TrustNetworks]), its certificate, a token that was checked. Nil
	// trusts nobody.
	Trust func(ctx context.Context, in Incoming) bool
}

// Incoming is what is known of an RPC before it is handled. Its header must not be changed.
type Incoming struct {
	Spec   connect.Spec
	Peer   connect.Peer
	Header http.Header
}

// TrustNetworks returns a [ServerConfig] Trust that accepts RPCs whose connection comes from
// one of the networks. It goes by the address of the connection and never by headers, so
// behind a proxy it sees the proxy.
func TrustNetworks(networks ...netip.Prefix) func(ctx context.Context, in Incoming) bool {
	list := make([]netip.Prefix, len(networks))
	copy(list, networks)
	return func(_ context.Context, in Incoming) bool {
		from, err := netip.ParseAddrPort(in.Peer.Addr)
		if err != nil {
			return false
		}
		addr := from.Addr().Unmap().WithZone("")
		for _, n := range list {
			if n.Contains(addr) {
				return true
			}
		}
		return false
	}
}

// Server is a [connect.Interceptor] of handlers; clients that have it are left alone. It is
// made by [NewServer] and safe for concurrent use.
type Server struct {
	cfg ServerConfig
	p   *policy.Pipeline
}

// NewServer makes an interceptor that lets RPCs in through p, which may be nil, and answers
// for the refusals of all pipelines below.
func NewServer(p *policy.Pipeline, cfg ServerConfig) *Server { return &Server{cfg: cfg, p: p} }

// Config returns the effective settings.
func (s *Server) Config() ServerConfig { return s.cfg }

// WrapUnary implements [connect.Interceptor]. A panic of the handler passes through, after
// everything that the pipeline holds for the RPC has been given back.
func (s *Server) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		in := Incoming{Spec: req.Spec(), Peer: req.Peer(), Header: req.Header()}
		ctx, known := s.read(ctx, in)
		var (
			resp connect.AnyResponse
			err  error
		)
		if s.p == nil {
			resp, err = next(ctx, req)
		} else {
			x := serving{s: s, spec: in.Spec, run: func(ctx context.Context) (connect.AnyResponse, error) { return next(ctx, req) }}
			resp, err = policy.DoAttempt(ctx, s.p, s.callOf(ctx, in), x, serve, nil)
		}
		switch {
		case err != nil:
			return nil, s.answer(err, known)
		case resp == nil: // a fallback's; connect would take it apart
			return nil, errNoFallback
		default:
			return resp, nil
		}
	}
}

// WrapStreamingClient implements [connect.Interceptor] and leaves clients alone.
func (s *Server) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor]. The permit is kept until the handler
// returns. The RPC counts as a success, and its duration is taken, when the handler sends its
// first message, or returns without one; the attempt's timeout ends there too. A handler that
// fails after that corrects the success. On a pool (bulkhead.Pool) the handler is an attempt
// like any other, from its beginning to its end.
func (s *Server) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		in := Incoming{Spec: conn.Spec(), Peer: conn.Peer(), Header: conn.RequestHeader()}
		ctx, known := s.read(ctx, in)
		if err := s.stream(ctx, in, conn, next); err != nil {
			return s.answer(err, known)
		}
		return nil
	}
}

func (s *Server) stream(ctx context.Context, in Incoming, conn connect.StreamingHandlerConn, next connect.StreamingHandlerFunc) error {
	if s.p == nil {
		return next(ctx, conn)
	}
	call := s.callOf(ctx, in)
	h, err := s.p.Enter(policy.WithCall(ctx, *call))
	if errors.Is(err, policy.ErrPooled) {
		x := serving{s: s, spec: in.Spec, run: func(ctx context.Context) (connect.AnyResponse, error) { return nil, next(ctx, conn) }}
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
	err = next(inner, &handlerConn{StreamingHandlerConn: conn, h: h})
	returned = true
	s.settle(h, in.Spec, err)
	return err
}

// handlerConn tells the attempt of the first message.
type handlerConn struct {
	connect.StreamingHandlerConn

	h policy.Handle
}

// Send settles the attempt with the first message that could be sent.
func (c *handlerConn) Send(msg any) error {
	err := c.StreamingHandlerConn.Send(msg)
	if err == nil {
		c.h.Settle(policy.Success, 0)
	}
	return err
}

// settle tells how a stream has ended.
func (s *Server) settle(h policy.Handle, spec connect.Spec, err error) {
	if err == nil {
		h.Settle(policy.Success, 0)
		return
	}
	ctx := h.Context()
	kind := s.judge(ctx, spec, err)
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

// read believes the marks of an RPC that is trusted.
func (s *Server) read(ctx context.Context, in Incoming) (context.Context, *policy.Hop) {
	if s.cfg.Trust == nil || !s.cfg.Trust(ctx, in) {
		return ctx, nil
	}
	return rpc.Known(ctx, in.Header.Values(hop.AttemptsKey), in.Header.Values(hop.PriorityKey))
}

// callOf returns what the server's pipeline is told about an RPC.
func (s *Server) callOf(ctx context.Context, in Incoming) *policy.Call {
	if s.cfg.Key == nil {
		return rpc.ServerCall(ctx, nil)
	}
	return rpc.ServerCall(ctx, func() string { return s.cfg.Key(ctx, in) })
}

// serving is one RPC that is served by one attempt.
type serving struct {
	s    *Server
	spec connect.Spec
	run  func(context.Context) (connect.AnyResponse, error)
}

func serve(ctx context.Context, x serving, at *policy.Attempt) (connect.AnyResponse, error) {
	resp, err := x.run(ctx)
	at.Judging()
	if err != nil {
		if k := x.s.judge(ctx, x.spec, err); k != policy.NotRun {
			at.SetOutcome(k, 0)
		}
		return nil, err
	}
	return resp, nil
}

func (s *Server) judge(ctx context.Context, spec connect.Spec, err error) policy.Kind {
	if rpc.DeadlinePassed(ctx) {
		return policy.Timeout
	}
	own := policy.NotRun
	if s.cfg.Classify != nil && !errors.Is(ctx.Err(), context.Canceled) {
		own = s.cfg.Classify(spec, err)
	}
	return rpc.Judge(ctx, s.p, err, own, codeOf)
}

// answer makes of an error what a caller understands, with the time to come back, if
// anything is known about that.
func (s *Server) answer(err error, known *policy.Hop) error {
	var pushback time.Duration
	ce, has := errors.AsType[*connect.Error](err)
	if re, ok := rpc.Rejected(err); ok {
		ce, has, pushback = refusal(re, s.code(re), s.cfg.Expose), true, rpc.Asked(re)
	} else if o := policy.Classify(context.Background(), err); o.Kind == policy.Busy || o.Kind == policy.Throttled {
		// Marked by the handler.
		pushback = o.Pushback
		if !has {
			ce, has = connect.NewError(connect.Code(rpc.CodeOfKind(o.Kind)), err), true
		}
	}
	if !has {
		if !known.Spent() || !policy.Classify(context.Background(), err).Kind.IsFailure() {
			return err
		}
		ce = connect.NewError(connect.CodeUnknown, err) // as connect would
	}
	if known.Spent() && rpc.MayChange(KindOf(ce.Code())) {
		pushback = -1
	}
	if pushback == 0 {
		return ce
	}
	own := copyOf(ce) // the handler's may be one for all its calls
	comeBack(own, pushback)
	return own
}

// copyOf returns an error like ce. As connect does when a handler passes an error on that it got
// itself, it leaves out the header that came with that.
func copyOf(ce *connect.Error) *connect.Error {
	own := connect.NewError(ce.Code(), ce.Unwrap())
	if !connect.IsWireError(ce) {
		maps.Copy(own.Meta(), ce.Meta().Clone())
	}
	for _, d := range ce.Details() {
		own.AddDetail(d)
	}
	return own
}

func (s *Server) code(re *policy.RejectedError) connect.Code {
	if s.cfg.Code != nil {
		if c := s.cfg.Code(re); c != 0 {
			return c
		}
	}
	return CodeOf(re)
}
