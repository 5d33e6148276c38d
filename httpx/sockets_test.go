package httpx_test

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
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
)

// What net/http's own tests ask of a client, with policies in between, against its server
// over sockets: TLS for HTTP/2.

// counted is sockets with a count of the connections.
func counted(t *testing.T, proto string, h http.HandlerFunc) (rt *http.Transport, url string, conns *atomic.Int64) {
	t.Helper()
	conns = new(atomic.Int64)
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients hang up on purpose
	s.EnableHTTP2 = proto == "HTTP/2.0"
	if s.EnableHTTP2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	rt = s.Client().Transport.(*http.Transport)
	t.Cleanup(func() {
		rt.CloseIdleConnections()
		s.Close()
	})
	return rt, s.URL, conns
}

// twiceBusy answers each request twice with a 503 and a page, once it has been read, and
// then with next.
func twiceBusy(next http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	seen := map[string]int{}
	page := strings.Repeat("busy ", 1000)
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.URL.Path]++
		n := seen[r.URL.Path]
		mu.Unlock()
		if n <= 2 {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, page)
			return
		}
		next(w, r)
	}
}

// Twenty calls one after the other, each sent three times, without a body or with one (of
// 1 MiB the first time), use one connection: what is given up is read to its end first. Each
// body arrives whole.
func TestRetriedCallsShareOneConnection(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			t.Run(proto+" "+method, func(t *testing.T) {
				t.Parallel()
				next, url, conns := counted(t, proto, twiceBusy(func(w http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					_, _ = io.WriteString(w, digest(b))
				}))
				// An error page need not be read within 100 ms on a machine that is busy.
				rt := transport(t, httpx.Config{DrainTimeout: 10 * time.Second}, pipe(t, retries(3, time.Millisecond), bulkhead.Semaphore{Limit: 1}), next)
				client := &http.Client{Transport: rt}
				for i := range 20 {
					var data []byte
					switch {
					case method == http.MethodGet:
					case i == 0:
						data = mebibyte
					default:
						data = mebibyte[i<<10 : 2*i<<10]
					}
					req, err := http.NewRequestWithContext(t.Context(), method, url+"/"+strconv.Itoa(i), bytes.NewReader(data))
					require.NoError(t, err)
					resp, err := client.Do(req)
					require.NoError(t, err)
					assert.Equal(t, proto, resp.Proto)
					assert.Equal(t, 200, resp.StatusCode)
					assert.Equal(t, digest(data), finish(t, resp))
				}
				// Over HTTP/1.1 net/http gives up a connection on which it has not noticed within
				// 50 ms that it has written a body, which happens where processors are busy.
				if proto == "HTTP/1.1" && method == http.MethodPut {
					assert.LessOrEqual(t, conns.Load(), int64(3))
				} else {
					assert.EqualValues(t, 1, conns.Load())
				}
			})
		}
	}
}

// Who closes early ends the stream and gives back the permit; over HTTP/2 the connection
// goes on.
func TestEarlyCloseOverSockets(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{}, 3)
			next, url, conns := counted(t, proto, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				ended <- struct{}{}
			})
			permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 1})
			require.NoError(t, err)
			p := pipe(t, permits, breaker.Config{}, policy.Timeouts{Attempt: time.Minute})
			rt := httpx.Transport(p, next)
			for range 3 {
				resp, err := rt.RoundTrip(get(t.Context(), t, url))
				require.NoError(t, err)
				_, err = io.ReadFull(resp.Body, make([]byte, 5))
				require.NoError(t, err)
				assert.Equal(t, 1, permits.InFlight())
				require.NoError(t, resp.Body.Close())
				assert.Zero(t, permits.InFlight())
				<-ended // the server's side is told
			}
			if proto == "HTTP/2.0" {
				assert.EqualValues(t, 1, conns.Load())
			}
			for _, ps := range p.Snapshot().Policies {
				if b := ps.Breaker; b != nil {
					assert.EqualValues(t, 3, b.Calls)
					assert.Zero(t, b.Failures)
				}
			}
		})
	}
}

// A request that asks first (Expect: 100-continue) sends its body to who wants it, at each
// attempt anew.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			next, url, _ := counted(t, proto, func(w http.ResponseWriter, r *http.Request) {
				if n.Add(1) == 1 {
					w.WriteHeader(http.StatusServiceUnavailable) // without a look at the body
					return
				}
				b, err := io.ReadAll(r.Body) // which sends the 100
				assert.NoError(t, err)
				_, _ = io.WriteString(w, digest(b))
			})
			next = next.Clone()
			next.ExpectContinueTimeout = time.Minute
			t.Cleanup(next.CloseIdleConnections)
			b := &bodies{data: mebibyte}
			req := b.request(t.Context(), t, http.MethodPut, url)
			req.Header.Set("Expect", "100-continue")
			var continued atomic.Int64
			req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued.Add(1) }}))
			resp, err := httpx.Transport(pipe(t, retries(2, time.Millisecond)), next).RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, digest(mebibyte), finish(t, resp))
			assert.EqualValues(t, 1, continued.Load())
			require.Len(t, b.made, 2)
			assert.Eventually(t, func() bool { return b.made[0].closed.Load() == 1 && b.made[1].closed.Load() == 1 }, 10*time.Second, time.Millisecond)
			assert.Zero(t, b.made[0].read.Load(), "the first was not wanted")
		})
	}
}

// Early hints reach the trace of the caller, from each attempt, and are no response.
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			next, url, _ := counted(t, proto, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", "</a.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				if n.Add(1) == 1 {
					w.WriteHeader(http.StatusBadGateway)
				}
			})
			var hints []int
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				hints = append(hints, code)
				return nil
			}})
			g := &gate{}
			resp, err := httpx.Transport(pipe(t, g, retries(2, time.Millisecond), policy.Timeouts{Attempt: time.Minute}), next).RoundTrip(get(ctx, t, url))
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
			finish(t, resp)
			assert.Equal(t, []int{103, 103}, hints)
			assert.Equal(t, []policy.Kind{policy.Failure, policy.Success}, g.kinds())
		})
	}
}

// What has no body holds nothing, without a read or a close, and its length is kept.
func TestWithoutBodyOverSockets(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		for name, tc := range map[string]struct {
			method string
			status int
			length int64
		}{
			"HEAD": {http.MethodHead, 200, 1234},
			"204":  {http.MethodGet, 204, 0},
			"304":  {http.MethodGet, 304, 0},
			"0":    {http.MethodGet, 200, 0},
		} {
			t.Run(proto+" "+name, func(t *testing.T) {
				t.Parallel()
				next, url, conns := counted(t, proto, func(w http.ResponseWriter, _ *http.Request) {
					if tc.length > 0 {
						w.Header().Set("Content-Length", strconv.FormatInt(tc.length, 10))
					}
					w.WriteHeader(tc.status)
				})
				g := &gate{}
				rt := httpx.Transport(pipe(t, g), next)
				for range 3 {
					req := get(t.Context(), t, url)
					req.Method = tc.method
					resp, err := rt.RoundTrip(req) //nolint:bodyclose // that it need not be is what is tested
					require.NoError(t, err)
					assert.Equal(t, tc.status, resp.StatusCode)
					assert.Zero(t, g.held())
					if tc.method == http.MethodHead {
						assert.Equal(t, tc.length, resp.ContentLength)
					}
				}
				assert.EqualValues(t, 1, conns.Load())
			})
		}
	}
}

// The trailer of a request is sent with each attempt.
func TestRequestTrailer(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var got []string
			next, url, _ := counted(t, proto, twiceBusy(func(_ http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, string(b)+" "+r.Trailer.Get("Digest"))
			}))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("body"))
			require.NoError(t, err)
			req.ContentLength = -1
			req.Trailer = http.Header{"Digest": {"abc"}}
			resp, err := httpx.Transport(pipe(t, retries(3, time.Millisecond)), next).RoundTrip(req)
			require.NoError(t, err)
			finish(t, resp)
			assert.Equal(t, []string{"body abc"}, got)
			assert.Equal(t, http.Header{"Digest": {"abc"}}, req.Trailer)
		})
	}
}
