package httpx_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Requests of all kinds at once: never more in the handler than permits, and every permit back.
func TestServerConcurrentSafe(t *testing.T) {
	t.Parallel()
	const limit = 4
	var inside, most, errs atomic.Int64
	p := pipe(t, ratelimit.Keyed{Rate: ratelimit.PerSecond(1e6), Burst: 1e6}, bulkhead.Semaphore{Limit: limit}, policy.Timeouts{Attempt: time.Hour})
	h := guarded(t, p, httpx.ServerConfig{
		Key: (*httpx.ClientAddr)(nil).Key, RateLimit: httpx.RateLimitAlways, XRateLimit: true, Expose: true,
		Trust:   func(*http.Request) bool { return rand.IntN(2) == 0 },
		Lane:    func(*http.Request) string { return []string{"", "x"}[rand.IntN(2)] },
		OnError: func(httpx.ErrorEvent) { errs.Add(1) },
	}, httpx.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		n := inside.Add(1)
		defer inside.Add(-1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		runtime.Gosched()
		switch rand.IntN(5) {
		case 0:
			return errBoom
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3:
			_, err := io.WriteString(w, "x")
			return err
		}
		return nil
	}))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				func() {
					defer func() { _ = recover() }()
					call(h, from("192.0.2."+strconv.Itoa((g+i)%5)+":1"))
				}()
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most.Load(), int64(limit))
	assert.Positive(t, errs.Load())
	s := p.Snapshot()
	for _, ps := range s.Policies {
		if ps.Bulkhead != nil {
			assert.Zero(t, ps.Bulkhead.InFlight)
		}
	}
	var all uint64
	for _, n := range s.Calls {
		all += n
	}
	assert.EqualValues(t, 8*300, all)
}
