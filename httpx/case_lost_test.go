package httpx_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// sockets starts a server of net/http on the loopback interface and returns a transport
// for it. The bodies of net/http differ with the protocol, and some refer to the response
// that they came with; what is lost is only found if nothing that the transport keeps
// refers to the wrapper.
func sockets(t *testing.T, proto string, h http.HandlerFunc) (rt http.RoundTripper, url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = proto == "HTTP/2.0"
	if s.EnableHTTP2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	tr, ok := s.Client().Transport.(*http.Transport)
	require.True(t, ok)
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		s.Close()
	})
	return tr, s.URL
}

var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// The body of a real response, of unknown length or known, is found when it is lost:
// whether nothing was read of it, or a part.
func TestAbandonedBodyOfARealServer(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		for name, length := range map[string]string{"unknown length": "", "known length": "1000000"} {
			for _, by := range []string{"transport", "client"} {
				t.Run(proto+" "+name+" "+by, func(t *testing.T) {
					t.Parallel()
					next, url := sockets(t, proto, func(w http.ResponseWriter, r *http.Request) {
						if length != "" {
							w.Header().Set("Content-Length", length)
						}
						_, _ = io.WriteString(w, "begun")
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done() // until the client has hung up
					})
					g := &gate{}
					told := make(chan httpx.AbandonedBody, 2)
					p := pipe(t, g, retries(2, time.Millisecond), policy.Timeouts{Attempt: time.Minute, Total: time.Hour})
					rt := transport(t, httpx.Config{OnAbandoned: func(b httpx.AbandonedBody) { told <- b }}, p, next)
					send := rt.RoundTrip
					if by == "client" {
						send = (&http.Client{Transport: rt}).Do
					}
					for _, part := range []int{0, 3} {
						func() {
							resp, err := send(get(t.Context(), t, url)) //nolint:bodyclose // the fault under test
							require.NoError(t, err)
							require.Equal(t, proto, resp.Proto)
							_, err = io.ReadFull(resp.Body, make([]byte, part))
							require.NoError(t, err)
							runtime.GC()
							require.Equal(t, 1, g.held(), "it is not lost yet")
							runtime.KeepAlive(resp)
						}()
						assert.Equal(t, 200, collect(t, told).Status)
						assert.Equal(t, 0, g.held())
					}
					assert.EqualValues(t, 2, p.Snapshot().Abandoned)
					assert.Empty(t, g.amended)
				})
			}
		}
	}
}

// Who has the response has the body, and the other way round.
func TestHalfOfAResponseIsNotLost(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			next, url := sockets(t, proto, func(w http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(w).Flush()
				_, _ = io.WriteString(w, "all of it")
			})
			told := make(chan httpx.AbandonedBody, 1)
			rt := transport(t, httpx.Config{OnAbandoned: func(b httpx.AbandonedBody) { told <- b }}, pipe(t), next)
			body := func() io.ReadCloser {
				resp, err := rt.RoundTrip(get(t.Context(), t, url))
				require.NoError(t, err)
				return resp.Body
			}()
			for range 3 {
				runtime.GC()
			}
			b, err := io.ReadAll(body)
			require.NoError(t, err)
			assert.Equal(t, "all of it", string(b))
			require.NoError(t, body.Close())
			assert.Empty(t, told)
		})
	}
}

// A trailer arrives in the response that the caller has, whether the server announced
// it, which puts its key there with the header, or not.
func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		for name, tc := range map[string]struct {
			announce bool
			before   http.Header // what the caller has put there itself
			none     bool        // the transport leaves the header out
		}{
			"announced":            {announce: true},
			"not announced":        {},
			"caller's own map":     {before: http.Header{"Mine": {"x"}}},
			"announced, own map":   {announce: true, before: http.Header{"Mine": {"x"}}},
			"response of no field": {none: true},
		} {
			t.Run(proto+" "+name, func(t *testing.T) {
				t.Parallel()
				next, url := sockets(t, proto, func(w http.ResponseWriter, _ *http.Request) {
					if tc.announce {
						w.Header().Set("Trailer", "Digest")
					}
					_, _ = io.WriteString(w, "body")
					_ = http.NewResponseController(w).Flush()
					key := "Digest"
					if !tc.announce {
						key = http.TrailerPrefix + key
					}
					w.Header().Set(key, "abc")
				})
				if tc.none {
					inner := next
					next = tripper(func(req *http.Request) (*http.Response, error) {
						resp, err := inner.RoundTrip(req)
						if err == nil {
							resp.Header, resp.Request = nil, nil
						}
						return resp, err
					})
				}
				g := &gate{}
				resp, err := httpx.Transport(pipe(t, g), next).RoundTrip(get(t.Context(), t, url))
				require.NoError(t, err)
				assert.NotNil(t, resp.Header)
				want := http.Header{"Digest": {"abc"}}
				if tc.announce {
					assert.Equal(t, http.Header{"Digest": nil}, resp.Trailer)
				} else {
					assert.Empty(t, resp.Trailer)
				}
				if tc.before != nil {
					resp.Trailer = tc.before.Clone()
					want["Mine"] = []string{"x"}
				}
				assert.Equal(t, "body", finish(t, resp))
				assert.Equal(t, want, resp.Trailer)
				assert.Equal(t, 0, g.held())
			})
		}
	}
}

// What the transport has made keeps its body, since the transport may still use it.
func TestResponseOfTheTransportKeepsItsBody(t *testing.T) {
	t.Parallel()
	w := &watched{Reader: strings.NewReader("x")}
	var own *http.Response
	rt := httpx.Transport(pipe(t), tripper(func(req *http.Request) (*http.Response, error) {
		own = stream(req, 200, w)
		return own, nil
	}))
	resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))
	require.NoError(t, err)
	assert.NotSame(t, own, resp)
	assert.NotSame(t, w, resp.Body)
	assert.Same(t, w, own.Body)
	assert.Equal(t, "x", finish(t, resp))
	assert.EqualValues(t, 1, w.closed.Load())
}
