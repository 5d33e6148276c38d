package connectx_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/connectx"
	"github.com/breakwater-go/breakwater/policy"
)

// unary returns what an interceptor adds to a unary RPC, at the side that the request is of.
func unary(tb testing.TB, wrap func(*policy.Pipeline) connect.Interceptor) func() {
	tb.Helper()
	p := pipe(tb, "stock", bulkhead.Semaphore{Limit: 2}, breaker.Config{MinCalls: 100})
	resp := connect.AnyResponse(connect.NewResponse(wrapperspb.String("12")))
	f := wrap(p).WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return resp, nil })
	ctx, req := tb.Context(), connect.NewRequest(wrapperspb.String("apples"))
	return func() { _, _ = f(ctx, req) }
}

func BenchmarkServerUnary(b *testing.B) {
	f := unary(b, func(p *policy.Pipeline) connect.Interceptor { return connectx.NewServer(p, connectx.ServerConfig{}) })
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
}

// clientSide makes a request look like a client's to an interceptor: only connect itself can.
func clientSide(tb testing.TB, i connect.Interceptor, next connect.UnaryFunc) func() {
	tb.Helper()
	c := connect.NewClient[text, text](nil, "http://server.test"+getPath, connect.WithInterceptors(i, connect.UnaryInterceptorFunc(
		func(connect.UnaryFunc) connect.UnaryFunc { return next })))
	ctx, req := tb.Context(), connect.NewRequest(wrapperspb.String("apples"))
	return func() { _, _ = c.CallUnary(ctx, req) }
}

func BenchmarkClientUnary(b *testing.B) {
	resp := connect.AnyResponse(connect.NewResponse(wrapperspb.String("12")))
	next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return resp, nil }
	p := pipe(b, "stock", bulkhead.Semaphore{Limit: 2}, breaker.Config{MinCalls: 100})
	for name, i := range map[string]connect.Interceptor{
		"with":    connectx.NewClient(p, connectx.ClientConfig{}),
		"without": connectx.NewClient(nil, connectx.ClientConfig{}),
	} {
		b.Run(name, func(b *testing.B) {
			f := clientSide(b, i, next)
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
