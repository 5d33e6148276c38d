package httpx_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// requestState is what must be the same before and after.
type requestState struct {
	method, url, host string
	header            http.Header
	ctx               context.Context //nolint:containedctx // it is compared
	body              io.ReadCloser
	length            int64
}

func stateOf(req *http.Request) requestState {
	u := *req.URL
	return requestState{
		method: req.Method, url: u.String(), host: req.Host, header: maps.Clone(req.Header),
		ctx: req.Context(), body: req.Body, length: req.ContentLength,
	}
}

func TestCaseB56RequestIsNotModified(t *testing.T) {
	t.Parallel()
	ok, _ := script(200)
	retried, _ := script(503, 502, 200)
	broken := tripper(func(req *http.Request) (*http.Response, error) {
		_ = req.Body.Close()
		return nil, errBoom
	})
	for name, tc := range map[string]struct {
		next     http.RoundTripper
		policies []policy.Policy
	}{
		"success":         {ok, nil},
		"attempt timeout": {ok, []policy.Policy{policy.Timeouts{Attempt: time.Second, Total: time.Minute}}},
		"retry":           {retried, []policy.Policy{retries(3, retry.Off)}},
		"error":           {broken, []policy.Policy{retries(3, retry.Off)}},
		"rejection":       {never(t), []policy.Policy{&gate{full: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bodies{data: []byte("body")}
			req := b.request(t.Context(), t, http.MethodPut, "http://user@server.test/p?q=1#f")
			req.Header.Set("X-Test", "1")
			want := stateOf(req)
			rewinds := 0
			req.GetBody = func() (io.ReadCloser, error) { rewinds++; return b.get() }
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() { // the caller may go on reading its request
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
						_ = req.Header.Get("X-Test") + req.URL.String() + req.Method
						_ = req.Context().Err()
					}
				}
			}()
			resp, err := httpx.Transport(pipe(t, tc.policies...), tc.next).RoundTrip(req)
			if err == nil {
				finish(t, resp)
			}
			require.NotEqual(t, resp == nil, err == nil, "a response or an error")
			close(stop)
			<-stopped
			assert.Equal(t, want, stateOf(req))
			assert.Equal(t, len(b.made)-1, rewinds, "GetBody is still the caller's")
			b.requireClosedOnce(t)
		})
	}
}

func TestCaseB56BodyIsClosedOnRefusal(t *testing.T) {
	t.Parallel()
	full, err := bulkhead.New("", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	require.True(t, full.TryAcquire())

	open, err := breaker.New("", breaker.Config{MinCalls: 1, OpenFor: time.Hour})
	require.NoError(t, err)
	_, err = policy.Do(t.Context(), pipe(t, open), func(context.Context) (int, error) { return 0, errBoom })
	require.ErrorIs(t, err, errBoom)

	closed := pipe(t)
	require.NoError(t, closed.Close(t.Context()))

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		p   *policy.Pipeline
		ctx context.Context //nolint:containedctx // a case
		is  error
	}{
		"open breaker":       {pipe(t, open), nil, breaker.ErrOpen},
		"full bulkhead":      {pipe(t, full), nil, bulkhead.ErrFull},
		"full, with retries": {pipe(t, full, retry.Config{RetryRejected: true, BaseDelay: time.Microsecond}), nil, bulkhead.ErrFull},
		"closed pipeline":    {closed, nil, policy.ErrClosed},
		"canceled context":   {pipe(t), canceled, context.Canceled},
		"canceled, total":    {pipe(t, policy.Timeouts{Total: time.Second}), canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bodies{data: []byte("body")}
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			resp, err := httpx.Transport(tc.p, never(t)).RoundTrip(b.request(ctx, t, http.MethodPut, "http://server.test")) //nolint:bodyclose // there is none
			assert.Nil(t, resp)
			require.ErrorIs(t, err, tc.is)
			b.requireClosedOnce(t)
			assert.Zero(t, b.made[0].read.Load(), "bytes read")
		})
	}
}

// A body is closed when something that the transport asks panics, and left to the next
// transport where there is no pipeline.
func TestCaseB56BodyIsClosedOnPanic(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg httpx.Config
		p   *policy.Pipeline
	}{
		"Choose":     {cfg: httpx.Config{Choose: httpx.ChooserFunc(func(*http.Request) *policy.Pipeline { panic(errBoom) })}},
		"Idempotent": {cfg: httpx.Config{Idempotent: func(*http.Request) bool { panic(errBoom) }}, p: pipe(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bodies{data: []byte("body")}
			req := b.request(t.Context(), t, http.MethodPut, "http://server.test")
			assert.PanicsWithValue(t, errBoom, func() {
				_, _ = transport(t, tc.cfg, tc.p, never(t)).RoundTrip(req) //nolint:bodyclose // there is none
			})
			b.requireClosedOnce(t)
			assert.Zero(t, b.made[0].read.Load(), "bytes read")
		})
	}
	b := &bodies{data: []byte("body")}
	next, _ := script(200)
	rt := transport(t, httpx.Config{Choose: httpx.ChooserFunc(func(*http.Request) *policy.Pipeline { return nil })}, nil, next)
	resp, err := rt.RoundTrip(b.request(t.Context(), t, http.MethodPut, "http://server.test"))
	require.NoError(t, err)
	finish(t, resp)
	b.requireClosedOnce(t)
	assert.EqualValues(t, 4, b.made[0].read.Load())
}

// A budget that is used up ends the call with its response.
func TestCaseB56ExhaustedBudget(t *testing.T) {
	t.Parallel()
	budget, err := retry.NewBudget(retry.BudgetConfig{Ratio: retry.Off, MinPerSecond: 0.1})
	require.NoError(t, err)
	cfg := retries(3, retry.Off)
	cfg.Budget = budget
	next, n := script(503)
	s := &spy{next: next}
	rt := httpx.Transport(pipe(t, cfg), s)
	b := &bodies{data: []byte("body")}
	resp, err := rt.RoundTrip(b.request(t.Context(), t, http.MethodPut, "http://server.test"))
	require.NoError(t, err)
	assert.Equal(t, 503, resp.StatusCode)
	assert.EqualValues(t, 2, n.Load(), "one retry in ten seconds")
	assert.EqualValues(t, 1, s.bodies[0].closed.Load())
	assert.EqualValues(t, 0, s.bodies[1].closed.Load(), "the last response is open")
	finish(t, resp)
	assert.EqualValues(t, 1, s.bodies[1].closed.Load())
	b.requireClosedOnce(t)
}

func TestCaseB61Idempotence(t *testing.T) {
	t.Parallel()
	optIn := httpx.Config{Idempotent: func(req *http.Request) bool { return req.URL.Path == "/safe" || httpx.IsIdempotent(req) }}
	for _, tc := range []struct {
		name, method, key, path string
		cfg                     httpx.Config
		call                    policy.Call
		want                    int64
	}{
		{name: "GET", method: "GET", want: 3},
		{name: "no method", want: 3},
		{name: "HEAD", method: "HEAD", want: 3},
		{name: "PUT", method: "PUT", want: 3},
		{name: "DELETE", method: "DELETE", want: 3},
		{name: "OPTIONS", method: "OPTIONS", want: 3},
		{name: "TRACE", method: "TRACE", want: 3},
		{name: "POST", method: "POST", want: 1},
		{name: "PATCH", method: "PATCH", want: 1},
		{name: "CONNECT", method: "CONNECT", want: 1},
		{name: "unknown method", method: "PURGE", want: 1},
		{name: "lower case is another method", method: "get", want: 1},
		{name: "POST with a key", method: "POST", key: "Idempotency-Key", want: 3},
		{name: "PATCH with an X-key", method: "PATCH", key: "X-Idempotency-Key", want: 3},
		{name: "POST, opted in", method: "POST", path: "/safe", cfg: optIn, want: 3},
		{name: "POST, not opted in", method: "POST", path: "/other", cfg: optIn, want: 1},
		{name: "POST whose call is idempotent", method: "POST", call: policy.Call{Idempotent: true}, want: 3},
		{name: "GET, opted out", method: "GET", cfg: httpx.Config{Idempotent: func(*http.Request) bool { return false }}, want: 1},
		{name: "GET that asks for one attempt", method: "GET", call: policy.Call{NoRetry: true}, want: 1},
	} {
		for _, fault := range []string{"503", "reset"} {
			t.Run(tc.name+" "+fault, func(t *testing.T) {
				t.Parallel()
				var n atomic.Int64
				var mu sync.Mutex
				keys := map[string]bool{}
				next := tripper(func(req *http.Request) (*http.Response, error) {
					n.Add(1)
					mu.Lock()
					defer mu.Unlock()
					keys[req.Header.Get(tc.key)] = true
					if req.Body != nil {
						_, _ = io.Copy(io.Discard, req.Body)
						_ = req.Body.Close()
					}
					if fault == "503" {
						return reply(req, 503, "busy"), nil
					}
					return nil, errBoom
				})
				ctx := t.Context()
				if tc.call != (policy.Call{}) {
					ctx = policy.WithCall(ctx, tc.call)
				}
				b := &bodies{data: []byte("body")}
				req := b.request(ctx, t, tc.method, "http://server.test"+tc.path)
				req.Method = tc.method // NewRequest fills it in
				if tc.key != "" {
					req.Header.Set(tc.key, "k-1")
				}
				resp, err := transport(t, tc.cfg, pipe(t, retries(3, retry.Off)), next).RoundTrip(req)
				if fault == "503" {
					require.NoError(t, err)
					finish(t, resp)
				} else {
					require.ErrorIs(t, err, errBoom)
				}
				assert.Equal(t, tc.want, n.Load())
				assert.Len(t, keys, 1, "every attempt has the same key")
				b.requireClosedOnce(t)
			})
		}
	}
}
