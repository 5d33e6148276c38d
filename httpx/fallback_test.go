package httpx_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// instead is a fallback that answers everything with what f returns.
type instead func(f policy.FailedCall) (any, error)

func (f instead) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "fallback", Fallback: f}, nil
}
func (instead) Handles(policy.FailedCall) bool { return true }
func (f instead) Answer(_ context.Context, fc policy.FailedCall) (policy.Answer[any], error) {
	v, err := f(fc)
	return policy.Answer[any]{Value: v}, err
}

func TestFallbackAnswersForARefusal(t *testing.T) {
	t.Parallel()
	// The least that a fallback may give, and the same for everybody.
	shared := &http.Response{StatusCode: http.StatusOK}
	rt := httpx.Transport(pipe(t, &gate{full: true}, instead(func(f policy.FailedCall) (any, error) {
		assert.ErrorIs(t, f.Err, policy.ErrRejected)
		return shared, nil
	})), never(t))
	c := &http.Client{Transport: rt}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			req := get(t.Context(), t, "http://server.test")
			resp, err := c.Do(req)
			if assert.NoError(t, err) {
				assert.Equal(t, 200, resp.StatusCode)
				assert.Same(t, req, resp.Request)
				assert.NotNil(t, resp.Header)
				assert.Empty(t, finish(t, resp))
			}
		})
	}
	wg.Wait()
	assert.Nil(t, shared.Request, "the shared response is not modified")
	assert.Nil(t, shared.Body)
}

func TestFallbackReplacesAResponse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		attempts int
		policies []policy.Policy
	}{
		"alone":         {1, nil},
		"not retried":   {1, []policy.Policy{retries(1, retry.Off)}},
		"retried":       {2, []policy.Policy{retries(2, retry.Off)}},
		"total timeout": {1, []policy.Policy{policy.Timeouts{Total: time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			next, n := script(503)
			s := &spy{next: next}
			rt := httpx.Transport(pipe(t, append(tc.policies, g, instead(func(f policy.FailedCall) (any, error) {
				assert.Equal(t, policy.Busy, f.Outcome.Kind)
				assert.Equal(t, tc.attempts, f.Attempts)
				var answer *policy.AnswerError
				if assert.ErrorAs(t, f.Err, &answer) {
					assert.Equal(t, uint16(503), answer.Code)
				}
				assert.Equal(t, uint16(503), f.Outcome.Code)
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("stale"))}, nil
			}))...), s)
			resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test"))
			require.NoError(t, err)
			assert.Equal(t, "stale", finish(t, resp))
			assert.EqualValues(t, tc.attempts, n.Load())
			for i, b := range s.bodies {
				assert.EqualValues(t, 1, b.closed.Load(), "closes of response %d", i+1)
			}
			assert.Equal(t, 0, g.held())
		})
	}
}

// A fallback that fails leaves the response where there is one: never both.
func TestFallbackThatFails(t *testing.T) {
	t.Parallel()
	errFallback := errors.New("no idea either")
	for name, answer := range map[string]instead{
		"error":      func(policy.FailedCall) (any, error) { return nil, errFallback },
		"wrong type": func(policy.FailedCall) (any, error) { return "text", nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			next, _ := script(503)
			resp, err := httpx.Transport(pipe(t, g, answer), next).RoundTrip(get(t.Context(), t, "http://server.test"))
			require.NoError(t, err)
			assert.Equal(t, 503, resp.StatusCode)
			assert.Equal(t, "Service Unavailable", finish(t, resp))
			assert.Equal(t, 0, g.held())

			resp, err = httpx.Transport(pipe(t, &gate{full: true}, answer), never(t)).RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
			assert.Nil(t, resp)
			require.ErrorIs(t, err, policy.ErrRejected)
		})
	}
}

func TestFallbackThatAnswersNothing(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]any{"nil": nil, "nil response": (*http.Response)(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rt := httpx.Transport(pipe(t, &gate{full: true}, instead(func(policy.FailedCall) (any, error) { return v, nil })), never(t))
			resp, err := rt.RoundTrip(get(t.Context(), t, "http://server.test")) //nolint:bodyclose // there is none
			assert.Nil(t, resp)
			assert.ErrorContains(t, err, "fallback")
		})
	}
}
