package httpx_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
)

// The header as a retry sees it: the delay is the larger of the server's wish and the
// own backoff of 2 s.
func TestCaseB50RetryAfterDelaysTheRetry(t *testing.T) {
	t.Parallel()
	in30 := func(layout string) func() string {
		return func() string { return time.Now().Add(30 * time.Second).UTC().Format(layout) }
	}
	is := func(s string) func() string { return func() string { return s } }
	for _, tc := range []struct {
		value func() string
		want  time.Duration
	}{
		{is("120"), 120 * time.Second},
		{is("0"), 2 * time.Second},
		{is("-5"), 2 * time.Second},
		{is("1.5"), 2 * time.Second},
		{is("abc"), 2 * time.Second},
		{is(""), 2 * time.Second},
		{is("9223372037"), 300 * time.Second},
		{is(strings.Repeat("9", 30)), 300 * time.Second},
		{is("3600"), 300 * time.Second},
		{in30(http.TimeFormat), 30 * time.Second},
		{in30("Monday, 02-Jan-06 15:04:05 GMT"), 30 * time.Second},
		{in30(time.ANSIC), 30 * time.Second},
		{is("Sun, 06 Nov 1994 08:49:37 GMT"), 2 * time.Second},
	} {
		for _, status := range []int{503, 429, 500} {
			t.Run(strconv.Itoa(status)+" "+tc.value(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := 0
					next := tripper(func(req *http.Request) (*http.Response, error) {
						if n++; n > 1 {
							return reply(req, 200, ""), nil
						}
						resp := reply(req, status, "")
						resp.Header.Set("Retry-After", tc.value())
						return resp, nil
					})
					rt := httpx.Transport(pipe(t, retries(2, 2*time.Second)), next)
					began := time.Now()
					resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))
					require.NoError(t, err)
					finish(t, resp)
					if status == 429 && tc.want == 2*time.Second {
						// Throttled, and nobody knows for how long: not retried.
						assert.Equal(t, 429, resp.StatusCode)
						assert.Zero(t, time.Since(began))
						return
					}
					assert.Equal(t, 200, resp.StatusCode)
					assert.InDelta(t, tc.want, time.Since(began), float64(time.Second))
				})
			})
		}
	}
}

func TestCaseB50MaxRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		max  time.Duration
		want time.Duration
	}{{0, 120 * time.Second}, {time.Minute, time.Minute}, {-1, 0}} {
		g := &gate{}
		rt := transport(t, httpx.Config{MaxRetryAfter: tc.max}, pipe(t, g), tripper(func(req *http.Request) (*http.Response, error) {
			resp := reply(req, 503, "")
			resp.Header.Set("Retry-After", "120")
			return resp, nil
		}))
		resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))
		require.NoError(t, err)
		finish(t, resp)
		assert.Equal(t, tc.want, g.last(t).Pushback)
	}
}

// A wish that outlasts the deadline is not slept for: the response is returned at once.
func TestCaseB50NeverPastTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := httpx.Transport(pipe(t, retries(2, time.Second)), tripper(func(req *http.Request) (*http.Response, error) {
			resp := reply(req, 503, "sorry")
			resp.Header.Set("Retry-After", "120")
			return resp, nil
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		resp, err := rt.RoundTrip(get(ctx, t, "http://server.test"))
		require.NoError(t, err)
		assert.Equal(t, "sorry", finish(t, resp))
		assert.Zero(t, time.Since(began))
	})
}
