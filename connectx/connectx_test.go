package connectx_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/connectx"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

var always = func(connect.Spec) bool { return true }

// retries makes three attempts with a second between them.
func retries() retry.Config {
	return retry.Config{
		MaxAttempts: 3, BaseDelay: time.Second, MaxDelay: time.Second, Factor: 1, Jitter: retry.NoJitter,
		MaxPushback: time.Hour, Budget: retry.NoBudget{},
	}
}

func TestRetriesWhatMayBeSentTwice(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cfg   connectx.ClientConfig
		opts  []connect.ClientOption
		call  policy.Call
		code  connect.Code
		calls int64
	}{
		{name: "unknown", code: connect.CodeUnavailable, calls: 1},
		{name: "declared", opts: []connect.ClientOption{connect.WithIdempotency(connect.IdempotencyNoSideEffects)}, code: connect.CodeUnavailable, calls: 3},
		{name: "declared, and denied", opts: []connect.ClientOption{connect.WithIdempotency(connect.IdempotencyIdempotent)}, cfg: connectx.ClientConfig{Idempotent: func(connect.Spec) bool { return false }}, code: connect.CodeUnavailable, calls: 1},
		{name: "by config", cfg: connectx.ClientConfig{Idempotent: always}, code: connect.CodeInternal, calls: 3},
		{name: "by the call", call: policy.Call{Idempotent: true}, code: connect.CodeDeadlineExceeded, calls: 3},
		{name: "not by the call", cfg: connectx.ClientConfig{Idempotent: always}, call: policy.Call{NoRetry: true}, code: connect.CodeUnavailable, calls: 1},
		{name: "permanent", cfg: connectx.ClientConfig{Idempotent: always}, code: connect.CodeNotFound, calls: 1},
		{name: "aborted", cfg: connectx.ClientConfig{Idempotent: always}, code: connect.CodeAborted, calls: 1},
		{name: "throttled, and no time said", cfg: connectx.ClientConfig{Idempotent: always}, code: connect.CodeResourceExhausted, calls: 1},
		{name: "judged", cfg: connectx.ClientConfig{Idempotent: always, Classify: func(connect.Spec, *connect.Error) policy.Kind { return policy.Busy }}, code: connect.CodeNotFound, calls: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				get := func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
					calls.Add(1)
					return nil, connect.NewError(tt.code, errors.New("no"))
				}
				w := start(t, service{get: get}, nil, connectx.NewClient(pipe(t, "stock", retries()), tt.cfg), tt.opts...)
				defer w.close()
				_, err := w.stock(policy.WithCall(t.Context(), tt.call))
				require.Equal(t, tt.code, connect.CodeOf(err), "%v", err)
				require.Equal(t, tt.calls, calls.Load())
			})
		})
	}
}

// A retry sends the request whole, and gets the answer.
func TestRetriesGetTheAnswer(t *testing.T) {
	t.Parallel()
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				get := func(_ context.Context, req *connect.Request[text]) (*connect.Response[text], error) {
					if calls.Add(1) < 3 {
						return nil, connect.NewError(connect.CodeUnavailable, errors.New("warming up"))
					}
					return connect.NewResponse(wrapperspb.String("12 " + req.Msg.GetValue() + " " + req.Header().Get("From"))), nil
				}
				w := start(t, service{get: get}, nil, connectx.NewClient(pipe(t, "stock", retries()), connectx.ClientConfig{Idempotent: always}), opts...)
				defer w.close()
				req := connect.NewRequest(wrapperspb.String("apples"))
				req.Header().Set("From", "here")
				resp, err := w.get.CallUnary(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, "12 apples here", resp.Msg.GetValue())
			})
		})
	}
}

// A refusal of any pipeline below a handler reaches the caller with the right code and the
// time to come back, over every protocol, and the caller's pipeline waits for it.
func TestRefusalIsUnderstood(t *testing.T) {
	t.Parallel()
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limit := pipe(t, "vendor", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(1), Burst: 1})
				var calls int
				get := func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
					calls++
					if err := policy.Run(ctx, limit, func(context.Context) error { return nil }); err != nil {
						return nil, fmt.Errorf("cannot ask: %w", err)
					}
					return connect.NewResponse(wrapperspb.String("12")), nil
				}
				server := connectx.NewServer(nil, connectx.ServerConfig{})
				w := start(t, service{get: get}, server, nil, opts...)
				defer w.close()
				_, err := w.stock(t.Context())
				require.NoError(t, err)
				_, err = w.stock(t.Context())
				require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), "%v", err)
				ce, ok := errors.AsType[*connect.Error](err)
				require.True(t, ok)
				assert.Equal(t, "over the limit", ce.Message())
				assert.Equal(t, "60", ce.Meta().Get("Retry-After"))
				ms, err := strconv.Atoi(ce.Meta().Get("Grpc-Retry-Pushback-Ms"))
				require.NoError(t, err)
				assert.InDelta(t, 60_000, ms, 1000)
				require.Len(t, ce.Details(), 1)
				assert.Equal(t, "google.rpc.RetryInfo", ce.Details()[0].Type())

				began := time.Now()
				again := start(t, service{get: get}, server, connectx.NewClient(pipe(t, "stock", retries()), connectx.ClientConfig{Idempotent: always}), opts...)
				defer again.close()
				_, err = again.stock(t.Context())
				require.NoError(t, err)
				assert.InDelta(t, 60, time.Since(began).Seconds(), 1.5)
				assert.Equal(t, 4, calls)
			})
		})
	}
}

func TestRefusalSaysAsMuchAsItMay(t *testing.T) {
	t.Parallel()
	full := &policy.RejectedError{Dependency: "vendor", Policy: "bulkhead", Reason: policy.ReasonConcurrency, RetryAfter: policy.Never}
	for name, tt := range map[string]struct {
		cfg     connectx.ServerConfig
		code    connect.Code
		message string
	}{
		"strangers": {code: connect.CodeUnavailable, message: "overloaded, try again later"},
		"exposed":   {cfg: connectx.ServerConfig{Expose: true}, code: connect.CodeUnavailable, message: full.Error()},
		"own code":  {cfg: connectx.ServerConfig{Code: func(*policy.RejectedError) connect.Code { return connect.CodeAborted }}, code: connect.CodeAborted, message: "overloaded, try again later"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := start(t, service{get: fails(full)}, connectx.NewServer(nil, tt.cfg), nil)
				defer w.close()
				_, err := w.stock(t.Context())
				require.Equal(t, tt.code, connect.CodeOf(err))
				ce, _ := errors.AsType[*connect.Error](err)
				assert.Equal(t, tt.message, ce.Message())
				assert.Equal(t, "-1", ce.Meta().Get("Grpc-Retry-Pushback-Ms"))
				assert.Empty(t, ce.Meta().Get("Retry-After"))
				assert.Len(t, ce.Details(), map[bool]int{true: 1}[tt.cfg.Expose])
			})
		})
	}
}

// An error that a handler keeps for all its calls stays as it is.
func TestHandlersErrorIsNotChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kept := connect.NewError(connect.CodeUnavailable, policy.AsBusy(errors.New("later"), 2*time.Second))
		w := start(t, service{get: fails(kept)}, connectx.NewServer(nil, connectx.ServerConfig{}), nil)
		defer w.close()
		for range 2 {
			_, err := w.stock(t.Context())
			require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
			ce, _ := errors.AsType[*connect.Error](err)
			assert.Equal(t, []string{"2"}, ce.Meta().Values("Retry-After"))
			assert.Len(t, ce.Details(), 1)
		}
		require.Empty(t, kept.Meta())
		require.Empty(t, kept.Details())
	})
}

// Three layers that retry three times each make three calls of the last, where they tell each
// other, and not 27.
func TestLayersDoNotMultiply(t *testing.T) {
	t.Parallel()
	for name, internal := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				bottom := func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
					calls.Add(1)
					return nil, connect.NewError(connect.CodeUnavailable, errors.New("dead"))
				}
				cfg := connectx.ClientConfig{Idempotent: always, Internal: internal}
				trust := connectx.ServerConfig{}
				if internal {
					trust.Trust = func(context.Context, connectx.Incoming) bool { return true }
				}
				server := connectx.NewServer(nil, trust)
				next := start(t, service{get: bottom}, server, connectx.NewClient(pipe(t, "3", retries()), cfg))
				defer next.close()
				for _, layer := range []string{"2", "1"} {
					below := next
					pass := func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
						_, err := below.stock(ctx)
						return nil, err
					}
					next = start(t, service{get: pass}, server, connectx.NewClient(pipe(t, layer, retries()), cfg))
					defer next.close()
				}
				_, err := next.stock(t.Context())
				require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
				require.Equal(t, map[bool]int64{true: 3, false: 27}[internal], calls.Load())
			})
		})
	}
}

func TestPriorityTravels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen policy.Priority
		get := func(ctx context.Context, _ *connect.Request[text]) (*connect.Response[text], error) {
			seen = policy.CallFrom(ctx).Priority
			return connect.NewResponse(wrapperspb.String("12")), nil
		}
		p := pipe(t, "stock")
		trusted := start(t, service{get: get}, connectx.NewServer(nil, connectx.ServerConfig{Trust: func(context.Context, connectx.Incoming) bool { return true }}),
			connectx.NewClient(p, connectx.ClientConfig{Internal: true}))
		defer trusted.close()
		_, err := trusted.stock(policy.WithPriority(t.Context(), policy.PriorityCritical))
		require.NoError(t, err)
		require.Equal(t, policy.PriorityCritical, seen)

		stranger := start(t, service{get: get}, connectx.NewServer(nil, connectx.ServerConfig{}), connectx.NewClient(p, connectx.ClientConfig{Internal: true}))
		defer stranger.close()
		_, err = stranger.stock(policy.WithPriority(t.Context(), policy.PriorityCritical))
		require.NoError(t, err)
		require.Equal(t, policy.PriorityNormal, seen)
	})
}

func TestTrustNetworks(t *testing.T) {
	t.Parallel()
	trust := connectx.TrustNetworks(netip.MustParsePrefix("10.0.0.0/8"))
	for addr, want := range map[string]bool{
		"10.1.2.3:80": true, "[::ffff:10.1.2.3]:80": true, "11.0.0.1:80": false, "10.1.2.3": false, "": false, "server.test": false,
	} {
		assert.Equal(t, want, trust(t.Context(), connectx.Incoming{Peer: connect.Peer{Addr: addr}}), addr)
	}
}

func TestServerCountsByKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, "inbound", ratelimit.Keyed{Rate: ratelimit.PerMinute(1), Burst: 1})
		key := func(_ context.Context, in connectx.Incoming) string { return in.Header.Get("Shop") }
		w := start(t, service{get: answers("12")}, connectx.NewServer(p, connectx.ServerConfig{Key: key}), nil)
		defer w.close()
		for _, step := range []struct {
			shop string
			code connect.Code
		}{{"a", 0}, {"b", 0}, {"a", connect.CodeResourceExhausted}} {
			req := connect.NewRequest(wrapperspb.String("apples"))
			req.Header().Set("Shop", step.shop)
			_, err := w.get.CallUnary(t.Context(), req)
			if step.code == 0 {
				require.NoError(t, err)
			} else {
				require.Equal(t, step.code, connect.CodeOf(err))
			}
		}
	})
}

func TestFallbackAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, "stock", fallback.Func(func(context.Context, policy.FailedCall) (connect.AnyResponse, error) {
			return connect.NewResponse(wrapperspb.String("plenty")), nil
		}))
		w := start(t, service{get: fails(errors.New("boom"))}, nil, connectx.NewClient(p, connectx.ClientConfig{}))
		defer w.close()
		got, err := w.stock(t.Context())
		require.NoError(t, err)
		require.Equal(t, "plenty", got)
	})
}

// A stream that nobody can read any more gives its permit back.
func TestStreamThatIsLost(t *testing.T) {
	t.Parallel()
	lost := make(chan connectx.AbandonedStream, 1)
	p := pipe(t, "stock", bulkhead.Semaphore{Limit: 1}, breaker.Config{})
	w := start(t, service{watch: func(ctx context.Context, s *connect.BidiStream[text, text]) error {
		if err := s.Send(wrapperspb.String("12")); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}, nil, connectx.NewClient(p, connectx.ClientConfig{OnAbandoned: func(s connectx.AbandonedStream) { lost <- s }}))
	defer w.close()
	func() {
		s := w.watch.CallBidiStream(context.WithoutCancel(t.Context()))
		require.NoError(t, s.Send(wrapperspb.String("apples")))
		_, err := s.Receive()
		require.NoError(t, err)
	}()
	for range 1000 {
		runtime.GC()
		select {
		case s := <-lost:
			require.Equal(t, connectx.AbandonedStream{Dependency: "stock", Procedure: watchPath}, s)
			require.EqualValues(t, 1, p.Snapshot().Abandoned)
			require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
			return
		default:
			runtime.Gosched()
		}
	}
	t.Fatal("the stream was not found")
}

// A stream that fails half-way is a failure, at both sides, and one that was refused says so.
func TestStreamFailsHalfWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := pipe(t, "out", bulkhead.Semaphore{Limit: 1}, breaker.Config{MinCalls: 100})
		in := pipe(t, "in", bulkhead.Semaphore{Limit: 1}, breaker.Config{MinCalls: 100})
		w := start(t, service{watch: func(_ context.Context, s *connect.BidiStream[text, text]) error {
			_ = s.Send(wrapperspb.String("12"))
			return connect.NewError(connect.CodeUnavailable, errors.New("later"))
		}}, connectx.NewServer(in, connectx.ServerConfig{}), connectx.NewClient(out, connectx.ClientConfig{}))
		defer w.close()
		s := w.watch.CallBidiStream(t.Context())
		require.NoError(t, s.Send(wrapperspb.String("apples")))

		other := w.watch.CallBidiStream(t.Context())
		require.ErrorIs(t, other.Send(wrapperspb.String("pears")), policy.ErrRejected)
		_, err := other.Receive()
		require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
		require.NoError(t, other.CloseResponse())

		_, err = s.Receive()
		require.NoError(t, err)
		_, err = s.Receive()
		require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
		require.NoError(t, s.CloseRequest())
		require.NoError(t, s.CloseResponse())
		synctest.Wait()
		for _, p := range []*policy.Pipeline{out, in} {
			for _, ps := range p.Snapshot().Policies {
				if ps.Breaker != nil {
					assert.EqualValues(t, 1, ps.Breaker.Failures, p.Name())
					assert.EqualValues(t, 1, ps.Breaker.Calls, p.Name())
				}
				if ps.Bulkhead != nil {
					assert.Zero(t, ps.Bulkhead.InFlight, p.Name())
				}
			}
		}
	})
}

// Nothing in the way.
func TestWithoutPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, service{get: answers("12")}, connectx.NewServer(nil, connectx.ServerConfig{}), connectx.NewClient(nil, connectx.ClientConfig{}))
		defer w.close()
		got, err := w.stock(t.Context())
		require.NoError(t, err)
		require.Equal(t, "12", got)
	})
}
