package httpx_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// fields are the headers about limits.
func fields(h http.Header) (list []string) {
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if v := h.Get(name); v != "" {
			list = append(list, v)
		}
	}
	return list
}

func TestServerRateLimitFields(t *testing.T) {
	t.Parallel()
	user := ratelimit.Keyed{Name: "user", Rate: ratelimit.Every(30 * time.Second), Burst: 2}
	route := ratelimit.TokenBucket{Name: "default", Rate: ratelimit.PerMinute(100), Burst: 100}
	both := ratelimit.All{Name: "all", Limits: []policy.Policy{user, route}}
	for name, c := range map[string]struct {
		cfg              httpx.ServerConfig
		policies         []policy.Policy
		allowed, refused []string
	}{
		"refused": {
			policies: []policy.Policy{user},
			refused:  []string{`"user";q=2;w=60`, `"user";r=0;t=60`},
		},
		"always": {
			cfg: httpx.ServerConfig{RateLimit: httpx.RateLimitAlways}, policies: []policy.Policy{user, route},
			allowed: []string{`"user";q=2;w=60, "default";q=100;w=60`, `"user";r=1;t=30, "default";r=99;t=1`},
			refused: []string{`"user";q=2;w=60, "default";q=100;w=60`, `"user";r=0;t=60, "default";r=98;t=2`},
		},
		"never":         {cfg: httpx.ServerConfig{RateLimit: httpx.RateLimitNever}, policies: []policy.Policy{user}},
		"what has none": {cfg: httpx.ServerConfig{RateLimit: httpx.RateLimitAlways}, policies: []policy.Policy{bulkhead.Semaphore{Limit: 1}}},
		"X, of the least": {
			cfg: httpx.ServerConfig{RateLimit: httpx.RateLimitAlways, XRateLimit: true}, policies: []policy.Policy{both},
			allowed: []string{`"all.user";q=2;w=60, "all.default";q=100;w=60`, `"all.user";r=1;t=30, "all.default";r=99;t=1`, "2", "1", "30"},
			refused: []string{`"all.user";q=2;w=60, "all.default";q=100;w=60`, `"all.user";r=0;t=60, "all.default";r=98;t=2`, "2", "0", "60"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := guarded(t, pipe(t, c.policies...), c.cfg, say("ok"))
				assert.Equal(t, c.allowed, fields(page(h).Header()))
				page(h)
				assert.Equal(t, c.refused, fields(page(h).Header()))
			})
		})
	}
}

// A refusal for another reason tells nothing about limits, unless all answers do.
func TestServerRateLimitFieldsOfOtherRefusals(t *testing.T) {
	t.Parallel()
	for _, always := range []bool{true, false} {
		cfg := httpx.ServerConfig{}
		if always {
			cfg.RateLimit = httpx.RateLimitAlways
		}
		h := guarded(t, pipe(t, ratelimit.TokenBucket{Rate: ratelimit.PerMinute(60), Burst: 60}, &gate{full: true}), cfg, never404(t))
		w := page(h)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Equal(t, always, w.Header().Get("RateLimit") != "")
		// One further down is none of the client's business.
		h = guarded(t, pipe(t, ratelimit.TokenBucket{Rate: ratelimit.PerMinute(60), Burst: 60}), httpx.ServerConfig{},
			failing(refusal(policy.ReasonRate, 0, ratelimit.ErrLimited)))
		assert.Empty(t, fields(page(h).Header()))
	}
}

func TestServerExposesLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, ratelimit.Lanes{Name: "ocr", Lanes: []ratelimit.LaneConfig{{Name: "batch", Rate: ratelimit.PerSecond(1), Burst: 2}}})
		h := guarded(t, p, httpx.ServerConfig{Expose: true}, say("ok"))
		page(h)
		page(h)
		w := page(h)
		var body map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		assert.Equal(t, map[string]any{
			"type": httpx.TypeQuotaExceeded, "title": "Request cannot be satisfied as assigned quota has been exceeded", "status": 429.0,
			"detail":     "dep: rejected by ocr (rate), retry after 1s",
			"dependency": "dep", "policy": "ocr", "reason": "rate", "violated-policies": []any{"ocr.batch"},
			"limits": []any{map[string]any{"policy": "ocr.batch", "quota": 2.0, "window": 2.0, "remaining": 0.0, "reset": 2.0}},
		}, body)
	})
}
