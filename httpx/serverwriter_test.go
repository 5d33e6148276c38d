package httpx_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// kinds are the outcomes that a gate was told.
func kinds(g *gate) []policy.Kind {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []policy.Kind
	for _, o := range g.outcomes {
		list = append(list, o.Kind)
	}
	return list
}

func TestServerJudgesByStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]policy.Kind{
		200: policy.Success, 204: policy.Success, 302: policy.Success, 400: policy.Permanent, 404: policy.Permanent,
		408: policy.Permanent, 429: policy.Throttled, 500: policy.Failure, 501: policy.Permanent, 502: policy.Failure, 503: policy.Busy, 504: policy.Failure,
	} {
		g := &gate{}
		page(guarded(t, pipe(t, g), httpx.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			w.WriteHeader(status) // which net/http only logs
		})))
		assert.Equal(t, []policy.Kind{want}, kinds(g), "%d", status)
	}
	g := &gate{}
	h := guarded(t, pipe(t, g), httpx.ServerConfig{Classify: func(r *http.Request, status int) policy.Kind {
		assert.Equal(t, "/", r.URL.Path)
		if status == 404 {
			return policy.Failure
		}
		return policy.NotRun
	}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404 - g.held() + 1) }))
	page(h)
	page(guarded(t, pipe(t, g), httpx.ServerConfig{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	assert.Equal(t, []policy.Kind{policy.Failure, policy.Success}, kinds(g), "silence is a 200")
}

// The breaker sees the failures of a handler, and answers in its place.
func TestServerBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status := 500
		h := guarded(t, pipe(t, breaker.Config{MinCalls: 5, OpenFor: 5 * time.Second}), httpx.ServerConfig{},
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		for range 5 {
			assert.Equal(t, 500, page(h).Code)
		}
		w := page(h)
		assert.Equal(t, 503, w.Code)
		assert.Equal(t, "5", w.Header().Get("Retry-After"))
		time.Sleep(5 * time.Second)
		status = 200
		assert.Equal(t, 200, page(h).Code)
	})
}

// What takes long after the header is the client's time, or the stream's.
func TestServerDurationIsThatToTheHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, begin := range map[string]func(w http.ResponseWriter){
			"header":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
			"write":      func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
			"flush":      func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
			"controller": func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
			"informed":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(http.StatusOK) },
		} {
			g := &gate{}
			p := pipe(t, g, policy.Timeouts{Attempt: 2 * time.Second, Total: 3 * time.Second})
			page(guarded(t, p, httpx.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				time.Sleep(time.Second)
				begin(w)
				time.Sleep(time.Hour)
				assert.NoError(t, r.Context().Err(), "%s: no timeout of ours ends a stream", name)
				assert.Equal(t, 1, g.held(), "%s: the permit is kept", name)
			})))
			assert.Zero(t, g.held(), name)
			require.Len(t, g.outcomes, 1)
			assert.Equal(t, policy.Outcome{Kind: policy.Success, Duration: time.Second}, g.outcomes[0], name)
		}
	})
}

func TestServerTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		h := guarded(t, pipe(t, g, policy.Timeouts{Attempt: time.Second}), httpx.ServerConfig{},
			httpx.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
				<-r.Context().Done()
				return r.Context().Err()
			}))
		begin := time.Now()
		assert.Equal(t, 504, page(h).Code)
		assert.Equal(t, time.Second, time.Since(begin))
		assert.Equal(t, []policy.Kind{policy.Timeout}, kinds(g))
	})
}

// A panic passes through, and so does Goexit; what was held is given back.
func TestServerPanics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next           func(w http.ResponseWriter, gone func())
		told, amended  []policy.Kind
		exits, isAbort bool
	}{
		"before":             {next: func(http.ResponseWriter, func()) { panic("boom") }, told: []policy.Kind{policy.Failure}},
		"after":              {next: func(w http.ResponseWriter, _ func()) { w.WriteHeader(http.StatusOK); panic("boom") }, told: []policy.Kind{policy.Failure}, amended: []policy.Kind{policy.Failure}},
		"abort":              {next: func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) }, told: []policy.Kind{policy.Failure}, isAbort: true},
		"goexit":             {next: func(http.ResponseWriter, func()) { runtime.Goexit() }, told: []policy.Kind{policy.Failure}, exits: true},
		"the client is gone": {next: func(_ http.ResponseWriter, gone func()) { gone(); panic(http.ErrAbortHandler) }, told: []policy.Kind{policy.Canceled}, isAbort: true},
		"gone after the begin": {next: func(w http.ResponseWriter, gone func()) {
			w.WriteHeader(http.StatusOK)
			gone()
			panic(http.ErrAbortHandler)
		}, told: []policy.Kind{policy.Success}, isAbort: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			h := guarded(t, pipe(t, g), httpx.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.next(w, gone) }))
			var got any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { got = recover() }()
				call(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			}()
			<-done
			switch {
			case c.exits:
				assert.Nil(t, got)
			case c.isAbort:
				assert.Equal(t, http.ErrAbortHandler, got)
			default:
				assert.Equal(t, "boom", got)
			}
			assert.Zero(t, g.held())
			assert.Equal(t, c.told, kinds(g))
			var amended []policy.Kind
			if assert.LessOrEqual(t, len(g.amended), 1); len(g.amended) > 0 {
				amended = g.amended
			}
			assert.Equal(t, c.amended, amended)
		})
	}
}

// A function of the configuration that panics keeps nothing.
func TestServerPanicInClassify(t *testing.T) {
	t.Parallel()
	g := &gate{}
	h := guarded(t, pipe(t, g), httpx.ServerConfig{Classify: func(*http.Request, int) policy.Kind { panic("boom") }}, say("x"))
	assert.Panics(t, func() { page(h) })
	assert.Zero(t, g.held())
}

// A client that is gone counts as nothing, whatever the handler makes of it.
func TestServerClientGone(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(w http.ResponseWriter){
		"silence": func(http.ResponseWriter) {},
		"failure": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		g := &gate{}
		ctx, gone := context.WithCancel(t.Context())
		h := guarded(t, pipe(t, g), httpx.ServerConfig{Classify: func(*http.Request, int) policy.Kind { panic(name) }},
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { gone(); next(w) }))
		call(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		assert.Equal(t, []policy.Kind{policy.Canceled}, kinds(g), name)
	}
	// One that is gone from the start is not let in.
	ctx, gone := context.WithCancel(t.Context())
	gone()
	g := &gate{}
	w := call(guarded(t, pipe(t, g), httpx.ServerConfig{}, never404(t)), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
	assert.Equal(t, 499, w.Code)
	assert.Empty(t, w.Body.String())
}

// A deadline that both sides keep passes on both: the client is gone, too, and it is a timeout.
func TestServerDeadlineOfAClientThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		parent, gone := context.WithCancel(t.Context())
		ctx, cancel := context.WithDeadline(parent, time.Now().Add(time.Second))
		defer cancel()
		h := guarded(t, pipe(t, g), httpx.ServerConfig{}, httpx.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
			time.Sleep(time.Second - time.Nanosecond)
			gone()
			<-r.Context().Done()
			time.Sleep(time.Nanosecond)
			return r.Context().Err()
		}))
		w := call(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		assert.Equal(t, []policy.Kind{policy.Timeout}, kinds(g))
		assert.Equal(t, 500, w.Code)
	})
}

// The error of a handler that has begun its answer breaks the connection off.
func TestHandlerFuncBegun(t *testing.T) {
	t.Parallel()
	var seen []httpx.ErrorEvent
	g := &gate{}
	h := guarded(t, pipe(t, g), httpx.ServerConfig{OnError: func(e httpx.ErrorEvent) { seen = append(seen, e) }},
		httpx.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = io.WriteString(w, "half of it")
			return errBoom
		}))
	s := memhttp.NewServer(h)
	defer s.Close()
	tr := s.Transport()
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(get(t.Context(), t, s.URL()))
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	require.Error(t, err, "the client must not take it for a whole one")
	assert.Equal(t, []policy.Kind{policy.Failure}, g.amended)
	require.Len(t, seen, 1)
	assert.True(t, seen[0].Begun)
	assert.Equal(t, 200, seen[0].Status)
	assert.Contains(t, seen[0].LogValue().String(), "begun=true")
}

// A connection that was taken over is served until the handler returns.
func TestServerHijack(t *testing.T) {
	t.Parallel()
	g := &gate{}
	ended := make(chan struct{})
	h := guarded(t, pipe(t, g), httpx.ServerConfig{}, httpx.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		defer close(ended)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return err
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		line, _ := rw.ReadString('\n')
		_, _ = rw.WriteString(line)
		_ = rw.Flush()
		return errBoom // nobody is there to be told
	}))
	s := memhttp.NewServer(h)
	defer s.Close()
	conn, err := s.Dial(t.Context(), "", "")
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // a 101 has none
	require.NoError(t, err)
	assert.Equal(t, 101, resp.StatusCode)
	assert.Equal(t, 1, g.held())
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "hello\n", line)
	<-ended
	require.Eventually(t, func() bool { return g.held() == 0 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, []policy.Kind{policy.Failure}, g.amended)
}

// Every ability that the server's writer has is there, and no other.
func TestServerKeepsTheWriterAble(t *testing.T) {
	t.Parallel()
	able := func(w http.ResponseWriter) (list string) {
		if _, ok := w.(http.Flusher); ok {
			list += "flush "
		}
		if _, ok := w.(http.Hijacker); ok {
			list += "hijack "
		}
		if _, ok := w.(io.ReaderFrom); ok {
			list += "read "
		}
		if _, ok := w.(http.Pusher); ok {
			list += "push "
		}
		if _, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // those who use it are still there
			list += "close "
		}
		return list
	}
	for name, unencrypted := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		synctest.Test(t, func(t *testing.T) {
			var outside, inside string
			g := &gate{}
			h := guarded(t, pipe(t, g), httpx.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				inside = able(w)
				c := http.NewResponseController(w)
				assert.NoError(t, c.SetReadDeadline(time.Time{}))
				if rf, ok := w.(io.ReaderFrom); ok {
					_, _ = rf.ReadFrom(strings.NewReader("one "))
				}
				w.(http.Flusher).Flush()
				_, _ = io.WriteString(w, "two")
				assert.NoError(t, c.Flush())
			}))
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				outside = able(w)
				h.ServeHTTP(w, r)
			})
			tr := s.Transport()
			if unencrypted {
				tr.Protocols = new(http.Protocols)
				tr.Protocols.SetUnencryptedHTTP2(true)
			}
			resp, err := tr.RoundTrip(get(t.Context(), t, s.URL()))
			require.NoError(t, err, name)
			assert.Contains(t, finish(t, resp), "two", name)
			assert.Equal(t, outside, inside, name)
			synctest.Wait()
			assert.Equal(t, []policy.Kind{policy.Success}, kinds(g))
		})
	}
	for _, w := range []http.ResponseWriter{
		struct{ http.ResponseWriter }{httptest.NewRecorder()}, httptest.NewRecorder(), &pushes{httptest.NewRecorder()},
	} {
		guarded(t, pipe(t), httpx.ServerConfig{}, http.HandlerFunc(func(inner http.ResponseWriter, _ *http.Request) {
			assert.Equal(t, able(w), able(inner))
			if p, ok := inner.(http.Pusher); ok {
				assert.ErrorIs(t, p.Push("/x", nil), errBoom)
			}
		})).ServeHTTP(w, request(http.MethodGet, "/"))
	}
}

// pushes is a writer that can push, as HTTP/2's can.
type pushes struct{ *httptest.ResponseRecorder }

func (*pushes) CloseNotify() <-chan bool             { return nil }
func (*pushes) Push(string, *http.PushOptions) error { return errBoom }

// Whoever asks in the old way is told that the client is gone.
func TestServerCloseNotify(t *testing.T) {
	t.Parallel()
	for _, w := range []http.ResponseWriter{newSink(), &pushes{httptest.NewRecorder()}} {
		ctx, gone := context.WithCancel(t.Context())
		guarded(t, pipe(t), httpx.ServerConfig{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			c := w.(http.CloseNotifier).CloseNotify() //nolint:staticcheck // see above
			gone()
			assert.True(t, <-c)
		})).ServeHTTP(w, request(http.MethodGet, "/").WithContext(ctx))
		gone()
	}
}

// What arrives over a connection, with a body and without, of GET and HEAD.
func TestServerRefusesOverAConnection(t *testing.T) {
	t.Parallel()
	for body, length := range map[httpx.Body]int64{httpx.BodyProblem: 181, httpx.BodyNone: 0} {
		synctest.Test(t, func(t *testing.T) {
			p := pipe(t, &gate{full: true})
			s := serve(t, guarded(t, p, httpx.ServerConfig{Body: body}, never404(t)).ServeHTTP)
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				req, err := http.NewRequestWithContext(t.Context(), method, s.URL(), strings.NewReader("a body"))
				require.NoError(t, err)
				resp, err := s.Transport().RoundTrip(req)
				require.NoError(t, err)
				text := finish(t, resp)
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				assert.Equal(t, length, resp.ContentLength, method)
				assert.Empty(t, resp.TransferEncoding)
				assert.Equal(t, "1", resp.Header.Get("Retry-After"))
				if method != http.MethodHead {
					assert.Len(t, text, int(length))
				}
			}
		})
	}
}

// An overloaded process sheds what matters least, and says so with a 503.
func TestServerSheds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, ratelimit.System{CPU: func() (float64, error) { return 1, nil }, MaxDelay: ratelimit.NoDelay, MinInFlight: 1})
		defer func() { assert.NoError(t, p.Close(t.Context())) }()
		release := make(chan struct{})
		h := guarded(t, p, httpx.ServerConfig{Priority: func(r *http.Request) policy.Priority {
			if r.Method == http.MethodPost {
				return policy.PriorityCritical
			}
			return policy.PriorityLow
		}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		time.Sleep(time.Minute) // it has noticed
		for range 20 {
			go call(h, request(http.MethodPost, "/"))
		}
		synctest.Wait()
		w := page(h)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
		close(release)
		synctest.Wait()
	})
}
