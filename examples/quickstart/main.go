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
	inventory, err := policy.New("inventory", // one pipeline for one dependency
		bulkhead.Semaphore{Limit: 20},
		breaker.Config{MinCalls: 5, OpenFor: 800 * time.Millisecond},
		retry.Config{MaxAttempts: 2, BaseDelay: 10 * time.Millisecond},
		policy.Timeouts{Attempt: 500 * time.Millisecond},
	)
	if err != nil {
		log.Fatal(err) // every setting that is wrong, not only the first
	}
	for _, w := range inventory.Warnings() {
		log.Println("inventory:", w) // what works and may surprise: nothing here
	}
	for start := time.Now(); time.Since(start) < 4*time.Second; time.Sleep(250 * time.Millisecond) {
		stock, err := policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
			if t := time.Since(start); t > 900*time.Millisecond && t < 2400*time.Millisecond {
				return 0, errors.New("no answer") // your call goes here; this one has an outage
			}
			return 42, nil
		})
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			fmt.Printf("refused: %s, retry after %v\n", re.Reason, re.RetryAfter.Round(time.Millisecond))
		} else if err != nil {
			fmt.Println("failed:", err)
		} else {
			fmt.Println("in stock:", stock)
		}
	}
}
