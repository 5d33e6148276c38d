package bulkhead_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// A function that does not heed its context costs a worker; its caller goes on when
// the context ends.
func ExamplePool() {
	inventory, err := policy.New("inventory",
		bulkhead.Pool{Name: "stock", Workers: 1, Queue: bulkhead.NoQueue},
		policy.Timeouts{Attempt: 10 * time.Millisecond},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	hang := make(chan struct{})
	call := func() error {
		_, err := policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
			<-hang
			return 0, nil
		})
		return err
	}
	fmt.Println(call())
	fmt.Println(call()) // the worker still hangs: refused at once
	stock := inventory.Snapshot().Policies[1].Bulkhead
	fmt.Println(stock.InFlight, "of", stock.Limit, "workers busy, abandoned:", stock.Abandoned)

	close(hang)
	fmt.Println(inventory.Close(context.Background()))
	// Output:
	// context deadline exceeded
	// inventory: rejected by stock (concurrency)
	// 1 of 1 workers busy, abandoned: 1
	// <nil>
}

// A panic on a worker goes on in the caller, with the stack of the worker.
func ExamplePool_panic() {
	inventory, err := policy.New("inventory", bulkhead.Pool{Workers: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = inventory.Close(context.Background()) }()
	defer func() {
		if pe, ok := recover().(*policy.PanicError); ok {
			fmt.Println("panicked with", pe.Value, "and a stack:", len(pe.Stack) > 0)
		}
	}()
	_, _ = policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
		panic("out of stock")
	})
	// Output: panicked with out of stock and a stack: true
}

func ExampleNewPool() {
	workers, err := bulkhead.NewPool("db", bulkhead.Pool{Workers: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The same workers for both: 20 calls in all.
	reads, err1 := policy.New("reads", workers)
	writes, err2 := policy.New("writes", workers)
	fmt.Println(errors.Join(err1, err2))
	cfg := workers.Config()
	fmt.Println(cfg.Workers, cfg.Queue, cfg.MaxWait, cfg.WhenFull)

	for _, p := range []*policy.Pipeline{reads, writes} { // the last one closes them
		fmt.Println(p.Close(context.Background()))
	}
	// Output:
	// <nil>
	// 20 20 500ms abort
	// <nil>
	// <nil>
}

func ExamplePool_Validate() {
	fmt.Println(bulkhead.Pool{Workers: 5, MinWorkers: 8, Queue: bulkhead.NoQueue, MaxWait: time.Second}.Validate())
	// Output:
	// pool.MinWorkers: 8: want 0 to Workers (5)
	// pool.MaxWait: 1s: want 0 while Queue is NoQueue: nobody waits
}

func ExampleWorkers_Close() {
	workers, err := bulkhead.NewPool("db", bulkhead.Pool{Workers: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := policy.New("db", workers)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(workers.Close(context.Background()))
	_, err = policy.Do(context.Background(), p, func(context.Context) (int, error) { return 1, nil })
	fmt.Println(err)
	fmt.Println(errors.Is(err, policy.ErrClosed), errors.Is(err, bulkhead.ErrFull))
	// Output:
	// <nil>
	// db: rejected by db (closed)
	// true false
}

// Two permits of five are kept for calls that matter more.
func ExampleSemaphore_reserve() {
	inventory, err := policy.New("inventory", bulkhead.Semaphore{Limit: 5, Reserve: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	ordinary := context.Background()
	for range 3 {
		if _, err := inventory.Enter(ordinary); err != nil {
			fmt.Println(err)
		}
	}
	_, err = inventory.Enter(ordinary)
	fmt.Println(err)
	_, err = inventory.Enter(policy.WithPriority(ordinary, policy.PriorityHigh))
	fmt.Println(err)
	// Output:
	// inventory: rejected by bulkhead (concurrency)
	// <nil>
}

// The limit begins at Initial and is found from then on, within its bounds.
func ExampleNewAdaptive() {
	permits, err := bulkhead.NewAdaptive("inventory", bulkhead.Adaptive{Min: 10, Max: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	inventory, err := policy.New("inventory", permits)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = policy.Do(context.Background(), inventory, func(context.Context) (int, error) { return 1, nil })
	fmt.Println(err)
	b := inventory.Snapshot().Policies[0].Bulkhead
	fmt.Println(b.Limit, "in", b.MinLimit, "to", b.MaxLimit)
	// Output:
	// <nil>
	// 20 in 10 to 100
}
