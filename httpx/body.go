package httpx

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// followed reports whether bytes may follow the header of resp, so that the attempt
// goes on until they are through.
func followed(resp *http.Response) bool {
	switch {
	case resp.Body == http.NoBody:
		return false
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return true // its length says nothing
	case resp.StatusCode == http.StatusNoContent, resp.StatusCode == http.StatusNotModified:
		return false
	default:
		return resp.ContentLength != 0 && resp.Request.Method != http.MethodHead
	}
}

// follow returns what the caller gets in place of resp: a copy with a body that ends
// the attempt behind h. It must be a copy: net/http's bodies refer to the response they
// came with, so that a wrapper put into resp itself would be reachable from what it
// wraps, and never be found when it is lost.
func (x *exchange) follow(resp *http.Response, h policy.Handle) *http.Response {
	t := &tail{rt: x.rt, p: x.p, req: x.req, resp: resp, inner: resp.Body, handle: h}
	b := &body{resp: *resp, tail: t}
	b.resp.Body = b
	if w, ok := resp.Body.(io.Writer); ok {
		t.duplex = resp.StatusCode == http.StatusSwitchingProtocols || x.req.Method == http.MethodConnect
		b.resp.Body = &duplexBody{body: b, w: w}
	}
	t.bound()
	b.cleanup = runtime.AddCleanup(b, (*tail).abandon, t)
	return &b.resp
}

// body is what the caller reads, together with the response that it is part of: one
// lives as long as the other. It is separate from what it does so that the garbage
// collector can tell that the caller has lost it.
type body struct {
	resp    http.Response
	tail    *tail
	cleanup runtime.Cleanup
}

func (b *body) Read(p []byte) (int, error) {
	t := b.tail
	n, err := t.read(p)
	// The end of one direction of a switched connection is not the end of it, and
	// how such a session ends says nothing about the answer that began it.
	if err != nil && !t.duplex {
		if t.ended.Load() {
			t.handle.Release() // it has been, unless a bound is being reached at this moment
		} else {
			if err == io.EOF { //nolint:errorlint // io.EOF is the end only when it is bare
				b.mergeTrailer()
			}
			t.end(err)
		}
	}
	runtime.KeepAlive(b) // reading is not losing
	return n, err
}

// mergeTrailer takes over what came after the body. The transport has put it into its
// own response, which is a map that the copy shares only if the server announced it.
func (b *body) mergeTrailer() {
	if b.resp.Trailer == nil {
		b.resp.Trailer = b.tail.resp.Trailer
		return
	}
	maps.Copy(b.resp.Trailer, b.tail.resp.Trailer)
}

// Close may be called more than once, and while another goroutine reads.
func (b *body) Close() error {
	b.cleanup.Stop()
	err := b.tail.close()
	runtime.KeepAlive(b)
	return err
}

// duplexBody is a body that can be written to: that of a response which switched
// protocols.
type duplexBody struct {
	*body

	w io.Writer
}

func (b *duplexBody) Write(p []byte) (int, error) {
	n, err := b.w.Write(p)
	runtime.KeepAlive(b)
	return n, err
}

// CloseWrite tells the server that nothing more will be written, if the connection can.
func (b *duplexBody) CloseWrite() error {
	defer runtime.KeepAlive(b)
	if c, ok := b.w.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return fmt.Errorf("httpx: CloseWrite: %w", errors.ErrUnsupported)
}

// tail is the rest of an attempt whose response has been returned. It must not refer
// to the body that refers to it.
type tail struct {
	rt     *RoundTripper
	p      *policy.Pipeline
	req    *http.Request
	resp   *http.Response // the transport's own
	duplex bool
	inner  io.ReadCloser // its body
	handle policy.Handle
	bounds *bounds // nil when its time is not bounded

	closed atomic.Bool // inner is being closed, or is
	ended  atomic.Bool // the attempt is over
}

// read reads from the transport's body within its bounds.
func (t *tail) read(p []byte) (int, error) {
	if t.bounds == nil {
		return t.inner.Read(p)
	}
	if err := t.bounds.begin(); err != nil {
		return 0, err
	}
	n, err := t.inner.Read(p)
	if late := t.bounds.end(); late != nil && err != io.EOF { //nolint:errorlint // io.EOF is the end only when it is bare
		err = late // what the transport says is that its body was closed
	}
	return n, err
}

// end finishes the attempt after the last byte, or where it breaks off.
func (t *tail) end(err error) {
	// A body that is being closed fails because of that. The flag is set before
	// inner is told, so an error that it causes is never seen without it.
	if err != io.EOF && !t.closed.Load() { //nolint:errorlint // io.EOF is the end only when it is bare
		t.amend(err)
	}
	t.over()
}

// amend corrects the outcome of an attempt whose body failed. As for an attempt: a caller
// who has given up says nothing about the server, and whose deadline it was does not
// matter.
func (t *tail) amend(err error) {
	if k := policy.Classify(t.req.Context(), err).Kind; k.IsFailure() {
		t.handle.Amend(k)
	}
}

// over gives back what the attempt still holds.
func (t *tail) over() {
	t.ended.Store(true)
	if t.bounds != nil {
		t.bounds.stop()
	}
	t.handle.Release()
}

func (t *tail) close() error {
	if t.closed.Swap(true) {
		t.handle.Release() // as in Read
		return nil
	}
	defer t.over()
	// First the body, then the context, so that a connection whose body was read to
	// its end is not torn down.
	return t.inner.Close()
}

// abandon ends an attempt whose body the caller has lost. It is called by the runtime.
func (t *tail) abandon() {
	if t.closed.Swap(true) {
		return
	}
	lost := !t.ended.Swap(true)
	if t.bounds != nil {
		t.bounds.stop()
	}
	t.handle.Abandon() // before Close, which may take its time
	_ = t.inner.Close()
	if lost && t.rt.cfg.OnAbandoned != nil {
		defer func() { _ = recover() }() // it must not end the process
		t.rt.cfg.OnAbandoned(AbandonedBody{
			Dependency: t.p.Name(), Method: t.req.Method, Host: t.req.URL.Host, Status: t.resp.StatusCode,
		})
	}
}

// giveUp ends a response that the caller will not get: its connection is made free for
// the next attempt if that is cheap, and closed if not.
func (rt *RoundTripper) giveUp(resp *http.Response) {
	if resp == nil || resp.Body == nil {
		return
	}
	defer resp.Body.Close()
	if rt.cfg.DrainLimit < 0 || resp.ContentLength > rt.cfg.DrainLimit || !followed(resp) || resp.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	// Closing is how a read is interrupted; net/http's bodies allow for it, and the
	// wrapper sees to it that inner is closed once.
	stop := time.AfterFunc(rt.cfg.DrainTimeout, func() { _ = resp.Body.Close() })
	defer stop.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, rt.cfg.DrainLimit))
}
