package rls_test

import (
	"context"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/rls"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// service answers as it is told to.
type service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	mu     sync.Mutex
	answer func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error)
	asked  []*ratelimitv3.RateLimitRequest
}

func (s *service) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	return s.answer(r)
}

func (s *service) set(answer func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func answer(codes ...ratelimitv3.RateLimitResponse_Code) func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	resp := &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}
	for i, c := range codes {
		resp.Statuses = append(resp.Statuses, &ratelimitv3.RateLimitResponse_DescriptorStatus{
			Code: c, CurrentLimit: &ratelimitv3.RateLimitResponse_RateLimit{}, DurationUntilReset: durationpb.New(time.Duration(i+1) * time.Minute),
		})
		if c == ratelimitv3.RateLimitResponse_OVER_LIMIT {
			resp.OverallCode = c
		}
	}
	return func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) { return resp, nil }
}

const (
	ok   = ratelimitv3.RateLimitResponse_OK
	over = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// serve starts the service on the loopback.
func serve(tb testing.TB, withHealth bool) (s *service, addr string, stop func()) {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	s = &service{answer: answer(ok)}
	return s, l.Addr().String(), start(tb, s, l, withHealth)
}

func start(tb testing.TB, s *service, l net.Listener, withHealth bool) (stop func()) {
	tb.Helper()
	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, s)
	if withHealth {
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		server.Stop()
		<-done
	})
	tb.Cleanup(stop)
	return stop
}

func config(addr string, limits ...rls.Limit) rls.Config {
	return rls.Config{
		Target: addr, DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
		Domain: "shop", Limits: limits, Settings: sharedlimit.Settings{Nodes: 4, Timeout: 2 * time.Second},
	}
}

func live(tb testing.TB, cfg rls.Config) *sharedlimit.Limiter {
	tb.Helper()
	l, err := rls.New("", cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = l.Close(context.WithoutCancel(tb.Context())) })
	return l
}

func shared(l *sharedlimit.Limiter) *policy.SharedSnapshot {
	return l.Snapshot(time.Now()).Limiter.Shared
}

func eventually(tb testing.TB, within time.Duration, what string, is func() bool) {
	tb.Helper()
	for start := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
		require.Less(tb, time.Since(start), within, what)
	}
}

var (
	route = rls.Limit{Name: "route", Entries: []rls.Entry{{"route", "/a"}}, Rate: ratelimit.PerSecond(100)}
	user  = rls.Limit{Name: "user", Entries: []rls.Entry{{"tier", "free"}}, KeyEntry: "user", Rate: ratelimit.PerSecond(10)}
)

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		cfg    rls.Config
		fields []string
	}{
		{"zero", rls.Config{}, []string{"Conn", "Domain", "Limits"}},
		{"leases", rls.Config{Target: "x", Domain: "d", Limits: []rls.Limit{route}, Settings: sharedlimit.Settings{LeaseFor: time.Second}}, []string{"Settings.LeaseFor"}},
		{"local", rls.Config{Target: "x", Domain: "d", Limits: []rls.Limit{route}, Settings: sharedlimit.Settings{LocalOnly: true}}, []string{"Settings.Nodes"}},
		{"settings", rls.Config{Target: "x", Domain: "d", Limits: []rls.Limit{route}, Settings: sharedlimit.Settings{Timeout: -1}}, []string{"Settings.Timeout"}},
		{"limits", rls.Config{Target: "x", Domain: "d", Limits: []rls.Limit{
			{}, {Entries: []rls.Entry{{}}, KeyOf: sharedlimit.ByKey, Rate: ratelimit.PerSecond(math.NaN()), Burst: -1},
		}}, []string{"Limits[0].Entries", "Limits[0].Rate.Tokens", "Limits[0].Rate.Per", "Limits[1].Name", "Limits[1].Entries[0].Key", "Limits[1].KeyOf", "Limits[1].Rate.Tokens", "Limits[1].Burst"}},
		{"target", rls.Config{Target: "127.0.0.1:1", Domain: "d", Limits: []rls.Limit{route}}, nil}, // no credentials: see below
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var fields []string
			if err := tt.cfg.Validate(); err != nil {
				for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
					fault := &policy.ConfigError{}
					require.ErrorAs(t, err, &fault)
					fields = append(fields, fault.Field)
				}
			}
			assert.Equal(t, tt.fields, fields)
			_, err := policy.New("dep", tt.cfg)
			require.Error(t, err)
		})
	}
}

func TestOneQuestionForACall(t *testing.T) {
	t.Parallel()
	s, addr, _ := serve(t, true)
	l := live(t, config(addr, route, user))
	ctx := policy.WithCall(t.Context(), policy.Call{Key: "ann"})
	s.set(answer(ok, ok))
	require.NoError(t, l.Wait(ctx, 3))
	require.Len(t, s.asked, 1)
	r := s.asked[0]
	assert.Equal(t, "shop", r.GetDomain())
	assert.EqualValues(t, 3, r.GetHitsAddend())
	var entries []string
	for _, d := range r.GetDescriptors() {
		for _, e := range d.GetEntries() {
			entries = append(entries, e.GetKey()+"="+e.GetValue())
		}
	}
	assert.Equal(t, []string{"route=/a", "tier=free", "user=ann"}, entries)

	// A refusal names the limit that has the longest to go, and says how long.
	for want, codes := range map[string][]ratelimitv3.RateLimitResponse_Code{"route": {over, ok}, "user": {over, over}} {
		s.set(answer(codes...))
		err := l.Wait(ctx, 1)
		require.ErrorIs(t, err, ratelimit.ErrLimited)
		part, re := &ratelimit.PartError{}, &policy.RejectedError{}
		require.ErrorAs(t, err, &part)
		require.ErrorAs(t, err, &re)
		assert.Equal(t, want, part.Part)
		assert.Equal(t, map[string]time.Duration{"route": time.Minute, "user": 2 * time.Minute}[want], re.RetryAfter)
	}
	assert.Zero(t, shared(l).Errors)

	// What is given back is for the next call.
	s.set(answer(ok, ok))
	now := time.Now()
	call := policy.Call{Key: "ann"}
	_, taken := l.TakeFor(ctx, now, &call, 1)
	require.True(t, taken)
	l.RefundFor(ctx, now, &call, 1)
	asked := len(s.asked)
	require.NoError(t, l.Wait(ctx, 1))
	assert.Len(t, s.asked, asked)
	require.Error(t, l.SetRate(ratelimit.PerSecond(1)), "the service is not told the rate")
}

// The service fails, hangs, and comes back: with a health service and without.
func TestServiceAway(t *testing.T) {
	t.Parallel()
	for _, withHealth := range []bool{true, false} {
		s, addr, stop := serve(t, withHealth)
		cfg := config(addr, route)
		cfg.Settings.Timeout = 100 * time.Millisecond
		l := live(t, cfg)
		eventually(t, 5*time.Second, "an answer", func() bool { return l.Wait(t.Context(), 1) == nil && shared(l).Latency.Count() > 0 })

		s.set(func(*ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
			return nil, status.Error(codes.Internal, "no store")
		})
		for range 30 {
			_ = l.Wait(t.Context(), 1)
		}
		assert.Equal(t, policy.SharedModeLocal, shared(l).Mode)
		s.set(answer(ok))
		eventually(t, 2*time.Second, "shared again", func() bool { return shared(l).Mode == policy.SharedModeShared })

		stop()
		for shared(l).Mode == policy.SharedModeShared {
			before := time.Now()
			_ = l.Wait(t.Context(), 1)
			assert.Less(t, time.Since(before), cfg.Settings.Timeout+200*time.Millisecond)
		}
		trips, passed := shared(l).RoundTrips, 0
		for range 1000 {
			if l.Wait(t.Context(), 1) == nil {
				passed++
			}
		}
		assert.LessOrEqual(t, passed, 30, "a quarter of 100")
		assert.LessOrEqual(t, shared(l).RoundTrips-trips, uint64(2))
		again, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		require.NoError(t, err)
		start(t, s, again, withHealth)
		eventually(t, 3*time.Second, "shared again", func() bool { return shared(l).Mode == policy.SharedModeShared })
		require.NoError(t, l.Wait(t.Context(), 1))
	}
}
