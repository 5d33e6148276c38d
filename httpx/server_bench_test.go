package httpx_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// sink is a ResponseWriter with the abilities of HTTP/1.1's, so that what is measured is what
// stands in front of the handler.
type sink struct {
	http.Hijacker

	h http.Header
}

func newSink() *sink                                    { return &sink{h: http.Header{}} }
func (s *sink) Header() http.Header                     { return s.h }
func (s *sink) Write(p []byte) (int, error)             { return len(p), nil }
func (s *sink) WriteHeader(int)                         {}
func (s *sink) Flush()                                  {}
func (s *sink) CloseNotify() <-chan bool                { return nil }
func (s *sink) ReadFrom(r io.Reader) (n int64, _ error) { return io.Copy(io.Discard, r) }

// The middlewares that are measured.
var benchServers = []struct {
	name   string
	build  func(tb testing.TB) http.Handler
	allocs float64
}{
	{"bare handler", func(testing.TB) http.Handler { return noContent }, 0},
	{"semaphore and breaker", func(tb testing.TB) http.Handler {
		tb.Helper()
		return guarded(tb, pipe(tb, bulkhead.Semaphore{Limit: 100}, breaker.Config{}), httpx.ServerConfig{}, noContent)
	}, 1},
	{"limit by client, fields", func(tb testing.TB) http.Handler {
		tb.Helper()
		p := pipe(tb, ratelimit.Keyed{Rate: ratelimit.PerSecond(1e9), Burst: 1e9})
		return guarded(tb, p, httpx.ServerConfig{Key: (*httpx.ClientAddr)(nil).Key, RateLimit: httpx.RateLimitAlways}, noContent)
	}, 5},
	{"timeout", func(tb testing.TB) http.Handler {
		tb.Helper()
		return guarded(tb, pipe(tb, policy.Timeouts{Attempt: time.Hour}), httpx.ServerConfig{}, noContent)
	}, 3},
	{"refused", func(tb testing.TB) http.Handler {
		tb.Helper()
		return guarded(tb, pipe(tb, ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 1, Initial: ratelimit.StartEmpty}),
			httpx.ServerConfig{}, noContent)
	}, 12},
	{"refused, without body and fields", func(tb testing.TB) http.Handler {
		tb.Helper()
		return guarded(tb, pipe(tb, ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 1, Initial: ratelimit.StartEmpty}),
			httpx.ServerConfig{Body: httpx.BodyNone, RateLimit: httpx.RateLimitNever}, noContent)
	}, 6},
}

var noContent = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func BenchmarkServer(b *testing.B) {
	for _, bc := range benchServers {
		b.Run(bc.name, func(b *testing.B) {
			h, w, r := bc.build(b), newSink(), from("192.0.2.1:1234")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
