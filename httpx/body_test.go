package httpx_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// stream is a body of unknown length.
func stream(req *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Request: req, Body: body, ContentLength: -1}
}

func TestPermitIsHeldUntilTheEndOfTheBody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(t *testing.T, body io.ReadCloser)
	}{
		{"read to the end", func(t *testing.T, b io.ReadCloser) {
			t.Helper()
			_, err := io.Copy(io.Discard, b)
			require.NoError(t, err)
		}},
		{"closed early", func(t *testing.T, b io.ReadCloser) {
			t.Helper()
			require.NoError(t, b.Close())
		}},
		{"closed after the end, and again", func(t *testing.T, b io.ReadCloser) {
			t.Helper()
			_, err := io.Copy(io.Discard, b)
			require.NoError(t, err)
			require.NoError(t, b.Close())
			require.NoError(t, b.Close())
			n, err := b.Read(make([]byte, 1))
			assert.Zero(t, n)
			require.Error(t, err)
		}},
	} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(tc.name+" "+proto, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
						for range 10 {
							_, _ = w.Write(make([]byte, 10_000))
						}
					})
					tr := s.Transport()
					tr.Protocols = new(http.Protocols)
					tr.Protocols.SetHTTP1(proto == "HTTP/1.1")
					tr.Protocols.SetUnencryptedHTTP2(proto == "HTTP/2.0")
					g := &gate{}
					sp := &spy{next: tr}
					// An attempt timeout, so that the attempt has a context to end.
					rt := httpx.Transport(pipe(t, g, policy.Timeouts{Attempt: time.Second}), sp)
					resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
					require.NoError(t, err)
					assert.Equal(t, proto, resp.Proto)
					assert.Equal(t, 1, g.held())
					_, err = io.ReadFull(resp.Body, make([]byte, 99_999))
					require.NoError(t, err)
					assert.Equal(t, 1, g.held(), "one byte is missing")
					tc.end(t, resp.Body)
					assert.Equal(t, 0, g.held())
					assert.Equal(t, []policy.Kind{policy.Success}, g.kinds())
					assert.Empty(t, g.amended)
					_ = resp.Body.Close()
					assert.EqualValues(t, 1, sp.bodies[0].closed.Load())
				})
			})
		}
	}
}

// With the outcome settled at the header, a body that takes its time is no slow call,
// and the attempt timeout does not cut it.
func TestTimeoutsEndAtTheHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(300 * time.Millisecond)
			_ = http.NewResponseController(w).Flush()
			for range 10 {
				time.Sleep(time.Second)
				_, _ = io.WriteString(w, "line\n")
			}
		})
		g := &gate{}
		rt := httpx.Transport(pipe(t, g, policy.Timeouts{Attempt: time.Second, Total: 2 * time.Second}), s.Transport())
		resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Len(t, finish(t, resp), 50)
		assert.Equal(t, 300*time.Millisecond, g.last(t).Duration)
		assert.Equal(t, 1, s.Open(), "the connection is kept")
	})
}

func TestAttemptTimeoutCoversTheHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) })
		g := &gate{}
		rt := httpx.Transport(pipe(t, g, policy.Timeouts{Attempt: time.Second}), s.Transport())
		began := time.Now()
		_, err := rt.RoundTrip(get(t.Context(), t, s.URL())) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, policy.Timeout, g.last(t).Kind)
	})
}

// What has no body has nothing to wait for.
func TestResponseWithoutBodyHoldsNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method string
		status       int
		length       int64
		body         func() io.ReadCloser
	}{
		{"http.NoBody", "GET", 200, -1, func() io.ReadCloser { return http.NoBody }},
		{"length 0", "GET", 200, 0, func() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }},
		{"HEAD", "HEAD", 200, 1000, func() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }},
		{"204", "GET", 204, -1, func() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }},
		{"304", "GET", 304, 1000, func() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			body := tc.body()
			rt := httpx.Transport(pipe(t, g), tripper(func(req *http.Request) (*http.Response, error) {
				resp := stream(req, tc.status, body)
				resp.ContentLength = tc.length
				return resp, nil
			}))
			req := get(t.Context(), t, "http://server.test")
			req.Method = tc.method
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			assert.Equal(t, 0, g.held())
			assert.Equal(t, body, resp.Body, "it is not wrapped either")
		})
	}
}

// A body that breaks off makes a failure of a success, once, and never of anything
// else; a caller who gives up, or closes, makes nothing of it.
func TestBodyThatBreaksOff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		status int
		err    error
		ctx    func(context.Context) context.Context
		want   []policy.Kind
	}{
		{name: "reset", status: 200, err: io.ErrUnexpectedEOF, want: []policy.Kind{policy.Failure}},
		{name: "reset of an error page", status: 503, err: io.ErrUnexpectedEOF},
		{name: "reset of a 404", status: 404, err: io.ErrUnexpectedEOF},
		{name: "wrapped end is no end", status: 200, err: errors.Join(io.EOF), want: []policy.Kind{policy.Failure}},
		{name: "timeout of the connection", status: 200, err: context.DeadlineExceeded, want: []policy.Kind{policy.Timeout}},
		{name: "canceled", status: 200, err: errors.New("connection closed"), ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx
		}},
		{name: "deadline of the caller", status: 200, err: errors.New("connection closed"), ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			context.AfterFunc(ctx, cancel)
			return ctx
		}, want: []policy.Kind{policy.Timeout}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gate{}
				w := &watched{Reader: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(tc.err))}
				rt := httpx.Transport(pipe(t, g), tripper(func(req *http.Request) (*http.Response, error) {
					return stream(req, tc.status, w), nil
				}))
				ctx := t.Context()
				if tc.ctx != nil {
					ctx = tc.ctx(ctx)
				}
				resp, err := rt.RoundTrip(get(ctx, t, "http://server.test"))
				require.NoError(t, err)
				time.Sleep(2 * time.Second)
				b, err := io.ReadAll(resp.Body)
				assert.Equal(t, "half", string(b))
				assert.Equal(t, tc.err, err, "the error is the transport's own")
				assert.Equal(t, 0, g.held(), "there is nothing more to come")
				_, err = resp.Body.Read(make([]byte, 1))
				require.Error(t, err)
				require.NoError(t, resp.Body.Close())
				assert.EqualValues(t, 1, w.closed.Load())
				assert.Equal(t, tc.want, g.amended)
			})
		})
	}
}

// Closing while another goroutine reads makes the read fail, which is no failure of the
// server's.
func TestCloseDuringRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		g := &gate{}
		rt := httpx.Transport(pipe(t, g), s.Transport())
		resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := resp.Body.Read(make([]byte, 1))
			assert.Error(t, err)
		})
		synctest.Wait()
		require.NoError(t, resp.Body.Close())
		wg.Wait()
		assert.Empty(t, g.amended)
		assert.Equal(t, 0, g.held())
	})
}

// A server that dies in the middle of its bodies opens the breaker.
func TestBrokenBodiesOpenTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		rt := httpx.Transport(pipe(t, breaker.Config{MinCalls: 4}), s.Transport())
		for range 4 {
			resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.NoError(t, resp.Body.Close())
		}
		_, err := rt.RoundTrip(get(t.Context(), t, s.URL())) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, breaker.ErrOpen)
	})
}

// half is a connection that can be closed by half.
type half struct {
	watched

	written, closedWrite bool
}

func (h *half) Write(p []byte) (int, error) { h.written = true; return len(p), nil }
func (h *half) CloseWrite() error           { h.closedWrite = true; return nil }

func TestWritableBodies(t *testing.T) {
	t.Parallel()
	h := &half{watched: watched{Reader: strings.NewReader("x")}}
	g := &gate{}
	status := http.StatusSwitchingProtocols
	rt := httpx.Transport(pipe(t, g), tripper(func(req *http.Request) (*http.Response, error) {
		return stream(req, status, h), nil
	}))
	resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))
	require.NoError(t, err)
	rw := resp.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	_, err = rw.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, rw.CloseWrite())
	assert.True(t, h.written && h.closedWrite)
	require.NoError(t, resp.Body.Close())

	// Of a plain response, the end of what can be read is the end of it.
	status = 200
	resp, err = rt.RoundTrip(get(t.Context(), t, "http://server.test"))
	require.NoError(t, err)
	assert.Implements(t, (*io.Writer)(nil), resp.Body)
	assert.Equal(t, 1, g.held())
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.Equal(t, 0, g.held())
	require.NoError(t, resp.Body.Close())
}

// A body that was lost gives back what it holds when the garbage collector finds it.
// Not in a bubble: the runtime calls from outside.
func TestAbandonedBody(t *testing.T) {
	t.Parallel()
	g := &gate{}
	told := make(chan httpx.AbandonedBody, 1)
	w := &watched{Reader: strings.NewReader("x")}
	p := pipe(t, g)
	rt := transport(t, httpx.Config{OnAbandoned: func(b httpx.AbandonedBody) {
		told <- b
		panic("dropped")
	}}, p, tripper(func(req *http.Request) (*http.Response, error) { return stream(req, 200, w), nil }))
	func() {
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test/secret?key=1")) //nolint:bodyclose // the fault under test
		require.NoError(t, err)
		assert.Equal(t, 1, g.held())
		n, err := resp.Body.Read(make([]byte, 1))
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}()
	b := collect(t, told)
	assert.Equal(t, httpx.AbandonedBody{Dependency: "dep", Method: "GET", Host: "server.test", Status: 200}, b)
	assert.Equal(t, 0, g.held())
	assert.EqualValues(t, 1, w.closed.Load())
	assert.EqualValues(t, 1, p.Snapshot().Abandoned)
	assert.Equal(t, []policy.Kind{policy.Success}, g.kinds())
}

// collect runs the garbage collector until something is told.
func collect[T any](t *testing.T, told <-chan T) T {
	t.Helper()
	late := time.After(time.Minute)
	for {
		runtime.GC()
		select {
		case v := <-told:
			return v
		case <-late:
			t.Fatal("nothing was told")
		default:
			runtime.Gosched()
		}
	}
}

// What was read to its end, or closed, is not lost.
func TestFinishedBodiesAreNotAbandoned(t *testing.T) {
	t.Parallel()
	var closes atomic.Int64
	told := make(chan httpx.AbandonedBody, 10)
	done := make(chan struct{}, 1)
	p := pipe(t)
	rt := transport(t, httpx.Config{OnAbandoned: func(b httpx.AbandonedBody) { told <- b }}, p,
		tripper(func(req *http.Request) (*http.Response, error) {
			return stream(req, 200, &closer{Reader: strings.NewReader("x"), closed: func() {
				if closes.Add(1) == 2 {
					done <- struct{}{}
				}
			}}), nil
		}))
	func() {
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		resp, err = rt.RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // read to its end, which must do
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
	}()
	collect(t, done) // the second one is closed all the same
	runtime.GC()
	assert.Empty(t, told)
	assert.Zero(t, p.Snapshot().Abandoned)
}

type closer struct {
	io.Reader

	closed func()
}

func (c *closer) Close() error { c.closed(); return nil }

// A response that is given up does not lift the total timeout with its permit.
func TestTotalTimeoutBoundsTheRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, statuses(503))
		g := &gate{}
		rt := httpx.Transport(pipe(t, g, retries(10, time.Second), policy.Timeouts{Total: 2500 * time.Millisecond}), s.Transport())
		began := time.Now()
		resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Equal(t, "Service Unavailable", finish(t, resp))
		assert.Equal(t, 2*time.Second, time.Since(began))
		assert.Len(t, g.kinds(), 3)
	})
}
