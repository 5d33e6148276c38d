package load

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// errCut ends requests that were still on their way when the load was interrupted.
var errCut = errors.New("cut off")

// trip is one round trip of a request: it counts what is in flight, and ends with the run.
type trip struct {
	next     http.RoundTripper
	cut      context.Context //nolint:containedctx // of the run; vegeta gives requests none
	inFlight atomic.Int64
	peak     atomic.Int64
}

// RoundTrip sends a request.
func (t *trip) RoundTrip(req *http.Request) (*http.Response, error) {
	n := t.inFlight.Add(1)
	for p := t.peak.Load(); n > p; p = t.peak.Load() {
		if t.peak.CompareAndSwap(p, n) {
			break
		}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(t.cut, func() { cancel(errCut) }) //nolint:contextcheck // of the run, not of the request
	leave := sync.OnceFunc(func() {
		stop()
		cancel(nil)
		t.inFlight.Add(-1)
	})
	req = req.WithContext(ctx)
	req.Header = req.Header.Clone()
	req.Header.Del("X-Vegeta-Seq")
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		if errors.Is(context.Cause(ctx), errCut) {
			err = errCut
		}
		leave()
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, leave: leave}
	return resp, nil
}

// CloseIdleConnections is called by http.Client's method of this name.
func (t *trip) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// body keeps a request in flight until it has been read.
type body struct {
	io.ReadCloser

	ctx   context.Context //nolint:containedctx // of the request
	leave func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), errCut) {
		err = errCut
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.leave()
	return err
}
