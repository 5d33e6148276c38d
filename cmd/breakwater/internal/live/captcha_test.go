package live_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/live"
	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/load"
)

// start runs the captcha's two pages.
func start(t *testing.T, settings ...string) *live.Captcha {
	t.Helper()
	stage, err := live.NewStage(t.Context(), "captcha")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stage.Close(context.WithoutCancel(t.Context()))) })
	c, err := live.NewCaptcha(t.Context(), stage, "", slog.New(slog.DiscardHandler), settings...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// offer sends a load to a captcha.
func offer(t *testing.T, page string, stage load.Stage) *load.Report {
	t.Helper()
	target, err := load.NewTarget(t.Context(), page+"/captcha", false, net.DefaultResolver)
	require.NoError(t, err)
	schedule, err := load.NewSchedule(stage)
	require.NoError(t, err)
	r, err := load.Run(t.Context(), load.Config{Target: target, Schedule: schedule}, nil)
	require.NoError(t, err)
	return r
}

// reply is an answer that has been read.
type reply struct {
	status int
	kind   string
	body   string
}

func do(t *testing.T, method, url string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return reply{resp.StatusCode, resp.Header.Get("Content-Type"), string(body)}
}

// perSecond is the rate of the load tests of the incident.
var perSecond = []string{"captcha.ratelimit.Rate=1/s", "captcha.ratelimit.Burst=2"}

func TestCaptchaBurst(t *testing.T) {
	t.Parallel()
	c := start(t, perSecond...)
	for range 2 { // the second time, the limiter has been started anew
		require.Equal(t, http.StatusNoContent, do(t, http.MethodPost, c.After+"/reset").status)
		r := offer(t, c.After, load.Stage{Burst: 50})
		assert.Equal(t, 1, r.Passed)
		assert.Equal(t, 49, r.Refused)
		assert.Equal(t, 49, r.RetryAfter.On429)
		assert.InDelta(t, 1, r.RetryAfter.Min, 0)
		assert.InDelta(t, 1, r.RetryAfter.Max, 0)
	}
	r := offer(t, c.Before, load.Stage{Burst: 50})
	assert.Equal(t, 50, r.Passed, "as far as a monitor sees")
	assert.GreaterOrEqual(t, r.Empty, 40)
	before, after := c.Tallies()
	assert.EqualValues(t, r.Empty, before.Empty)
	assert.Equal(t, live.Tally{Name: after.Name, Workers: 200, Pictures: 2, TooMany: 98}, after)
}

func TestCaptchaTrickle(t *testing.T) {
	t.Parallel()
	c := start(t, perSecond...)
	r := offer(t, c.After, load.Stage{From: 2.5, To: 2.5, For: 12 * time.Second})
	assert.InDelta(t, 12, r.Passed, 1)
	for _, s := range r.Timeline[:12] {
		assert.InDelta(t, 1, s.Passed, 1, "second %d", s.Second)
	}
}

func TestCaptchaSteady(t *testing.T) {
	t.Parallel()
	c := start(t)
	r := offer(t, c.After, load.Stage{From: 20, To: 20, For: 10 * time.Second})
	assert.InDelta(t, 100, r.Passed, 3)
	assert.Equal(t, 200-r.Passed, r.Refused)
}

// In a stall the endpoint behind the pipeline holds at most 20 workers, and each for at most a
// second; the page and its script are there, and pages of other origins change nothing.
func TestCaptchaStallAndPage(t *testing.T) {
	t.Parallel()
	c := start(t)
	require.Equal(t, http.StatusNoContent, do(t, http.MethodPost, c.After+"/stall").status)
	r := offer(t, c.After, load.Stage{From: 20, To: 20, For: 2 * time.Second})
	assert.Zero(t, r.Passed)
	assert.Equal(t, http.StatusOK, do(t, http.MethodGet, c.After+"/healthy").status)
	_, after := c.Tallies()
	assert.Zero(t, after.Busy)
	assert.Positive(t, after.Failed, "timeouts of the store")
	assert.EqualValues(t, 1, after.Healthy)

	assert.Contains(t, do(t, http.MethodGet, c.After+"/").body, `<script src="/page.js">`)
	assert.Equal(t, http.StatusOK, do(t, http.MethodGet, c.After+"/page.js").status)
	assert.Equal(t, "application/json", do(t, http.MethodGet, c.Before+"/tally").kind)
	assert.Equal(t, http.StatusForbidden, do(t, http.MethodPost, c.After+"/reset", "Sec-Fetch-Site", "cross-site").status)
}

func TestCaptchaRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	stage, err := live.NewStage(t.Context(), "captcha")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stage.Close(context.WithoutCancel(t.Context()))) })
	logger := slog.New(slog.DiscardHandler)
	_, err = live.NewCaptcha(t.Context(), stage, "0.0.0.0:0", logger)
	require.ErrorContains(t, err, "not on loopback")
	_, err = live.NewCaptcha(t.Context(), stage, "", logger, "captcha.ratelimit.Rat=1/s")
	require.ErrorContains(t, err, "Rat")
}
