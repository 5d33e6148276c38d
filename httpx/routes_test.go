package httpx_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// registry makes one with pipelines of these names.
func registry(t *testing.T, names ...string) *policy.Registry {
	t.Helper()
	var reg policy.Registry
	for _, name := range names {
		_, err := reg.New(name)
		require.NoError(t, err)
	}
	return &reg
}

func TestRoutesChoose(t *testing.T) {
	t.Parallel()
	reg := registry(t, "order", "orders", "pay", "search", "api", "tree")
	routes, err := httpx.NewRoutes(reg, map[string]string{
		"GET /orders/{id}":   "order",
		"/orders":            "orders",
		"POST api.test/pay/": "pay",
		"GET /search":        "search",
		"api.test/":          "api",
		"/tree/":             "tree",
	})
	require.NoError(t, err)
	for _, tc := range []struct{ method, url, want string }{
		{"GET", "http://shop.test/orders/17", "order"},
		{"", "http://shop.test/orders/17", "order"},
		{"HEAD", "http://shop.test/orders/17", "order"},
		{"DELETE", "http://shop.test/orders/17", ""},
		{"PATCH", "http://shop.test/orders", "orders"},
		{"POST", "https://api.test:8443/pay/now?x=1", "pay"},
		{"GET", "https://api.test/pay/now", "api"},
		{"GET", "https://api.test/anything", "api"},
		{"GET", "https://shop.test/anything", ""},
		{"GET", "https://shop.test/tree/leaf", "tree"},
		{"GET", "https://shop.test/tree", ""}, // a server would redirect it
		{"GET", "https://shop.test/tree//leaf", ""},
		{"GET", "https://shop.test", ""},
	} {
		req := get(t.Context(), t, tc.url)
		req.Method = tc.method
		for _, host := range []string{req.Host, ""} { // one that was made by hand has none
			req.Host = host
			p, done := routes.Choose(req)
			assert.Equal(t, tc.want, p.Name(), "%s %s", tc.method, tc.url)
			assert.Nil(t, done)
			assert.Equal(t, host, req.Host)
		}
	}
	p, _ := routes.Choose(&http.Request{})
	assert.Nil(t, p)
	p, _ = routes.Choose(&http.Request{URL: &url.URL{}})
	assert.Nil(t, p)
}

func TestNewRoutesErrors(t *testing.T) {
	t.Parallel()
	reg := registry(t, "a")
	_, err := httpx.NewRoutes(nil, nil)
	require.ErrorContains(t, err, "routes.reg")
	_, err = httpx.NewRoutes(reg, map[string]string{
		"GET /{": "a", "/x": "b", "/{y}/": "a", "GET /y/{z}": "a", "": "a", "FETCH": "a",
	})
	for _, want := range []string{"GET /{", "routes./x: b: want the name", "routes.GET /{", "at offset"} {
		require.ErrorContains(t, err, want)
	}
	_, err = httpx.NewRoutes(reg, map[string]string{"/{a}/x": "a", "/x/{b}": "a"})
	require.ErrorContains(t, err, "conflicts")
}

// A name is looked up at each request; one that is gone refuses.
func TestRoutesFollowTheRegistry(t *testing.T) {
	t.Parallel()
	reg := registry(t, "a")
	routes, err := httpx.NewRoutes(reg, map[string]string{"/a": "a"})
	require.NoError(t, err)
	rt := transport(t, httpx.Config{Choose: routes}, nil, byHost)
	send := func(path string) error {
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://well.test"+path))
		if err == nil {
			finish(t, resp)
		}
		return err
	}
	require.NoError(t, send("/a"))
	require.NoError(t, reg.Remove(t.Context(), "a"))
	require.ErrorIs(t, send("/a"), policy.ErrClosed)
	require.NoError(t, send("/b"), "no pipeline is asked")
	p, err := reg.New("a")
	require.NoError(t, err)
	require.NoError(t, send("/a"))
	assert.EqualValues(t, 1, p.Snapshot().Calls[policy.Success])
	require.NoError(t, reg.Remove(t.Context(), "a"))
	require.ErrorIs(t, send("/a"), policy.ErrClosed)
}
