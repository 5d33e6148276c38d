package httpx_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func TestCaseB49OneConnection(t *testing.T) {
	t.Parallel()
	page := strings.Repeat("busy ", 2000)
	answers := statuses(503, 503, 200)
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			answers(w, r)
			_, _ = io.WriteString(w, page)
		})
		tr := s.Transport()
		tr.MaxConnsPerHost = 1
		sp := &spy{next: tr}
		permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 1})
		require.NoError(t, err)
		rt := httpx.Transport(pipe(t, retries(3, time.Second), permits), sp)
		began := time.Now()
		// In the middle of the wait nothing is held: no permit, and the connection
		// serves others.
		go func() {
			time.Sleep(500 * time.Millisecond)
			assert.Equal(t, 0, permits.InFlight())
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			resp, err := tr.RoundTrip(get(ctx, t, s.URL()))
			if assert.NoError(t, err) {
				finish(t, resp)
			}
		}()
		resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, time.Second, time.Since(began), "one of the three answers went to the other")
		assert.Equal(t, 1, permits.InFlight())
		finish(t, resp)
		assert.Equal(t, 0, permits.InFlight())
		assert.Equal(t, 1, s.Dialed())
		require.Len(t, sp.bodies, 2)
		for i, b := range sp.bodies {
			assert.EqualValues(t, 1, b.closed.Load(), "closes of response %d", i+1)
		}
	})
}

func TestCaseB49EndlessBody(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) > 1 {
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1000)); err != nil {
					return
				}
			}
		})
		sp := &spy{next: s.Transport()}
		rt := httpx.Transport(pipe(t, retries(2, time.Second)), sp)
		resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		finish(t, resp)
		assert.EqualValues(t, 64<<10, sp.bodies[0].read.Load())
		assert.EqualValues(t, 1, sp.bodies[0].closed.Load())
		assert.Equal(t, 2, s.Dialed(), "the connection was dropped")
		assert.Equal(t, 1, s.Open())
	})
}

func TestCaseB49BodyThatIsNotWorthReading(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		cfg    httpx.Config
		length int
		read   int64
	}{
		{"longer than the limit", httpx.Config{}, 64<<10 + 1, 0},
		{"as long as the limit", httpx.Config{}, 64 << 10, 64 << 10},
		{"draining is off", httpx.Config{DrainLimit: -1}, 10, 0},
		{"small limit", httpx.Config{DrainLimit: 10}, 11, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			sp := &spy{next: tripper(func(req *http.Request) (*http.Response, error) {
				if n.Add(1) > 1 {
					return reply(req, 200, ""), nil
				}
				return reply(req, 503, strings.Repeat("x", tc.length)), nil
			})}
			rt := transport(t, tc.cfg, pipe(t, retries(2, retry.Off)), sp)
			resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))
			require.NoError(t, err)
			finish(t, resp)
			assert.Equal(t, tc.read, sp.bodies[0].read.Load())
			assert.EqualValues(t, 1, sp.bodies[0].closed.Load())
		})
	}
}

// A body that stalls is given up after DrainTimeout.
func TestCaseB49StalledBody(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) > 1 {
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "first line")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		g := &gate{}
		sp := &spy{next: s.Transport()}
		rt := transport(t, httpx.Config{DrainTimeout: 200 * time.Millisecond}, pipe(t, retries(2, time.Second), g), sp)
		began := time.Now()
		resp, err := rt.RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		finish(t, resp)
		assert.Equal(t, 1200*time.Millisecond, time.Since(began))
		assert.EqualValues(t, 10, sp.bodies[0].read.Load())
		assert.EqualValues(t, 1, sp.bodies[0].closed.Load())
		assert.Equal(t, []policy.Kind{policy.Busy, policy.Success}, g.kinds())
		assert.Empty(t, g.amended, "the answer was busy; how its body ended adds nothing")
	})
}

func TestCaseB49ThousandRequests(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1)%2 == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, "page")
		})
		c := &http.Client{Transport: httpx.Transport(pipe(t, retries(2, time.Millisecond)), s.Transport())}
		for range 1000 {
			resp, err := c.Do(get(t.Context(), t, s.URL()))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			finish(t, resp)
			require.LessOrEqual(t, s.Open(), 1)
		}
		assert.EqualValues(t, 2000, n.Load())
		assert.Equal(t, 1, s.Dialed())
	})
}
