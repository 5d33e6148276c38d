package redisx_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/redisx"
)

// A client whose server is away: after three calls nobody waits for it any more.
func Example() {
	sessions, err := policy.New("sessions", breaker.Config{ConsecutiveFailures: 3, OpenFor: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route to host") },
	})
	defer rdb.Close()
	if _, err := redisx.Guard(rdb, sessions, redisx.Config{}); err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		err := rdb.Get(context.Background(), "session:7").Err()
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			fmt.Println("refused:", re.Policy, re.Reason)
			continue
		}
		fmt.Println("failed:", err)
	}
	// Output:
	// failed: no route to host
	// failed: no route to host
	// failed: no route to host
	// refused: breaker open
}

// What go-redis would do against the pipeline is found before the first command.
func ExampleGuard() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	sessions, err := policy.New("sessions")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = redisx.Guard(rdb, sessions, redisx.Config{})
	fmt.Println(err)
	// Output:
	// sessions.redisx.Client.ContextTimeoutEnabled: false: want true, or commands go on after their deadline
	// sessions.redisx.Client.MaxRetries: 3: want -1, or set Config.ClientRetries to leave retries to go-redis: those of both multiply
	// sessions.redisx.Client.DialerRetries: 5: want 1, or set Config.ClientRetries: a server that is away takes seconds otherwise
}
