package otelx_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

func get(tb testing.TB, h http.Handler, method, target, peer string, header ...string) *httptest.ResponseRecorder {
	tb.Helper()
	req := httptest.NewRequestWithContext(tb.Context(), method, target, http.NoBody)
	req.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	return rec
}

func TestDebugHandlerLetsInThisMachine(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	h := otelx.DebugHandler(&reg, otelx.DebugConfig{})
	for _, tt := range []struct {
		peer, target string
		header       []string
		want         int
	}{
		{"127.0.0.1:1234", "http://localhost/debug/breakwater", nil, 200},
		{"127.0.0.1:1234", "http://LOCALHOST.:8080/debug/breakwater", nil, 200},
		{"127.8.0.1:1234", "http://127.0.0.1:8080/debug/breakwater", nil, 200},
		{"[::1]:1234", "http://[::1]:8080/debug/breakwater", nil, 200},
		{"[::ffff:127.0.0.1]:1234", "http://localhost/debug/breakwater", nil, 200},
		{"10.0.0.1:1234", "http://localhost/debug/breakwater", nil, 403},
		{"127.0.0.1:1234", "http://evil.example/debug/breakwater", nil, 403},
		{"127.0.0.1:1234", "http://localhost.evil.example/debug/breakwater", nil, 403},
		{"127.0.0.1:1234", "http://10.0.0.1/debug/breakwater", nil, 403},
		{"127.0.0.1:1234", "http://localhost/debug/breakwater", []string{"X-Forwarded-For", "10.0.0.9"}, 403},
		{"127.0.0.1:1234", "http://localhost/debug/breakwater", []string{"Forwarded", "for=10.0.0.9"}, 403},
		{"@", "http://localhost/debug/breakwater", nil, 403},
	} {
		rec := get(t, h, http.MethodGet, tt.target, tt.peer, tt.header...)
		assert.Equal(t, tt.want, rec.Code, tt)
		assert.Equal(t, "nosniff", rec.Header().Get("X-Content-Type-Options"))
		assert.Equal(t, "no-store", rec.Header().Get("Cache-Control"))
	}
	assert.Equal(t, 405, get(t, h, http.MethodPost, "http://localhost/", "127.0.0.1:1").Code)
	assert.Equal(t, 200, get(t, h, http.MethodHead, "http://localhost/", "127.0.0.1:1").Code)

	h = otelx.DebugHandler(&reg, otelx.DebugConfig{Authorize: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer x" }})
	assert.Equal(t, 200, get(t, h, http.MethodGet, "http://any.example/", "10.0.0.1:1", "Authorization", "Bearer x").Code)
	assert.Equal(t, 403, get(t, h, http.MethodGet, "http://localhost/", "127.0.0.1:1").Code)
}

func TestDebugHandlerShowsEveryForm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := forms(t)
		rich(t, reg, "rich")
		broken := &gate{broken: true}
		add(t, reg, "zbroken", broken)
		p := add(t, reg, "inventory", realPolicies()...)
		for range 6 {
			_, _ = policy.Do(t.Context(), p, script(errSick, errSick))
		}
		time.Sleep(100 * time.Millisecond)
		h := otelx.DebugHandler(reg, otelx.DebugConfig{})
		rec := get(t, h, http.MethodGet, "http://localhost/debug/breakwater", "127.0.0.1:1")
		got := rec.Body.String()
		assert.Equal(t, "text/plain; charset=utf-8", rec.Header().Get("Content-Type"))
		for _, want := range []string{
			"\ninventory\n", "open for ", "because of failure_ratio", "refused: open ", "stopped: ", "of 1 in use", "served 6",
			"lane paid: admitted 46, refused 48", "sheds; CPU 75 %", "8 keys, 1 of them open", "user refused 103", "mode local", "hedges: 0",
			"its state cannot be read",
		} {
			assert.Contains(t, got, want)
		}
		assert.NotContains(t, got, "4711")
		assert.NotContains(t, got, "shop")

		got = get(t, h, http.MethodGet, "http://localhost/debug/breakwater?dependency=inventory&all", "127.0.0.1:1").Body.String()
		assert.Contains(t, got, "inventory breaker.state{policy=breaker,state=open} 1\n")
		assert.NotContains(t, got, "rich")
		got = get(t, h, http.MethodGet, "http://localhost/debug/breakwater?dependency=none", "127.0.0.1:1").Body.String()
		assert.Contains(t, got, "no pipelines")
		require.NotNil(t, otelx.Values(reg)["rich"])
		assert.Nil(t, otelx.Values(nil))
	})
}
