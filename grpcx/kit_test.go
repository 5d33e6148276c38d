package grpcx_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	streamMethod = "/grpc.testing.TestService/FullDuplexCall"
)

type (
	duplexServer = grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]
	uploadServer = grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse]
)

// service is a server made of functions.
type service struct {
	pb.UnimplementedTestServiceServer

	unary  func(context.Context) error
	duplex func(duplexServer) error
	upload func(uploadServer) error
	calls  atomic.Int64
}

func (s *service) UnaryCall(ctx context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.calls.Add(1)
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return &pb.SimpleResponse{Payload: req.GetPayload(), Username: "served"}, nil
}

func (s *service) FullDuplexCall(ss duplexServer) error {
	s.calls.Add(1)
	return s.duplex(ss)
}

func (s *service) StreamingInputCall(ss uploadServer) error {
	s.calls.Add(1)
	return s.upload(ss)
}

// world is a server and a connection to it, in memory.
type world struct {
	pb.TestServiceClient

	conn   *grpc.ClientConn
	server *grpc.Server
}

// recovered is what a panic becomes, outside of the interceptors under test.
var recovered = status.Error(codes.Internal, "panic")

func recoverUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if recover() != nil {
			err = recovered
		}
	}()
	return h(ctx, req)
}

func recoverStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
	defer func() {
		if recover() != nil {
			err = recovered
		}
	}()
	return h(srv, ss)
}

// start runs a server and connects to it, until stop.
func start(t *testing.T, svc *service, so []grpc.ServerOption, do ...grpc.DialOption) (_ *world, stop func()) {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	so = append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(recoverUnary), grpc.ChainStreamInterceptor(recoverStream)}, so...)
	server := grpc.NewServer(so...)
	pb.RegisterTestServiceServer(server, svc)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(lis)
	}()
	do = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
	}, do...)
	conn, err := grpc.NewClient("passthrough:///bufconn", do...)
	require.NoError(t, err)
	return &world{TestServiceClient: pb.NewTestServiceClient(conn), conn: conn, server: server}, func() {
		_ = conn.Close()
		server.Stop()
		<-served
	}
}

// pipe builds a pipeline.
func pipe(tb testing.TB, name string, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New(name, policies...)
	require.NoError(tb, err)
	return p
}

// guarded has a bulkhead and a breaker whose figures a test reads.
func guarded(tb testing.TB, name string, more ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	return pipe(tb, name, append([]policy.Policy{
		bulkhead.Semaphore{Limit: 2}, breaker.Config{MinCalls: 100, SlowAfter: time.Second},
	}, more...)...)
}

// retries makes n attempts with the given delay between them.
func retries(n int, delay time.Duration) retry.Config {
	return retry.Config{
		MaxAttempts: n, BaseDelay: delay, MaxDelay: delay, Factor: 1, Jitter: retry.NoJitter,
		MaxPushback: time.Hour, Budget: retry.NoBudget{},
	}
}

// inFlight returns the permits that are taken.
func inFlight(p *policy.Pipeline) int {
	n := 0
	for _, ps := range p.Snapshot().Policies {
		if ps.Bulkhead != nil {
			n += ps.Bulkhead.InFlight
		}
	}
	return n
}

// figures are those of the breaker's window.
type figures struct{ calls, failures, slow uint64 }

func figuresOf(p *policy.Pipeline) figures {
	for _, ps := range p.Snapshot().Policies {
		if b := ps.Breaker; b != nil {
			return figures{b.Calls, b.Failures, b.Slow}
		}
	}
	return figures{}
}
