package grpcx_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/grpcx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// flaky fails twice, and then serves.
type flaky struct {
	pb.UnimplementedTestServiceServer

	calls int
}

func (f *flaky) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	if f.calls++; f.calls <= 2 {
		return nil, status.Error(codes.Unavailable, "warming up")
	}
	return &pb.Empty{}, nil
}

// connect serves in memory; yours is a target and credentials.
func connect(srv pb.TestServiceServer, so []grpc.ServerOption, do []grpc.DialOption) (_ pb.TestServiceClient, stop func(), _ error) {
	lis := bufconn.Listen(1 << 16)
	server := grpc.NewServer(so...)
	pb.RegisterTestServiceServer(server, srv)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///memory", append(do,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
	)...)
	if err != nil {
		return nil, nil, err
	}
	return pb.NewTestServiceClient(conn), func() { _ = conn.Close(); server.Stop(); <-done }, nil
}

func ExampleClient() {
	inventory, err := policy.New("inventory",
		bulkhead.Semaphore{Limit: 20},
		breaker.Config{},
		retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	client := grpcx.NewClient(inventory, grpcx.ClientConfig{
		Idempotent: grpcx.Methods("/grpc.testing.TestService/EmptyCall"),
	})
	svc, stop, err := connect(&flaky{}, nil, client.DialOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	_, err = svc.EmptyCall(context.Background(), &pb.Empty{})
	fmt.Println(err, inventory.Snapshot().Retries, "retries")
	// Output: <nil> 2 retries
}

func ExampleServer() {
	inbound, err := policy.New("inbound", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(1), Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	svc, stop, err := connect(&flaky{calls: 2}, grpcx.NewServer(inbound, grpcx.ServerConfig{}).ServerOptions(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	for range 2 {
		_, err = svc.EmptyCall(context.Background(), &pb.Empty{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}

// A refusal is both: an error of breakwater and one of gRPC.
func ExampleClient_refusal() {
	down, err := policy.New("down", breaker.Config{MinCalls: 1, FailureRatio: 0.5, OpenFor: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	svc, stop, err := connect(&flaky{}, nil, grpcx.NewClient(down, grpcx.ClientConfig{}).DialOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	_, err = svc.EmptyCall(context.Background(), &pb.Empty{})
	fmt.Println(status.Code(err), errors.Is(err, breaker.ErrOpen))
	_, err = svc.EmptyCall(context.Background(), &pb.Empty{})
	fmt.Println(status.Code(err), errors.Is(err, breaker.ErrOpen))
	// Output:
	// Unavailable false
	// Unavailable true
}
