package httpx_test

import (
	"io"
	"net/http"
	"strings"
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
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// hedges starts a hedge after 100 ms.
func hedges(n int) retry.Hedge {
	return retry.Hedge{Delay: 100 * time.Millisecond, MaxHedges: n, Budget: retry.NoBudget{}}
}

func hedgeOf(p *policy.Pipeline) *policy.HedgeSnapshot {
	for _, ps := range p.Snapshot().Policies {
		if ps.Hedge != nil {
			return ps.Hedge
		}
	}
	return nil
}

// The body of the response that came first can be read to its end, long after the others
// were canceled, and holds its permit for as long.
func TestHedgedBodyOutlivesTheLosers(t *testing.T) {
	t.Parallel()
	for name, winner := range map[string]int32{"the request": 1, "the hedge": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var n, canceled atomic.Int32
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if n.Add(1) != winner {
						<-r.Context().Done()
						canceled.Add(1)
						return
					}
					time.Sleep(150 * time.Millisecond)
					for range 10 {
						_, _ = io.WriteString(w, "0123456789")
						assert.NoError(t, http.NewResponseController(w).Flush())
						time.Sleep(time.Second)
					}
				})
				g := &gate{}
				p := pipe(t, g, hedges(1), policy.Timeouts{Total: time.Second, Attempt: time.Second})
				client := &http.Client{Transport: httpx.Transport(p, s.Transport())}
				resp, err := client.Do(get(t.Context(), t, s.URL()))
				require.NoError(t, err)
				synctest.Wait()
				assert.Equal(t, int32(1), canceled.Load(), "the loser is")
				assert.Equal(t, 1, g.held())
				body, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				assert.Len(t, body, 100)
				require.NoError(t, resp.Body.Close())
				assert.Zero(t, g.held())
				assert.Equal(t, int32(2), n.Load())
				assert.Equal(t, uint64(1), hedgeOf(p).Started)
				assert.Equal(t, uint64(winner-1), hedgeOf(p).Won)
				s.Close()
			})
		})
	}
}

// POST and PATCH are sent once, however slow they are; what may be sent twice is hedged,
// with the same body and the same key.
func TestCaseB61HedgesOnlyWhatIsIdempotent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		method, key, body string
		cfg               httpx.Config
		want              int
	}{
		"GET":                            {method: http.MethodGet, want: 2},
		"HEAD":                           {method: http.MethodHead, want: 2},
		"PUT":                            {method: http.MethodPut, body: "x", want: 2},
		"POST":                           {method: http.MethodPost, body: "x", want: 1},
		"PATCH":                          {method: http.MethodPatch, body: "x", want: 1},
		"POST with a key":                {method: http.MethodPost, body: "x", key: "k", want: 2},
		"POST, if its author says so":    {method: http.MethodPost, body: "x", want: 2, cfg: httpx.Config{Idempotent: func(*http.Request) bool { return true }}},
		"DELETE, if its author does not": {method: http.MethodDelete, want: 1, cfg: httpx.Config{Idempotent: func(*http.Request) bool { return false }}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var seen []string
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					b, _ := io.ReadAll(r.Body)
					mu.Lock()
					seen = append(seen, r.Header.Get("Idempotency-Key")+":"+string(b))
					mu.Unlock()
					time.Sleep(time.Second)
					w.WriteHeader(http.StatusOK)
				})
				p := pipe(t, hedges(1))
				rt, err := tc.cfg.Transport(p, s.Transport())
				require.NoError(t, err)
				req, err := http.NewRequestWithContext(t.Context(), tc.method, s.URL(), strings.NewReader(tc.body))
				require.NoError(t, err)
				if tc.body == "" {
					req.Body, req.GetBody, req.ContentLength = nil, nil, 0
				}
				if tc.key != "" {
					req.Header.Set("Idempotency-Key", tc.key)
				}
				resp, err := rt.RoundTrip(req)
				require.NoError(t, err)
				assert.Same(t, req, resp.Request)
				require.NoError(t, resp.Body.Close())
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Len(t, seen, tc.want)
				for _, got := range seen {
					assert.Equal(t, tc.key+":"+tc.body, got)
				}
				s.Close()
			})
		})
	}
}

// Every response that nobody gets is closed, however late it comes.
func TestHedgedLosersAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bodies{data: []byte("body")}
		var n atomic.Int32
		next := tripper(func(req *http.Request) (*http.Response, error) {
			// Not one heeds its context; the second is the fastest.
			switch n.Add(1) {
			case 1:
				time.Sleep(time.Second)
			case 2:
				time.Sleep(10 * time.Millisecond)
			}
			resp := reply(req, http.StatusOK, "body")
			resp.Body, _ = b.get()
			return resp, nil
		})
		g := &gate{}
		p := pipe(t, g, hedges(1))
		resp, err := httpx.Transport(p, next).RoundTrip(get(t.Context(), t, "http://dep.test/"))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, g.held())
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Zero(t, g.held())
		b.requireClosedOnce(t)
		assert.Equal(t, int32(2), n.Load())
	})
}

// A response that failed is given up for one that did not, and returned where there is
// none; also when a hedge was refused after it had come.
func TestHedgedFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		statuses := []int{503, 200}
		next := tripper(func(req *http.Request) (*http.Response, error) {
			time.Sleep(150 * time.Millisecond)
			status := statuses[n.Add(1)-1]
			return reply(req, status, http.StatusText(status)), nil
		})
		p := pipe(t, hedges(1))
		for _, want := range []int{200, 503} {
			resp, err := httpx.Transport(p, next).RoundTrip(get(t.Context(), t, "http://dep.test/"))
			require.NoError(t, err)
			assert.Equal(t, want, resp.StatusCode)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, http.StatusText(want), string(body))
			require.NoError(t, resp.Body.Close())
			n.Store(0)
			statuses = []int{502, 503}
		}
	})
}

// A caller may change its request once it is done with the response, while a loser still
// reads it.
func TestHedgedRequestMayBeUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		next := tripper(func(req *http.Request) (*http.Response, error) {
			if n.Add(1)%2 == 0 {
				return reply(req, http.StatusOK, ""), nil
			}
			<-req.Context().Done()
			for range 100 {
				_ = req.Header.Get("Late") + req.URL.String()
			}
			return nil, req.Context().Err()
		})
		rt := httpx.Transport(pipe(t, hedges(1)), next)
		req := get(t.Context(), t, "http://dep.test/")
		for range 20 {
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			req.Header.Set("Late", "")
			req.URL.Path += "x"
		}
	})
}

// Over HTTP/2 a hedge is another stream of the same connection. The loser's stream is reset,
// its permit given back at once, and the body of the winner is read to its end.
func TestHedgeOverSockets(t *testing.T) {
	t.Parallel()
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			reset := make(chan struct{}, 1)
			next, url, conns := counted(t, proto, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/warm" {
					return
				}
				if n.Add(1) == 1 {
					<-r.Context().Done()
					reset <- struct{}{}
					return
				}
				_, _ = io.WriteString(w, "begun")
				_ = http.NewResponseController(w).Flush()
				<-reset // the loser's end is told to the server while the winner's body is on its way
				_, _ = w.Write(mebibyte)
			})
			resp, err := next.RoundTrip(get(t.Context(), t, url+"/warm")) // the connection is there
			require.NoError(t, err)
			finish(t, resp)
			permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 2})
			require.NoError(t, err)
			hedge := retry.Hedge{Delay: 20 * time.Millisecond, MaxHedges: 1, Budget: retry.NoBudget{}}
			p := pipe(t, hedge, permits, breaker.Config{}, policy.Timeouts{Attempt: time.Minute})
			resp, err = httpx.Transport(p, next).RoundTrip(get(t.Context(), t, url))
			require.NoError(t, err)
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Len(t, b, 5+len(mebibyte))
			require.NoError(t, resp.Body.Close())
			assert.Eventually(t, func() bool { return permits.InFlight() == 0 }, 10*time.Second, time.Millisecond)
			assert.EqualValues(t, 2, n.Load())
			assert.EqualValues(t, 1, hedgeOf(p).Started)
			if proto == "HTTP/2.0" {
				assert.EqualValues(t, 1, conns.Load())
			}
			for _, ps := range p.Snapshot().Policies {
				if ps.Breaker != nil {
					assert.EqualValues(t, 1, ps.Breaker.Calls, "who lost counts as nothing")
					assert.Zero(t, ps.Breaker.Failures)
				}
			}
		})
	}
}

// A hedge needs a permit of its own and gets none where they are all taken; the request goes
// on without it.
func TestHedgeNeedsAPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, "late")
		})
		permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 1})
		require.NoError(t, err)
		resp, err := httpx.Transport(pipe(t, hedges(2), permits), s.Transport()).RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Equal(t, "late", finish(t, resp))
		assert.Zero(t, permits.InFlight())
	})
}
