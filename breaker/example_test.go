package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// A breaker in a pipeline: after five failed calls the sixth is refused without
// being made.
func Example() {
	inventory, err := policy.New("inventory", breaker.Config{
		FailureRatio: 0.5,
		SlowAfter:    500 * time.Millisecond,
		Window:       time.Second,
		MinCalls:     5,
		OpenFor:      5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stock := func(context.Context) (int, error) { return 0, errors.New("connection refused") }
	for range 6 {
		_, err = policy.Do(context.Background(), inventory, stock)
	}
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		fmt.Println(re.Dependency, re.Policy, re.Reason, errors.Is(err, breaker.ErrOpen), re.RetryAfter > 4*time.Second)
	}
	// Output: inventory breaker open true true
}

// Several pipelines share one breaker, here reads and writes of one database.
func ExampleNew() {
	db, err := breaker.New("db", breaker.Config{MinCalls: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	reads, _ := policy.New("reads", db)
	writes, _ := policy.New("writes", db)
	for range 5 {
		_, _ = policy.Do(context.Background(), reads, func(context.Context) (int, error) {
			return 0, errors.New("connection refused")
		})
	}
	_, err = policy.Do(context.Background(), writes, func(context.Context) (int, error) { return 1, nil })
	fmt.Println(errors.Is(err, breaker.ErrOpen), db.State())
	// Output: true open
}

// All faults of a Config are reported at once.
func ExampleConfig_Validate() {
	err := breaker.Config{FailureRatio: 50, Window: 10, Probes: -1}.Validate()
	fmt.Println(err)
	// Output:
	// breaker.FailureRatio: 50: want above 0 and at most 1 (0 means 0.5, -1 turns the rule off)
	// breaker.Window: 10ns: want at least 1ms (0 means 10s)
	// breaker.Probes: -1: want from 1 to 1000 (0 means 3)
}

// A breaker without a pipeline.
func ExampleBreaker_Acquire() {
	b, err := breaker.New("disk", breaker.Config{MinCalls: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	read := func(ctx context.Context) (err error) {
		permit, err := b.Acquire()
		if err != nil {
			return err
		}
		kind := policy.Failure // what a panic counts as
		defer func() { permit.Done(kind) }()
		err = errors.New("input/output error")
		kind = policy.Classify(ctx, err).Kind
		return err
	}
	for range 3 {
		err := read(context.Background())
		fmt.Println(b.State(), errors.Is(err, breaker.ErrOpen))
	}
	// Output:
	// closed false
	// open false
	// open true
}

// What happened is told in one struct.
func ExampleConfig_onStateChange() {
	p, err := policy.New("inventory", breaker.Config{
		MinCalls: 2,
		OnStateChange: func(c breaker.StateChange) {
			fmt.Printf("%s -> %s because of %s: %d of %d calls failed\n", c.From, c.To, c.Why, c.Failures, c.Calls)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		_, _ = policy.Do(context.Background(), p, func(context.Context) (int, error) {
			return 0, errors.New("connection refused")
		})
	}
	// Output: closed -> open because of failure_ratio: 2 of 2 calls failed
}
