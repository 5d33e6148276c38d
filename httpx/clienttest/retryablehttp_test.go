package clienttest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// retryableOver makes a client of go-retryablehttp whose requests go through p.
func retryableOver(p *policy.Pipeline, next http.RoundTripper) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: httpx.Transport(p, next)}
	c.RetryWaitMin, c.RetryWaitMax = time.Millisecond, time.Millisecond
	return c
}

func send(ctx context.Context, t *testing.T, c *retryablehttp.Client, method, url string, body any) (int, string, error) {
	t.Helper()
	req, err := retryablehttp.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// With its own retries off, the pipeline's are the only ones, and the last response comes
// back as it is.
func TestRetryableHTTPOnlyOurs(t *testing.T) {
	url, next, seen := server(t, 2)
	p, _ := pipeline(t, 3)
	c := retryableOver(p, next)
	c.RetryMax, c.ErrorHandler = 0, retryablehttp.PassthroughErrorHandler
	status, body, err := send(t.Context(), t, c, http.MethodPut, url, []byte("apples"))
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "apples", body)
	assert.EqualValues(t, 3, seen.Load())

	url, next, seen = server(t, forever)
	c.HTTPClient.Transport = httpx.Transport(p, next)
	status, _, err = send(t.Context(), t, c, http.MethodGet, url, nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.EqualValues(t, 3, seen.Load())
}

// As it comes, it retries refusals, and both layers' attempts multiply.
func TestRetryableHTTPOnTop(t *testing.T) {
	url, next, seen := server(t, forever)
	p, permits := pipeline(t, 3)
	c := retryableOver(p, next)
	c.RetryMax = 2
	_, _, err := send(t.Context(), t, c, http.MethodGet, url, nil)
	require.Error(t, err)
	assert.EqualValues(t, 9, seen.Load(), "3 times 3")

	full(t, permits)
	_, _, err = send(t.Context(), t, c, http.MethodGet, url, nil)
	require.ErrorIs(t, err, policy.ErrRejected)
	assert.EqualValues(t, 3, refusals(p))
}

// Under a Hop the pipeline says whether it has retried in vain, and a CheckRetry listens.
func TestRetryableHTTPWithHop(t *testing.T) {
	url, next, seen := server(t, forever)
	p, permits := pipeline(t, 3)
	c := retryableOver(p, next)
	c.RetryMax = 2
	c.CheckRetry = checkRetry
	_, _, err := send(policy.WithHop(t.Context(), policy.NewHop(1)), t, c, http.MethodGet, url, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 3, seen.Load())

	// Marked as attempts of the layer above, only the first is retried below.
	seen.Store(0)
	c.CheckRetry = retryablehttp.DefaultRetryPolicy
	c.RequestLogHook = func(_ retryablehttp.Logger, req *http.Request, retries int) {
		*req = *req.WithContext(policy.WithHop(req.Context(), policy.NewHop(retries+1)))
	}
	_, _, err = send(t.Context(), t, c, http.MethodGet, url, nil)
	require.Error(t, err)
	assert.EqualValues(t, 3+1+1, seen.Load())

	full(t, permits)
	c.CheckRetry = checkRetry
	_, _, err = send(t.Context(), t, c, http.MethodGet, url, nil)
	require.ErrorIs(t, err, policy.ErrRejected)
	assert.EqualValues(t, 1, refusals(p))
}

// checkRetry leaves alone what the pipeline has refused, given up or retried.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if asked, ok := errors.AsType[interface {
		error
		RetryableError() bool
	}](err); ok && !asked.RetryableError() {
		return false, err
	}
	if policy.HopFrom(ctx).Spent() {
		return false, err
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}
