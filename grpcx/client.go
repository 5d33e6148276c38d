package grpcx

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

const defaultMaxPushback = 300 * time.Second

// ClientConfig configures a [Client]. The zero value is valid: every field documents what
// zero means. [NewClient] copies it; later changes have no effect.
//
// The functions run on the goroutine of the RPC, except OnAbandoned, and may run
// concurrently.
type ClientConfig struct {
	// Idempotent says whether a method, such as "/shop.Inventory/Get", may reach the
	// server more than once: [Methods], [Declared], or a function that asks both. It is
	// not asked about a call that says so itself (policy.Call.Idempotent), nor about
	// streams, of which only the opening is retried. Nil means that no method may.
	Idempotent func(method string) bool

	// Classify judges the status of an RPC that failed. [policy.NotRun] leaves it to
	// [KindOf]. It is not asked when the caller has given up. Nil judges nothing.
	Classify func(method string, st *status.Status) policy.Kind

	// Internal says that the server is one of ours: RPCs tell it which attempt they are
	// and what priority they have (package hop). Otherwise they carry no such marks.
	Internal bool

	// MaxPushback caps the time that a server asks to be left alone for, in
	// grpc-retry-pushback-ms or RetryInfo. Zero means 300s, negative that neither is
	// read.
	MaxPushback time.Duration

	// ServiceRetries leaves retries to the service config of the connection:
	// [Client.DialOptions] does not turn them off, and the pipeline makes one attempt of
	// every RPC, so that the two do not multiply.
	ServiceRetries bool

	// OnAbandoned is told of each stream that was lost before it ended, after it has been
	// canceled and its permit given back. That is a fault of the program, found late, so
	// log it. It runs on a goroutine of the runtime and must return quickly; a panic in it
	// is dropped. Nil tells nobody; the pipeline's snapshot counts them in any case.
	OnAbandoned func(s AbandonedStream)
}

// AbandonedStream describes a stream that nobody ended.
type AbandonedStream struct {
	Dependency string // name of the pipeline
	Method     string // such as "/shop.Inventory/Watch"
}

// Client has the interceptors of a connection. It is made by [NewClient] and safe for
// concurrent use.
type Client struct {
	cfg ClientConfig
	p   *policy.Pipeline
}

// NewClient makes interceptors that send each RPC through p. A nil p lets everything through
// and changes nothing.
func NewClient(p *policy.Pipeline, cfg ClientConfig) *Client {
	if cfg.MaxPushback == 0 {
		cfg.MaxPushback = defaultMaxPushback
	}
	return &Client{cfg: cfg, p: p}
}

// Config returns the effective settings.
func (c *Client) Config() ClientConfig { return c.cfg }

// DialOptions returns what [grpc.NewClient] needs: both interceptors, innermost of those
// given before, and [grpc.WithDisableRetry] unless the service config is to retry.
func (c *Client) DialOptions() []grpc.DialOption {
	opts := []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream)}
	if c.p != nil && !c.cfg.ServiceRetries {
		opts = append(opts, grpc.WithDisableRetry())
	}
	return opts
}

// Unary is a [grpc.UnaryClientInterceptor]. It blocks until the RPC has been answered, plus
// the waits that the pipeline is configured for; all of it ends with ctx.
//
// The error is that of [policy.Do]. All errors have a status: that of the server, and for a
// refusal the one that [CodeOf] says, beside the [*policy.RejectedError].
func (c *Client) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if c.p == nil {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	call := c.callOf(ctx, method)
	x := exchange{c: c, method: method, req: req, reply: reply, cc: cc, invoker: invoker, opts: opts}
	if c.p.Detaches(*call) {
		x.detached = true
		x.req = copyOf(req)
	}
	v, err := policy.DoAttempt(ctx, c.p, call, x, attempt, nil)
	if a, ok := v.(*answer); ok { // also beside an error: a server that fails has a trailer too
		if takeErr := a.hand(reply, opts, err == nil); err == nil {
			err = takeErr
		}
	} else if v != any(inPlace) && err == nil {
		err = assign(reply, v)
	}
	if err == nil {
		return nil
	}
	return withStatus(err)
}

// inPlace is the value of an attempt that has left its answer where the caller wants it.
var inPlace = struct{}{}

// exchange is one RPC of the caller, tried once or more.
type exchange struct {
	c          *Client
	method     string
	req, reply any
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker
	opts       []grpc.CallOption
	detached   bool // attempts may go on when the caller has left, so they share nothing with it
}

// attempt sends the RPC once.
func attempt(ctx context.Context, x exchange, at *policy.Attempt) (any, error) {
	var (
		value   any = inPlace
		reply       = x.reply
		trailer metadata.MD
		opts    = make([]grpc.CallOption, len(x.opts), len(x.opts)+4)
	)
	copy(opts, x.opts) // what is behind the caller's belongs to others
	if x.detached {
		a := newAnswer(x.reply)
		value, reply, opts = a, a.reply, a.options(opts)
	}
	out := ctx
	if x.c.cfg.Internal {
		out = marked(ctx, at)
	}
	err := x.invoker(out, x.method, x.req, reply, x.cc, append(opts, grpc.Trailer(&trailer))...)
	at.Judging()
	if err != nil {
		x.c.failed(ctx, at, x.method, err, trailer)
	}
	return value, err
}

// failed classifies an attempt, as far as that is not the pipeline's business.
func (c *Client) failed(ctx context.Context, at *policy.Attempt, method string, err error, trailer metadata.MD) {
	kind := c.judge(ctx, method, err)
	if kind == policy.NotRun {
		return
	}
	var pushback time.Duration
	if rpc.MayChange(kind) && c.cfg.MaxPushback > 0 {
		pushback = pushbackOf(err, trailer, c.cfg.MaxPushback)
	}
	at.SetOutcome(kind, pushback)
}

func (c *Client) judge(ctx context.Context, method string, err error) policy.Kind {
	own := policy.NotRun
	if c.cfg.Classify != nil && !errors.Is(ctx.Err(), context.Canceled) {
		own = c.cfg.Classify(method, status.Convert(err))
	}
	return judge(ctx, c.p, err, own)
}

// callOf returns what the pipeline is told about an RPC.
func (c *Client) callOf(ctx context.Context, method string) *policy.Call {
	return rpc.ClientCall(ctx, c.cfg.ServiceRetries, func() bool {
		return c.cfg.Idempotent != nil && c.cfg.Idempotent(method)
	})
}
