//go:build !race

package httpx_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// What a request that is served at once costs beyond its transport: a copy of the
// request, and where a body follows, its wrapper (two) and what watches over that (two).
func TestAllocSuccess(t *testing.T) {
	cost := func(next http.RoundTripper, policies ...policy.Policy) float64 {
		req := get(t.Context(), t, "http://server.test")
		bare := testing.AllocsPerRun(1000, func() { send(next, req) })
		p := usual(t)
		if len(policies) > 0 {
			p = pipe(t, policies...)
		}
		rt := httpx.Transport(p, next)
		return testing.AllocsPerRun(1000, func() { send(rt, req) }) - bare
	}
	assert.LessOrEqual(t, cost(withoutBody), 1.0, "no body")
	assert.LessOrEqual(t, cost(withBody), 5.0, "body")
	assert.LessOrEqual(t, cost(withoutBody, policy.Timeouts{Attempt: time.Hour}), 2.0, "attempt timeout: its context")

	req := get(t.Context(), t, "http://server.test")
	bare := testing.AllocsPerRun(1000, func() { send(withBody, req) })
	rt := httpx.Transport(five(t), withBody)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { send(rt, req) })-bare, 5.0, "a policy of each kind costs no more")
}

// What the bounds of a body cost beyond it: a note, and a timer and its function for each.
func TestAllocBodyTimeouts(t *testing.T) {
	req := get(t.Context(), t, "http://server.test")
	plain := httpx.Transport(usual(t), withBody)
	bare := testing.AllocsPerRun(1000, func() { send(plain, req) })
	for _, tc := range []struct {
		cfg  httpx.Config
		want float64
	}{
		{httpx.Config{BodyTimeout: time.Hour}, 3},
		{httpx.Config{BodyIdleTimeout: time.Hour}, 3},
		{httpx.Config{BodyTimeout: time.Hour, BodyIdleTimeout: time.Hour}, 5},
	} {
		rt := transport(t, tc.cfg, usual(t), withBody)
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { send(rt, req) })-bare, tc.want)
	}
}

// To choose a pipeline by host costs nothing more; by route, what net/http's mux costs.
func TestAllocChoose(t *testing.T) {
	req := get(t.Context(), t, "http://server.test/orders/17")
	plain := httpx.Transport(usual(t), withoutBody)
	bare := testing.AllocsPerRun(1000, func() { send(plain, req) })
	hosts, routes := choosers(t)
	for _, tc := range []struct {
		c    httpx.Chooser
		want float64
	}{{hosts, 0}, {routes, 2}} {
		rt := transport(t, httpx.Config{Choose: tc.c}, nil, withoutBody)
		assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { send(rt, req) })-bare, tc.want, "%T", tc.c)
	}
}

// What the marks cost beyond that: the header, which the caller's must not be, and for
// each mark its value.
func TestAllocInternal(t *testing.T) {
	req := get(t.Context(), t, "http://server.test")
	plain, internal := httpx.Transport(usual(t), withoutBody), transport(t, httpx.Config{Internal: true}, usual(t), withoutBody)
	bare := testing.AllocsPerRun(1000, func() { send(plain, req) })
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { send(internal, req) })-bare, 4.0)
}

// A request with a body also has a note of who may send it.
func TestAllocRequestBody(t *testing.T) {
	req := get(t.Context(), t, "http://server.test")
	req.Body = ended{}
	bare := testing.AllocsPerRun(1000, func() { send(withoutBody, req) })
	rt := httpx.Transport(usual(t), withoutBody)
	assert.LessOrEqual(t, testing.AllocsPerRun(1000, func() { send(rt, req) })-bare, 2.0)
}
