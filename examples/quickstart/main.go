// Command quickstart guards a dependency that has an outage.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func main() {
	d := dependency{start: time.Now()}
	// region pipeline
	inventory, err := policy.New("inventory", // one pipeline for one dependency
		bulkhead.Semaphore{Limit: 20},
		breaker.Config{MinCalls: 5, OpenFor: 800 * time.Millisecond},
		retry.Config{MaxAttempts: 2, BaseDelay: 10 * time.Millisecond},
		policy.Timeouts{Attempt: 500 * time.Millisecond},
	)
	if err != nil {
		log.Fatal(err) // every setting that is wrong, not only the first
	}
	for range 16 {
		stock, err := policy.Do(context.Background(), inventory, func(ctx context.Context) (int, error) {
			return d.stock(ctx) // your call
		})
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			fmt.Printf("refused: %s, retry after %v\n", re.Reason, re.RetryAfter.Round(time.Millisecond))
		} else if err != nil {
			fmt.Println("failed:", err)
		} else {
			fmt.Println("in stock:", stock)
		}
		time.Sleep(250 * time.Millisecond)
	}
	// endregion
}

// dependency has an outage.
type dependency struct{ start time.Time }

func (d dependency) stock(context.Context) (int, error) {
	if at := time.Since(d.start); at > 900*time.Millisecond && at < 2400*time.Millisecond {
		return 0, errors.New("no answer")
	}
	return 42, nil
}
