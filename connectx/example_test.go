package connectx_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/connectx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

type (
	item  = wrapperspb.StringValue
	count = wrapperspb.Int32Value
)

func ExampleClient() {
	calls := 0
	handler := connect.NewUnaryHandler(getPath, func(context.Context, *connect.Request[item]) (*connect.Response[count], error) {
		if calls++; calls <= 2 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("warming up"))
		}
		return connect.NewResponse(wrapperspb.Int32(12)), nil
	})
	server := httptest.NewServer(handler)
	defer server.Close()

	inventory, err := policy.New("inventory",
		bulkhead.Semaphore{Limit: 20},
		breaker.Config{},
		retry.Config{MaxAttempts: 3, BaseDelay: time.Millisecond},
	)
	if err != nil {
		panic(err)
	}
	// Generated code has the procedure's idempotency level in its client.
	client := connect.NewClient[item, count](http.DefaultClient, server.URL+getPath,
		connect.WithIdempotency(connect.IdempotencyNoSideEffects),
		connect.WithInterceptors(connectx.NewClient(inventory, connectx.ClientConfig{})),
	)
	resp, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("apples")))
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.Msg.GetValue(), "after", calls, "calls")
	// Output: 12 after 3 calls
}

func ExampleServer() {
	inbound, err := policy.New("inbound", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(1), Burst: 1})
	if err != nil {
		panic(err)
	}
	handler := connect.NewUnaryHandler(getPath,
		func(context.Context, *connect.Request[item]) (*connect.Response[count], error) {
			return connect.NewResponse(wrapperspb.Int32(12)), nil
		},
		connect.WithInterceptors(connectx.NewServer(inbound, connectx.ServerConfig{})),
	)
	server := httptest.NewServer(handler)
	defer server.Close()

	client := connect.NewClient[item, count](http.DefaultClient, server.URL+getPath)
	for range 2 {
		_, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("apples")))
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// resource_exhausted: over the limit
}
