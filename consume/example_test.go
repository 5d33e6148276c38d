package consume_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/policy"
)

// What a consumer of some other queue does with each message.
func ExampleProcessor() {
	inventory, err := policy.New("inventory", breaker.Config{})
	if err != nil {
		panic(err)
	}
	processor, err := consume.New(inventory, consume.Config{Workers: 10})
	if err != nil {
		panic(err)
	}
	handle := func(_ context.Context, message string) error {
		if message == "" {
			return policy.AsPermanent(errors.New("an empty message"))
		}
		return nil
	}
	for _, message := range []string{"reserve 2 apples", ""} {
		verdict, err := processor.Process(context.Background(), func(ctx context.Context) error { return handle(ctx, message) })
		switch verdict {
		case consume.Ack:
			fmt.Println("acknowledge")
		case consume.Dead:
			fmt.Println("to the dead letters:", err)
		case consume.Requeue:
			fmt.Println("give back:", err)
		}
	}
	// Output:
	// acknowledge
	// to the dead letters: an empty message
}
