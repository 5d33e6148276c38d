package amqpdefer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/amqpdefer"
	"github.com/breakwater-go/breakwater/policy"
)

// An order that fails is kept in RabbitMQ, and done by a worker, in another process perhaps.
func Example() { //nolint:testableexamples // needs a broker
	broker := amqpdefer.Broker{URL: "amqp://guest:guest@127.0.0.1/", Queue: "orders"}
	queue, err := amqpdefer.NewQueue(amqpdefer.QueueConfig{Broker: broker})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = queue.Close(context.Background()) }()
	orderService, err := policy.New("orders")
	if err != nil {
		log.Print(err)
		return
	}
	orders := policy.For(orderService, fallback.Defer[string]{Queue: queue})
	ctx := fallback.WithTask(context.Background(), fallback.Task{Kind: "order.create", Key: "4711", Payload: []byte("2 apples")})
	if _, err := orders.Do(ctx, func(context.Context) (string, error) { return "", errors.New("connection refused") }); err != nil {
		log.Print(err)
	}

	worker, err := amqpdefer.NewWorker(amqpdefer.WorkerConfig{
		Broker: broker,
		Handlers: map[string]fallback.Handler{
			"order.create": func(_ context.Context, d fallback.Delivery) error {
				log.Printf("%s: %s", d.Key, d.Payload)
				return nil
			},
		},
	})
	if err != nil {
		log.Print(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	worker.Run(ctx)
}

// All that is wrong is said at once.
func ExampleWorkerConfig_Validate() {
	err := amqpdefer.WorkerConfig{
		Broker:   amqpdefer.Broker{URL: "http://localhost/", Delays: []time.Duration{-time.Second}},
		Prefetch: -1,
	}.Validate()
	fmt.Println(err)
	// Output:
	// amqpdefer.URL: want an amqp or amqps URL
	// amqpdefer.Delays: -1s: at least 1ms
	// amqpdefer.Handlers: want at least one
	// amqpdefer.Prefetch: -1: 0 to 65535 (0 means 50)
}
