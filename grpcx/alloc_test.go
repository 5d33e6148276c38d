//go:build !race

package grpcx_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/breakwater-go/breakwater/grpcx"
)

// What the interceptors add to an RPC, as in the reference page.
func TestAllocUnary(t *testing.T) {
	out, in := guarded(t, "out"), guarded(t, "in")
	c, s := grpcx.NewClient(out, grpcx.ClientConfig{}), grpcx.NewServer(in, grpcx.ServerConfig{})
	req, reply := &pb.SimpleRequest{}, &pb.SimpleResponse{}
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	n := testing.AllocsPerRun(1000, func() { _ = c.Unary(t.Context(), unaryMethod, req, reply, nil, invoke) })
	if n > 3 {
		t.Errorf("client: %v allocations, want at most 3", n)
	}
	info := &grpc.UnaryServerInfo{FullMethod: unaryMethod}
	handle := func(context.Context, any) (any, error) { return reply, nil }
	n = testing.AllocsPerRun(1000, func() { _, _ = s.Unary(t.Context(), req, info, handle) })
	if n > 1 {
		t.Errorf("server: %v allocations, want at most 1", n)
	}
}
