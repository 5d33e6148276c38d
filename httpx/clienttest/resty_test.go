package clienttest_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"resty.dev/v3"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// restyOver makes a client of resty whose requests go through p.
func restyOver(t *testing.T, p *policy.Pipeline, next http.RoundTripper) *resty.Client {
	t.Helper()
	c := resty.NewWithClient(&http.Client{Transport: httpx.Transport(p, next)})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// Requests are retried below resty, with the body that they have.
func TestRestyIsRetriedBelow(t *testing.T) {
	url, next, seen := server(t, 2)
	p, _ := pipeline(t, 3)
	res, err := restyOver(t, p, next).R().SetBody(map[string]int{"apples": 17}).Put(url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, res.StatusCode())
	assert.JSONEq(t, `{"apples": 17}`, res.String())
	assert.EqualValues(t, 3, seen.Load())
}

// A POST is sent once, and a refusal can be told from a failure.
func TestRestyErrors(t *testing.T) {
	url, next, seen := server(t, forever)
	p, permits := pipeline(t, 3)
	c := restyOver(t, p, next)
	res, err := c.R().SetBody("x").Post(url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, res.StatusCode())
	assert.EqualValues(t, 1, seen.Load())

	full(t, permits)
	_, err = c.R().Get(url)
	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, policy.ReasonConcurrency, re.Reason)
	assert.EqualValues(t, 1, seen.Load())
}

// A body that resty hands out unread holds its permit until it is closed.
func TestRestyStream(t *testing.T) {
	url, next, _ := server(t, 0)
	p, permits := pipeline(t, 1)
	res, err := restyOver(t, p, next).R().SetBody("stream").SetResponseDoNotParse(true).Put(url)
	require.NoError(t, err)
	assert.Equal(t, 1, permits.InFlight())
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	assert.Equal(t, "stream", string(b))
	require.NoError(t, res.Body.Close())
}

// Retries of both layers multiply, and resty's repeat refusals; a condition ends both.
func TestRestyRetriesOnTop(t *testing.T) {
	url, next, seen := server(t, forever)
	p, permits := pipeline(t, 3)
	c := restyOver(t, p, next).SetRetryCount(2).SetRetryWaitTime(time.Millisecond).SetRetryMaxWaitTime(time.Millisecond)
	c.AddRetryConditions(resty.RetryConditionStatus5XX)
	_, err := c.R().Get(url)
	require.NoError(t, err)
	assert.EqualValues(t, 9, seen.Load(), "3 times 3")

	c = restyOver(t, p, next).SetRetryCount(2).SetRetryWaitTime(time.Millisecond).SetRetryMaxWaitTime(time.Millisecond)
	c.SetRetryDefaultConditions(false).AddRetryConditions(onlyWhatWasNotRetried)
	seen.Store(0)
	ctx := policy.WithHop(t.Context(), policy.NewHop(1))
	_, err = c.R().SetContext(ctx).Get(url)
	require.NoError(t, err)
	assert.EqualValues(t, 3, seen.Load(), "the pipeline has said that it retried in vain")

	full(t, permits)
	before := refusals(p)
	_, err = c.R().Get(url)
	require.ErrorIs(t, err, policy.ErrRejected)
	assert.EqualValues(t, 1, refusals(p)-before)
}

// onlyWhatWasNotRetried has resty retry what the pipeline neither refused nor retried.
func onlyWhatWasNotRetried(res *resty.Response, err error) bool {
	if errors.Is(err, policy.ErrRejected) || res == nil || policy.HopFrom(res.Request.Context()).Spent() {
		return false
	}
	return err != nil || resty.RetryConditionStatus5XX(res, err)
}
