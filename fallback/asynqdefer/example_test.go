package asynqdefer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/asynqdefer"
	"github.com/breakwater-go/breakwater/policy"
)

// An order that fails is kept in Redis, and done there by a worker.
func Example() {
	server, err := miniredis.Run() // yours is a real one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer client.Close()

	queue, err := asynqdefer.NewQueue(asynqdefer.QueueConfig{Redis: client})
	if err != nil {
		fmt.Println(err)
		return
	}
	orderService, err := policy.New("orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := policy.For(orderService, fallback.Defer[string]{
		Queue:    queue,
		Accepted: func(t fallback.Task) string { return "order " + t.Key + " is accepted" },
	})
	ctx := fallback.WithTask(context.Background(), fallback.Task{Kind: "order.create", Key: "4711", Payload: []byte("2 apples")})
	fmt.Println(orders.Do(ctx, func(context.Context) (string, error) { return "", errors.New("connection refused") }))

	// In another process, perhaps.
	ctx, stop := context.WithCancel(context.Background())
	worker, err := asynqdefer.NewWorker(asynqdefer.WorkerConfig{
		Redis: client,
		Handlers: map[string]fallback.Handler{
			"order.create": func(_ context.Context, d fallback.Delivery) error {
				fmt.Printf("%s: %s\n", d.Key, d.Payload)
				stop() // yours works until the process ends
				return nil
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("done:", worker.Snapshot().Done)
	// Output:
	// order 4711 is accepted <nil>
	// 4711: 2 apples
	// done: 1
}
