package httpx_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/policy"
)

// move is how a server behaves once.
type move struct {
	status int // 0 is an error without a response
	size   int // of the body
	breaks bool
	delay  time.Duration
	wish   string // Retry-After
}

func moves() *rapid.Generator[move] {
	return rapid.Custom(func(t *rapid.T) move {
		return move{
			status: rapid.SampledFrom([]int{0, 200, 200, 204, 302, 404, 408, 429, 500, 501, 503}).Draw(t, "status"),
			size:   rapid.SampledFrom([]int{0, 1, 100, 64 << 10, 64<<10 + 1, 200_000}).Draw(t, "size"),
			breaks: rapid.Bool().Draw(t, "breaks"),
			delay:  rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond, 2 * time.Second}).Draw(t, "delay"),
			wish:   rapid.SampledFrom([]string{"", "0", "1", "-1", "9999999999", "soon"}).Draw(t, "Retry-After"),
		}
	})
}

// Whatever the server does and whenever the caller leaves: a response or an error,
// every body closed once, nothing held afterwards, never more attempts than allowed.
func TestTransportProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(moves(), 1, 6).Draw(rt, "moves")
		attempts := rapid.IntRange(1, 5).Draw(rt, "attempts")
		timeouts := policy.Timeouts{Attempt: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(rt, "attempt timeout")}
		leave := rapid.SampledFrom([]time.Duration{0, time.Second, 5 * time.Second}).Draw(rt, "caller leaves after")
		method := rapid.SampledFrom([]string{"GET", "POST", "PUT"}).Draw(rt, "method")
		rewind := rapid.Bool().Draw(rt, "body can be rewound")
		read := rapid.IntRange(0, 300_000).Draw(rt, "bytes read")
		synctest.Test(t, func(t *testing.T) {
			g := &gate{}
			s := &server{script: script}
			p := pipe(t, retries(attempts, 100*time.Millisecond), g, timeouts)
			b := &bodies{data: []byte("body")}
			ctx := t.Context()
			if leave > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				time.AfterFunc(leave, cancel)
			}
			req := b.request(ctx, t, method, "http://server.test")
			if !rewind {
				req.GetBody = nil
			}
			resp, err := httpx.Transport(p, s).RoundTrip(req)
			require.NotEqual(t, resp == nil, err == nil, "response %v, error %v", resp, err)
			if err == nil {
				last := s.sent[len(s.sent)-1]
				assert.Zero(t, last.closed.Load(), "the response is open")
				want, wantErr := io.ReadAll(io.LimitReader(s.content(len(s.sent)-1), int64(read)))
				got, gotErr := io.ReadAll(io.LimitReader(resp.Body, int64(read)))
				assert.Equal(t, len(want), len(got), "bytes read")
				assert.Equal(t, wantErr, gotErr)
				require.NoError(t, resp.Body.Close())
			}
			for i, w := range s.sent {
				assert.EqualValues(t, 1, w.closed.Load(), "closes of response %d of %d", i+1, len(s.sent))
				assert.True(t, i == len(s.sent)-1 || w.read.Load() <= 64<<10, "%d bytes of response %d were read", w.read.Load(), i+1)
			}
			b.requireClosedOnce(t)
			assert.Equal(t, 0, g.held())
			assert.LessOrEqual(t, s.requests, attempts)
			if method == "POST" || !rewind {
				assert.LessOrEqual(t, s.requests, 1)
			}
		})
	})
}

// server behaves as its script says, and repeats the last move.
type server struct {
	script   []move
	requests int
	sent     []*watched
	moves    []move // of sent
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	_ = req.Body.Close()
	m := s.script[min(s.requests, len(s.script)-1)]
	s.requests++
	select {
	case <-time.After(m.delay):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if m.status == 0 {
		return nil, errBoom
	}
	s.moves = append(s.moves, m)
	w := &watched{Reader: s.content(len(s.moves) - 1)}
	s.sent = append(s.sent, w)
	resp := stream(req, m.status, w)
	resp.Header.Set("Retry-After", m.wish)
	return resp, nil
}

func (s *server) content(i int) io.Reader {
	m := s.moves[i]
	r := io.Reader(strings.NewReader(strings.Repeat("x", m.size)))
	if m.breaks {
		r = io.MultiReader(r, iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	return r
}

// Many callers at once, some of whom leave, with the real policies.
func TestTransportConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []*bodies
		n := 0
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			n++
			i := n
			mu.Unlock()
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(time.Duration(i%7) * time.Millisecond)
			switch i % 10 {
			case 3, 7:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 5:
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, "some text")
		})
		permits, err := bulkhead.New("", bulkhead.Semaphore{Limit: 8, MaxWait: 20 * time.Millisecond})
		require.NoError(t, err)
		sp := &spy{next: s.Transport()}
		p := pipe(t, retries(3, time.Millisecond), permits, breaker.Config{FailureRatio: 0.9}, policy.Timeouts{Attempt: time.Second})
		c := &http.Client{Transport: httpx.Transport(p, sp)}
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := range 50 {
					ctx, cancel := context.WithCancel(t.Context())
					if (i+j)%9 == 0 {
						time.AfterFunc(2*time.Millisecond, cancel)
					}
					b := &bodies{data: []byte("body")}
					mu.Lock()
					sent = append(sent, b)
					mu.Unlock()
					resp, err := c.Do(b.request(ctx, t, http.MethodPut, s.URL()))
					if !assert.NotEqual(t, resp == nil, err == nil) {
						cancel()
						return
					}
					if err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					} else if !errors.Is(err, context.Canceled) && !errors.Is(err, policy.ErrRejected) {
						assert.NoError(t, err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		synctest.Wait() // a transport may close a body after it has returned
		for _, b := range sent {
			b.requireClosedOnce(t)
		}
		assert.Equal(t, 0, permits.InFlight())
		snap := p.Snapshot()
		var calls uint64
		for _, n := range snap.Calls {
			calls += n
		}
		assert.EqualValues(t, 16*50, calls)
		assert.NotZero(t, snap.Retries)
		for _, b := range sp.bodies {
			require.EqualValues(t, 1, b.closed.Load())
		}
	})
}
