package httpx_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

var errBoom = errors.New("boom")

// tripper is a RoundTripper made of a function.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// reply makes a response with a body of its own.
func reply(req *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// script answers with one status after the other, and repeats the last. Like any
// RoundTripper it reads and closes the request's body.
func script(statuses ...int) (http.RoundTripper, *atomic.Int64) {
	n := new(atomic.Int64)
	return tripper(func(req *http.Request) (*http.Response, error) {
		i := min(int(n.Add(1)), len(statuses))
		if req.Body != nil {
			_, _ = io.Copy(io.Discard, req.Body)
			_ = req.Body.Close()
		}
		return reply(req, statuses[i-1], http.StatusText(statuses[i-1])), nil
	}), n
}

// never is a RoundTripper that must not be reached.
func never(t *testing.T) http.RoundTripper {
	t.Helper()
	return tripper(func(*http.Request) (*http.Response, error) {
		t.Error("the request was sent")
		return nil, errBoom
	})
}

// pipe builds a pipeline.
func pipe(tb testing.TB, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New("dep", policies...)
	require.NoError(tb, err)
	return p
}

// retries makes n attempts with the given delay between them.
func retries(n int, delay time.Duration) retry.Config {
	return retry.Config{
		MaxAttempts: n, BaseDelay: delay, MaxDelay: max(delay, 0), Factor: 1, Jitter: retry.NoJitter,
		MaxPushback: time.Hour, Budget: retry.NoBudget{},
	}
}

// gate is a Gate that holds permits until the release, and writes down what it is
// told.
type gate struct {
	mu       sync.Mutex
	full     bool // refuse
	inFlight int
	outcomes []policy.Outcome
	amended  []policy.Kind
}

func (g *gate) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "gate", Gate: g, Holds: true}, nil
}

func (g *gate) Peek(*policy.Attempt) error { return nil }

func (g *gate) Enter(context.Context, *policy.Attempt, int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full {
		return &policy.RejectedError{Reason: policy.ReasonConcurrency, RetryAfter: time.Second}
	}
	g.inFlight++
	return nil
}

func (g *gate) Leave(_ *policy.Attempt, _ int, o policy.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.outcomes = append(g.outcomes, o)
}

func (g *gate) Amend(_ *policy.Attempt, _ int, o policy.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.amended = append(g.amended, o.Kind)
}

func (g *gate) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// last returns the outcome of the last attempt that left.
func (g *gate) last(t *testing.T) policy.Outcome {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.NotEmpty(t, g.outcomes)
	return g.outcomes[len(g.outcomes)-1]
}

// kinds returns the kinds of all attempts that left.
func (g *gate) kinds() []policy.Kind {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ks []policy.Kind
	for _, o := range g.outcomes {
		ks = append(ks, o.Kind)
	}
	return ks
}

// watched is a body that counts.
type watched struct {
	io.Reader

	read   atomic.Int64
	closed atomic.Int64
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.read.Add(int64(n))
	return n, err
}

func (w *watched) Close() error {
	w.closed.Add(1)
	return nil
}

// bodies makes watched request bodies, and remembers them.
type bodies struct {
	mu   sync.Mutex
	data []byte
	made []*watched
}

func (b *bodies) get() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &watched{Reader: bytes.NewReader(b.data)}
	b.made = append(b.made, w)
	return w, nil
}

// request makes a request whose bodies are watched.
func (b *bodies) request(ctx context.Context, t *testing.T, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	require.NoError(t, err)
	req.Body, _ = b.get()
	req.GetBody = b.get
	req.ContentLength = int64(len(b.data))
	return req
}

// requireClosedOnce checks that every body handed out was closed, once.
func (b *bodies) requireClosedOnce(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.made {
		require.EqualValues(t, 1, w.closed.Load(), "closes of body %d of %d", i+1, len(b.made))
	}
}

// closedIfRead reports whether every body that was read was closed, once. On its way from
// a connection that got a GOAWAY to the next, net/http makes a copy that it forgets.
func (b *bodies) closedIfRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.made {
		if n := w.closed.Load(); n > 1 || n == 0 && w.read.Load() > 0 {
			return false
		}
	}
	return true
}

// get makes a GET request.
func get(ctx context.Context, tb testing.TB, url string) *http.Request {
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(tb, err)
	return req
}

// finish reads a response to its end and closes it.
func finish(tb testing.TB, resp *http.Response) string {
	tb.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(tb, err)
	require.NoError(tb, resp.Body.Close())
	return string(b)
}

// serve starts a server that ends with the test's bubble.
func serve(t *testing.T, h http.HandlerFunc) *memhttp.Server {
	t.Helper()
	s := memhttp.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// statuses is a handler that answers with one status after the other, and repeats the
// last.
func statuses(list ...int) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		i := min(int(n.Add(1)), len(list))
		w.WriteHeader(list[i-1])
		_, _ = io.WriteString(w, http.StatusText(list[i-1]))
	}
}

// spy watches the response bodies that pass through it.
type spy struct {
	next http.RoundTripper

	mu     sync.Mutex
	bodies []*spied
}

type spied struct {
	io.ReadCloser

	read   atomic.Int64
	closed atomic.Int64
}

func (s *spied) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.read.Add(int64(n))
	return n, err
}

func (s *spied) Close() error {
	s.closed.Add(1)
	return s.ReadCloser.Close()
}

func (s *spy) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err == nil {
		b := &spied{ReadCloser: resp.Body}
		resp.Body = b
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bodies = append(s.bodies, b)
	}
	return resp, err
}

// transport makes a RoundTripper under test with a Config.
func transport(tb testing.TB, cfg httpx.Config, p *policy.Pipeline, next http.RoundTripper) *httpx.RoundTripper {
	tb.Helper()
	rt, err := cfg.Transport(p, next)
	require.NoError(tb, err)
	return rt
}
