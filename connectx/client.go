package connectx

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

const defaultMaxPushback = 300 * time.Second

// errNoFallback is what a fallback of nil becomes.
var errNoFallback = errors.New("connectx: a fallback answered with nil")

// ClientConfig configures a [Client]. The zero value is valid: every field documents what
// zero means. [NewClient] copies it; later changes have no effect.
//
// The functions run on the goroutine of the RPC, except OnAbandoned, and may run
// concurrently.
type ClientConfig struct {
	// Idempotent says whether a unary RPC may reach the server more than once. It is not
	// asked about a call that says so itself (policy.Call.Idempotent). Nil asks the
	// definition: option idempotency_level = NO_SIDE_EFFECTS or IDEMPOTENT.
	Idempotent func(spec connect.Spec) bool

	// Classify judges the error of an RPC that failed. [policy.NotRun] leaves it to
	// [KindOf]. It is not asked when the caller has given up, nor about errors that are
	// not Connect's. Nil judges nothing.
	Classify func(spec connect.Spec, err *connect.Error) policy.Kind

	// Internal says that the server is one of ours: RPCs tell it which attempt they are
	// and what priority they have (package hop). Otherwise they carry no such marks.
	Internal bool

	// MaxPushback caps the time that a server asks to be left alone for, in
	// grpc-retry-pushback-ms, RetryInfo or Retry-After. Zero means 300s, negative that
	// none of them is read.
	MaxPushback time.Duration

	// OnAbandoned is told of each stream that was lost before it ended, after it has been
	// canceled and its permit given back. That is a fault of the program, found late, so
	// log it. It runs on a goroutine of the runtime and must return quickly; a panic in it
	// is dropped. Nil tells nobody; the pipeline's snapshot counts them in any case.
	OnAbandoned func(s AbandonedStream)
}

// AbandonedStream describes a stream that nobody ended.
type AbandonedStream struct {
	Dependency string // name of the pipeline
	Procedure  string // such as "/shop.Inventory/Watch"
}

// Client is a [connect.Interceptor] of clients; handlers that have it are left alone. It is
// made by [NewClient] and safe for concurrent use.
type Client struct {
	cfg ClientConfig
	p   *policy.Pipeline
}

// NewClient makes an interceptor that sends each RPC through p. A nil p lets everything
// through and changes nothing.
func NewClient(p *policy.Pipeline, cfg ClientConfig) *Client {
	if cfg.MaxPushback == 0 {
		cfg.MaxPushback = defaultMaxPushback
	}
	return &Client{cfg: cfg, p: p}
}

// Config returns the effective settings.
func (c *Client) Config() ClientConfig { return c.cfg }

// WrapUnary implements [connect.Interceptor]. The RPC blocks until it has been answered, plus
// the waits that the pipeline is configured for; all of it ends with its context.
//
// The error is that of [policy.Do]. All errors have a code: that of the server, and for a
// refusal the one that [CodeOf] says, with the [*policy.RejectedError] inside.
func (c *Client) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	if c.p == nil {
		return next
	}
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if !req.Spec().IsClient {
			return next(ctx, req)
		}
		resp, err := policy.DoAttempt(ctx, c.p, c.callOf(ctx, req.Spec()), exchange{c: c, req: req, next: next}, attempt, nil)
		if err == nil && resp == nil {
			err = errNoFallback
		}
		if err != nil {
			return nil, withCode(err)
		}
		return resp, nil
	}
}

// WrapStreamingHandler implements [connect.Interceptor] and leaves handlers alone.
func (c *Client) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// callOf returns what the pipeline is told about an RPC. Attempts of it share one request, in
// which connect writes, so no two of them may run at the same time: there are no hedges, and
// no second attempt beside a first one that a worker may still be at.
func (c *Client) callOf(ctx context.Context, spec connect.Spec) *policy.Call {
	call := *rpc.ClientCall(ctx, false, func() bool {
		if c.cfg.Idempotent != nil {
			return c.cfg.Idempotent(spec)
		}
		return spec.IdempotencyLevel != connect.IdempotencyUnknown
	})
	call.Idempotent = false
	if c.p.Detaches(call) {
		call.NoRetry = true
	}
	return &call
}

// exchange is one RPC of the caller, tried once or more.
type exchange struct {
	c    *Client
	req  connect.AnyRequest
	next connect.UnaryFunc
}

// attempt sends the RPC once.
func attempt(ctx context.Context, x exchange, at *policy.Attempt) (connect.AnyResponse, error) {
	if x.c.cfg.Internal {
		mark(ctx, x.req.Header(), at)
	}
	resp, err := x.next(ctx, x.req)
	at.Judging()
	if err != nil {
		x.c.failed(ctx, at, x.req.Spec(), err)
		return nil, err
	}
	return resp, nil
}

// failed classifies an attempt, as far as that is not the pipeline's business.
func (c *Client) failed(ctx context.Context, at *policy.Attempt, spec connect.Spec, err error) {
	kind := c.judge(ctx, spec, err)
	if kind == policy.NotRun {
		return
	}
	var pushback time.Duration
	if rpc.MayChange(kind) && c.cfg.MaxPushback > 0 {
		pushback = pushbackOf(err, c.cfg.MaxPushback)
	}
	at.SetOutcome(kind, pushback)
}

func (c *Client) judge(ctx context.Context, spec connect.Spec, err error) policy.Kind {
	own := policy.NotRun
	if c.cfg.Classify != nil && !errors.Is(ctx.Err(), context.Canceled) {
		if ce, ok := errors.AsType[*connect.Error](err); ok {
			own = c.cfg.Classify(spec, ce)
		}
	}
	return rpc.Judge(ctx, c.p, err, own, codeOfAnswer)
}
