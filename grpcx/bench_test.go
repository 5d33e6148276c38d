package grpcx_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/breakwater-go/breakwater/grpcx"
)

func BenchmarkClientUnary(b *testing.B) {
	c := grpcx.NewClient(guarded(b, "out"), grpcx.ClientConfig{})
	req, reply := &pb.SimpleRequest{}, &pb.SimpleResponse{}
	invoke := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Unary(b.Context(), unaryMethod, req, reply, nil, invoke)
	}
}

func BenchmarkServerUnary(b *testing.B) {
	s := grpcx.NewServer(guarded(b, "in"), grpcx.ServerConfig{})
	req, reply := &pb.SimpleRequest{}, &pb.SimpleResponse{}
	info := &grpc.UnaryServerInfo{FullMethod: unaryMethod}
	handle := func(context.Context, any) (any, error) { return reply, nil }
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Unary(b.Context(), req, info, handle)
	}
}
