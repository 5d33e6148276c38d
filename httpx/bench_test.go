package httpx_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// canned answers every request with the same response, so that what is measured is
// what stands in front of it.
type canned struct {
	resp http.Response
	body io.ReadCloser
}

func (c *canned) RoundTrip(*http.Request) (*http.Response, error) {
	resp := c.resp
	resp.Body = c.body
	return &resp, nil
}

// ended is a body that has been read.
type ended struct{}

func (ended) Read([]byte) (int, error) { return 0, io.EOF }
func (ended) Close() error             { return nil }

var (
	withBody    = &canned{resp: http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: -1}, body: ended{}}
	withoutBody = &canned{resp: http.Response{StatusCode: http.StatusOK, Header: http.Header{}}, body: http.NoBody}
)

// usual is what most pipelines hold.
func usual(tb testing.TB) *policy.Pipeline {
	tb.Helper()
	return pipe(tb, retry.Config{}, bulkhead.Semaphore{}, breaker.Config{})
}

// five holds one policy of each kind.
func five(tb testing.TB, more ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	answer := fallback.Value(&withoutBody.resp) //nolint:bodyclose // there is none
	return pipe(tb, append(more, answer, retry.Config{}, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e9)},
		bulkhead.Semaphore{}, breaker.Config{})...)
}

// send sends a request and ends its response.
func send(rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, bc := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"bare/no-body", withoutBody},
		{"bare/body", withBody},
		{"usual/no-body", httpx.Transport(usual(b), withoutBody)},
		{"usual/body", httpx.Transport(usual(b), withBody)},
		{"five/no-body", httpx.Transport(five(b), withoutBody)},
		{"five/body", httpx.Transport(five(b), withBody)},
		{"five-timeout/body", httpx.Transport(five(b, policy.Timeouts{Attempt: time.Second}), withBody)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			req := get(b.Context(), b, "http://server.test")
			b.ReportAllocs()
			for b.Loop() {
				send(bc.rt, req)
			}
		})
	}
}

// choosers make pipelines like the usual one.
func choosers(tb testing.TB) (*httpx.Hosts, *httpx.Routes) {
	tb.Helper()
	var reg policy.Registry
	policies := []policy.Policy{retry.Config{}, bulkhead.Semaphore{}, breaker.Config{}}
	hosts, err := httpx.NewHosts(&reg, httpx.HostsConfig{Policies: policies})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err = reg.New("orders", policies...); err != nil {
		tb.Fatal(err)
	}
	routes, err := httpx.NewRoutes(&reg, map[string]string{"GET /orders/{id}": "orders"})
	if err != nil {
		tb.Fatal(err)
	}
	return hosts, routes
}

func BenchmarkChoose(b *testing.B) {
	hosts, routes := choosers(b)
	for name, c := range map[string]httpx.Chooser{"hosts": hosts, "routes": routes} {
		rt := transport(b, httpx.Config{Choose: c}, nil, withoutBody)
		b.Run(name, func(b *testing.B) {
			req := get(b.Context(), b, "http://server.test/orders/17")
			b.ReportAllocs()
			for b.Loop() {
				send(rt, req)
			}
		})
	}
}

func BenchmarkRoundTripParallel(b *testing.B) {
	rt := httpx.Transport(usual(b), withBody)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := get(context.Background(), b, "http://server.test") //nolint:usetesting // b.Context takes a lock that all would share
		for pb.Next() {
			send(rt, req)
		}
	})
}

func BenchmarkRefused(b *testing.B) {
	br, err := breaker.New("", breaker.Config{MinCalls: 1})
	if err != nil {
		b.Fatal(err)
	}
	p := pipe(b, retry.Config{}, bulkhead.Semaphore{}, br)
	_, _ = policy.Do(b.Context(), p, func(context.Context) (int, error) { return 0, errors.New("boom") })
	rt := httpx.Transport(p, withBody)
	req := get(b.Context(), b, "http://server.test")
	b.ReportAllocs()
	for b.Loop() {
		send(rt, req)
	}
}

// The whole way, for scale: what a round trip costs without any network.
func BenchmarkPipe(b *testing.B) {
	s := memhttp.NewServer(statuses(http.StatusOK))
	defer s.Close()
	for name, rt := range map[string]http.RoundTripper{
		"bare":  s.Transport(),
		"usual": httpx.Transport(usual(b), s.Transport()),
	} {
		b.Run(name, func(b *testing.B) {
			req := get(b.Context(), b, s.URL())
			b.ReportAllocs()
			for b.Loop() {
				send(rt, req)
			}
		})
	}
}
