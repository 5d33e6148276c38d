//go:build !race

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

// What the interceptors add to an RPC, as in the reference page.
func TestAllocUnary(t *testing.T) {
	resp := connect.AnyResponse(connect.NewResponse(wrapperspb.String("12")))
	next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return resp, nil }
	p := pipe(t, "stock", bulkhead.Semaphore{Limit: 2}, breaker.Config{MinCalls: 100})
	with := testing.AllocsPerRun(1000, clientSide(t, connectx.NewClient(p, connectx.ClientConfig{}), next))
	without := testing.AllocsPerRun(1000, clientSide(t, connectx.NewClient(nil, connectx.ClientConfig{}), next))
	if with-without > 1 {
		t.Errorf("client: %v allocations more, want at most 1", with-without)
	}
	f := unary(t, func(p *policy.Pipeline) connect.Interceptor { return connectx.NewServer(p, connectx.ServerConfig{}) })
	if n := testing.AllocsPerRun(1000, f); n > 1 {
		t.Errorf("server: %v allocations, want at most 1", n)
	}
}
