package policy_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

func Example() {
	// A pipeline is built once for each dependency.
	stock, err := policy.New("stock", policy.Timeouts{Total: 2 * time.Second, Attempt: time.Second})
	if err != nil {
		fmt.Println(err) // everything that is wrong, at once
		return
	}
	n, err := policy.Do(context.Background(), stock, func(context.Context) (int, error) {
		return 3, nil // ask the dependency, under the context
	})
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		fmt.Println("not asked:", re.Reason, re.RetryAfter)
		return
	}
	fmt.Println(n, err)
	// Output: 3 <nil>
}

func ExampleDoWith() {
	stock, _ := policy.New("stock")
	// The function captures nothing, so the call allocates nothing.
	n, err := policy.DoWith(context.Background(), stock, "sku-1", func(_ context.Context, sku string) (int, error) {
		return len(sku), nil
	})
	fmt.Println(n, err)
	// Output: 5 <nil>
}

func ExamplePipeline_Enter() {
	stock, _ := policy.New("stock")
	h, err := stock.Enter(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Release() // a panic before Leave counts as a failure
	err = errors.New("connection reset")
	fmt.Println(h.Leave(err), stock.Snapshot().Calls[policy.Failure])
	// Output: true 1
}

func ExampleNew_invalid() {
	_, err := policy.New("stock", policy.Timeouts{Total: -time.Second, Attempt: -1})
	fmt.Println(err)
	// Output:
	// stock.timeout.Total: -1s: want at least 1µs (0 means no bound); a number alone is nanoseconds
	// stock.timeout.Attempt: -1ns: want at least 1µs (0 means no bound); a number alone is nanoseconds
}

func ExampleTyped_Classify() {
	stock, _ := policy.New("stock")
	typed := policy.For[int](stock).Classify(func(n int, err error) policy.Kind {
		if err == nil && n < 0 {
			return policy.Failure // the dependency answers -1 when it is confused
		}
		return policy.NotRun // leave it to the pipeline
	})
	n, err := typed.Do(context.Background(), func(context.Context) (int, error) { return -1, nil })
	fmt.Println(n, err, stock.Snapshot().Calls[policy.Failure])
	// Output: -1 <nil> 1
}

func ExampleRegistry() {
	var reg policy.Registry
	_, _ = reg.New("stock")
	_, _ = reg.New("prices")
	_, err := reg.New("stock")
	fmt.Println(err)
	for _, s := range reg.Snapshot() {
		fmt.Println(s.Dependency)
	}
	// Output:
	// stock: policy: the registry has a pipeline of this name already
	// prices
	// stock
}

func ExampleClassifyErrors() {
	errNotFound := errors.New("no such sku")
	stock, _ := policy.New("stock", policy.ClassifyErrors(func(err error) policy.Kind {
		if errors.Is(err, errNotFound) {
			return policy.Permanent // an answer, not a failure
		}
		return policy.NotRun
	}))
	_, err := policy.Do(context.Background(), stock, func(context.Context) (int, error) { return 0, errNotFound })
	fmt.Println(err, stock.Snapshot().Calls[policy.Permanent])
	// Output: no such sku 1
}

func ExampleWithCall() {
	ctx := policy.WithCall(context.Background(), policy.Call{Cost: 5, NoRetry: true})
	ctx = policy.WithPriority(ctx, policy.PriorityHigh)
	c := policy.CallFrom(ctx)
	fmt.Println(c.Cost, c.NoRetry, c.Priority)
	// Output: 5 true high
}
