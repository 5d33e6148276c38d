package httpx_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// What a server does to the first request, over HTTP/2, decides whether it is sent again.
// One that was surely not processed is repeated by net/http itself, whatever its method; one
// that may have been is for the pipeline, which retries what is idempotent.
func TestHTTP2FirstRequestFails(t *testing.T) {
	t.Parallel()
	answer := h2Step{do: func(c *h2Conn, stream uint32) { c.answer(stream, h2Status200) }}
	for name, tc := range map[string]struct {
		first       h2Step
		transparent bool // net/http repeats it
	}{
		"refused stream":                  {h2Step{early: true, do: func(c *h2Conn, stream uint32) { c.reset(stream, h2RefusedStream) }}, true},
		"refused stream, read to its end": {h2Step{do: func(c *h2Conn, stream uint32) { c.reset(stream, h2RefusedStream) }}, true},
		"GOAWAY before it":                {h2Step{do: func(c *h2Conn, _ uint32) { c.goAway(0, h2NoError) }}, true},
		"GOAWAY after it, and gone": {h2Step{do: func(c *h2Conn, stream uint32) {
			c.goAway(stream, h2NoError)
			_ = c.Close()
		}}, false},
		"GOAWAY with an error": {h2Step{do: func(c *h2Conn, _ uint32) {
			c.goAway(0, h2EnhanceYourCalm)
			_ = c.Close()
		}}, false},
		"reset":                     {h2Step{do: func(c *h2Conn, stream uint32) { c.reset(stream, h2InternalError) }}, false},
		"reset in the middle of it": {h2Step{early: true, do: func(c *h2Conn, stream uint32) { c.reset(stream, h2InternalError) }}, false},
		"gone":                      {h2Step{do: func(c *h2Conn, _ uint32) { _ = c.Close() }}, false},
		"status 500":                {h2Step{do: func(c *h2Conn, stream uint32) { c.answer(stream, h2Status500) }}, false},
	} {
		for _, method := range []string{"GET", "PUT", "POST", "POST with a key"} {
			t.Run(name+" "+method, func(t *testing.T) {
				t.Parallel()
				s := &h2Server{steps: []h2Step{tc.first, answer}}
				next, url := s.start(t)
				g := &gate{}
				rt := httpx.Transport(pipe(t, g, retries(3, time.Millisecond)), next)
				b := &bodies{data: mebibyte}
				want := digest(mebibyte)
				verb, _, keyed := strings.Cut(method, " with")
				req := b.request(t.Context(), t, verb, url)
				if method == http.MethodGet {
					b.made, want = nil, digest(nil)
					req.Body, req.GetBody, req.ContentLength = nil, nil, 0
				}
				if keyed {
					req.Header.Set("Idempotency-Key", "k")
				}
				resp, err := rt.RoundTrip(req)
				if err == nil {
					finish(t, resp)
				}
				attempts := 2
				if tc.transparent || method == http.MethodPost {
					attempts = 1
				}
				assert.Len(t, g.kinds(), attempts, "attempts of the pipeline")
				if method == http.MethodPost && !tc.transparent {
					assert.True(t, err != nil || resp.StatusCode == http.StatusInternalServerError, "%v", err)
				} else {
					require.NoError(t, err)
					assert.Equal(t, 200, resp.StatusCode)
					n, last := s.requests(t)
					assert.Equal(t, 2, n)
					assert.Equal(t, want, last, "it arrived intact")
				}
				assert.Zero(t, g.held())
				assert.Eventually(t, b.closedIfRead, 10*time.Second, time.Millisecond,
					"net/http closes a body on a goroutine of its own")
			})
		}
	}
}

// A stream that is reset in the middle of the body corrects the outcome; it is not asked
// for again, since half of it is with the caller.
func TestHTTP2BodyIsReset(t *testing.T) {
	t.Parallel()
	s := &h2Server{steps: []h2Step{{do: func(c *h2Conn, stream uint32) {
		c.half(stream)
		c.reset(stream, h2InternalError)
	}}}}
	next, url := s.start(t)
	g := &gate{}
	resp, err := httpx.Transport(pipe(t, g, retries(3, time.Millisecond)), next).RoundTrip(get(t.Context(), t, url))
	require.NoError(t, err)
	_, err = io.ReadAll(resp.Body)
	require.ErrorContains(t, err, "INTERNAL_ERROR")
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, []policy.Kind{policy.Failure}, g.amended)
	n, _ := s.requests(t)
	assert.Equal(t, 1, n)
}

// A server that goes on refusing is left after the attempt's timeout: net/http would try
// for half a minute.
func TestHTTP2RefusedForEver(t *testing.T) {
	t.Parallel()
	s := &h2Server{steps: []h2Step{{do: func(c *h2Conn, stream uint32) { c.reset(stream, h2RefusedStream) }}}}
	next, url := s.start(t)
	g := &gate{}
	rt := httpx.Transport(pipe(t, g, policy.Timeouts{Attempt: 50 * time.Millisecond}), next)
	_, err := rt.RoundTrip(get(t.Context(), t, url)) //nolint:bodyclose // there is none
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, []policy.Kind{policy.Timeout}, g.kinds())
	assert.Zero(t, g.held())
}
