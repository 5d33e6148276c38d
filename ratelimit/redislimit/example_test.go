package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/ratelimit/redislimit"
	"github.com/breakwater-go/breakwater/ratelimit/sharedlimit"
)

// Two pipelines, as in two processes, share one limit.
func Example() {
	server, err := miniredis.Run() // yours is a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redislimit.NewClient(&redis.UniversalOptions{Addrs: []string{server.Addr()}})
	defer rdb.Close()

	limit := redislimit.Config{
		Client:   rdb,
		Limits:   []redislimit.Limit{{Rule: redislimit.FixedWindow{Limit: 3, Window: time.Hour}}},
		Settings: sharedlimit.Settings{Nodes: 2, Timeout: time.Second},
	}
	ctx := context.Background()
	for _, process := range []string{"one", "two"} {
		p, err := policy.New("inventory", limit)
		if err != nil {
			fmt.Println(err)
			return
		}
		for range 2 {
			_, err := policy.Do(ctx, p, func(context.Context) (int, error) { return 0, nil })
			fmt.Println(process, "limited:", errors.Is(err, ratelimit.ErrLimited))
		}
		_ = p.Close(ctx)
	}
	// Output:
	// one limited: false
	// one limited: false
	// two limited: false
	// two limited: true
}
