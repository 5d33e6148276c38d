package connectx

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync"

	"connectrpc.com/connect"

	"github.com/breakwater-go/breakwater/internal/rpc"
	"github.com/breakwater-go/breakwater/policy"
)

// WrapStreamingClient implements [connect.Interceptor]. It blocks for the waits that the
// pipeline is configured for; connect itself sends nothing before the first message.
//
// A stream that begins counts as a success; the attempt's timeout ends there. The permit is
// kept until the stream has ended: it was read to its end or closed, it failed, or its
// context is over. If it failed, the success is corrected to what the error says. A stream
// is not retried. One that is refused fails at the first message that is sent or read.
func (c *Client) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	if c.p == nil {
		return next
	}
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		call := policy.CallFrom(ctx)
		call.Idempotent, call.NoRetry = false, true
		s, err := policy.DoAttempt(ctx, c.p, &call, opening{c: c, ctx: ctx, spec: spec, next: next}, open, giveUp)
		switch {
		case err != nil:
			if s != nil {
				giveUp(s)
			}
			return &refused{spec: spec, err: withCode(err)}
		case s == nil:
			return &refused{spec: spec, err: errNoFallback}
		default:
			return s
		}
	}
}

// opening is one stream of the caller.
type opening struct {
	c    *Client
	ctx  context.Context //nolint:containedctx // the caller's, which bounds the stream
	spec connect.Spec
	next connect.StreamingClientFunc
}

func open(ctx context.Context, x opening, at *policy.Attempt) (connect.StreamingClientConn, error) {
	out, cancel := context.WithCancel(rpc.Undated{Context: ctx, Caller: x.ctx})
	opened := false
	defer func() {
		if !opened {
			cancel()
		}
	}()
	inner := x.next(out, x.spec)
	if x.c.cfg.Internal {
		mark(ctx, inner.RequestHeader(), at)
	}
	opened = true
	t := &tail{c: x.c, ctx: x.ctx, spec: x.spec, cancel: cancel}
	t.hold(out, at)
	s := &stream{StreamingClientConn: inner, tail: t}
	s.cleanup = runtime.AddCleanup(s, (*tail).abandon, t)
	return s, nil
}

// giveUp ends a stream that the caller will not get.
func giveUp(conn connect.StreamingClientConn) {
	if s, ok := conn.(*stream); ok {
		s.cleanup.Stop()
		s.tail.end(nil)
	}
}

// stream is what the caller gets. It is separate from its tail so that the garbage collector
// can tell that the caller has lost it: neither connect's own stream nor the tail refers to
// it.
type stream struct {
	connect.StreamingClientConn

	tail    *tail
	cleanup runtime.Cleanup
}

// Send keeps the stream from being taken for lost while it is in use.
func (s *stream) Send(msg any) error {
	defer runtime.KeepAlive(s)
	return s.StreamingClientConn.Send(msg)
}

// Receive ends the attempt with the stream.
func (s *stream) Receive(msg any) error {
	defer runtime.KeepAlive(s)
	err := s.StreamingClientConn.Receive(msg)
	if err != nil {
		s.tail.end(err)
	}
	return err
}

// CloseResponse ends the attempt, unless the end of the stream has.
func (s *stream) CloseResponse() error {
	defer runtime.KeepAlive(s)
	err := s.StreamingClientConn.CloseResponse()
	s.tail.end(nil)
	return err
}

// tail is what is left of an attempt whose stream is open. It must not refer to the stream
// that refers to it.
type tail struct {
	c      *Client
	ctx    context.Context //nolint:containedctx // the caller's, which bounds the stream
	spec   connect.Spec
	cancel context.CancelFunc

	handle policy.Handle
	stop   func() bool // of the watch over the context

	mu    sync.Mutex
	ended bool
}

// hold keeps the attempt until the stream ends.
func (t *tail) hold(ctx context.Context, at *policy.Attempt) {
	t.mu.Lock() // until stop is set
	defer t.mu.Unlock()
	t.handle = at.Hold()
	t.stop = context.AfterFunc(ctx, func() { t.end(context.Cause(ctx)) })
}

// end finishes the attempt.
func (t *tail) end(err error) {
	if !t.first() {
		return
	}
	t.stop()
	if k := t.kind(err); rpc.MayChange(k) {
		if t.c.cfg.MaxPushback > 0 && pushbackOf(err, t.c.cfg.MaxPushback) < 0 {
			policy.HopFrom(t.ctx).Spend() // no retry of ours follows, and none above should
		}
		t.handle.Amend(k)
	}
	t.handle.Release()
	if err != nil {
		t.cancel()
	}
}

func (t *tail) first() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.ended
	t.ended = true
	return first
}

// kind classifies the end of a stream, as far as it says something about the server.
func (t *tail) kind(err error) policy.Kind {
	if err == nil || errors.Is(err, io.EOF) {
		return policy.Success
	}
	if k := t.c.judge(t.ctx, t.spec, err); k != policy.NotRun {
		return k
	}
	return t.c.p.Classify(t.ctx, err).Kind
}

// abandon ends an attempt whose stream the caller has lost. It is called by the runtime.
func (t *tail) abandon() {
	lost := t.first()
	if lost {
		t.stop()
		t.handle.Abandon()
	}
	t.cancel() // also ends what connect keeps of a stream that has ended unread
	if lost && t.c.cfg.OnAbandoned != nil {
		defer func() { _ = recover() }() // it must not end the process
		t.c.cfg.OnAbandoned(AbandonedStream{Dependency: t.c.p.Name(), Procedure: t.spec.Procedure})
	}
}

// refused is a stream that did not begin.
type refused struct {
	spec              connect.Spec
	err               error
	request, response http.Header
}

func (r *refused) Spec() connect.Spec   { return r.spec }
func (r *refused) Peer() connect.Peer   { return connect.Peer{} }
func (r *refused) Send(any) error       { return r.err }
func (r *refused) Receive(any) error    { return r.err }
func (r *refused) CloseRequest() error  { return nil }
func (r *refused) CloseResponse() error { return nil }

func (r *refused) RequestHeader() http.Header {
	if r.request == nil {
		r.request = make(http.Header)
	}
	return r.request
}

func (r *refused) ResponseHeader() http.Header {
	if r.response == nil {
		r.response = make(http.Header)
	}
	return r.response
}

func (r *refused) ResponseTrailer() http.Header { return r.ResponseHeader() }
