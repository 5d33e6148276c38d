package grpcx_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/grpcx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

func trustAll(context.Context) bool { return true }

func all(string) bool { return true }

func TestKinds(t *testing.T) {
	t.Parallel()
	want := map[policy.Kind][]codes.Code{
		policy.Success:   {codes.OK},
		policy.Busy:      {codes.Unavailable},
		policy.Throttled: {codes.ResourceExhausted},
		policy.Timeout:   {codes.DeadlineExceeded},
		policy.Canceled:  {codes.Canceled},
		policy.Failure:   {codes.Internal, codes.Unknown, codes.DataLoss, 17, 1000},
		policy.Permanent: {
			codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
			codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented,
		},
	}
	n := 0
	for kind, list := range want {
		for _, c := range list {
			assert.Equal(t, kind, grpcx.KindOf(c), c)
			n++
		}
	}
	assert.Equal(t, 17+2, n, "every code of gRPC, and two of nobody")
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for r := range policy.NumReasons {
		want := codes.Unavailable
		if r == policy.ReasonRate || r == policy.ReasonCost {
			want = codes.ResourceExhausted
		}
		assert.Equal(t, want, grpcx.CodeOf(&policy.RejectedError{Reason: r}), r)
	}
	assert.Equal(t, codes.ResourceExhausted, grpcx.CodeOf(&policy.RejectedError{Reason: policy.ReasonWait, Err: ratelimit.ErrLimited}),
		"a rate limit that would make it wait for too long")
}

// A refusal of any pipeline below, however wrapped, is a status with the time to come back.
func TestRefusalsBelowAServer(t *testing.T) {
	t.Parallel()
	rate := &policy.RejectedError{Dependency: "vendor", Policy: "ratelimit", Reason: policy.ReasonRate, RetryAfter: 1500 * time.Microsecond}
	open := &policy.RejectedError{Dependency: "db", Policy: "breaker", Reason: policy.ReasonOpen, RetryAfter: 2 * time.Second}
	tests := []struct {
		name     string
		err      error
		cfg      grpcx.ServerConfig
		code     codes.Code
		text     string
		info     time.Duration
		pushback []string
	}{
		{name: "over the limit", err: rate, code: codes.ResourceExhausted, text: "over the limit", info: 1500 * time.Microsecond, pushback: []string{"2"}},
		{name: "open", err: fmt.Errorf("order: %w", open), code: codes.Unavailable, text: "overloaded, try again later", info: 2 * time.Second, pushback: []string{"2000"}},
		{name: "unknown time", err: &policy.RejectedError{Reason: policy.ReasonConcurrency}, code: codes.Unavailable, text: "overloaded, try again later"},
		{
			name: "never", err: &policy.RejectedError{Reason: policy.ReasonCost, RetryAfter: policy.Never},
			code: codes.ResourceExhausted, text: "over the limit", pushback: []string{"-1"},
		},
		{
			name: "exposed", err: open, cfg: grpcx.ServerConfig{Expose: true}, code: codes.Unavailable,
			text: "db: rejected by breaker (open), retry after 2s", info: 2 * time.Second, pushback: []string{"2000"},
		},
		{
			name: "code of one's own", err: rate, code: codes.Unavailable, text: "overloaded, try again later", info: 1500 * time.Microsecond, pushback: []string{"2"},
			cfg: grpcx.ServerConfig{Code: func(re *policy.RejectedError) codes.Code {
				if re.Dependency == "vendor" {
					return codes.Unavailable
				}
				return codes.OK
			}},
		},
		{
			name: "a failure that was not retried", err: &policy.GaveUpError{Attempts: 1, Stop: policy.StopRejected, Last: status.Error(codes.DataLoss, "lost"), Cause: open},
			code: codes.DataLoss, text: "gave up after 1 attempt (db: rejected by breaker (open), retry after 2s): rpc error: code = DataLoss desc = lost",
		},
		{name: "marked busy", err: policy.AsBusy(errors.New("full"), time.Second), code: codes.Unavailable, text: "full", info: time.Second, pushback: []string{"1000"}},
		{name: "marked throttled", err: policy.AsThrottled(errors.New("quota"), 0), code: codes.ResourceExhausted, text: "quota"},
		{
			name: "marked, with a status", err: policy.AsBusy(status.Error(codes.Aborted, "again"), -1), code: codes.Aborted,
			text: "rpc error: code = Aborted desc = again", pushback: []string{"-1"},
		},
		{name: "anything else", err: errors.New("boom"), code: codes.Unknown, text: "boom"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			svc := &service{
				unary:  func(context.Context) error { return tt.err },
				duplex: func(duplexServer) error { return tt.err },
			}
			w, stop := start(t, svc, grpcx.NewServer(nil, tt.cfg).ServerOptions())
			defer stop()
			check := func(err error, trailer metadata.MD) {
				st := status.Convert(err)
				assert.Equal(t, tt.code, st.Code())
				assert.Equal(t, tt.text, st.Message())
				assert.Equal(t, tt.pushback, trailer.Get("grpc-retry-pushback-ms"))
				var info time.Duration
				exposed := false
				for _, d := range st.Details() {
					switch d := d.(type) {
					case *errdetails.RetryInfo:
						info = d.GetRetryDelay().AsDuration()
					case *errdetails.ErrorInfo:
						exposed = true
						assert.Equal(t, "OPEN", d.GetReason())
						assert.Equal(t, map[string]string{"dependency": "db", "policy": "breaker"}, d.GetMetadata())
					}
				}
				assert.Equal(t, tt.info, info)
				assert.Equal(t, tt.cfg.Expose, exposed)
			}
			var trailer metadata.MD
			_, err := w.UnaryCall(t.Context(), &pb.SimpleRequest{}, grpc.Trailer(&trailer))
			check(err, trailer)
			s, err := w.FullDuplexCall(t.Context())
			require.NoError(t, err)
			_, err = s.Recv()
			check(err, s.Trailer())
		})
	}
}

// The server's own limits, by key; the key stays inside.
func TestServerLimitsByKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := pipe(t, "in", ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 1})
		seen := make(chan string, 10)
		svc := &service{
			unary:  func(ctx context.Context) error { seen <- policy.CallFrom(ctx).Key; return nil },
			duplex: func(s duplexServer) error { seen <- policy.CallFrom(s.Context()).Key; return nil },
		}
		server := grpcx.NewServer(in, grpcx.ServerConfig{Key: func(ctx context.Context, _ string) string {
			return metadata.ValueFromIncomingContext(ctx, "user")[0]
		}})
		w, stop := start(t, svc, server.ServerOptions())
		defer stop()
		as := func(user string) context.Context { return metadata.AppendToOutgoingContext(t.Context(), "user", user) }
		_, err := w.UnaryCall(as("a"), &pb.SimpleRequest{})
		require.NoError(t, err)
		_, err = w.UnaryCall(as("a"), &pb.SimpleRequest{})
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		s, err := w.FullDuplexCall(as("a"))
		require.NoError(t, err)
		_, err = s.Recv()
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		s, err = w.FullDuplexCall(as("b"))
		require.NoError(t, err)
		_, _ = s.Recv()
		require.Equal(t, []string{"", ""}, []string{<-seen, <-seen})
	})
}

// The wishes of a server are obeyed, and nothing is sent again that may not be.
func TestRetriesAndPushback(t *testing.T) {
	t.Parallel()
	busy := status.New(codes.Unavailable, "later")
	with := func(d time.Duration) error {
		st, err := busy.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		require.NoError(t, err)
		return st.Err()
	}
	tests := []struct {
		name  string
		err   error
		push  []string
		cfg   grpcx.ClientConfig
		call  policy.Call
		tries int64
		took  time.Duration
	}{
		{name: "not idempotent", err: busy.Err(), tries: 1},
		{name: "by method", err: busy.Err(), cfg: grpcx.ClientConfig{Idempotent: grpcx.Methods(unaryMethod)}, tries: 3, took: 20 * time.Millisecond},
		{name: "by service", err: busy.Err(), cfg: grpcx.ClientConfig{Idempotent: grpcx.Methods("/grpc.testing.TestService/")}, tries: 3, took: 20 * time.Millisecond},
		{name: "by call", err: busy.Err(), call: policy.Call{Idempotent: true}, tries: 3, took: 20 * time.Millisecond},
		{name: "not by call", err: busy.Err(), cfg: grpcx.ClientConfig{Idempotent: all}, call: policy.Call{NoRetry: true}, tries: 1},
		{name: "trailer", err: busy.Err(), push: []string{"3000"}, cfg: grpcx.ClientConfig{Idempotent: all}, tries: 3, took: 6 * time.Second},
		{name: "RetryInfo", err: with(2 * time.Second), cfg: grpcx.ClientConfig{Idempotent: all}, tries: 3, took: 4 * time.Second},
		{name: "the longer of both", err: with(2 * time.Second), push: []string{"1000"}, cfg: grpcx.ClientConfig{Idempotent: all}, tries: 3, took: 4 * time.Second},
		{name: "never", err: with(2 * time.Second), push: []string{"-1"}, cfg: grpcx.ClientConfig{Idempotent: all}, tries: 1},
		{name: "nonsense is never", err: busy.Err(), push: []string{"soon"}, cfg: grpcx.ClientConfig{Idempotent: all}, tries: 1},
		{name: "several are never", err: busy.Err(), push: []string{"1", "2"}, cfg: grpcx.ClientConfig{Idempotent: all}, tries: 1},
		{name: "capped", err: busy.Err(), push: []string{"3000"}, cfg: grpcx.ClientConfig{Idempotent: all, MaxPushback: time.Second}, tries: 3, took: 2 * time.Second},
		{name: "not read", err: busy.Err(), push: []string{"-1"}, cfg: grpcx.ClientConfig{Idempotent: all, MaxPushback: -1}, tries: 3, took: 20 * time.Millisecond},
		{name: "permanent", err: status.Error(codes.NotFound, ""), cfg: grpcx.ClientConfig{Idempotent: all}, tries: 1},
		{name: "throttled without a time", err: status.Error(codes.ResourceExhausted, ""), cfg: grpcx.ClientConfig{Idempotent: all}, tries: 1},
		{name: "throttled", err: status.Error(codes.ResourceExhausted, ""), push: []string{"1000"}, cfg: grpcx.ClientConfig{Idempotent: all}, tries: 3, took: 2 * time.Second},
		{
			name: "judged by the caller", err: status.Error(codes.NotFound, ""), tries: 3, took: 20 * time.Millisecond,
			cfg: grpcx.ClientConfig{Idempotent: all, Classify: func(method string, st *status.Status) policy.Kind {
				if method == unaryMethod && st.Code() == codes.NotFound {
					return policy.Failure
				}
				return policy.NotRun
			}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				svc := &service{unary: func(ctx context.Context) error {
					if tt.push != nil {
						_ = grpc.SetTrailer(ctx, metadata.MD{"grpc-retry-pushback-ms": tt.push})
					}
					return tt.err
				}}
				out := guarded(t, "out", retries(3, 10*time.Millisecond))
				w, stop := start(t, svc, nil, grpcx.NewClient(out, tt.cfg).DialOptions()...)
				defer stop()
				begun := time.Now()
				_, err := w.UnaryCall(policy.WithCall(t.Context(), tt.call), &pb.SimpleRequest{})
				assert.Equal(t, status.Code(tt.err), status.Code(err))
				assert.Equal(t, tt.tries, svc.calls.Load())
				assert.Equal(t, tt.took, time.Since(begun))
				assert.Zero(t, inFlight(out))
			})
		})
	}
}

// The service config and the pipeline do not retry on top of each other.
func TestServiceConfigIsNotDoubled(t *testing.T) {
	t.Parallel()
	const cfg = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.01s","maxBackoff":"0.01s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	for _, service3 := range []bool{false, true} {
		t.Run(fmt.Sprintf("ServiceRetries %v", service3), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var attempts []int
				svc := &service{unary: func(ctx context.Context) error {
					attempts = append(attempts, policy.HopFrom(ctx).Attempt())
					return status.Error(codes.Unavailable, "later")
				}}
				out := guarded(t, "out", retries(3, 10*time.Millisecond))
				client := grpcx.NewClient(out, grpcx.ClientConfig{Idempotent: all, Internal: true, ServiceRetries: service3})
				w, stop := start(t, svc, grpcx.NewServer(nil, grpcx.ServerConfig{Trust: trustAll}).ServerOptions(),
					append(client.DialOptions(), grpc.WithDefaultServiceConfig(cfg))...)
				defer stop()
				_, err := w.UnaryCall(t.Context(), &pb.SimpleRequest{})
				require.Equal(t, codes.Unavailable, status.Code(err))
				require.Equal(t, []int{1, 2, 3}, attempts, "whoever retries says so")
			})
		})
	}
}

// layers runs three services in a row, each of which makes three attempts, above one that
// always fails, and returns how often that was called.
func layers(t *testing.T, internal bool, trust func(context.Context) bool) int64 {
	t.Helper()
	bottom := &service{unary: func(context.Context) error { return status.Error(codes.Unavailable, "down") }}
	w, stop := start(t, bottom, grpcx.NewServer(nil, grpcx.ServerConfig{Trust: trust}).ServerOptions(), clientOf(t, internal)...)
	defer stop()
	for range 2 {
		below := w
		svc := &service{unary: func(ctx context.Context) error {
			_, err := below.UnaryCall(ctx, &pb.SimpleRequest{})
			return err
		}}
		var stop func()
		w, stop = start(t, svc, grpcx.NewServer(nil, grpcx.ServerConfig{Trust: trust}).ServerOptions(), clientOf(t, internal)...)
		defer stop()
	}
	_, err := w.UnaryCall(t.Context(), &pb.SimpleRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err))
	return bottom.calls.Load()
}

func clientOf(t *testing.T, internal bool) []grpc.DialOption {
	t.Helper()
	return grpcx.NewClient(pipe(t, "below", retries(3, time.Millisecond)), grpcx.ClientConfig{Idempotent: all, Internal: internal}).DialOptions()
}

func TestLayersDoNotMultiply(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		internal bool
		trust    func(context.Context) bool
		want     int64
	}{
		{name: "no marks", want: 27},
		{name: "sent, not trusted", internal: true, want: 27},
		{name: "sent and trusted", internal: true, trust: trustAll, want: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { require.Equal(t, tt.want, layers(t, tt.internal, tt.trust)) })
		})
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var md metadata.MD
		var priority policy.Priority
		var left time.Duration
		look := func(ctx context.Context) error {
			md, _ = metadata.FromIncomingContext(ctx)
			priority = policy.CallFrom(ctx).Priority
			left = 0
			if d, ok := ctx.Deadline(); ok {
				left = time.Until(d)
			}
			return nil
		}
		svc := &service{unary: look, duplex: func(s duplexServer) error { return look(s.Context()) }}
		so := grpcx.NewServer(nil, grpcx.ServerConfig{Trust: trustAll}).ServerOptions()
		p := pipe(t, "out", policy.Timeouts{Attempt: time.Second})
		ours, stop := start(t, svc, so, grpcx.NewClient(p, grpcx.ClientConfig{Internal: true}).DialOptions()...)
		defer stop()
		vendor, stop := start(t, svc, so, grpcx.NewClient(p, grpcx.ClientConfig{}).DialOptions()...)
		defer stop()

		// Marks that are there came from somebody else.
		ctx := policy.WithPriority(t.Context(), policy.PriorityHigh)
		passed := metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", "7", "breakwater-priority", "critical", "x", "y")
		_, err := ours.UnaryCall(passed, &pb.SimpleRequest{})
		require.NoError(t, err)
		require.Empty(t, md.Get("grpc-previous-rpc-attempts"))
		require.Equal(t, []string{"high"}, md.Get("breakwater-priority"))
		require.Equal(t, []string{"y"}, md.Get("x"))
		require.Equal(t, policy.PriorityHigh, priority)
		require.InDelta(t, time.Second, left, float64(time.Millisecond), "the attempt's timeout travels")

		_, err = ours.UnaryCall(policy.WithHop(t.Context(), policy.NewHop(3)), &pb.SimpleRequest{})
		require.NoError(t, err)
		require.Equal(t, []string{"2"}, md.Get("grpc-previous-rpc-attempts"))
		require.Empty(t, md.Get("breakwater-priority"))

		s, err := ours.FullDuplexCall(ctx)
		require.NoError(t, err)
		_, _ = s.Recv()
		require.Equal(t, []string{"high"}, md.Get("breakwater-priority"))

		_, err = vendor.UnaryCall(policy.WithHop(ctx, policy.NewHop(3)), &pb.SimpleRequest{})
		require.NoError(t, err)
		require.Empty(t, md.Get("grpc-previous-rpc-attempts"), "strangers are told nothing")
		require.Empty(t, md.Get("breakwater-priority"))
	})
}

func TestTrustNetworks(t *testing.T) {
	t.Parallel()
	trust := grpcx.TrustNetworks(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	for addr, want := range map[string]bool{
		"10.1.2.3:5": true, "[::ffff:10.1.2.3]:5": true, "[fd00::1%eth0]:5": true, "11.0.0.1:5": false, "[fe80::1]:5": false,
	} {
		a := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))
		assert.Equal(t, want, trust(peer.NewContext(t.Context(), &peer.Peer{Addr: a})), addr)
	}
	assert.False(t, trust(t.Context()))
	assert.False(t, trust(peer.NewContext(t.Context(), &peer.Peer{})))
	assert.False(t, trust(peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{Name: "10.0.0.1"}})))
}

func TestDeclared(t *testing.T) {
	t.Parallel()
	fd := &descriptorpb.FileDescriptorProto{
		Name: new("grpcx_declared_test.proto"), Package: new("grpcx.declared"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("M")}},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: new("S"), Method: []*descriptorpb.MethodDescriptorProto{
			{
				Name: new("Read"), InputType: new(".grpcx.declared.M"), OutputType: new(".grpcx.declared.M"),
				Options: &descriptorpb.MethodOptions{IdempotencyLevel: descriptorpb.MethodOptions_NO_SIDE_EFFECTS.Enum()},
			},
			{Name: new("Write"), InputType: new(".grpcx.declared.M"), OutputType: new(".grpcx.declared.M")},
		}}},
	}
	if _, err := protoregistry.GlobalFiles.FindFileByPath(fd.GetName()); err != nil { // with -count, once
		file, err := protodesc.NewFile(fd, protoregistry.GlobalFiles)
		require.NoError(t, err)
		require.NoError(t, protoregistry.GlobalFiles.RegisterFile(file))
	}
	assert.True(t, grpcx.Declared("/grpcx.declared.S/Read"))
	for _, m := range []string{"/grpcx.declared.S/Write", "/grpcx.declared.S/Gone", "/grpcx.declared.M", "", "/", unaryMethod} {
		assert.False(t, grpcx.Declared(m), m)
	}
}

// A hedge shares nothing with the attempt beside it nor with a caller who has left.
func TestHedgesHaveRepliesOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		svc := &service{unary: func(ctx context.Context) error {
			if n.Add(1) == 1 {
				time.Sleep(time.Second) // the first is slow, and not interrupted
			}
			return grpc.SetHeader(ctx, metadata.Pairs("from", "server"))
		}}
		out := guarded(t, "out", retry.Hedge{Delay: 100 * time.Millisecond, Budget: retry.NoBudget{}})
		w, stop := start(t, svc, nil, grpcx.NewClient(out, grpcx.ClientConfig{Idempotent: all}).DialOptions()...)
		defer stop()
		req := &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("x")}}
		var header, trailer metadata.MD
		var from peer.Peer
		resp, err := w.UnaryCall(t.Context(), req, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from))
		require.NoError(t, err)
		req.Payload.Body[0] = 'y'
		require.Equal(t, "x", string(resp.GetPayload().GetBody()))
		require.Equal(t, []string{"server"}, header.Get("from"))
		require.NotNil(t, from.Addr)
		require.EqualValues(t, 2, n.Load())
		time.Sleep(2 * time.Second)
		require.Zero(t, inFlight(out))
	})
}

// Attempts on workers, and handlers.
func TestPools(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, in := pipe(t, "out", bulkhead.Pool{Workers: 2}), pipe(t, "in", bulkhead.Pool{Workers: 2})
		svc := &service{duplex: func(s duplexServer) error { return s.Send(&pb.StreamingOutputCallResponse{}) }}
		w, stop := start(t, svc, grpcx.NewServer(in, grpcx.ServerConfig{}).ServerOptions(), grpcx.NewClient(out, grpcx.ClientConfig{}).DialOptions()...)
		resp, err := w.UnaryCall(t.Context(), &pb.SimpleRequest{})
		require.NoError(t, err)
		require.Equal(t, "served", resp.GetUsername())
		s, err := w.FullDuplexCall(t.Context())
		require.NoError(t, err)
		require.NoError(t, readAll(t, s, nil))
		synctest.Wait()
		require.Zero(t, inFlight(out))
		require.Zero(t, inFlight(in))
		stop()
		require.NoError(t, out.Close(t.Context()))
		require.NoError(t, in.Close(t.Context()))
	})
}

func TestFallbackAnswers(t *testing.T) {
	t.Parallel()
	client := func(answer any) *grpcx.Client {
		return grpcx.NewClient(pipe(t, "out", fallback.Value(answer)), grpcx.ClientConfig{})
	}
	fails := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		return status.Error(codes.Internal, "boom")
	}
	call := func(c *grpcx.Client) (string, error) {
		reply := &pb.SimpleResponse{Hostname: "old"}
		err := c.Unary(t.Context(), unaryMethod, &pb.SimpleRequest{}, reply, nil, fails)
		return reply.GetUsername() + reply.GetHostname(), err
	}
	got, err := call(client(&pb.SimpleResponse{Username: "plain"}))
	require.NoError(t, err)
	require.Equal(t, "plain", got)
	_, err = call(client(&pb.Empty{}))
	require.ErrorContains(t, err, "SimpleResponse")
	_, err = call(client((*pb.SimpleResponse)(nil)))
	require.ErrorContains(t, err, "nil")
}

// Only the opening of a stream is retried; none of its messages has been sent.
func TestOpeningIsRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := guarded(t, "out", retries(3, 10*time.Millisecond))
		svc := &service{duplex: func(s duplexServer) error { return s.Send(&pb.StreamingOutputCallResponse{}) }}
		fails := 2
		flaky := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if fails--; fails >= 0 {
				return nil, status.Error(codes.Unavailable, "no connection")
			}
			return next(ctx, desc, cc, m, opts...)
		}
		w, stop := start(t, svc, nil, append(grpcx.NewClient(out, grpcx.ClientConfig{}).DialOptions(), grpc.WithChainStreamInterceptor(flaky))...)
		defer stop()
		s, err := w.FullDuplexCall(t.Context())
		require.NoError(t, err)
		require.NoError(t, readAll(t, s, nil))
		synctest.Wait()
		require.Zero(t, inFlight(out))
		require.Equal(t, figures{calls: 3, failures: 2}, figuresOf(out))
	})
}

// An attempt's timeout ends when a stream is open, on both sides.
func TestAttemptTimeoutEndsWithTheOpening(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out, in := guarded(t, "out", policy.Timeouts{Attempt: time.Second}), guarded(t, "in", policy.Timeouts{Attempt: time.Second})
		svc := &service{duplex: func(s duplexServer) error {
			if err := s.SendHeader(metadata.Pairs("a", "b")); err != nil {
				return err
			}
			time.Sleep(5 * time.Second)
			_, dated := s.Context().Deadline()
			assert.False(t, dated, "calls that the handler makes have no deadline of the attempt's")
			return s.Context().Err()
		}}
		w, stop := start(t, svc, grpcx.NewServer(in, grpcx.ServerConfig{}).ServerOptions(), grpcx.NewClient(out, grpcx.ClientConfig{}).DialOptions()...)
		defer stop()
		s, err := w.FullDuplexCall(t.Context())
		require.NoError(t, err)
		md, err := s.Header()
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, md.Get("a"))
		require.NoError(t, readAll(t, s, nil))
		synctest.Wait()
		require.Equal(t, figures{calls: 1}, figuresOf(out))
		require.Equal(t, figures{calls: 1}, figuresOf(in))
	})
}

// A stream that is lost gives its permit back when the garbage collector finds it.
func TestLostStreamIsFound(t *testing.T) {
	t.Parallel()
	out := guarded(t, "out")
	lost := make(chan grpcx.AbandonedStream, 1)
	svc := &service{duplex: func(s duplexServer) error { <-s.Context().Done(); return nil }}
	client := grpcx.NewClient(out, grpcx.ClientConfig{OnAbandoned: func(s grpcx.AbandonedStream) { lost <- s; panic("dropped") }})
	w, stop := start(t, svc, nil, client.DialOptions()...)
	defer stop()
	func() {
		_, err := w.FullDuplexCall(t.Context())
		require.NoError(t, err)
	}()
	require.Equal(t, 1, inFlight(out))
	for i := 0; ; i++ {
		runtime.GC()
		select {
		case s := <-lost:
			require.Equal(t, grpcx.AbandonedStream{Dependency: "out", Method: streamMethod}, s)
			require.Zero(t, inFlight(out))
			require.EqualValues(t, 1, out.Snapshot().Abandoned)
			return
		case <-time.After(20 * time.Millisecond):
			require.Less(t, i, 500, "it was not found")
		}
	}
}

// A stream that an interceptor below has made does not tell gRPC's way that it has ended.
type silent struct {
	grpc.ClientStream

	ctx context.Context //nolint:containedctx // it is a stream
	err error
}

func (s *silent) RecvMsg(any) error        { return s.err }
func (s *silent) Context() context.Context { return s.ctx }

func TestStreamsOfOtherInterceptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := guarded(t, "out")
		c := grpcx.NewClient(out, grpcx.ClientConfig{})
		open := func(ctx context.Context, err error, desc *grpc.StreamDesc) grpc.ClientStream {
			s, e := c.Stream(ctx, desc, nil, streamMethod, func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
				return &silent{ctx: ctx, err: err}, nil
			})
			require.NoError(t, e)
			require.Equal(t, 1, inFlight(out))
			return s
		}
		require.Error(t, open(t.Context(), status.Error(codes.Internal, "boom"), &grpc.StreamDesc{ServerStreams: true}).RecvMsg(nil))
		require.Zero(t, inFlight(out))
		require.Equal(t, figures{calls: 1, failures: 1}, figuresOf(out))
		require.NoError(t, open(t.Context(), nil, &grpc.StreamDesc{ClientStreams: true}).RecvMsg(nil))
		require.Zero(t, inFlight(out))
		ctx, cancel := context.WithCancel(t.Context())
		s := open(ctx, nil, &grpc.StreamDesc{ServerStreams: true})
		require.NoError(t, s.RecvMsg(nil))
		require.Equal(t, 1, inFlight(out))
		cancel()
		synctest.Wait()
		require.Zero(t, inFlight(out))
		runtime.KeepAlive(s)
	})
}

// What was not sent has a status of its own.
func TestErrorsHaveAStatus(t *testing.T) {
	t.Parallel()
	p := pipe(t, "out", breaker.Config{MinCalls: 1, FailureRatio: 0.5, OpenFor: time.Minute})
	c := grpcx.NewClient(p, grpcx.ClientConfig{})
	call := func(ctx context.Context) error {
		return c.Unary(ctx, unaryMethod, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			return status.Error(codes.Internal, "boom")
		})
	}
	require.Equal(t, codes.Internal, status.Code(call(t.Context())))
	err := call(t.Context())
	require.Equal(t, codes.Unavailable, status.Code(err))
	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok)
	require.Equal(t, re.Error(), err.Error())
	require.Equal(t, policy.NotRun, policy.Classify(t.Context(), err).Kind, "a pipeline above counts it as not run")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = call(ctx)
	require.Equal(t, codes.Canceled, status.Code(err))
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithTimeout(t.Context(), 0)
	defer cancel()
	err = call(ctx)
	require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestNoPipelineChangesNothing(t *testing.T) {
	t.Parallel()
	c := grpcx.NewClient(nil, grpcx.ClientConfig{})
	require.Equal(t, 300*time.Second, c.Config().MaxPushback)
	require.Len(t, c.DialOptions(), 2)
	svc := &service{duplex: func(s duplexServer) error { return s.Send(&pb.StreamingOutputCallResponse{}) }}
	w, stop := start(t, svc, grpcx.NewServer(nil, grpcx.ServerConfig{}).ServerOptions(), c.DialOptions()...)
	defer stop()
	resp, err := w.UnaryCall(t.Context(), &pb.SimpleRequest{})
	require.NoError(t, err)
	require.Equal(t, "served", resp.GetUsername())
	s, err := w.FullDuplexCall(t.Context())
	require.NoError(t, err)
	require.NoError(t, readAll(t, s, nil))
}
