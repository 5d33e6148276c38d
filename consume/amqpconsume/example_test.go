package amqpconsume_test

import (
	"context"
	"encoding/json"
	"log"
	"os/signal"
	"syscall"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/consume/amqpconsume"
	"github.com/breakwater-go/breakwater/policy"
)

func ExampleConsumer() { //nolint:testableexamples // needs a broker
	inventory, err := policy.New("inventory", breaker.Config{})
	if err != nil {
		log.Fatal(err)
	}
	c, err := amqpconsume.New(inventory, amqpconsume.Config{Queue: "orders", Config: consume.Config{Workers: 20}},
		func(_ context.Context, d *amqp.Delivery) error {
			var order struct{ SKU string }
			if err := json.Unmarshal(d.Body, &order); err != nil {
				return policy.AsPermanent(err) // to the dead letters, at once
			}
			return nil // reserve order.SKU
		})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := amqp.Dial("amqp://guest:guest@127.0.0.1/")
	if err != nil {
		log.Print(err) // and try again later
		return
	}
	defer func() { _ = conn.Close() }()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := c.Run(ctx, conn); err != nil {
		log.Print(err) // connect again
	}
}
