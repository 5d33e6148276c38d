package dashboard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

var errBoom = errors.New("GET https://svc:secret@stock.example/items?token=abc#x: boom <script>alert(1)</script>")

func ann(*http.Request) (dashboard.Viewer, bool) {
	return dashboard.Viewer{Name: "ann", Act: true, Private: true}, true
}

// newDashboard returns a dashboard of a registry with one pipeline, which is closed in
// the end.
func newDashboard(t *testing.T, cfg dashboard.Config, policies ...policy.Policy) (*dashboard.Dashboard, *policy.Registry, *policy.Pipeline) {
	t.Helper()
	reg := new(policy.Registry)
	p, err := reg.New("inventory", policies...)
	require.NoError(t, err)
	d, err := dashboard.New(reg, cfg)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d, reg, p
}

// request makes a request as from this machine.
func request(method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://127.0.0.1:8080"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:40000"
	return r
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(http.MethodGet, path, ""))
	return w
}

func read[T any](t *testing.T, h http.Handler, path string) T {
	t.Helper()
	w := get(t, h, path)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var v T
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v))
	return v
}

func post(t *testing.T, h http.Handler, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := request(http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Breakwater-Act", "1")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func fail(p *policy.Pipeline, n int) {
	for range n {
		_ = policy.Run(context.Background(), p, func(context.Context) error { return errBoom })
	}
}

func TestWhoGetsIn(t *testing.T) {
	t.Parallel()
	d, _, _ := newDashboard(t, dashboard.Config{})
	tests := []struct {
		name, remote, host string
		want               int
	}{
		{"this machine", "127.0.0.1:1", "127.0.0.1:8080", http.StatusOK},
		{"this machine by name", "127.0.0.1:1", "localhost:8080", http.StatusOK},
		{"without a port", "127.0.0.1:1", "LOCALHOST", http.StatusOK},
		{"IPv6", "[::1]:1", "[::1]:8080", http.StatusOK},
		{"IPv6 without a port", "[::1]:1", "[::1]", http.StatusOK},
		{"mapped IPv4", "[::ffff:127.0.0.1]:1", "127.0.0.1", http.StatusOK},
		{"another machine", "10.0.0.9:1", "127.0.0.1:8080", http.StatusForbidden},
		{"another machine, IPv6", "[2001:db8::1]:1", "[::1]", http.StatusForbidden},
		{"DNS rebinding", "127.0.0.1:1", "evil.example:8080", http.StatusForbidden},
		{"a name that looks like it", "127.0.0.1:1", "localhost.evil.example", http.StatusForbidden},
		{"an address that looks like it", "127.0.0.1:1", "127.0.0.1.evil.example", http.StatusForbidden},
		{"another address", "127.0.0.1:1", "10.0.0.1", http.StatusForbidden},
		{"no host", "127.0.0.1:1", "", http.StatusForbidden},
		{"no address", "@", "localhost", http.StatusForbidden},
	}
	for _, tt := range tests {
		for _, path := range []string{"/breakwater/", "/breakwater/app.js", "/breakwater/api/snapshot", "/breakwater/api/export", "/breakwater/api/stream"} {
			if tt.want == http.StatusOK && strings.HasSuffix(path, "stream") {
				continue
			}
			r := request(http.MethodGet, path, "")
			r.RemoteAddr, r.Host = tt.remote, tt.host
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			assert.Equal(t, tt.want, w.Code, "%s: %s", tt.name, path)
		}
	}
}

func TestAuthorizeCoversReads(t *testing.T) {
	t.Parallel()
	d, _, _ := newDashboard(t, dashboard.Config{Authorize: func(r *http.Request) (dashboard.Viewer, bool) {
		switch r.Header.Get("Authorization") {
		case "panic":
			panic("no")
		case "ann":
			return dashboard.Viewer{Name: "ann"}, true
		}
		return dashboard.Viewer{}, false
	}})
	for _, tt := range []struct {
		token string
		want  int
	}{{"", http.StatusForbidden}, {"panic", http.StatusForbidden}, {"ann", http.StatusOK}} {
		for _, path := range []string{"/", "/app.css", "/api/snapshot", "/api/dependency?name=inventory", "/api/history?name=inventory", "/api/events", "/api/export"} {
			r := request(http.MethodGet, path, "")
			r.RemoteAddr, r.Host = "203.0.113.9:1", "shop.example"
			r.Header.Set("Authorization", tt.token)
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			assert.Equal(t, tt.want, w.Code, "%q %s", tt.token, path)
		}
	}
}

func TestHeadersAndPaths(t *testing.T) {
	t.Parallel()
	d, _, _ := newDashboard(t, dashboard.Config{})
	for path, kind := range map[string]string{
		"/breakwater/": "text/html; charset=utf-8", "/": "text/html; charset=utf-8", "/a/b/": "text/html; charset=utf-8",
		"/breakwater/app.js": "text/javascript; charset=utf-8", "/x/app.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml",
		"/breakwater/api/snapshot": "application/json",
	} {
		w := get(t, d, path)
		require.Equal(t, http.StatusOK, w.Code, path)
		h := w.Header()
		assert.Equal(t, kind, h.Get("Content-Type"), path)
		assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		assert.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
		assert.Contains(t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		assert.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
	}
	page := get(t, d, "/breakwater/").Body.String()
	assert.NotRegexp(t, `<script[^>]*>[^<]|<style|style=|https?://`, page, "it keeps to its own policy")
	for _, path := range []string{"/breakwater/nothing", "/breakwater/api/nothing", "/.hidden", "/breakwater/api/dependency?name=nothing", "/breakwater/api/history"} {
		assert.Equal(t, http.StatusNotFound, get(t, d, path).Code, path)
	}
	assert.Equal(t, http.StatusBadRequest, get(t, d, "/api/snapshot?at=x").Code)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, "PROPFIND"} {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, request(method, "/breakwater/api/snapshot", ""))
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, request(http.MethodHead, "/breakwater/", ""))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Empty(t, w.Body.String())
}

func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	cfg := dashboard.Config{Title: strings.Repeat("x", 200), MaxFor: time.Millisecond, TraceURL: "javascript:{trace}", Actions: true, MaxHistoryBytes: 1}
	err := cfg.Validate()
	for _, field := range []string{"Title", "MaxFor", "TraceURL", "Actions", "MaxHistoryBytes"} {
		assert.ErrorContains(t, err, "dashboard."+field)
	}
	d := dashboard.Handler(new(policy.Registry), cfg)
	defer d.Close()
	assert.Equal(t, http.StatusInternalServerError, get(t, d, "/").Code)
	_, err = dashboard.New(nil, dashboard.Config{})
	require.Error(t, err)
}

// incident makes a pipeline whose breaker opens, in virtual time.
func incident(t *testing.T, viewer dashboard.Viewer) (*dashboard.Dashboard, *policy.Pipeline) {
	t.Helper()
	d, _, p := newDashboard(t, dashboard.Config{
		Actions:   true,
		Authorize: func(*http.Request) (dashboard.Viewer, bool) { return viewer, true },
		TraceID:   func(context.Context) string { return "4bf92f3577b34da6" },
	},
		breaker.Config{FailureRatio: 0.5, MinCalls: 10, OpenFor: 20 * time.Second, Window: 10 * time.Second},
		bulkhead.Semaphore{Limit: 8},
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(100), Burst: 100},
		retry.Config{MaxAttempts: 2, BaseDelay: time.Millisecond, Budget: retry.BudgetConfig{Ratio: 0.1}},
		fallback.Value(struct{}{}),
	)
	for range 10 {
		_ = policy.Run(t.Context(), p, func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil })
	}
	time.Sleep(12 * time.Second)
	for range 30 {
		fail(p, 1)
		time.Sleep(100 * time.Millisecond)
	}
	synctest.Wait()
	return d, p
}

func TestTenQuestions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, p := incident(t, dashboard.Viewer{Name: "ann", Act: true})
		want := map[string]string{
			"open":     `(?i)^inventory is open\.$`,
			"since":    `^Open for [\d.]+ s`,
			"why":      `^\d+ % of \d+ calls failed; the limit is 50 %`,
			"probe":    `^Next probe in 1\d s\.$`,
			"refused":  `breaker refuses [\d.]+/s: it is open`,
			"changed":  `rose from`,
			"nearest":  `(?i)(bulkhead|ratelimit): `,
			"budget":   `^(Yes|No)`,
			"fallback": `^Yes.*fallback answers .* has no age\.$`,
			"may":      `(?i)^Change .*breaker`,
		}
		answers := read[dashboard.Detail](t, d, "/api/dependency?name=inventory").Answers
		require.Len(t, answers, 10)
		for _, a := range answers {
			assert.Regexp(t, want[a.ID], a.Short, a.Question)
		}
		fleet := read[dashboard.Overview](t, d, "/api/snapshot").Answers
		require.Len(t, fleet, 10)

		det := read[dashboard.Detail](t, d, "/api/dependency?name=inventory")
		assert.Equal(t, "open", det.Card.State)
		assert.Equal(t, dashboard.LevelBad, det.Card.Level)
		require.NotEmpty(t, det.Changes)
		assert.Equal(t, "open", det.Changes[0].To)
		require.NotEmpty(t, det.Refusals)
		assert.Equal(t, "4bf92f3577b34da6", det.Refusals[0].Trace)
		assert.Contains(t, det.Refusals[0].Words, "refused by breaker: it is open")
		require.NotEmpty(t, det.Failures)
		assert.Contains(t, det.Failures[0].Words, "failed")
		assert.Empty(t, det.Failures[0].Error, "it is hidden")
		names := []string{}
		for _, st := range det.Policies {
			names = append(names, st.Name)
		}
		assert.Equal(t, []string{"fallback", "retry", "ratelimit", "bulkhead", "breaker"}, names)
		for _, s := range p.Snapshot().Policies {
			if s.Breaker != nil {
				assert.Equal(t, s.Breaker.State, det.Card.State)
				assert.Equal(t, s.Breaker.Since.UnixMilli(), det.Card.Since)
			}
		}
		d.Close()
	})
}

func TestErrorTextsAndKeysAreHiddenUnlessAllowed(t *testing.T) {
	t.Parallel()
	for _, private := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, p := incident(t, dashboard.Viewer{Name: "ann", Private: private})
			ctx := policy.WithCall(t.Context(), policy.Call{Key: "customer-17"})
			time.Sleep(time.Second)
			_ = policy.Run(ctx, p, func(context.Context) error { return errBoom })
			for _, path := range []string{"/api/dependency?name=inventory", "/api/events?name=inventory", "/api/export", "/api/snapshot"} {
				body := get(t, d, path).Body.String()
				assert.NotContains(t, body, "secret", path)
				assert.NotContains(t, body, "token=abc", path)
				if !private {
					assert.NotContains(t, body, "boom", path)
					assert.NotContains(t, body, "customer-17", path)
				} else if path != "/api/snapshot" {
					assert.Contains(t, body, "boom", path)
					assert.Contains(t, body, "customer-17", path)
					assert.Contains(t, body, "https://stock.example/items?…", path)
					assert.NotContains(t, body, "<script>", "JSON hides it from a careless reader too")
				}
			}
			d.Close()
		})
	}
}

func TestRefusalIsExplained(t *testing.T) {
	t.Parallel()
	d, _, p := newDashboard(t, dashboard.Config{Authorize: ann}, bulkhead.Semaphore{Limit: 2})
	for range 2 {
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		defer h.Release()
	}
	_, err := p.Enter(t.Context())
	require.ErrorIs(t, err, policy.ErrRejected)
	e := read[dashboard.Events](t, d, "/api/events?name=inventory")
	require.Len(t, e.Refusals, 1)
	assert.Equal(t, "refused by bulkhead: 2 of 2 in use", e.Refusals[0].Words)
	assert.Equal(t, "concurrency", e.Refusals[0].Reason)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _, p := newDashboard(t, dashboard.Config{Authorize: ann}, bulkhead.Semaphore{Limit: 8})
		time.Sleep(500 * time.Millisecond) // between two samples
		start := time.Now()
		for range 1000 {
			for range 4 {
				_ = policy.Run(t.Context(), p, func(context.Context) error { return nil })
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		h := read[dashboard.History](t, d, "/api/history?name=inventory")
		span := time.Duration(h.Times[len(h.Times)-1]-h.Times[0]) * time.Millisecond
		assert.GreaterOrEqual(t, span, 15*time.Minute)
		assert.Less(t, span, 17*time.Minute)
		require.Len(t, h.Rows, len(h.Times))
		for i := 1; i < len(h.Times); i++ {
			gap := h.Times[i] - h.Times[i-1]
			assert.Positive(t, gap)
			assert.LessOrEqual(t, gap, int64(5000))
			if h.Times[len(h.Times)-1]-h.Times[i-1] < 119_000 {
				assert.Equal(t, int64(1000), gap, "the last two minutes are by the second")
			}
			require.NotNil(t, h.Rows[i][0])
			if i > 1 && i < len(h.Times)-1 {
				assert.InDelta(t, 4, *h.Rows[i][0], 0.01, "calls per second at %d", i)
			}
		}
		assert.Len(t, h.Rows[0], len(h.Columns))

		past := read[dashboard.Overview](t, d, fmt.Sprintf("/api/snapshot?at=%d", start.Add(400*time.Second).UnixMilli()))
		require.Len(t, past.Cards, 1)
		assert.InDelta(t, start.Add(400*time.Second).UnixMilli(), past.At, 5000)
		assert.Empty(t, read[dashboard.Overview](t, d, "/api/snapshot?at=1000").Cards, "nothing is known of then")
		export := read[dashboard.Export](t, d, "/api/export")
		assert.Len(t, export.Histories, 1)
		d.Close()
	})
}

func TestActions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var audit []dashboard.AuditEntry
		var mu sync.Mutex
		d, _, p := newDashboard(t, dashboard.Config{Actions: true, Authorize: ann, Audit: func(e dashboard.AuditEntry) {
			mu.Lock()
			defer mu.Unlock()
			audit = append(audit, e)
		}}, breaker.Config{}, bulkhead.Semaphore{Limit: 8}, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 5})
		state := func(name string) policy.PolicySnapshot {
			for _, s := range p.Snapshot().Policies {
				if s.Name == name {
					return s
				}
			}
			return policy.PolicySnapshot{}
		}
		done := func(body string) dashboard.AuditEntry {
			w := post(t, d, "/api/act", body)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			var e dashboard.AuditEntry
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
			return e
		}
		// Forced open, and its own end.
		done(`{"dependency":"inventory","policy":"breaker","action":"force_open","seconds":60,"why":"maintenance"}`)
		assert.Equal(t, "forced_open", state("breaker").Breaker.State)
		assert.Equal(t, "ann: maintenance", state("breaker").Breaker.Note)
		time.Sleep(61 * time.Second)
		assert.NotEqual(t, "forced_open", state("breaker").Breaker.State)
		// Forced closed, and undone.
		e := done(`{"dependency":"inventory","policy":"breaker","action":"force_closed","seconds":60,"why":"it is well"}`)
		assert.Equal(t, "forced_closed", state("breaker").Breaker.State)
		w := post(t, d, "/api/undo", fmt.Sprintf(`{"id":%d,"why":"it is not"}`, e.ID))
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		assert.Equal(t, "closed", state("breaker").Breaker.State)
		assert.Equal(t, http.StatusNotFound, post(t, d, "/api/undo", fmt.Sprintf(`{"id":%d,"why":"again"}`, e.ID)).Code)
		// A limit: previewed, set, ended by itself.
		w = post(t, d, "/api/preview", `{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":30}`)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		var pre dashboard.Preview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &pre))
		assert.Equal(t, []dashboard.Difference{{What: "Limit", From: "8 permits", To: "4 permits"}}, pre.Differences)
		assert.Equal(t, 8, state("bulkhead").Bulkhead.Limit, "a preview changes nothing")
		stale := post(t, d, "/api/act", `{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":30,"why":"x","expect":"another"}`)
		assert.Equal(t, http.StatusConflict, stale.Code)
		expect, _ := json.Marshal(pre.Expect)
		done(`{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":30,"why":"too much","expect":` + string(expect) + `}`)
		assert.Equal(t, 4, state("bulkhead").Bulkhead.Limit)
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{"bulkhead"}, read[dashboard.Overview](t, d, "/api/snapshot").Cards[0].ByHand)
		time.Sleep(30 * time.Second)
		assert.Equal(t, 8, state("bulkhead").Bulkhead.Limit)
		// A value that somebody else has changed meanwhile stays.
		done(`{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":30,"why":"too much"}`)
		for _, c := range p.Controls() {
			if c.Name == "bulkhead" {
				require.NoError(t, c.Tunable.Tune(map[string]float64{"Limit": 6}))
			}
		}
		time.Sleep(40 * time.Second)
		assert.Equal(t, 6, state("bulkhead").Bulkhead.Limit)
		// Of two changes of one value the second knows what was there before the first.
		first := done(`{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":600,"why":"too much"}`)
		done(`{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":5},"seconds":30,"why":"a bit more"}`)
		assert.Equal(t, http.StatusNotFound, post(t, d, "/api/undo", fmt.Sprintf(`{"id":%d,"why":"x"}`, first.ID)).Code)
		assert.Equal(t, 5, state("bulkhead").Bulkhead.Limit)
		time.Sleep(32 * time.Second)
		assert.Equal(t, 6, state("bulkhead").Bulkhead.Limit)
		// Switched and switched back by hand: nothing is in force.
		done(`{"dependency":"inventory","policy":"bulkhead","action":"shadow","seconds":600,"why":"x"}`)
		done(`{"dependency":"inventory","policy":"bulkhead","action":"enforce","seconds":600,"why":"x"}`)
		assert.Empty(t, read[dashboard.Events](t, d, "/api/events").InForce)
		assert.False(t, state("bulkhead").Shadow)
		// Shadow mode, and what Close does about it.
		done(`{"dependency":"inventory","policy":"ratelimit","action":"shadow","seconds":3600,"why":"let them through"}`)
		assert.True(t, state("ratelimit").Shadow)
		done(`{"dependency":"inventory","policy":"ratelimit","action":"set","values":{"Rate":20,"Burst":7},"seconds":3600,"why":"more"}`)
		assert.InDelta(t, 20, state("ratelimit").Limiter.Rate, 1e-9)
		done(`{"dependency":"inventory","policy":"breaker","action":"reset","why":"clean"}`)
		d.Close()
		assert.False(t, state("ratelimit").Shadow)
		assert.InDelta(t, 10, state("ratelimit").Limiter.Rate, 1e-9)
		mu.Lock()
		defer mu.Unlock()
		for _, e := range audit {
			if e.Refused == "" {
				assert.NotEmpty(t, e.Who)
				assert.NotEmpty(t, e.Why)
			}
		}
	})
}

// TestActionsAreRefused: without the right method, origin, header or authority nothing
// happens, and it is logged.
func TestActionsAreRefused(t *testing.T) {
	t.Parallel()
	const body = `{"dependency":"inventory","policy":"breaker","action":"force_open","seconds":60,"why":"x"}`
	with := func(v dashboard.Viewer, ok, on bool) dashboard.Config {
		return dashboard.Config{Actions: on, Authorize: func(*http.Request) (dashboard.Viewer, bool) { return v, ok }}
	}
	full := dashboard.Viewer{Name: "ann", Act: true}
	tests := []struct {
		name   string
		cfg    dashboard.Config
		change func(*http.Request)
		body   string
		want   int
	}{
		{"not let in", with(dashboard.Viewer{}, false, true), nil, body, http.StatusForbidden},
		{"no authority", with(dashboard.Viewer{Name: "bob"}, true, true), nil, body, http.StatusForbidden},
		{"no name", with(dashboard.Viewer{Act: true}, true, true), nil, body, http.StatusForbidden},
		{"turned off", with(full, true, false), nil, body, http.StatusForbidden},
		{"GET", with(full, true, true), func(r *http.Request) { r.Method = http.MethodGet }, body, http.StatusMethodNotAllowed},
		{"another site", with(full, true, true), func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, body, http.StatusForbidden},
		{"another origin", with(full, true, true), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, body, http.StatusForbidden},
		{"no header", with(full, true, true), func(r *http.Request) { r.Header.Del("X-Breakwater-Act") }, body, http.StatusForbidden},
		{"a form", with(full, true, true), func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, body, http.StatusUnsupportedMediaType},
		{"plain text", with(full, true, true), func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, body, http.StatusUnsupportedMediaType},
		{"no JSON", with(full, true, true), nil, "x", http.StatusBadRequest},
		{"two values", with(full, true, true), nil, body + body, http.StatusBadRequest},
		{"too long", with(full, true, true), nil, `{"why":"` + strings.Repeat("x", 20<<10) + `"}`, http.StatusBadRequest},
		{"an unknown field", with(full, true, true), nil, `{"nothing":1}`, http.StatusBadRequest},
		{"no reason", with(full, true, true), nil, strings.Replace(body, `"x"`, `" "`, 1), http.StatusBadRequest},
		{"no end", with(full, true, true), nil, strings.Replace(body, "60", "0", 1), http.StatusBadRequest},
		{"too late an end", with(full, true, true), nil, strings.Replace(body, "60", "1e9", 1), http.StatusBadRequest},
		{"no such dependency", with(full, true, true), nil, strings.Replace(body, "inventory", "nothing", 1), http.StatusNotFound},
		{"no such policy", with(full, true, true), nil, strings.Replace(body, `"breaker"`, `"nothing"`, 1), http.StatusNotFound},
		{"no such action", with(full, true, true), nil, strings.Replace(body, "force_open", "explode", 1), http.StatusBadRequest},
		{"no breaker", with(full, true, true), nil, strings.Replace(body, `"breaker"`, `"bulkhead"`, 1), http.StatusBadRequest},
		{"no such setting", with(full, true, true), nil, `{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Nothing":1},"seconds":60,"why":"x"}`, http.StatusBadRequest},
		{"no values", with(full, true, true), nil, `{"dependency":"inventory","policy":"bulkhead","action":"set","seconds":60,"why":"x"}`, http.StatusBadRequest},
		{"a fraction of a permit", with(full, true, true), nil, `{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":1.5},"seconds":60,"why":"x"}`, http.StatusBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			logged := make(chan dashboard.AuditEntry, 4)
			tt.cfg.Audit = func(e dashboard.AuditEntry) { logged <- e }
			d, _, p := newDashboard(t, tt.cfg, breaker.Config{}, bulkhead.Semaphore{Limit: 8})
			change := tt.change
			if change == nil {
				change = func(*http.Request) {}
			}
			w := post(t, d, "/breakwater/api/act", tt.body, change)
			assert.Equal(t, tt.want, w.Code, w.Body.String())
			require.Len(t, logged, 1)
			assert.NotEmpty(t, (<-logged).Refused)
			for _, s := range p.Snapshot().Policies {
				if s.Breaker != nil {
					assert.Equal(t, "closed", s.Breaker.State)
				}
				if s.Bulkhead != nil {
					assert.Equal(t, 8, s.Bulkhead.Limit)
				}
			}
		})
	}
}

func TestForceAKey(t *testing.T) {
	t.Parallel()
	k, err := breaker.NewKeyed("", breaker.Keyed{})
	require.NoError(t, err)
	d, _, _ := newDashboard(t, dashboard.Config{Actions: true, Authorize: ann}, k)
	const body = `{"dependency":"inventory","policy":"keyed_breaker","key":"eu","action":"force_open","seconds":60,"why":"x"}`
	assert.Equal(t, http.StatusNotFound, post(t, d, "/api/act", body).Code)
	k.Get("eu")
	assert.Equal(t, http.StatusOK, post(t, d, "/api/act", body).Code)
	assert.Equal(t, breaker.ForcedOpen, k.Get("eu").State())
}

func TestSharedPolicyIsSaid(t *testing.T) {
	t.Parallel()
	b, err := breaker.New("", breaker.Config{})
	require.NoError(t, err)
	d, reg, _ := newDashboard(t, dashboard.Config{Actions: true, Authorize: ann}, b)
	_, err = reg.New("pricing", b)
	require.NoError(t, err)
	w := post(t, d, "/api/preview", `{"dependency":"inventory","policy":"breaker","action":"force_open","seconds":60}`)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), `"shared":["pricing"]`)
}

func TestStream(t *testing.T) {
	t.Parallel()
	d, reg, p := newDashboard(t, dashboard.Config{}, breaker.Config{}, bulkhead.Semaphore{Limit: 8})
	srv := httptest.NewServer(http.StripPrefix("/some/where", d))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/some/where/api/stream?name=inventory", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	_, err = reg.New("another", bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	_ = policy.Run(ctx, p, func(context.Context) error { return nil })

	seen := map[string]int{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	name, second := "", false
	for lines.Scan() && !second {
		if v, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = v
			seen[name]++
		}
		if v, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			require.True(t, json.Valid([]byte(v)), v)
			second = name == "cards" && strings.Contains(v, `"another"`)
		}
	}
	assert.True(t, second, "a new pipeline appears: %v", lines.Err())
	assert.Positive(t, seen["fleet"])
	assert.Positive(t, seen["dependency"])
	d.Close() // ends the stream
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, get(t, d, "/").Code)
	http.DefaultClient.CloseIdleConnections()
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	d, _, _ := newDashboard(t, dashboard.Config{}, breaker.Config{})
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	closers := make(chan io.Closer, 100)
	connect := func() (status int, h http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/api/stream", http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req) //nolint:bodyclose // all are closed at the end
		require.NoError(t, err)
		closers <- resp.Body
		return resp.StatusCode, resp.Header
	}
	for range 64 {
		status, _ := connect()
		require.Equal(t, http.StatusOK, status)
	}
	status, h := connect()
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.NotEmpty(t, h.Get("Retry-After"))
	close(closers)
	for c := range closers {
		_ = c.Close()
	}
	d.Close()
}

// FuzzHandler sends whatever it is given to every part, and wants an answer that is
// JSON, never a fault of ours.
func FuzzHandler(f *testing.F) {
	f.Add("GET", "/api/snapshot", "at=1", "")
	f.Add("POST", "/api/act", "", `{"dependency":"<script>","policy":"breaker","action":"set","values":{"Limit":1e308},"seconds":-1,"why":"\u0000"}`)
	f.Add("POST", "/api/preview", "", `{"dependency":"inventory","policy":"bulkhead","action":"set","values":{"Limit":4},"seconds":5}`)
	f.Add("POST", "/api/undo", "", `{"id":18446744073709551615,"why":"x"}`)
	f.Add("GET", "/api/dependency", "name=%ff%00"+strings.Repeat("x", 10<<10), "")
	reg := new(policy.Registry)
	if _, err := reg.New("inventory", breaker.Config{}, bulkhead.Semaphore{Limit: 8}); err != nil {
		f.Fatal(err)
	}
	d, err := dashboard.New(reg, dashboard.Config{Actions: true, Authorize: ann})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(d.Close)
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		if strings.HasSuffix(path, "/api/stream") || path == "" {
			return
		}
		r := &http.Request{
			Method: method, URL: &url.URL{Path: path, RawQuery: query}, Host: "localhost", RemoteAddr: "127.0.0.1:1",
			Header: http.Header{"Content-Type": {"application/json"}, "X-Breakwater-Act": {"1"}}, Body: io.NopCloser(strings.NewReader(body)),
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code >= 500 {
			t.Fatalf("%d for %q %q %q: %s", w.Code, method, path, body, w.Body)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("no JSON: %s", w.Body)
		}
	})
}
