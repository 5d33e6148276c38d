package httpx_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/hop"
	"github.com/breakwater-go/breakwater/httpx"
	"github.com/breakwater-go/breakwater/internal/memhttp"
	"github.com/breakwater-go/breakwater/policy"
)

// trustAll trusts every peer.
func trustAll(*http.Request) bool { return true }

// layer is a service that answers by calling the next one through a pipeline of its own,
// and passes on a status that says failure.
func layer(next http.RoundTripper) http.Handler {
	client := &http.Client{Transport: next}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://next.test/", http.NoBody)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})
}

// without removes a header from the responses of a handler.
func without(key string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		rec.Header().Del(key)
		w.WriteHeader(rec.Code)
	})
}

// Incident "orders": three layers that make three attempts each, above a server that
// fails. Left alone, they make 27 calls of one. With the mark of the request alone, a
// layer that is part of a retry makes one attempt: 7 (the lowest retries under the first
// attempt of the two above, 3; the middle one's two retries, 2; the highest one's two, 2).
// With the mark of the response too, nobody retries what the lowest has retried: 3.
func TestIncidentOrdersThreeLayers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		internal bool
		hop      httpx.Hop
		strip    bool // of responses
		want     int64
	}{
		{name: "no marks", want: 27},
		{name: "sent and not trusted", internal: true, want: 27},
		{name: "trusted and not sent", hop: httpx.Hop{Trust: trustAll}, want: 27},
		{name: "the request's mark", internal: true, hop: httpx.Hop{Trust: trustAll}, strip: true, want: 7},
		{name: "both marks", internal: true, hop: httpx.Hop{Trust: trustAll}, want: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var bottom atomic.Int64
				down := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					bottom.Add(1)
					w.WriteHeader(http.StatusServiceUnavailable)
				})
				cfg := httpx.Config{Internal: tt.internal}
				client := func(s *memhttp.Server) *httpx.RoundTripper {
					return transport(t, cfg, pipe(t, retries(3, 100*time.Millisecond)), s.Transport())
				}
				service := func(next *memhttp.Server) *memhttp.Server {
					h := tt.hop.Handler(layer(client(next)))
					if tt.strip {
						h = without(hop.PushbackHeader, h)
					}
					return serve(t, h.ServeHTTP)
				}
				top := client(service(service(down)))
				resp, err := top.RoundTrip(get(t.Context(), t, "http://top.test/"))
				require.NoError(t, err)
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "the failure itself comes through")
				finish(t, resp)
				assert.Equal(t, tt.want, bottom.Load(), "calls at the bottom")
			})
		})
	}
}

// The time that the caller waits shortens the work below, also where nobody hears that it
// has left; it never lengthens it.
func TestDeadlineTravels(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		total  time.Duration // of the caller
		trust  func(*http.Request) bool
		server time.Duration // the server's own bound; 0 is none
		want   time.Duration // until the work ends
	}{
		{name: "trusted", total: 2 * time.Second, trust: trustAll, want: 2 * time.Second},
		{name: "trusted, and the server allows less", total: 2 * time.Second, trust: trustAll, server: time.Second, want: time.Second},
		{name: "trusted, and the server allows more", total: 2 * time.Second, trust: trustAll, server: time.Hour, want: 2 * time.Second},
		{name: "not trusted", total: 2 * time.Second, server: time.Minute, want: time.Minute},
		{name: "no deadline", trust: trustAll, server: time.Minute, want: time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				worked := make(chan time.Duration, 1)
				s := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if tt.server > 0 {
						ctx, cancel := context.WithTimeout(r.Context(), tt.server)
						defer cancel()
						r = r.WithContext(ctx)
					}
					httpx.Hop{Trust: tt.trust}.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						<-r.Context().Done()
						worked <- time.Since(start)
					})).ServeHTTP(w, r)
				})
				deaf := tripper(func(req *http.Request) (*http.Response, error) {
					// A proxy that does not tell the server when its caller leaves.
					return s.Transport().RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
				})
				rt := transport(t, httpx.Config{Internal: true}, pipe(t, policy.Timeouts{Total: tt.total}), deaf)
				if resp, err := rt.RoundTrip(get(t.Context(), t, s.URL())); err == nil {
					finish(t, resp)
				}
				assert.Equal(t, tt.want, <-worked)
			})
		})
	}
}

// What a request says of itself, attempt by attempt and layer by layer.
func TestMarksOfARequest(t *testing.T) {
	t.Parallel()
	type marks struct{ attempt, timeout, priority string }
	var got []marks
	next := tripper(func(req *http.Request) (*http.Response, error) {
		got = append(got, marks{req.Header.Get(hop.AttemptHeader), req.Header.Get(hop.TimeoutHeader), req.Header.Get(hop.PriorityHeader)})
		return reply(req, 503, ""), nil
	})
	synctest.Test(t, func(t *testing.T) {
		send := func(ctx context.Context, internal bool, change func(*http.Request), policies ...policy.Policy) []marks {
			got = nil
			req := get(ctx, t, "http://server.test/")
			req.Header = nil
			if change != nil {
				change(req)
			}
			before := stateOf(req)
			resp, err := transport(t, httpx.Config{Internal: internal}, pipe(t, policies...), next).RoundTrip(req)
			require.NoError(t, err)
			finish(t, resp)
			assert.Equal(t, before, stateOf(req), "the caller's request is not modified")
			return got
		}
		ctx := t.Context()
		twice := retries(2, time.Second)
		assert.Equal(t, []marks{{}, {}}, send(ctx, false, nil, twice), "to a stranger, none")
		assert.Equal(t, []marks{{attempt: "1"}, {attempt: "2"}}, send(ctx, true, nil, twice))
		assert.Equal(t, []marks{{"1", "3000", ""}, {"2", "2000", ""}}, send(ctx, true, nil, twice, policy.Timeouts{Total: 3 * time.Second}), "what is left")
		assert.Equal(t, []marks{{"1", "500", ""}}, send(ctx, true, nil, policy.Timeouts{Total: 3 * time.Second, Attempt: 500 * time.Millisecond}))

		high := policy.WithPriority(ctx, policy.PriorityHigh)
		assert.Equal(t, []marks{{"1", "", "high"}}, send(high, true, nil))
		assert.Equal(t, []marks{{}}, send(high, false, nil))

		retried := policy.WithHop(ctx, policy.NewHop(3))
		assert.Equal(t, []marks{{attempt: "3"}}, send(retried, true, nil, twice), "part of a third attempt, and not retried")

		forged := func(req *http.Request) {
			req.Header = http.Header{hop.AttemptHeader: {"7"}, hop.TimeoutHeader: {"1"}, hop.PriorityHeader: {"critical"}}
		}
		assert.Equal(t, []marks{{attempt: "1"}}, send(ctx, true, forged), "marks of a request that is passed on are not ours")
		assert.Equal(t, []marks{{"7", "1", "critical"}}, send(ctx, false, forged), "and to a stranger they are only headers")
	})
}

// seen is what a handler finds in its context.
type seen struct {
	attempt  int
	known    bool
	left     time.Duration
	priority policy.Priority
}

func TestHopReadsMarks(t *testing.T) {
	t.Parallel()
	all := http.Header{hop.AttemptHeader: {"2"}, hop.TimeoutHeader: {"1500"}, hop.PriorityHeader: {"critical"}}
	tests := []struct {
		name   string
		trust  func(*http.Request) bool
		header http.Header
		want   seen
	}{
		{name: "trusted", trust: trustAll, header: all, want: seen{2, true, 1500 * time.Millisecond, policy.PriorityCritical}},
		{name: "not trusted", trust: func(*http.Request) bool { return false }, header: all, want: seen{attempt: 1}},
		{name: "nobody is", header: all, want: seen{attempt: 1}},
		{name: "nothing said", trust: trustAll, want: seen{attempt: 1, known: true}},
		{name: "nonsense", trust: trustAll, header: http.Header{
			hop.AttemptHeader: {"-2"}, hop.TimeoutHeader: {"1e9"}, hop.PriorityHeader: {"CRITICAL"},
		}, want: seen{attempt: 1, known: true}},
		{name: "out of bounds", trust: trustAll, header: http.Header{
			hop.AttemptHeader: {"1000"}, hop.TimeoutHeader: {"999999999"},
		}, want: seen{attempt: 1, known: true}},
		{name: "no time is no timeout", trust: trustAll, header: http.Header{hop.TimeoutHeader: {"0"}}, want: seen{attempt: 1, known: true}},
		{name: "twice", trust: trustAll, header: http.Header{
			hop.AttemptHeader: {"2", "1"}, hop.TimeoutHeader: {"1", "2"}, hop.PriorityHeader: {"low", "high"},
		}, want: seen{attempt: 1, known: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got seen
				var ctx context.Context
				h := httpx.Hop{Trust: tt.trust}.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					ctx = r.Context() //nolint:fatcontext // it is looked at afterwards
					known := policy.HopFrom(ctx)
					got = seen{known.Attempt(), known != nil, 0, policy.CallFrom(ctx).Priority}
					if d, ok := ctx.Deadline(); ok {
						got.left = time.Until(d)
					}
				}))
				req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
				req.Header = tt.header
				h.ServeHTTP(httptest.NewRecorder(), req)
				assert.Equal(t, tt.want, got)
				if tt.want.left > 0 {
					assert.ErrorIs(t, ctx.Err(), context.Canceled, "nothing of it is left behind")
				}
			})
		})
	}
}

// A response is marked where a call was retried in vain and the response is one that
// would be retried.
func TestHopMarksTheResponse(t *testing.T) {
	t.Parallel()
	failed := func(t *testing.T, attempts int) func(*http.Request) {
		t.Helper()
		p := pipe(t, retries(attempts, time.Second))
		return func(r *http.Request) {
			_, _ = policy.Do(r.Context(), p, func(context.Context) (int, error) { return 0, errBoom })
		}
	}
	tests := []struct {
		name     string
		attempts int // of a call that fails
		status   int
		trust    func(*http.Request) bool
		want     string
	}{
		{name: "retried in vain", attempts: 2, status: 503, trust: trustAll, want: "-1"},
		{name: "retried in vain, 500", attempts: 3, status: 500, trust: trustAll, want: "-1"},
		{name: "retried in vain, 429", attempts: 2, status: 429, trust: trustAll, want: "-1"},
		{name: "not retried", attempts: 1, status: 503, trust: trustAll},
		{name: "a fallback answered", attempts: 2, status: 200, trust: trustAll},
		{name: "an answer that nobody retries", attempts: 2, status: 404, trust: trustAll},
		{name: "for a stranger", attempts: 2, status: 503},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				work := failed(t, tt.attempts)
				h := httpx.Hop{Trust: tt.trust}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusEarlyHints) // no response yet
					work(r)
					w.WriteHeader(tt.status)
					w.WriteHeader(599) // a second one changes nothing
				}))
				s := serve(t, h.ServeHTTP)
				resp, err := s.Transport().RoundTrip(get(t.Context(), t, s.URL()))
				require.NoError(t, err)
				finish(t, resp)
				assert.Equal(t, tt.status, resp.StatusCode)
				assert.Equal(t, tt.want, resp.Header.Get(hop.PushbackHeader))
			})
		})
	}
}

// What a server of ours asks for is obeyed, and what others do is not.
func TestPushbackOfOurs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		internal bool
		values   []string
		after    string // Retry-After
		want     []time.Duration
	}{
		{name: "never", internal: true, values: []string{"-1"}, want: []time.Duration{0}},
		{name: "not to be read", internal: true, values: []string{"soon"}, want: []time.Duration{0}},
		{name: "two of them", internal: true, values: []string{"5", "5"}, want: []time.Duration{0}},
		{name: "never, whatever Retry-After says", internal: true, values: []string{"-1"}, after: "1", want: []time.Duration{0}},
		{name: "for longer than is honoured", internal: true, values: []string{"99999999"}, want: []time.Duration{0}},
		{name: "below a second", internal: true, values: []string{"250"}, want: []time.Duration{0, 250 * time.Millisecond}},
		{name: "the longer one", internal: true, values: []string{"250"}, after: "1", want: []time.Duration{0, time.Second}},
		{name: "at once", internal: true, values: []string{"0"}, want: []time.Duration{0, 0}},
		{name: "of a stranger", values: []string{"-1"}, want: []time.Duration{0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at []time.Duration
				next := tripper(func(req *http.Request) (*http.Response, error) {
					at = append(at, time.Since(start))
					resp := reply(req, 503, "")
					resp.Header[hop.PushbackHeader] = tt.values
					if tt.after != "" {
						resp.Header.Set("Retry-After", tt.after)
					}
					return resp, nil
				})
				resp, err := transport(t, httpx.Config{Internal: tt.internal}, pipe(t, retries(2, 0)), next).RoundTrip(get(t.Context(), t, "http://server.test/"))
				require.NoError(t, err)
				finish(t, resp)
				if tt.name == "at once" || tt.name == "of a stranger" {
					require.Len(t, at, 2)
					return
				}
				assert.Equal(t, tt.want, at)
			})
		})
	}
}

// The writer that a handler gets can do what the server's can.
func TestHopKeepsTheWriterAble(t *testing.T) {
	t.Parallel()
	able := func(w http.ResponseWriter) (list string) {
		if _, ok := w.(http.Flusher); ok {
			list += "flush "
		}
		if _, ok := w.(http.Hijacker); ok {
			list += "hijack "
		}
		if _, ok := w.(io.ReaderFrom); ok {
			list += "read "
		}
		if _, ok := w.(http.Pusher); ok {
			list += "push "
		}
		if _, ok := w.(http.CloseNotifier); ok { //nolint:staticcheck // those who use it are still there
			list += "close "
		}
		return list
	}
	for name, unencrypted := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		synctest.Test(t, func(t *testing.T) {
			var outside, inside string
			var flushed error
			watched := httpx.Hop{Trust: trustAll}.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inside = able(w)
				if rf, ok := w.(io.ReaderFrom); ok {
					_, _ = rf.ReadFrom(strings.NewReader("one "))
				}
				w.(http.Flusher).Flush()
				_, _ = io.WriteString(w, "two")
				flushed = http.NewResponseController(w).Flush()
				policy.HopFrom(r.Context()).Spend()
			}))
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				outside = able(w)
				watched.ServeHTTP(w, r)
			})
			tr := s.Transport()
			if unencrypted {
				tr.Protocols = new(http.Protocols)
				tr.Protocols.SetUnencryptedHTTP2(true)
			}
			resp, err := tr.RoundTrip(get(t.Context(), t, s.URL()))
			require.NoError(t, err, name)
			assert.Contains(t, finish(t, resp), "two", name)
			assert.Equal(t, outside, inside, name)
			assert.NoError(t, flushed, name)
			assert.Empty(t, resp.Header.Get(hop.PushbackHeader), "a success is not marked")
		})
	}
	bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	httpx.Hop{Trust: trustAll}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		assert.Empty(t, able(w))
		_, err := io.WriteString(w, "x")
		assert.NoError(t, err)
	})).ServeHTTP(bare, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
}

func TestHopHijacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := httpx.Hop{Trust: trustAll}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = buf.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
			_ = buf.Flush()
		}))
		s := serve(t, h.ServeHTTP)
		resp, err := s.Transport().RoundTrip(get(t.Context(), t, s.URL()))
		require.NoError(t, err)
		assert.Equal(t, "hi", finish(t, resp))
	})
}

func TestTrustNetworks(t *testing.T) {
	t.Parallel()
	trust := httpx.TrustNetworks(netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"))
	for addr, want := range map[string]bool{
		"10.1.2.3:4": true, "10.2.2.3:4": false, "[::ffff:10.1.2.3]:4": true, "[fd12::1]:4": true, "[fd12::1%eth0]:4": true,
		"[2001:db8::1]:4": false, "10.1.2.3": false, "": false, "@": false, "pipe": false, "10.1.2.3:99999": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = addr
		r.Header.Set("X-Forwarded-For", "10.1.2.3")
		assert.Equal(t, want, trust(r), addr)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = "10.1.2.3:4"
	assert.False(t, httpx.TrustNetworks()(r), "no network, nobody")
}

// Whatever a trusted request says, the handler runs, its deadline is no later than the
// server's, and its attempt and priority are in their ranges.
func FuzzHop(f *testing.F) {
	f.Add("2", "1500", "high", "1")
	f.Add("-1", "0", "", "")
	f.Add("999", "99999999", "critical", "x")
	f.Add("1e3", " 5", "9", "\x00")
	f.Fuzz(func(t *testing.T, attempt, timeout, priority, more string) {
		server := time.Now().Add(time.Hour)
		ctx, cancel := context.WithDeadline(t.Context(), server)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		req.Header = http.Header{hop.AttemptHeader: {attempt}, hop.TimeoutHeader: {timeout}, hop.PriorityHeader: {priority}}
		if more != "" {
			req.Header.Add(hop.TimeoutHeader, more)
		}
		ran := false
		httpx.Hop{Trust: trustAll}.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			n := policy.HopFrom(r.Context()).Attempt()
			require.GreaterOrEqual(t, n, 1)
			require.LessOrEqual(t, n, hop.MaxAttempt)
			d, ok := r.Context().Deadline()
			require.True(t, ok)
			require.False(t, d.After(server))
			p := policy.CallFrom(r.Context()).Priority
			require.GreaterOrEqual(t, p, policy.PriorityLow)
			require.LessOrEqual(t, p, policy.PriorityCritical)
		})).ServeHTTP(httptest.NewRecorder(), req)
		require.True(t, ran)
	})
}
