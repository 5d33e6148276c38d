package retry_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// The second attempt succeeds. BaseDelay is off so that the example does not wait.
func Example() {
	inventory, err := policy.New("inventory", retry.Config{MaxAttempts: 3, BaseDelay: retry.Off})
	if err != nil {
		fmt.Println(err)
		return
	}
	tries := 0
	stock, err := policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
		tries++
		if tries == 1 {
			return 0, errors.New("connection reset")
		}
		return 7, nil
	})
	fmt.Println(stock, err, tries)
	// Output: 7 <nil> 2
}

// An error that another attempt cannot change is returned at once.
func Example_permanent() {
	inventory, err := policy.New("inventory", retry.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	tries := 0
	_, err = policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
		tries++
		return 0, policy.AsPermanent(errors.New("no such product"))
	})
	fmt.Println(err, tries)
	// Output: no such product 1
}

// One budget for everything that calls inventory: here a retry for every second call.
func ExampleNewBudget() {
	budget, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off})
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := retry.Config{BaseDelay: retry.Off, Budget: budget}
	reads, _ := policy.New("inventory-reads", cfg)
	writes, _ := policy.New("inventory-writes", cfg)

	for _, p := range []*policy.Pipeline{reads, writes, reads, writes} {
		tries := 0
		_, err := policy.Do(context.Background(), p, func(context.Context) (int, error) {
			tries++
			return 0, errors.New("down")
		})
		fmt.Println(tries, err)
	}
	// Output:
	// 1 inventory-reads: gave up after 1 attempt (budget): down
	// 2 inventory-writes: gave up after 2 attempts (budget): down
	// 1 inventory-reads: gave up after 1 attempt (budget): down
	// 2 inventory-writes: gave up after 2 attempts (budget): down
}

func ExampleNew() {
	retrier, err := retry.New("", retry.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := retrier.Config()
	fmt.Println(cfg.MaxAttempts, cfg.BaseDelay, cfg.MaxDelay, cfg.Factor, cfg.Jitter)
	// Output: 3 100ms 10s 2 full
}

func ExampleRetrier_Decide() {
	retrier, _ := retry.New("", retry.Config{BaseDelay: time.Second, Jitter: retry.NoJitter})
	now := time.Now()
	state := policy.RetryState{
		Now: now, Started: now, Deadline: now.Add(90 * time.Second),
		Attempt: 1, Outcome: policy.Outcome{Kind: policy.Busy},
	}
	fmt.Printf("%+v\n", retrier.Decide(state))
	state.Outcome.Pushback = 5 * time.Second // Retry-After: 5
	fmt.Printf("%+v\n", retrier.Decide(state))
	state.Deadline = now.Add(3 * time.Second)
	fmt.Printf("%+v\n", retrier.Decide(state))
	// Output:
	// {Stop:none Delay:1s}
	// {Stop:none Delay:5s}
	// {Stop:deadline Delay:0s}
}

func ExampleConfig_Validate() {
	fmt.Println(retry.Config{MaxAttempts: -5, Budget: retry.BudgetConfig{Ratio: 20}}.Validate())
	// Output:
	// retry.MaxAttempts: -5: want at least 1, or 0 (3), or Unlimited
	// retry.Budget.Ratio: 20: want above 0, at most 1, or 0 (0.2), or Off
}

// A vendor's terms: over its quota never, busy once after half a second, a timeout once
// and at once.
func ExampleRule() {
	ocr, err := policy.New("ocr", retry.Config{
		MaxAttempts: 2,
		Throttled:   retry.Rule{Retry: retry.Never},
		Busy:        retry.Rule{Delay: 500 * time.Millisecond},
		Timeout:     retry.Rule{Delay: retry.Off},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, failure := range []error{
		policy.AsThrottled(errors.New("quota exceeded"), time.Second),
		context.DeadlineExceeded,
	} {
		tries := 0
		err = policy.Run(context.Background(), ocr, func(context.Context) error { tries++; return failure })
		fmt.Println(tries, err)
	}
	// Output:
	// 1 quota exceeded
	// 2 context deadline exceeded
}

// The retry throttling of gRPC: 4 tokens, and no retry at or below half.
func ExampleTokenBudget() {
	p, err := policy.New("inventory", retry.Config{
		MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{MaxTokens: 4, TokenRatio: 0.1},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		tries := 0
		err = policy.Run(context.Background(), p, func(context.Context) error { tries++; return errors.New("down") })
		fmt.Println(tries, err)
	}
	// Output:
	// 2 down
	// 1 inventory: gave up after 1 attempt (budget): down
	// 1 inventory: gave up after 1 attempt (budget): down
}

// The retry budget of Envoy: a retry for every five calls in flight, and three in any case.
func ExampleInFlightBudget() {
	budget, err := retry.NewInFlightBudget(retry.InFlightBudgetConfig{Share: 0.2, MinRetries: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		fmt.Println(budget.Take(time.Now())) // a retry policy does this
	}
	budget.Done()
	fmt.Println(budget.Take(time.Now()))
	// Output:
	// true
	// true
	// true
	// false
	// true
}

// The first attempt hangs. Another is started beside it, whose answer counts; the first is
// canceled.
func ExampleHedge() {
	inventory, err := policy.New("inventory", retry.Hedge{Delay: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	var tries atomic.Int32
	ctx := policy.WithCall(context.Background(), policy.Call{Idempotent: true})
	stock, err := policy.Do(ctx, inventory, func(ctx context.Context) (int, error) {
		if tries.Add(1) == 1 {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		return 7, nil
	})
	fmt.Println(stock, err)
	// Output: 7 <nil>
}
