package httpx_test

import (
	"context"
	"io"
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
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// echo switches protocols after delay, and then sends back what comes.
func echo(t *testing.T, delay time.Duration) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(delay)
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer c.Close()
		_, _ = io.CopyN(c, rw, 4+1<<20)
	}
}

// upgrade makes a request that asks for echo.
func upgrade(t *testing.T, url string) *http.Request {
	t.Helper()
	req := get(t.Context(), t, url)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	return req
}

// everyPolicy is a list of policies for each thing that could come between a caller and
// its connection, and one of all of them.
func everyPolicy() map[string][]policy.Policy {
	bounds := policy.Timeouts{Total: time.Second, Attempt: 900 * time.Millisecond}
	answer := fallback.Func(func(context.Context, policy.FailedCall) (any, error) { return nil, errBoom })
	all := []policy.Policy{
		answer, bounds, retries(3, time.Second), hedges(2),
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10)},
		bulkhead.Semaphore{Limit: 1},
		breaker.Config{SlowAfter: time.Second, SlowRatio: 0.5},
	}
	return map[string][]policy.Policy{
		"nothing":    nil,
		"timeouts":   {bounds},
		"retry":      {retries(3, time.Second)},
		"hedge":      {hedges(2)},
		"rate limit": {ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10)}},
		"semaphore":  {bulkhead.Semaphore{Limit: 1}},
		"adaptive":   {bulkhead.Adaptive{}},
		"pool":       {bulkhead.Pool{Workers: 1, Queue: 1}},
		"breaker":    {breaker.Config{SlowAfter: time.Second, SlowRatio: 0.5}},
		"fallback":   {answer},
		"all":        all,
	}
}

// A connection that switched protocols is what it would be without any policy: writable,
// unbuffered, bounded by nothing but the caller. It holds its permit until it is closed,
// and is one success, however the session ends.
func TestCaseB64SwitchedProtocols(t *testing.T) {
	t.Parallel()
	for name := range everyPolicy() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, echo(t, 0))
				g := &gate{}
				p := pipe(t, append(everyPolicy()[name], g)...)
				resp, err := (&http.Client{Transport: httpx.Transport(p, s.Transport())}).Do(upgrade(t, s.URL())) //nolint:bodyclose // closed below, as what it is
				require.NoError(t, err)
				assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
				rw, ok := resp.Body.(io.ReadWriteCloser)
				require.True(t, ok, "a %T cannot be written to", resp.Body)

				echoed := func(data []byte) {
					var wg sync.WaitGroup
					wg.Go(func() {
						n, err := rw.Write(data)
						assert.NoError(t, err)
						assert.Equal(t, len(data), n)
					})
					got := make([]byte, len(data))
					_, err := io.ReadFull(rw, got)
					require.NoError(t, err)
					wg.Wait()
					assert.Equal(t, digest(data), digest(got))
				}
				echoed([]byte("ping"))      // nothing waits for more
				time.Sleep(3 * time.Second) // longer than every timeout
				echoed(mebibyte)

				_, err = rw.Read(make([]byte, 1))
				require.Error(t, err, "the server has hung up")
				assert.Equal(t, 1, g.held(), "the own side is still open")
				err = rw.(interface{ CloseWrite() error }).CloseWrite()
				require.Error(t, err, "a pipe cannot be closed by half")
				require.NoError(t, rw.Close())
				assert.Equal(t, 0, g.held())
				assert.Equal(t, []policy.Kind{policy.Success}, g.kinds())
				assert.Empty(t, g.amended)
				for _, ps := range p.Snapshot().Policies {
					if b := ps.Breaker; b != nil {
						assert.EqualValues(t, 1, b.Calls)
						assert.Zero(t, b.Failures+b.Slow)
					}
				}
				require.NoError(t, p.Close(t.Context()))
			})
		})
	}
}

// The permit of a real bulkhead goes to the next when the session is closed, not before.
func TestCaseB64PermitUntilClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, echo(t, 0))
		permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 1})
		require.NoError(t, err)
		rt := httpx.Transport(pipe(t, permits), s.Transport())
		for range 3 {
			resp, err := rt.RoundTrip(upgrade(t, s.URL()))
			require.NoError(t, err)
			time.Sleep(time.Hour)
			assert.Equal(t, 1, permits.InFlight())
			_, err = rt.RoundTrip(upgrade(t, s.URL())) //nolint:bodyclose // there is none
			require.ErrorIs(t, err, bulkhead.ErrFull)
			require.NoError(t, resp.Body.Close())
			assert.Zero(t, permits.InFlight())
		}
	})
}

// A session that is asked for is asked for once: a slow server is not asked for another
// beside it, and one that refuses is not asked again.
func TestCaseB64NeitherHedgedNorRetried(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		h      func(t *testing.T) http.HandlerFunc
		status int
	}{
		"slow":    {func(t *testing.T) http.HandlerFunc { t.Helper(); return echo(t, 500*time.Millisecond) }, 101},
		"refused": {func(*testing.T) http.HandlerFunc { return statuses(503) }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int32
				h := tc.h(t)
				s := serve(t, func(w http.ResponseWriter, r *http.Request) { n.Add(1); h(w, r) })
				p := pipe(t, hedges(3), retries(3, time.Millisecond))
				resp, err := httpx.Transport(p, s.Transport()).RoundTrip(upgrade(t, s.URL()))
				require.NoError(t, err)
				assert.Equal(t, tc.status, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.EqualValues(t, 1, n.Load())
			})
		})
	}
}

// Over sockets too, where a connection can be closed by half.
func TestCaseB64RealConnection(t *testing.T) {
	t.Parallel()
	next, url := sockets(t, "HTTP/1.1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			defer c.Close()
			_, _ = io.Copy(c, rw) // until the caller has closed its half
		}
	})
	g := &gate{}
	rt := httpx.Transport(pipe(t, g, retry.Config{}, breaker.Config{}, policy.Timeouts{Attempt: time.Minute}), next)
	resp, err := rt.RoundTrip(upgrade(t, url)) //nolint:bodyclose // closed below, as what it is
	require.NoError(t, err)
	rw, ok := resp.Body.(interface {
		io.ReadWriteCloser
		CloseWrite() error
	})
	require.True(t, ok)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := rw.Write(mebibyte)
		assert.NoError(t, err)
		assert.NoError(t, rw.CloseWrite())
	})
	got, err := io.ReadAll(rw)
	require.NoError(t, err)
	wg.Wait()
	assert.Equal(t, digest(mebibyte), digest(got))
	assert.Equal(t, 1, g.held())
	require.NoError(t, rw.Close())
	assert.Zero(t, g.held())
	assert.Empty(t, g.amended)
}
