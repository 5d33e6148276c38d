package httpx_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// failing is a handler that fails with an error.
func failing(err error) http.Handler {
	return httpx.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return err })
}

// refusal is that of a pipeline further down.
func refusal(reason policy.Reason, after time.Duration, cause error) error {
	return &policy.RejectedError{Dependency: "inventory", Policy: "a policy", Reason: reason, RetryAfter: after, Err: cause}
}

func TestWriteErrorStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		gone   bool
		status int
		after  string
		kind   policy.Kind
	}{
		"a limit below is a quota of ours":     {err: refusal(policy.ReasonRate, 1500*time.Millisecond, ratelimit.ErrLimited), status: 503, after: "2", kind: policy.NotRun},
		"an open breaker":                      {err: refusal(policy.ReasonOpen, 5*time.Second, breaker.ErrOpen), status: 503, after: "5", kind: policy.NotRun},
		"no permit, nobody knows until when":   {err: refusal(policy.ReasonConcurrency, 0, bulkhead.ErrFull), status: 503, after: "1", kind: policy.NotRun},
		"no waiting will help":                 {err: refusal(policy.ReasonCost, policy.Never, ratelimit.ErrExceedsBurst), status: 503, kind: policy.NotRun},
		"a closed pipeline":                    {err: refusal(policy.ReasonClosed, 0, policy.ErrClosed), status: 503, after: "1", kind: policy.NotRun},
		"wrapped":                              {err: fmt.Errorf("stock: %w", refusal(policy.ReasonOpen, time.Nanosecond, nil)), status: 503, after: "1", kind: policy.NotRun},
		"failed, and then refused":             {err: &policy.GaveUpError{Last: errBoom, Cause: refusal(policy.ReasonOpen, time.Second, nil)}, status: 500, kind: policy.Failure},
		"failed":                               {err: errBoom, status: 500, kind: policy.Failure},
		"a deadline":                           {err: fmt.Errorf("stock: %w", context.DeadlineExceeded), status: 504, kind: policy.Timeout},
		"canceled by somebody else":            {err: context.Canceled, status: 500, kind: policy.Canceled},
		"the client is gone":                   {err: context.Canceled, gone: true, status: 499, kind: policy.Canceled},
		"the client is gone, whatever happens": {err: errBoom, gone: true, status: 499, kind: policy.Canceled},
		"busy":                                 {err: policy.AsBusy(errBoom, 3*time.Second), status: 503, after: "3", kind: policy.Busy},
		"throttled, and not to be asked again": {err: policy.AsThrottled(errBoom, -1), status: 503, kind: policy.Throttled},
		"busy, nobody knows for how long":      {err: policy.AsBusy(errBoom, 0), status: 503, after: "1", kind: policy.Busy},
		"a dependency answered with a 503":     {err: &policy.AnswerError{Kind: policy.Busy, Code: 503}, status: 503, after: "1", kind: policy.Busy},
		"a problem":                            {err: &httpx.Problem{Status: 404}, status: 404, kind: policy.Permanent},
		"a wrapped problem of ours":            {err: fmt.Errorf("x: %w", &httpx.Problem{Status: 502, Err: errBoom}), status: 502, kind: policy.Failure},
		"a quota of the application's":         {err: &httpx.Problem{Status: 429, RetryAfter: time.Minute}, status: 429, after: "60", kind: policy.Throttled},
		"a status that is none":                {err: &httpx.Problem{Status: 200}, status: 500, kind: policy.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			var seen []httpx.ErrorEvent
			g := &gate{}
			h := guarded(t, pipe(t, g), httpx.ServerConfig{OnError: func(e httpx.ErrorEvent) { seen = append(seen, e) }}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, 1, g.held())
				if c.gone {
					gone()
				}
				httpx.WriteError(w, r, c.err)
			}))
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
			w := call(h, req)
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.after, w.Header().Get("Retry-After"))
			assert.NotContains(t, w.Body.String(), "boom")
			assert.Zero(t, g.held())
			require.Len(t, g.outcomes, 1)
			assert.Equal(t, c.kind.String(), g.outcomes[0].Kind.String())
			require.Len(t, seen, 1)
			assert.Equal(t, c.status, seen[0].Status)
			require.ErrorIs(t, seen[0].Err, c.err)
			assert.Equal(t, errors.Is(c.err, policy.ErrRejected) && c.kind == policy.NotRun, seen[0].Refusal != nil)
		})
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy policy.Policy
		status int
		after  string
	}{
		"rate":        {ratelimit.TokenBucket{Rate: ratelimit.Every(3 * time.Second), Burst: 1}, 429, "3"},
		"concurrency": {bulkhead.Semaphore{Limit: 1}, 503, "1"},
		"breaker":     {breaker.Config{FailureRatio: 0.5, MinCalls: 1, OpenFor: 5 * time.Second}, 503, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				again := http.HandlerFunc(nil)
				var inner *httptest.ResponseRecorder
				p := pipe(t, c.policy)
				h := guarded(t, p, httpx.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if inner == nil {
						w.WriteHeader(http.StatusInternalServerError)
						inner = call(again, r)
					}
				}))
				again = h.ServeHTTP
				assert.Equal(t, 500, page(h).Code)
				require.NotNil(t, inner)
				assert.Equal(t, c.status, inner.Code)
				assert.Equal(t, c.after, inner.Header().Get("Retry-After"))
			})
		})
	}
}

func TestServerStatusOverrides(t *testing.T) {
	t.Parallel()
	p := pipe(t, &gate{full: true})
	h := guarded(t, p, httpx.ServerConfig{Status: func(re *policy.RejectedError) int {
		assert.Equal(t, "dep", re.Dependency)
		return http.StatusTooManyRequests
	}}, never404(t))
	assert.Equal(t, 429, page(h).Code)

	below := refusal(policy.ReasonRate, 0, ratelimit.ErrLimited)
	h = guarded(t, nil, httpx.ServerConfig{Status: httpx.StatusOf}, failing(below))
	assert.Equal(t, 429, page(h).Code)
	h = guarded(t, nil, httpx.ServerConfig{Status: func(*policy.RejectedError) int { return 0 }}, failing(below))
	assert.Equal(t, 503, page(h).Code)
	assert.Equal(t, 429, page(failing(below)).Code, "without a server nobody knows whose limit it is")
}

// never404 is a handler that must not be reached.
func never404(t *testing.T) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
}

func TestServerProblem(t *testing.T) {
	t.Parallel()
	full := pipe(t, &gate{full: true})
	for name, c := range map[string]struct {
		cfg  httpx.ServerConfig
		p    *policy.Pipeline
		next http.Handler
		body string
	}{
		"capacity": {p: full, body: `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503}`},
		"quota": {
			cfg: httpx.ServerConfig{Status: func(*policy.RejectedError) int { return 429 }}, p: full,
			body: `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
				`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429}`,
		},
		"exposed": {
			cfg: httpx.ServerConfig{Expose: true}, p: full,
			body: `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
				`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,` +
				`"detail":"dep: rejected by gate (concurrency), retry after 1s","dependency":"dep","policy":"gate","reason":"concurrency"}`,
		},
		"another status": {cfg: httpx.ServerConfig{Status: func(*policy.RejectedError) int { return 420 }}, p: full, body: `{"status":420}`},
		"unknown":        {next: failing(errBoom), body: `{"title":"Internal Server Error","status":500}`},
		"deadline":       {next: failing(context.DeadlineExceeded), body: `{"title":"Gateway Timeout","status":504}`},
		"the handler's": {next: failing(&httpx.Problem{
			Type: "https://shop.test/out-of-stock", Title: "Out of stock", Status: 409, Detail: `7 < "9"`, Instance: "/orders/7",
			Members: map[string]any{"stock": 7, "status": 200, "asked": []int{9}}, Err: errBoom,
		}), body: `{"type":"https://shop.test/out-of-stock","title":"Out of stock","status":409,"detail":"7 \u003c \"9\"",` +
			`"instance":"/orders/7","asked":[9],"stock":7}`},
		"what cannot be written": {next: failing(&httpx.Problem{Status: 409, Members: map[string]any{"x": func() {}}}), body: `{"title":"Conflict","status":409}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := c.next
			if next == nil {
				next = never404(t)
			}
			h := guarded(t, c.p, c.cfg, next)
			w := page(h)
			assert.Equal(t, c.body, w.Body.String())
			assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			assert.Equal(t, strconv.Itoa(len(c.body)), w.Header().Get("Content-Length"))

			head := call(h, request(http.MethodHead, "/"))
			assert.Empty(t, head.Body.String())
			assert.Equal(t, w.Header(), head.Header())

			old := request(http.MethodGet, "/")
			old.Proto, old.ProtoMinor = "HTTP/1.0", 0
			assert.Equal(t, c.body, call(h, old).Body.String())
		})
	}
}

// What a handler has said about the answer that it did not give is not said of the problem.
func TestWriteErrorReplacesTheHeader(t *testing.T) {
	t.Parallel()
	h := httpx.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "Etag", "Last-Modified", "Cache-Control", "Retry-After"} {
			w.Header().Set(name, "7")
		}
		w.Header().Set("X-Request-Id", "7")
		return errBoom
	})
	w := page(h)
	assert.Equal(t, http.Header{
		"Content-Length": {"46"}, "Content-Type": {"application/problem+json"}, "X-Content-Type-Options": {"nosniff"}, "X-Request-Id": {"7"},
	}, w.Header())
	httpx.WriteError(w, nil, nil) // nothing to answer
}

func TestServerRoutes(t *testing.T) {
	t.Parallel()
	one := func(name string) *policy.Pipeline {
		p, err := policy.New(name, ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 1})
		require.NoError(t, err)
		return p
	}
	mux := http.NewServeMux()
	mux.Handle("GET /captcha/{id}", say("captcha"))
	mux.Handle("GET /free", say("free"))
	mux.Handle("/", say("rest"))
	cfg := httpx.ServerConfig{Routes: map[string]*policy.Pipeline{"GET /captcha/{id}": one("captcha"), "GET /free": nil}}
	cfg.Route = httpx.MuxRoute(mux)
	h := guarded(t, one("inbound"), cfg, mux)
	var got []int
	for _, path := range []string{"/captcha/1", "/captcha/2", "/free", "/free", "/x", "/y"} {
		got = append(got, call(h, request(http.MethodGet, path)).Code)
	}
	assert.Equal(t, []int{200, 429, 200, 200, 200, 429}, got)

	// Inside of a mux its pattern is known.
	inner := http.NewServeMux()
	s, err := httpx.NewServer(nil, httpx.ServerConfig{Routes: map[string]*policy.Pipeline{"GET /a": one("a")}})
	require.NoError(t, err)
	inner.Handle("GET /a", s.Handler(say("a")))
	got = nil
	for range 2 {
		got = append(got, call(inner, request(http.MethodGet, "/a")).Code)
	}
	assert.Equal(t, []int{200, 429}, got)
	assert.Contains(t, s.Config().Routes, "GET /a")
}

func TestServerKeyCostPriority(t *testing.T) {
	t.Parallel()
	var seen []policy.Call
	spy := &spyGate{enter: func(a *policy.Attempt) { seen = append(seen, *a.Call()) }}
	below := pipe(t, spy)
	h := guarded(t, pipe(t, spy), httpx.ServerConfig{
		Key:      func(r *http.Request) string { return r.Header.Get("X-User") },
		Cost:     func(*http.Request) int { return 3 },
		Priority: func(*http.Request) policy.Priority { return policy.PriorityHigh },
	}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.NoError(t, policy.Run(r.Context(), below, func(context.Context) error { return nil }))
	}))
	req := request(http.MethodGet, "/")
	req.Header.Set("X-User", "ann")
	call(h, req)
	assert.Equal(t, []policy.Call{
		{Key: "ann", Cost: 3, Priority: policy.PriorityHigh, NoRetry: true},
		{Priority: policy.PriorityHigh},
	}, seen, "only the priority is passed on")
}

// spyGate lets everything in and looks at it.
type spyGate struct{ enter func(a *policy.Attempt) }

func (g *spyGate) BuildPolicy() (policy.Part, error)          { return policy.Part{Kind: "spy", Gate: g}, nil }
func (g *spyGate) Peek(*policy.Attempt) error                 { return nil }
func (g *spyGate) Leave(*policy.Attempt, int, policy.Outcome) {}
func (g *spyGate) Enter(_ context.Context, a *policy.Attempt, _ int) error {
	g.enter(a)
	return nil
}

func TestNewServerRefusesWhatAHandlerCannotHave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policies []policy.Policy
		want     string
	}{
		"pool":     {[]policy.Policy{bulkhead.Pool{Workers: 1}}, "dep.pool.pipeline: want no pool: a handler runs on the goroutine of its request; use a bulkhead.Semaphore, with MaxWait for a queue"},
		"retry":    {[]policy.Policy{retry.Config{}}, "dep.retry.pipeline: want no retry: a handler runs once, since its request's body is read and its answer begun"},
		"hedge":    {[]policy.Policy{retry.Hedge{Delay: time.Second}}, "dep.hedge.pipeline: want no hedge: a handler runs once, since its request's body is read and its answer begun"},
		"fallback": {[]policy.Policy{fallback.Value(1)}, "want no fallback: an answer has no value to be replaced; answer in the handler"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pipe(t, c.policies...)
			t.Cleanup(func() { assert.NoError(t, p.Close(context.Background())) }) //nolint:usetesting // that of the test has ended
			_, err := httpx.NewServer(p, httpx.ServerConfig{})
			require.ErrorContains(t, err, c.want)
			_, err = httpx.NewServer(nil, httpx.ServerConfig{Body: 7, RateLimit: 9, Routes: map[string]*policy.Pipeline{"GET /": p}})
			require.ErrorContains(t, err, `Routes["GET /"]: want no `+name)
			require.ErrorContains(t, err, "httpx.Body: 7: want BodyProblem or BodyNone")
			require.ErrorContains(t, err, "httpx.RateLimit: 9: want RateLimitRefused, RateLimitAlways or RateLimitNever")
		})
	}
}

// A pool that comes with a reload is an error of ours, not of the client's.
func TestServerPoolByReload(t *testing.T) {
	t.Parallel()
	p := pipe(t, bulkhead.Semaphore{Limit: 1})
	var seen error
	h := guarded(t, p, httpx.ServerConfig{OnError: func(e httpx.ErrorEvent) { seen = e.Err }}, never404(t))
	u, err := p.Prepare(bulkhead.Pool{Workers: 1})
	require.NoError(t, err)
	require.NoError(t, u.Apply())
	assert.Equal(t, 500, page(h).Code)
	require.ErrorIs(t, seen, policy.ErrPooled)
	require.NoError(t, p.Close(t.Context()))
}

// Marks of those who are trusted go on to the pipelines below, and a layer that has retried
// in vain says so.
func TestServerMarks(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{true, false} {
		var at []int
		h := guarded(t, pipe(t), httpx.ServerConfig{Trust: func(*http.Request) bool { return trusted }},
			httpx.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
				known := policy.HopFrom(r.Context())
				at = append(at, known.Attempt())
				_, bounded := r.Context().Deadline()
				assert.Equal(t, trusted, bounded)
				assert.Equal(t, trusted, policy.CallFrom(r.Context()).Priority == policy.PriorityCritical)
				known.Spend()
				return errBoom
			}))
		req := request(http.MethodGet, "/")
		req.Header.Set(hop.AttemptHeader, "3")
		req.Header.Set(hop.TimeoutHeader, "60000")
		req.Header.Set(hop.PriorityHeader, "critical")
		w := call(h, req)
		assert.Equal(t, 500, w.Code)
		if trusted {
			assert.Equal(t, []int{3}, at)
			assert.Equal(t, "-1", w.Header().Get(hop.PushbackHeader))
		} else {
			assert.Equal(t, []int{1}, at)
			assert.Empty(t, w.Header().Get(hop.PushbackHeader))
		}
	}
}

// One of ours is told that no waiting will help; nobody is told a time that is none.
func TestServerNever(t *testing.T) {
	t.Parallel()
	p := pipe(t, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 2})
	h := guarded(t, p, httpx.ServerConfig{
		Trust: func(*http.Request) bool { return true }, Cost: func(*http.Request) int { return 3 },
	}, never404(t))
	w := page(h)
	assert.Equal(t, 429, w.Code)
	assert.Empty(t, w.Header().Get("Retry-After"))
	assert.Equal(t, "-1", w.Header().Get(hop.PushbackHeader))
}

// Two servers, one around the other: a refusal of the inner one costs the outer one nothing,
// and its limit is the server's own for both.
func TestServerInsideServer(t *testing.T) {
	t.Parallel()
	g := &gate{}
	inner, err := policy.New("route", ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 1})
	require.NoError(t, err)
	var told []string
	tell := func(who string) func(httpx.ErrorEvent) {
		return func(httpx.ErrorEvent) { told = append(told, who) }
	}
	h := guarded(t, inner, httpx.ServerConfig{OnError: tell("inner")}, say("ok"))
	wrapped := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwrapper{w}, r) })
	outer := guarded(t, pipe(t, g), httpx.ServerConfig{OnError: tell("outer")}, wrapped)
	assert.Equal(t, 200, page(outer).Code)
	assert.Equal(t, 429, page(outer).Code)
	assert.Equal(t, []policy.Kind{policy.Success, policy.NotRun}, []policy.Kind{g.outcomes[0].Kind, g.outcomes[1].Kind})
	assert.Equal(t, []string{"inner"}, told)
}

// unwrapper is what other middleware puts around a writer.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func TestProblemOf(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		gone   bool
		err    error
		status int
		after  int64
	}{
		{false, refusal(policy.ReasonRate, 1500*time.Millisecond, ratelimit.ErrLimited), 429, 2},
		{false, refusal(policy.ReasonConcurrency, 0, nil), 503, 1},
		{false, fmt.Errorf("x: %w", refusal(policy.ReasonCost, policy.Never, nil)), 429, 0},
		{false, errBoom, 500, 0},
		{false, context.DeadlineExceeded, 504, 0},
		{false, &httpx.Problem{Status: 404}, 404, 0},
		{true, errBoom, 499, 0},
	} {
		ctx := t.Context()
		if c.gone {
			ctx = gone
		}
		p := httpx.ProblemOf(ctx, c.err)
		assert.Equal(t, c.status, p.Status, "%v", c.err)
		require.ErrorIs(t, p, c.err)
		s, ok := p.RetryAfterSeconds()
		assert.Equal(t, c.after, s)
		assert.Equal(t, c.after > 0, ok)
	}
	assert.Nil(t, httpx.ProblemOf(t.Context(), nil))
	assert.Equal(t, "404 Not Found: no such order: boom", (&httpx.Problem{Status: 404, Detail: "no such order", Err: errBoom}).Error())
	assert.Equal(t, "500 Internal Server Error", (&httpx.Problem{}).Error())
}
