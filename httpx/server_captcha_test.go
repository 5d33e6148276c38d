package httpx_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// guarded builds a server in front of next.
func guarded(tb testing.TB, p *policy.Pipeline, cfg httpx.ServerConfig, next http.Handler) http.Handler {
	tb.Helper()
	s, err := httpx.NewServer(p, cfg)
	require.NoError(tb, err)
	return s.Handler(next)
}

// call sends a request to a handler.
func call(h http.Handler, req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// request makes a request as a server gets it.
func request(method, path string) *http.Request {
	return httptest.NewRequestWithContext(context.Background(), method, path, http.NoBody)
}

// page sends a GET for "/".
func page(h http.Handler) *httptest.ResponseRecorder {
	return call(h, request(http.MethodGet, "/"))
}

// say answers with a text.
func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// captcha is the limit of the incident: it never waits.
func captcha(rate float64) ratelimit.TokenBucket {
	return ratelimit.TokenBucket{Rate: ratelimit.PerSecond(rate), Burst: int(rate) + 1, Initial: 1}
}

// A burst of 50 at 1/s: one answer, and 49 refusals that monitoring sees.
func TestServerCaptchaBurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guarded(t, pipe(t, captcha(1)), httpx.ServerConfig{Body: httpx.BodyNone}, say("an image"))
		statuses := map[int]int{}
		for range 50 {
			w := page(h)
			statuses[w.Code]++
			if w.Code == http.StatusTooManyRequests {
				require.Equal(t, "0", w.Header().Get("Content-Length"))
				require.Equal(t, "1", w.Header().Get("Retry-After"))
				require.Empty(t, w.Body.String())
				require.Empty(t, w.Header().Get("Content-Type"))
			}
		}
		assert.Equal(t, map[int]int{200: 1, 429: 49}, statuses)
	})
}

// 2.5 requests a second for 12 s at 1/s: 12 pass, one in each second, the first at once.
func TestServerCaptchaSteady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guarded(t, pipe(t, captcha(1)), httpx.ServerConfig{Body: httpx.BodyNone}, say("an image"))
		var passed [12]int
		begin := time.Now()
		for time.Since(begin) < 12*time.Second {
			if page(h).Code == http.StatusOK {
				passed[int(time.Since(begin)/time.Second)]++
			}
			time.Sleep(400 * time.Millisecond)
		}
		assert.Equal(t, [12]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, passed)
	})
}

// Every refusal says in the log which lane and why.
func TestServerLogsLaneAndReason(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	p := pipe(t, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{
		{Name: "realtime", Rate: ratelimit.Every(time.Hour), Burst: 1, Priority: policy.PriorityHigh},
		{Name: "batch", Rate: ratelimit.Every(time.Hour), Burst: 1},
	}})
	h := guarded(t, p, httpx.ServerConfig{
		Route:   func(*http.Request) string { return "ocr" },
		Lane:    func(r *http.Request) string { return r.Header.Get("X-Lane") },
		OnError: func(e httpx.ErrorEvent) { logger.Warn("refused", "http", e) },
	}, say("ok"))
	for _, lane := range []string{"batch", "batch", "realtime", "realtime"} {
		req := request(http.MethodGet, "/")
		req.Header.Set("X-Lane", lane)
		call(h, req)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 2)
	for i, lane := range []string{"batch", "realtime"} {
		assert.Contains(t, lines[i], "http.status=429 http.method=GET http.route=ocr http.dependency=dep http.policy=lanes http.reason=rate http.lane="+lane)
	}
	var counted []uint64
	for _, l := range p.Snapshot().Policies[0].Limiter.Lanes {
		counted = append(counted, l.Rejected[policy.ReasonRate])
	}
	assert.Equal(t, []uint64{1, 1}, counted, "and so do the metrics")
}
