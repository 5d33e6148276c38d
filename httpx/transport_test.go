package httpx_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

func TestRequestIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, statuses(200))
		g := &gate{}
		c := &http.Client{Transport: httpx.Transport(pipe(t, g), s.Transport())}
		req := get(t.Context(), t, s.URL())
		resp, err := c.Do(req)
		require.NoError(t, err)
		assert.Equal(t, "OK", finish(t, resp))
		assert.Same(t, req, resp.Request, "the response belongs to the caller's request, not to a copy")
		assert.Equal(t, policy.Success, g.last(t).Kind)
		assert.Equal(t, 1, s.Open())
		c.CloseIdleConnections()
		synctest.Wait()
		assert.Equal(t, 0, s.Open(), "CloseIdleConnections reaches the next transport")
	})
}

// The only test with a real socket: what next is when it is nil.
func TestNilNextIsTheDefaultTransport(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(statuses(503, 200))
	defer s.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	rt := httpx.Transport(pipe(t, retries(2, time.Millisecond)), nil)
	resp, err := rt.RoundTrip(get(t.Context(), t, s.URL))
	require.NoError(t, err)
	assert.Equal(t, "OK", finish(t, resp))
}

func TestNilPipelineChangesNothing(t *testing.T) {
	t.Parallel()
	req := get(t.Context(), t, "http://server.test")
	want := reply(req, 503, "busy") //nolint:bodyclose // closed below, as the response
	body := want.Body
	rt := httpx.Transport(nil, tripper(func(r *http.Request) (*http.Response, error) {
		assert.Same(t, req, r)
		return want, nil
	}))
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Same(t, want, resp)
	assert.Equal(t, body, resp.Body)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	rt := httpx.Transport(nil, nil)
	c := rt.Config()
	assert.NotNil(t, c.Idempotent)
	assert.Equal(t, 300*time.Second, c.MaxRetryAfter)
	assert.EqualValues(t, 65536, c.DrainLimit)
	assert.Equal(t, 100*time.Millisecond, c.DrainTimeout)

	rt, err := httpx.Config{MaxRetryAfter: -1, DrainLimit: -1, DrainTimeout: time.Second}.Transport(nil, nil)
	require.NoError(t, err)
	assert.EqualValues(t, -1, rt.Config().MaxRetryAfter)
	assert.EqualValues(t, -1, rt.Config().DrainLimit)
	assert.Equal(t, time.Second, rt.Config().DrainTimeout)

	rt, err = httpx.Config{DrainTimeout: -time.Second}.Transport(nil, nil)
	assert.Nil(t, rt)
	var ce *policy.ConfigError
	require.ErrorAs(t, err, &ce)
	assert.Equal(t, "httpx", ce.Policy)
	assert.Equal(t, "DrainTimeout", ce.Field)
}

func TestRefusalReachesTheCaller(t *testing.T) {
	t.Parallel()
	c := &http.Client{Transport: httpx.Transport(pipe(t, &gate{full: true}), never(t))}
	resp, err := c.Do(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
	assert.Nil(t, resp)
	var ue *url.Error
	require.ErrorAs(t, err, &ue, "the client wraps the error")
	var re *policy.RejectedError
	require.ErrorAs(t, err, &re)
	assert.Equal(t, "dep", re.Dependency)
	assert.Equal(t, policy.ReasonConcurrency, re.Reason)
	require.ErrorIs(t, err, policy.ErrRejected)
}

func TestLastResponseIsReturnedOpen(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000) // more than is ever drained
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, long)
		})
		g := &gate{}
		rt := httpx.Transport(pipe(t, retries(3, time.Second), g), s.Transport())
		began := time.Now()
		resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err, "a status is not an error")
		assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
		assert.Equal(t, 1, g.held(), "of three attempts, the last")
		assert.Equal(t, long, finish(t, resp))
		assert.Equal(t, 0, g.held())
		assert.Equal(t, []policy.Kind{policy.Failure, policy.Failure, policy.Failure}, g.kinds())
		assert.Equal(t, 2*time.Second, time.Since(began))
	})
}

// After a response was given up for an attempt that then cannot be made, the caller
// gets an error and no response.
func TestGivenUpForAnAttemptThatIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		s := &spy{next: tripper(func(req *http.Request) (*http.Response, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.full = true // from the second attempt on
			return reply(req, 503, "busy"), nil
		})}
		rt := httpx.Transport(pipe(t, retries(3, time.Second), g), s)
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
		assert.Nil(t, resp)
		var gave *policy.GaveUpError
		require.ErrorAs(t, err, &gave)
		assert.Equal(t, policy.StopRejected, gave.Stop)
		require.ErrorIs(t, err, policy.ErrRejected)
		var answer *policy.AnswerError
		require.ErrorAs(t, err, &answer, "it says what the dependency answered")
		assert.Equal(t, policy.Busy, answer.Kind)
		assert.Equal(t, uint16(503), answer.Code)
		assert.EqualError(t, err, "dep: gave up after 1 attempt (rejected by gate (concurrency), retry after 1s): the answer was classified as busy (status 503)")
		require.Len(t, s.bodies, 1)
		assert.EqualValues(t, 1, s.bodies[0].closed.Load())
		assert.Equal(t, 0, g.held())
	})
}

func TestGivenUpForAnAttemptThatIsCanceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		next, n := script(503)
		s := &spy{next: next}
		rt := httpx.Transport(pipe(t, retries(3, time.Hour), g), s)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		resp, err := rt.RoundTrip(get(ctx, t, "http://server.test")) //nolint:bodyclose // there is none
		assert.Nil(t, resp)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Minute, time.Since(began))
		assert.EqualValues(t, 1, n.Load())
		assert.EqualValues(t, 1, s.bodies[0].closed.Load())
		assert.Equal(t, 0, g.held())
	})
}

func TestErrorOfTheTransportIsPassedThrough(t *testing.T) {
	t.Parallel()
	g := &gate{}
	rt := httpx.Transport(pipe(t, g), tripper(func(*http.Request) (*http.Response, error) { return nil, errBoom }))
	resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
	assert.Nil(t, resp)
	assert.Equal(t, errBoom, err)
	assert.Equal(t, policy.Failure, g.last(t).Kind)
}

// Transports that break the contract do not make this one break it.
func TestTransportThatBreaksTheContract(t *testing.T) {
	t.Parallel()
	t.Run("neither", func(t *testing.T) {
		t.Parallel()
		rt := httpx.Transport(pipe(t), tripper(func(*http.Request) (*http.Response, error) { return nil, nil })) //nolint:nilnil // the fault under test
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))                                     //nolint:bodyclose // there is none
		assert.Nil(t, resp)
		assert.ErrorContains(t, err, "neither")
	})
	t.Run("both", func(t *testing.T) {
		t.Parallel()
		w := &watched{Reader: strings.NewReader("x")}
		rt := httpx.Transport(pipe(t), tripper(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: w, Request: req}, errBoom
		}))
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
		assert.Nil(t, resp)
		require.ErrorIs(t, err, errBoom)
		assert.EqualValues(t, 1, w.closed.Load())
	})
	t.Run("no body, no request", func(t *testing.T) {
		t.Parallel()
		g := &gate{}
		rt := httpx.Transport(pipe(t, g), tripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, ContentLength: -1}, nil
		}))
		req := get(t.Context(), t, "http://server.test")
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		assert.Same(t, req, resp.Request)
		assert.Empty(t, finish(t, resp))
		assert.Equal(t, 0, g.held())
	})
}

// A panic in the transport keeps its value; the permit and the body come back.
func TestCaseB41PanicInTheTransport(t *testing.T) {
	t.Parallel()
	g := &gate{}
	rt := httpx.Transport(pipe(t, g), tripper(func(*http.Request) (*http.Response, error) { panic(errBoom) }))
	for range 100 {
		assert.PanicsWithValue(t, errBoom, func() {
			_, _ = rt.RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
		})
	}
	assert.Equal(t, 0, g.held())
	assert.Equal(t, policy.Failure, g.last(t).Kind)
}

func TestClassifyHasTheFirstWord(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for _, tc := range []struct {
		name   string
		status int
		err    error
		answer policy.Kind
		want   policy.Kind
	}{
		{"status to success", 404, nil, policy.Success, policy.Success},
		{"status to failure", 200, nil, policy.Failure, policy.Failure},
		{"status left alone", 503, nil, policy.NotRun, policy.Busy},
		{"error to permanent", 0, errBoom, policy.Permanent, policy.Permanent},
		{"error left alone", 0, errBoom, policy.NotRun, policy.Failure},
		{"mark left alone", 0, policy.AsThrottled(other, 0), policy.NotRun, policy.Throttled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			req := get(t.Context(), t, "http://server.test")
			asked := 0
			rt := transport(t, httpx.Config{
				Classify: func(r *http.Request, resp *http.Response, err error) policy.Kind {
					asked++
					assert.Same(t, req, r, "the request is always there")
					assert.Equal(t, tc.err, err)
					assert.Equal(t, tc.err == nil, resp != nil)
					return tc.answer
				},
			}, pipe(t, g), tripper(func(r *http.Request) (*http.Response, error) {
				if tc.err != nil {
					return nil, tc.err
				}
				return reply(r, tc.status, "x"), nil
			}))
			resp, err := rt.RoundTrip(req)
			assert.Equal(t, tc.err, err)
			if err == nil {
				finish(t, resp)
			}
			assert.Equal(t, tc.want, g.last(t).Kind)
			assert.Equal(t, 1, asked)
		})
	}
}

func TestClassifyThatPanicsLeaksNothing(t *testing.T) {
	t.Parallel()
	g := &gate{}
	next, _ := script(200)
	s := &spy{next: next}
	rt := transport(t, httpx.Config{
		Classify: func(*http.Request, *http.Response, error) policy.Kind { panic("classify") },
	}, pipe(t, g), s)
	assert.PanicsWithValue(t, "classify", func() {
		_, _ = rt.RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
	})
	assert.Equal(t, 0, g.held())
	assert.EqualValues(t, 1, s.bodies[0].closed.Load())
}

// Callers who walk away say nothing about the dependency, whatever the transport makes
// of it; a deadline does, whoever set it.
func TestCaseB42CallersWhoWalkAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want policy.Kind
		is   error
	}{
		{"canceled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, policy.Canceled, context.Canceled},
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, policy.Timeout, context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
				g := &gate{}
				// The hook would call everything a failure, and is not asked about
				// callers who are gone.
				rt := transport(t, httpx.Config{Classify: func(_ *http.Request, _ *http.Response, err error) policy.Kind {
					if errors.Is(err, context.DeadlineExceeded) {
						return policy.NotRun
					}
					return policy.Failure
				}}, pipe(t, g), s.Transport())
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				resp, err := rt.RoundTrip(get(ctx, t, s.URL())) //nolint:bodyclose // there is none
				assert.Nil(t, resp)
				require.ErrorIs(t, err, tc.is)
				assert.Equal(t, tc.want, g.last(t).Kind)
				assert.Equal(t, 0, g.held())
			})
		})
	}
}

// What the context says about the call arrives at the gates.
func TestCallOfTheContextIsKept(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method string
		body, rewind bool
		in, want     policy.Call
	}{
		{name: "GET", method: "GET", want: policy.Call{Idempotent: true}},
		{name: "POST", method: "POST", want: policy.Call{NoRetry: true}},
		{
			name: "GET with everything", method: "GET",
			in:   policy.Call{Key: "k", Cost: 3, Priority: policy.PriorityHigh},
			want: policy.Call{Key: "k", Cost: 3, Priority: policy.PriorityHigh, Idempotent: true},
		},
		{
			name: "GET that must not be retried", method: "GET",
			in: policy.Call{NoRetry: true}, want: policy.Call{NoRetry: true, Idempotent: true},
		},
		{
			name: "POST that is idempotent", method: "POST", body: true, rewind: true,
			in: policy.Call{Idempotent: true}, want: policy.Call{Idempotent: true},
		},
		{
			name: "POST that is idempotent, once", method: "POST", body: true,
			in: policy.Call{Idempotent: true, Key: "k"}, want: policy.Call{NoRetry: true, Key: "k"},
		},
		{name: "PUT", method: "PUT", body: true, rewind: true, want: policy.Call{Idempotent: true}},
		{name: "PUT of a stream", method: "PUT", body: true, want: policy.Call{NoRetry: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got policy.Call
			seen := calls(func(c policy.Call) { got = c })
			next, _ := script(204)
			rt := httpx.Transport(pipe(t, seen), next)
			ctx := t.Context()
			if tc.in != (policy.Call{}) {
				ctx = policy.WithCall(ctx, tc.in)
			}
			b := &bodies{data: []byte("x")}
			req := b.request(ctx, t, tc.method, "http://server.test")
			if !tc.body {
				req.Body = http.NoBody
			}
			if !tc.rewind {
				req.GetBody = nil
			}
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			finish(t, resp)
			assert.Equal(t, tc.want, got)
		})
	}
}

// calls is a gate that looks at the call.
type calls func(policy.Call)

func (f calls) BuildPolicy() (policy.Part, error)          { return policy.Part{Kind: "calls", Gate: f}, nil }
func (f calls) Peek(*policy.Attempt) error                 { return nil }
func (f calls) Leave(*policy.Attempt, int, policy.Outcome) {}
func (f calls) Enter(_ context.Context, a *policy.Attempt, _ int) error {
	f(*a.Call())
	return nil
}

// The client follows a redirect with a new request: each is a call of its own.
func TestClientFollowsRedirects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/there", http.StatusFound)
				return
			}
			_, _ = io.WriteString(w, r.URL.Path)
		})
		g := &gate{}
		c := &http.Client{Transport: httpx.Transport(pipe(t, g), s.Transport())}
		resp, err := c.Do(get(t.Context(), t, s.URL()+"/"))
		require.NoError(t, err)
		assert.Equal(t, "/there", finish(t, resp))
		assert.Equal(t, []policy.Kind{policy.Success, policy.Success}, g.kinds())
		assert.Equal(t, 0, g.held())
	})
}
