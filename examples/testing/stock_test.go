package stock_test

// region imports

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	stock "github.com/breakwater-go/breakwater/examples/testing"
	"github.com/breakwater-go/breakwater/policy"
)

// endregion

// region service

// service stands for the inventory service: a RoundTripper that answers from memory,
// with one status after the other, the last of them for ever. It takes latency to
// answer, in the bubble's time, or until its caller gives up.
type service struct {
	statuses []int
	latency  time.Duration
	requests int
}

func (s *service) RoundTrip(req *http.Request) (*http.Response, error) {
	status := s.statuses[min(s.requests, len(s.statuses)-1)]
	s.requests++
	select {
	case <-time.After(s.latency):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Request: req,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader("42")),
	}, nil
}

// endregion

// region retry

func TestOneFailureIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{statuses: []int{503, 200}}
		c, err := stock.NewClient("http://inventory.test", s)
		require.NoError(t, err)

		start := time.Now()
		n, err := c.Count(t.Context(), "sku-1")
		require.NoError(t, err)
		assert.Equal(t, 42, n)
		assert.Equal(t, 2, s.requests)
		assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond, "the backoff before the first retry, jitter included")
		assert.EqualValues(t, 1, c.Pipeline().Snapshot().Retries)
	})
}

// endregion

// region breaker

func TestOutageOpensTheBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{statuses: []int{500, 500, 500, 500, 500, 200}}
		c, err := stock.NewClient("http://inventory.test", s)
		require.NoError(t, err)
		for range 2 { // 3 attempts, then 2: five failures of five
			_, err = c.Count(t.Context(), "sku-1")
			require.Error(t, err)
		}
		require.Equal(t, 5, s.requests)

		_, err = c.Count(t.Context(), "sku-1")
		re, ok := errors.AsType[*policy.RejectedError](err) // also through the client's *url.Error
		require.True(t, ok, "got %v", err)
		assert.Equal(t, policy.ReasonOpen, re.Reason)
		assert.Equal(t, 5, s.requests, "an open breaker keeps calls away")

		time.Sleep(re.RetryAfter)
		n, err := c.Count(t.Context(), "sku-1")
		require.NoError(t, err, "a probe, after exactly the time that was named")
		assert.Equal(t, 42, n)
	})
}

// endregion

// region slow

func TestHungServiceIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &service{statuses: []int{200}, latency: time.Hour}
		c, err := stock.NewClient("http://inventory.test", s)
		require.NoError(t, err)

		start := time.Now()
		_, err = c.Count(t.Context(), "sku-1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
		assert.EqualValues(t, 3, c.Pipeline().Snapshot().Attempts[policy.Timeout])
	})
}

// endregion

// region refused

func TestRefusalReachesTheCaller(t *testing.T) {
	t.Parallel()
	s := &service{statuses: []int{200}}
	c, err := stock.NewClient("http://inventory.test", s)
	require.NoError(t, err)
	require.NoError(t, c.Pipeline().Close(t.Context())) // refuses everything from here on

	_, err = c.Count(t.Context(), "sku-1")
	require.ErrorIs(t, err, policy.ErrRejected)
	assert.Zero(t, s.requests)
}

// endregion
