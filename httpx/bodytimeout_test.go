package httpx_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
)

// lines sends n lines, the first with the header and the others a second apart, and then
// hangs until its caller is gone, if it is to.
func lines(n int, hang bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := range n {
			if i > 0 {
				time.Sleep(time.Second)
			}
			_, _ = io.WriteString(w, "line\n")
			_ = http.NewResponseController(w).Flush()
		}
		if hang {
			<-r.Context().Done()
		}
	}
}

// over returns a transport of one protocol.
func over(s *memhttp.Server, proto string) *http.Transport {
	tr := s.Transport()
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(proto == "HTTP/1.1")
	tr.Protocols.SetUnencryptedHTTP2(proto == "HTTP/2.0")
	return tr
}

// What ends a body that takes too long, when, and as what it counts.
func TestBodyTimeouts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		server  http.HandlerFunc
		cfg     httpx.Config
		pause   time.Duration // of the caller, before it reads
		want    string        // the field, or empty for a body that comes to its end
		at      time.Duration // after the header
		read    int
		amended []policy.Kind
	}{
		{
			name: "no bound", server: lines(3, false), at: 2 * time.Second, read: 15,
		}, {
			name: "in time", server: lines(3, false), at: 2 * time.Second, read: 15,
			cfg: httpx.Config{BodyTimeout: 3 * time.Second, BodyIdleTimeout: 1100 * time.Millisecond},
		}, {
			name: "idle", server: lines(3, true), at: 4 * time.Second, read: 15,
			cfg: httpx.Config{BodyIdleTimeout: 2 * time.Second}, want: "BodyIdleTimeout", amended: []policy.Kind{policy.Timeout},
		}, {
			name: "a stream that lives", server: lines(3600, false), at: 3599 * time.Second, read: 5 * 3600,
			cfg: httpx.Config{BodyIdleTimeout: 2 * time.Second},
		}, {
			name: "the caller's pause is not the server's", server: lines(1, false), pause: time.Hour, at: time.Hour, read: 5,
			cfg: httpx.Config{BodyIdleTimeout: 2 * time.Second},
		}, {
			name: "all of it", server: lines(10, false), at: 2500 * time.Millisecond, read: 15,
			cfg: httpx.Config{BodyTimeout: 2500 * time.Millisecond}, want: "BodyTimeout", amended: []policy.Kind{policy.Timeout},
		}, {
			name: "the shorter one first", server: lines(1, true), at: time.Second, read: 5,
			cfg: httpx.Config{BodyTimeout: 2 * time.Second, BodyIdleTimeout: time.Second}, want: "BodyIdleTimeout", amended: []policy.Kind{policy.Timeout},
		}, {
			name: "a caller who does not read", server: lines(3, true), pause: time.Minute, at: time.Minute, read: 0,
			cfg: httpx.Config{BodyTimeout: 2 * time.Second}, want: "BodyTimeout",
		},
	} {
		for _, proto := range protocols {
			t.Run(tc.name+" "+proto, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var requests atomic.Int32
					s := serve(t, func(w http.ResponseWriter, r *http.Request) { requests.Add(1); tc.server(w, r) })
					g := &gate{}
					// The other timeouts are long over when these matter.
					p := pipe(t, g, retries(3, time.Second), policy.Timeouts{Attempt: 500 * time.Millisecond, Total: time.Second})
					rt := transport(t, tc.cfg, p, over(s, proto))
					resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
					require.NoError(t, err)
					began := time.Now()
					time.Sleep(tc.pause)
					if tc.want != "" && tc.pause > 0 {
						assert.Zero(t, g.held(), "nobody has to read for that")
					}
					b, err := io.ReadAll(resp.Body)
					assert.Equal(t, tc.at, time.Since(began))
					assert.Len(t, b, tc.read)
					assert.Zero(t, g.held())
					assert.Equal(t, tc.amended, g.amended)
					if tc.amended == nil {
						assert.Equal(t, []policy.Kind{policy.Success}, g.kinds())
					} else {
						assert.Equal(t, tc.amended, g.kinds(), "a permit is given back with the last word")
					}
					if tc.want == "" {
						require.NoError(t, err)
					} else {
						te, ok := errors.AsType[*httpx.BodyTimeoutError](err)
						require.True(t, ok, "%v", err)
						assert.Equal(t, tc.want, te.Field)
						assert.Equal(t, "dep", te.Dependency)
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.ErrorContains(t, err, tc.want)
						ne, ok := errors.AsType[net.Error](err)
						require.True(t, ok)
						assert.True(t, ne.Timeout())
						_, again := resp.Body.Read(make([]byte, 1))
						assert.Equal(t, err, again)
					}
					require.NoError(t, resp.Body.Close())
					time.Sleep(time.Minute)
					synctest.Wait()
					assert.EqualValues(t, 1, requests.Load(), "a response that was handed out is not asked for again")
				})
			})
		}
	}
}

// A server whose bodies stall opens the breaker.
func TestStalledBodiesOpenTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, lines(1, true))
		rt := transport(t, httpx.Config{BodyIdleTimeout: time.Second}, pipe(t, breaker.Config{MinCalls: 4}), s.Transport())
		for range 4 {
			resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, resp.Body.Close())
		}
		_, err := rt.RoundTrip(get(t.Context(), t, s.URL())) //nolint:bodyclose // there is none
		require.ErrorIs(t, err, breaker.ErrOpen)
	})
}

// A caller who leaves, or closes, is no timeout of the server's, and one who has closed is
// told what the transport says.
func TestBodyTimeoutsAndTheCaller(t *testing.T) {
	t.Parallel()
	for _, tc := range []string{"cancel", "close"} {
		t.Run(tc, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, lines(1, true))
				g := &gate{}
				rt := transport(t, httpx.Config{BodyTimeout: time.Minute, BodyIdleTimeout: time.Minute}, pipe(t, g), s.Transport())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				resp, err := rt.RoundTrip(get(ctx, t, s.URL()))
				require.NoError(t, err)
				time.AfterFunc(time.Second, func() {
					if tc == "cancel" {
						cancel()
					} else {
						assert.NoError(t, resp.Body.Close())
					}
				})
				_, err = io.ReadAll(resp.Body)
				require.Error(t, err)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.NoError(t, resp.Body.Close())
				time.Sleep(time.Hour)
				assert.Zero(t, g.held())
				assert.Empty(t, g.amended)
			})
		})
	}
}

// The bounds are not for a connection that switched protocols, and a response that is
// given up is not kept by them.
func TestBodyTimeoutsAreForBodies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, echo(t, 0))
		cfg := httpx.Config{BodyTimeout: time.Second, BodyIdleTimeout: time.Second}
		resp, err := transport(t, cfg, pipe(t), s.Transport()).RoundTrip(upgrade(t, s.URL())) //nolint:bodyclose // closed below, as what it is
		require.NoError(t, err)
		rw := resp.Body.(io.ReadWriteCloser)
		time.AfterFunc(time.Hour, func() { _, _ = io.WriteString(rw, "late") })
		_, err = io.ReadFull(rw, make([]byte, 4))
		require.NoError(t, err)
		require.NoError(t, rw.Close())

		s = serve(t, statuses(503, 503, 200))
		g := &gate{}
		resp, err = transport(t, cfg, pipe(t, g, retries(3, time.Hour)), s.Transport()).RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Equal(t, "OK", finish(t, resp))
		assert.Zero(t, g.held())
		assert.Empty(t, g.amended)
	})
}

func TestBodyTimeoutsConfig(t *testing.T) {
	t.Parallel()
	err := httpx.Config{BodyTimeout: -1, BodyIdleTimeout: 5}.Validate()
	require.ErrorContains(t, err, "httpx.BodyTimeout")
	require.ErrorContains(t, err, "httpx.BodyIdleTimeout")
	require.NoError(t, httpx.Config{BodyTimeout: time.Microsecond, BodyIdleTimeout: time.Hour}.Validate())
}

// Bounds that are reached while the body is read, ends and is closed lose no permit.
func TestBodyTimeoutsConcurrentSafe(t *testing.T) {
	t.Parallel()
	permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 8})
	require.NoError(t, err)
	body := func() io.ReadCloser {
		r, w := io.Pipe()
		go func() {
			for range 3 {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				if _, err := io.WriteString(w, "x"); err != nil {
					return
				}
			}
			_ = w.Close()
		}()
		return r
	}
	rt := transport(t, httpx.Config{BodyTimeout: 400 * time.Microsecond, BodyIdleTimeout: 150 * time.Microsecond}, pipe(t, permits),
		tripper(func(req *http.Request) (*http.Response, error) { return stream(req, 200, body()), nil }))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				resp, err := rt.RoundTrip(get(t.Context(), t, "http://dep.test/"))
				if !assert.NoError(t, err) {
					return
				}
				if b, err := io.ReadAll(resp.Body); err == nil {
					assert.Len(t, b, 3)
				} else {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				if (g+i)%2 == 0 {
					assert.NoError(t, resp.Body.Close())
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, permits.InFlight())
}
