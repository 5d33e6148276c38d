package httpx

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/policy"
)

// served is the ResponseWriter of a request that was let in, or is about to be. It notes how
// the answer begins.
type served struct {
	http.ResponseWriter

	s     *Server
	p     *policy.Pipeline
	r     *http.Request // as the handler gets it
	h     policy.Handle // zero while the request has not been let in
	known *policy.Hop   // what the request's sender has said, if it is trusted
	call  policy.Call
	route string
	lane  string

	err      error // what is being answered
	status   int   // of the answer that has begun
	begun    bool
	hijacked bool
	late     bool // an error came when the answer had begun
	aborted  bool // for that, the connection is broken off
	returned bool // the handler has
}

// serving lets those find a served who have a ResponseWriter around it.
type serving interface{ serving() *served }

func (x *served) serving() *served { return x }

// innermost returns the served that is nearest to w, and nil when there is none.
func innermost(w http.ResponseWriter) *served {
	for {
		switch v := w.(type) {
		case serving:
			return v.serving()
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// outer returns the served of the server around that of x, and nil when there is none.
func (x *served) outer() *served { return innermost(x.ResponseWriter) }

// Unwrap is for [http.ResponseController].
func (x *served) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *served) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		x.begin(status)
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write begins the response with status 200, if nothing else has.
func (x *served) Write(p []byte) (int, error) {
	x.begin(http.StatusOK)
	return x.ResponseWriter.Write(p)
}

// WriteString is Write without a copy.
func (x *served) WriteString(s string) (int, error) {
	x.begin(http.StatusOK)
	return io.WriteString(x.ResponseWriter, s)
}

// begin marks the answer, once, and tells its outcome.
func (x *served) begin(status int) {
	if x.begun {
		return
	}
	x.begun, x.status = true, status
	if x.known.Spent() && mayChange(kindOf(status)) {
		x.Header().Set(hop.PushbackHeader, hop.FormatPushback(-1))
	}
	x.settle(status)
}

// settle tells the outcome of an answer with the given status.
func (x *served) settle(status int) {
	kind := x.judge(status)
	if kind == policy.NotRun {
		x.h.Leave(x.err) // a refusal further down: everything is given back
		return
	}
	x.h.Settle(kind, 0)
}

// judge classifies an answer. What the error behind it says counts for more than the status
// that was made of it, unless it is nothing but an error.
func (x *served) judge(status int) policy.Kind {
	ctx := x.r.Context()
	switch failed := status >= 400; {
	case failed && overdue(ctx):
		// A client whose deadline has passed is gone too, and either may be seen first.
		if status >= 500 || status == statusClientGone {
			return policy.Timeout
		}
	case failed && canceled(ctx):
		return policy.Canceled
	}
	if x.s.cfg.Classify != nil {
		if k := x.s.cfg.Classify(x.r, status); k > policy.NotRun && k < policy.NumKinds {
			return k
		}
	}
	if x.err != nil {
		if k := x.p.Classify(ctx, x.err).Kind; k != policy.Failure {
			return k
		}
	}
	return AnswerKind(status)
}

// AnswerKind says what an answer with the given status means to the pipeline of the server that
// gives it: 5xx is a failure, 503 busy, 429 throttled, 501, 505 and the rest of 4xx permanent, and
// all else a success.
func AnswerKind(status int) policy.Kind {
	if status == http.StatusRequestTimeout {
		return policy.Permanent // it was the client that was slow
	}
	return kindOf(status)
}

// overdue reports whether the deadline of a context has ended it.
func overdue(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= 0
}

// end gives back all that is held for a request whose handler has ended, in whatever way.
func (x *served) end() {
	defer x.h.Release() // also when a function of the configuration panics
	ctx := x.r.Context()
	switch {
	case !x.returned && canceled(ctx):
		x.h.Settle(policy.Canceled, 0)
	case !x.returned && x.aborted: // the error has been told
	case !x.returned:
		x.fail(policy.Failure) // it panics
	case x.begun:
	case canceled(ctx):
		x.h.Settle(policy.Canceled, 0) // nobody was there to be answered
	default:
		x.begin(http.StatusOK) // what net/http makes of it
	}
}

// fail tells that an answer has failed, which may have begun well.
func (x *served) fail(kind policy.Kind) {
	if !x.h.Settle(kind, 0) {
		x.h.Amend(kind)
	}
}

// serveThrough returns a writer with the abilities of w that notes how the answer begins, and
// the notes.
func serveThrough(w http.ResponseWriter) (http.ResponseWriter, *served) {
	f, flushes := w.(http.Flusher)
	if !flushes {
		x := &served{ResponseWriter: w}
		return x, x
	}
	if h, ok := w.(http.Hijacker); ok {
		x := &http1Served{flushServed: flushServed{served: served{ResponseWriter: w}, flusher: f}, hijacker: h, reader: readerFrom(w)}
		return x, &x.served
	}
	if p, ok := w.(http.Pusher); ok {
		x := &http2Served{flushServed: flushServed{served: served{ResponseWriter: w}, flusher: f}, pusher: p}
		return x, &x.served
	}
	x := &flushServed{served: served{ResponseWriter: w}, flusher: f}
	return x, &x.served
}

// readerFrom returns the [io.ReaderFrom] that w is, or one that writes to it: many middlewares
// hand on Hijack and not that.
func readerFrom(w io.Writer) io.ReaderFrom {
	if rf, ok := w.(io.ReaderFrom); ok {
		return rf
	}
	return copier{w}
}

type copier struct{ w io.Writer }

func (c copier) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c.w}, r) // which must not ask for ReadFrom again
}

type flushServed struct {
	served

	flusher http.Flusher
}

func (x *flushServed) Flush() {
	x.begin(http.StatusOK)
	x.flusher.Flush()
}

// FlushError is what [http.ResponseController] asks for first.
func (x *flushServed) FlushError() error {
	x.begin(http.StatusOK)
	return http.NewResponseController(x.ResponseWriter).Flush()
}

type http1Served struct {
	flushServed

	hijacker http.Hijacker
	reader   io.ReaderFrom
}

// Hijack is an answer: what follows is up to the handler, until it returns.
func (x *http1Served) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := x.hijacker.Hijack()
	if err == nil {
		x.hijacked = true
		x.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// CloseNotify is there for those who still use it: gin's streams panic without.
func (x *http1Served) CloseNotify() <-chan bool { return closeNotify(x.r.Context()) }

func (x *http1Served) ReadFrom(r io.Reader) (int64, error) {
	x.begin(http.StatusOK)
	return x.reader.ReadFrom(r)
}

type http2Served struct {
	flushServed

	pusher http.Pusher
}

// CloseNotify is that of HTTP/1.1.
func (x *http2Served) CloseNotify() <-chan bool { return closeNotify(x.r.Context()) }

// closeNotify makes of a request's context what [http.CloseNotifier] has.
func closeNotify(ctx context.Context) <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(ctx, func() { gone <- true })
	return gone
}

func (x *http2Served) Push(target string, opts *http.PushOptions) error {
	return x.pusher.Push(target, opts)
}
