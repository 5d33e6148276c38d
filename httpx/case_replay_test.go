package httpx_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// mebibyte is a body in which every misplaced byte changes the hash.
var mebibyte = func() []byte {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}()

func digest(b []byte) string { return fmt.Sprintf("%d bytes, %x", len(b), sha256.Sum256(b)) }

// anything makes the transport under test retry whatever can be sent again.
var anything = httpx.Config{Idempotent: func(*http.Request) bool { return true }}

func TestCaseB48BodyIsReplayed(t *testing.T) {
	t.Parallel()
	drop := func(w http.ResponseWriter) { // mid-upload
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = c.Close()
		}
	}
	for _, tc := range []struct {
		name   string
		first  func(w http.ResponseWriter, r *http.Request) // what the first two attempts meet
		policy policy.Policy
		kind   policy.Kind
	}{
		{"503 after the body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusServiceUnavailable)
		}, nil, policy.Busy},
		{"503 before the body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, nil, policy.Busy},
		{"reset mid-upload", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 100_000)
			drop(w)
		}, nil, policy.Failure},
		{"attempt timeout mid-upload", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 100_000)
			time.Sleep(time.Minute)
		}, policy.Timeouts{Attempt: time.Second}, policy.Timeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var attempts atomic.Int64
			var whole []string
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if attempts.Add(1) < 3 {
						tc.first(w, r)
						return
					}
					b, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					whole = append(whole, digest(b), strconv.FormatInt(r.ContentLength, 10))
				})
				g := &gate{}
				policies := []policy.Policy{retries(3, time.Second), g}
				if tc.policy != nil {
					policies = append(policies, tc.policy)
				}
				rt := transport(t, anything, pipe(t, policies...), s.Transport())
				b := &bodies{data: mebibyte}
				resp, err := rt.RoundTrip(b.request(t.Context(), t, http.MethodPost, s.URL()))
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
				finish(t, resp)
				assert.Equal(t, []string{digest(mebibyte), "1048576"}, whole)
				assert.Equal(t, []policy.Kind{tc.kind, tc.kind, policy.Success}, g.kinds())
				synctest.Wait()
				require.Len(t, b.made, 3, "the caller's and two copies")
				b.requireClosedOnce(t)
			})
		})
	}
}

// Three bodies that arrive whole are the same.
func TestCaseB48EveryAttemptSendsTheSame(t *testing.T) {
	t.Parallel()
	var got []string
	answers := statuses(503, 503, 200)
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			got = append(got, digest(b))
			answers(w, r)
		})
		c := &http.Client{Transport: transport(t, anything, pipe(t, retries(3, time.Second)), s.Transport())}
		// As a user would: the client sets GetBody for a bytes.Reader.
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), bytes.NewReader(mebibyte))
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		assert.Equal(t, 200, resp.StatusCode)
		finish(t, resp)
		want := digest(mebibyte)
		assert.Equal(t, []string{want, want, want}, got)
		assert.Equal(t, 1, s.Dialed())
	})
}

// A transport may return while its goroutine still reads the body; the next attempt has
// a body of its own.
func TestCaseB48FirstAttemptStillReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got := map[int]string{}
		attempts := 0
		next := tripper(func(req *http.Request) (*http.Response, error) {
			mu.Lock()
			attempts++
			n := attempts
			mu.Unlock()
			go func() {
				defer req.Body.Close()
				var b bytes.Buffer
				for {
					if _, err := io.CopyN(&b, req.Body, 64<<10); err != nil {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				mu.Lock()
				defer mu.Unlock()
				got[n] = digest(b.Bytes())
			}()
			if n < 3 {
				return reply(req, 503, "early"), nil
			}
			return reply(req, 200, "early"), nil
		})
		rt := transport(t, anything, pipe(t, retries(3, 150*time.Millisecond)), next)
		b := &bodies{data: mebibyte}
		resp, err := rt.RoundTrip(b.request(t.Context(), t, http.MethodPost, "http://server.test"))
		require.NoError(t, err)
		finish(t, resp)
		mu.Lock()
		assert.Empty(t, got, "all three still read")
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := digest(mebibyte)
		assert.Equal(t, map[int]string{1: want, 2: want, 3: want}, got)
		b.requireClosedOnce(t)
	})
}

// A body that cannot be rewound is sent once; what came of it is what the caller gets.
func TestCaseB48BodyWithoutRewind(t *testing.T) {
	t.Parallel()
	for _, status := range []int{503, 0} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			var got []string
			next := tripper(func(req *http.Request) (*http.Response, error) {
				b, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				assert.NoError(t, req.Body.Close())
				got = append(got, string(b))
				if status == 0 {
					return nil, errBoom
				}
				return reply(req, status, "try again"), nil
			})
			b := &bodies{data: []byte("stream")}
			rt := transport(t, anything, pipe(t, retries(3, retry.Off)), next)
			req := b.request(t.Context(), t, http.MethodPut, "http://server.test")
			req.GetBody = nil
			resp, err := rt.RoundTrip(req)
			if status == 0 {
				require.Equal(t, errBoom, err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, "try again", finish(t, resp))
			}
			assert.Equal(t, []string{"stream"}, got)
			b.requireClosedOnce(t)
		})
	}
}

// A body that fails to rewind is nobody's fault but the caller's.
func TestCaseB48RewindFails(t *testing.T) {
	t.Parallel()
	g := &gate{}
	n := 0
	next := tripper(func(req *http.Request) (*http.Response, error) {
		n++
		_ = req.Body.Close()
		return nil, errBoom
	})
	b := &bodies{data: []byte("x")}
	rt := transport(t, anything, pipe(t, retries(3, retry.Off), g), next)
	req := b.request(t.Context(), t, http.MethodPost, "http://server.test")
	errRewind := errors.New("file is gone")
	req.GetBody = func() (io.ReadCloser, error) { return nil, errRewind }
	resp, err := rt.RoundTrip(req) //nolint:bodyclose // there is none
	assert.Nil(t, resp)
	require.ErrorIs(t, err, errRewind)
	require.ErrorIs(t, err, errBoom, "what happened before is not lost")
	assert.Equal(t, 1, n)
	assert.Equal(t, []policy.Kind{policy.Failure, policy.Canceled}, g.kinds())
	b.requireClosedOnce(t)
}
