package httpx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/breakwater-go/breakwater/policy"
)

// IsIdempotent reports whether req may reach the server more than once: its method is
// one that RFC 9110 §9.2.2 calls idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE), or
// it has an Idempotency-Key or X-Idempotency-Key header. Like net/http it asks whether
// the header is there: with an empty list of values it is not sent and counts.
//
// A request that asks to switch protocols (an Upgrade header) is not: it begins a
// session, and a second one is not the same one again.
func IsIdempotent(req *http.Request) bool {
	if _, ok := req.Header["Upgrade"]; ok {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	for _, key := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if _, ok := req.Header[key]; ok {
			return true
		}
	}
	return false
}

// hasBody reports whether req carries a body.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// The calls of nearly all requests: whose context says nothing about them. They are
// shared and never change.
var (
	repeatable = policy.Call{Idempotent: true}
	once       = policy.Call{NoRetry: true}
)

// callOf returns what the pipeline is told about req: what its context says, and
// whether it may be sent again.
func (rt *RoundTripper) callOf(req *http.Request) *policy.Call {
	c := policy.CallFrom(req.Context())
	again := (!hasBody(req) || req.GetBody != nil) && (c.Idempotent || rt.cfg.Idempotent(req))
	if c == (policy.Call{}) {
		if again {
			return &repeatable
		}
		return &once
	}
	own := c // c itself must not escape
	own.Idempotent = again
	own.NoRetry = c.NoRetry || !again
	return &own
}

// A body is sent by one attempt only; sent hands out the caller's own to the first
// that comes, and copies of it from GetBody to others. Attempts may overlap.
type sent struct {
	mu    sync.Mutex
	used  bool
	prior error // how the last attempt failed, if with an error
}

// outgoing returns the request that an attempt sends: a copy of the caller's, under
// the attempt's context and with a body of its own.
func (x *exchange) outgoing(ctx context.Context, at *policy.Attempt) (*http.Request, error) {
	out := x.req.WithContext(ctx)
	if x.rt.cfg.Internal {
		out.Header = marked(ctx, x.req.Header, at)
	}
	if x.sent == nil || x.sent.take() {
		return out, nil
	}
	if out.GetBody == nil {
		// The pipeline was asked not to retry.
		return nil, x.sent.lost(errors.New("there is no GetBody"))
	}
	b, err := out.GetBody()
	if err != nil {
		return nil, x.sent.lost(err)
	}
	out.Body = b
	return out, nil
}

// take reports whether the caller's own body is still there, and takes it.
func (s *sent) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.used
	s.used = true
	return first
}

// failed remembers the error of an attempt.
func (s *sent) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prior = err
}

// lost makes the error of an attempt that had no body to send.
func (s *sent) lost(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prior != nil {
		return fmt.Errorf("httpx: the request body cannot be sent again: %w; after: %w", err, s.prior)
	}
	return fmt.Errorf("httpx: the request body cannot be sent again: %w", err)
}

// closeUnused closes the caller's body if no attempt took it; whoever took it closes it.
func (s *sent) closeUnused(body io.Closer) {
	if s.take() {
		_ = body.Close()
	}
}
