package bulkhead_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// At most two calls to inventory run at the same time.
func Example() {
	inventory, err := policy.New("inventory", bulkhead.Semaphore{Limit: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := func(depth int) error { return nested(context.Background(), inventory, depth) }

	fmt.Println(call(2))
	err = call(3)
	fmt.Println(err)
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		fmt.Println(re.Reason, errors.Is(err, bulkhead.ErrFull))
	}
	// Output:
	// <nil>
	// inventory: rejected by bulkhead (concurrency)
	// concurrency true
}

// nested makes calls inside of calls, so that depth of them run at the same time.
func nested(ctx context.Context, p *policy.Pipeline, depth int) error {
	if depth == 0 {
		return nil
	}
	_, err := policy.Do(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, nested(ctx, p, depth-1)
	})
	return err
}

func ExampleNew() {
	permits, err := bulkhead.New("db", bulkhead.Semaphore{Limit: 20, MaxWait: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The same permits in both pipelines: 20 calls in all.
	for _, name := range []string{"reads", "writes"} {
		if _, err := policy.New(name, permits); err != nil {
			fmt.Println(err)
		}
	}
	cfg := permits.Config()
	fmt.Println(cfg.Limit, cfg.MaxWait, cfg.MaxWaiters)
	// Output: 20 50ms 20
}

func ExamplePermits_Acquire() {
	permits, _ := bulkhead.New("db", bulkhead.Semaphore{Limit: 1})
	query := func(ctx context.Context) error {
		if err := permits.Acquire(ctx); err != nil {
			return err
		}
		defer permits.Release()
		return permits.Acquire(ctx) // a second permit, while holding the only one
	}
	fmt.Println(query(context.Background()))
	fmt.Println(permits.InFlight())
	// Output:
	// rejected by db (concurrency)
	// 0
}

func ExamplePermits_SetLimit() {
	permits, _ := bulkhead.New("db", bulkhead.Semaphore{Limit: 2})
	permits.TryAcquire()
	permits.TryAcquire()

	_ = permits.SetLimit(1)
	fmt.Println(permits.InFlight(), permits.TryAcquire()) // nobody loses a permit
	permits.Release()
	fmt.Println(permits.InFlight(), permits.TryAcquire())
	permits.Release()
	fmt.Println(permits.InFlight(), permits.TryAcquire())

	fmt.Println(permits.SetLimit(0))
	// Output:
	// 2 false
	// 1 false
	// 0 true
	// db.Limit: 0: want 1 to 2147483647
}

func ExampleSemaphore_Validate() {
	fmt.Println(bulkhead.Semaphore{Limit: -1, MaxWaiters: 5}.Validate())
	// Output:
	// bulkhead.Limit: -1: want 1 to 2147483647, or 0 (100)
	// bulkhead.MaxWaiters: 5: want 0 while MaxWait is 0: nobody waits; set MaxWait too
}
