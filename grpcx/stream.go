package grpcx

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

// Stream is a [grpc.StreamClientInterceptor]. It blocks as long as opening the stream does,
// plus the waits that the pipeline is configured for.
//
// No message has been sent while a stream is opened, so the opening may be retried whatever
// the method, unless the call's context forbids it. It counts as a success when the stream
// is open; the attempt's timeout ends there. The permit is kept until the stream has ended:
// it was read to its end, it failed, its context or its connection is over. If it
// failed, the success is corrected to what the status says.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if c.p == nil {
		return streamer(ctx, desc, cc, method, opts...)
	}
	x := opening{c: c, ctx: ctx, desc: desc, cc: cc, method: method, streamer: streamer, opts: opts}
	s, err := policy.DoAttempt(ctx, c.p, c.streamCall(ctx), x, open, giveUp)
	switch {
	case err != nil:
		if s != nil {
			giveUp(s)
		}
		return nil, withStatus(err)
	case s == nil:
		return nil, errNoFallback
	default:
		return s, nil
	}
}

var opened = policy.Call{}

// streamCall returns what the pipeline is told about a stream. Two at the same time would
// be two streams, so there are no hedges.
func (c *Client) streamCall(ctx context.Context) *policy.Call {
	call := policy.CallFrom(ctx)
	if call == (policy.Call{}) && !c.cfg.ServiceRetries {
		return &opened
	}
	own := call // call itself must not escape
	own.Idempotent = false
	own.NoRetry = call.NoRetry || c.cfg.ServiceRetries
	return &own
}

// opening is one stream of the caller, opened in one attempt or more.
type opening struct {
	c        *Client
	ctx      context.Context //nolint:containedctx // the caller's, which bounds the stream
	desc     *grpc.StreamDesc
	cc       *grpc.ClientConn
	method   string
	streamer grpc.Streamer
	opts     []grpc.CallOption
}

// open opens the stream once.
func open(ctx context.Context, x opening, at *policy.Attempt) (grpc.ClientStream, error) {
	out := ctx
	if x.c.cfg.Internal {
		out = marked(ctx, at)
	}
	out, cancel := context.WithCancel(rpc.Undated{Context: out, Caller: x.ctx})
	t := &tail{c: x.c, ctx: x.ctx, method: x.method, cancel: cancel}
	opts := make([]grpc.CallOption, len(x.opts), len(x.opts)+2)
	copy(opts, x.opts) // what is behind the caller's belongs to others
	opened := false
	defer func() {
		if !opened {
			cancel()
		}
	}()
	inner, err := x.streamer(out, x.desc, x.cc, x.method, append(opts, grpc.Trailer(&t.trailer), grpc.OnFinish(t.finished))...)
	at.Judging()
	if err != nil {
		x.c.failed(ctx, at, x.method, err, t.trailer)
		return nil, err
	}
	opened = true
	t.hold(out, at)
	s := &stream{inner: inner, tail: t, single: !x.desc.ServerStreams}
	s.cleanup = runtime.AddCleanup(s, (*tail).abandon, t)
	return s, nil
}

// giveUp ends a stream that the caller will not get.
func giveUp(s grpc.ClientStream) {
	if s, ok := s.(*stream); ok {
		s.cleanup.Stop()
		s.tail.end(context.Canceled)
		s.tail.cancel()
	}
}

// stream is what the caller gets. It is separate from its tail so that the garbage collector
// can tell that the caller has lost it: neither gRPC's own stream nor the tail refers to it.
type stream struct {
	inner   grpc.ClientStream
	tail    *tail
	single  bool // one message comes, and with it the end
	cleanup runtime.Cleanup
}

func (s *stream) Header() (metadata.MD, error) {
	defer runtime.KeepAlive(s) // using is not losing
	return s.inner.Header()
}

func (s *stream) Trailer() metadata.MD {
	defer runtime.KeepAlive(s)
	return s.inner.Trailer()
}

func (s *stream) CloseSend() error {
	defer runtime.KeepAlive(s)
	return s.inner.CloseSend()
}

func (s *stream) Context() context.Context { return s.inner.Context() }

func (s *stream) SendMsg(m any) error {
	defer runtime.KeepAlive(s)
	return s.inner.SendMsg(m)
}

// RecvMsg ends the attempt with the stream. gRPC's own stream has said so before
// ([grpc.OnFinish]); one that an interceptor has made may not.
func (s *stream) RecvMsg(m any) error {
	defer runtime.KeepAlive(s)
	err := s.inner.RecvMsg(m)
	if err != nil || s.single {
		s.tail.end(err)
	}
	return err
}

// tail is what is left of an attempt whose stream is open. It must not refer to the stream
// that refers to it.
type tail struct {
	c       *Client
	ctx     context.Context //nolint:containedctx // the caller's, which bounds the stream
	method  string
	cancel  context.CancelFunc
	trailer metadata.MD // written by gRPC, just before it calls finished

	mu     sync.Mutex
	held   bool
	ended  bool
	err    error // how it ended
	handle policy.Handle
	stop   func() bool // of the watch over the context
}

// hold keeps the attempt until the stream ends, unless it has while it was opened.
func (t *tail) hold(ctx context.Context, at *policy.Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		if k := t.kind(t.err); k != policy.Success {
			at.SetOutcome(k, 0)
		}
		return
	}
	t.handle = at.Hold()
	t.held = true
	// gRPC watches it too, but not for a stream that an interceptor has made.
	t.stop = context.AfterFunc(ctx, func() { t.end(context.Cause(ctx)) })
}

// finished is called by gRPC, once, when the stream has ended, on the goroutine that has
// found out.
func (t *tail) finished(err error) {
	if err != nil && t.c.cfg.MaxPushback > 0 && pushbackOf(err, t.trailer, t.c.cfg.MaxPushback) < 0 {
		policy.HopFrom(t.ctx).Spend() // no retry of ours follows, and none above should
	}
	t.end(err)
}

// end finishes the attempt.
func (t *tail) end(err error) {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.ended, t.err = true, err
	held := t.held
	t.mu.Unlock()
	if !held {
		return // while it is opened; whoever opens it will see
	}
	t.stop()
	if k := t.kind(err); rpc.MayChange(k) {
		t.handle.Amend(k)
	}
	t.handle.Release()
	t.cancel()
}

// kind classifies the end of a stream, as far as it says something about the server.
func (t *tail) kind(err error) policy.Kind {
	if err == nil || errors.Is(err, io.EOF) {
		return policy.Success
	}
	if k := t.c.judge(t.ctx, t.method, err); k != policy.NotRun {
		return k
	}
	return t.c.p.Classify(t.ctx, err).Kind
}

// abandon ends an attempt whose stream the caller has lost. It is called by the runtime.
func (t *tail) abandon() {
	t.mu.Lock()
	lost := !t.ended
	t.ended = true
	t.mu.Unlock()
	if lost {
		t.stop()
		t.handle.Abandon()
	}
	t.cancel() // also ends what gRPC keeps of a stream that has ended unread
	if lost && t.c.cfg.OnAbandoned != nil {
		defer func() { _ = recover() }() // it must not end the process
		t.c.cfg.OnAbandoned(AbandonedStream{Dependency: t.c.p.Name(), Method: t.method})
	}
}
