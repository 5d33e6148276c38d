package kafkaconsume_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/consume/kafkaconsume"
	"github.com/breakwater-go/breakwater/policy"
)

func ExampleConsumer() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders")) // yours is elsewhere
	if err != nil {
		panic(err)
	}
	defer cluster.Close()

	inventory, err := policy.New("inventory", breaker.Config{})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c, err := kafkaconsume.New(inventory, kafkaconsume.Config{
		DeadLetter: func(_ context.Context, r *kgo.Record, why error) error {
			fmt.Printf("%s/%d/%d: %v\n", r.Topic, r.Partition, r.Offset, why) // yours keeps it
			stop()
			return nil
		},
	}, func(_ context.Context, r *kgo.Record) error {
		if len(r.Value) == 0 {
			return policy.AsPermanent(errors.New("an empty order"))
		}
		fmt.Printf("reserve %s\n", r.Value)
		return nil
	})
	if err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(append(c.Options(), kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.ConsumerGroup("stock"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		panic(err)
	}
	defer client.CloseAllowingRebalance()
	for _, order := range []string{"2 apples", ""} {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte(order)}).FirstErr(); err != nil {
			panic(err)
		}
	}
	if err := c.Run(ctx, client); err != nil {
		panic(err)
	}
	// Output:
	// reserve 2 apples
	// orders/0/1: an empty order
}
