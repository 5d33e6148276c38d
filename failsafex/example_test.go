package failsafex_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/failsafex"
	"github.com/breakwater-go/breakwater/policy"
)

// A breaker and a bulkhead inside a retry policy of failsafe-go.
func ExampleGates() {
	gates, err := failsafex.Gates[string]("inventory",
		breaker.Config{ConsecutiveFailures: 2, FailureRatio: breaker.Off},
		bulkhead.Semaphore{Limit: 20},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	retries := retrypolicy.NewBuilder[string]().WithMaxAttempts(5).AbortOnErrors(policy.ErrRejected).Build()
	attempts := 0
	_, err = failsafe.With[string](retries, gates).Get(func() (string, error) {
		attempts++
		return "", errors.New("no answer")
	})
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		fmt.Println(attempts, "attempts, then refused by the", re.Policy, "since it is", re.Reason)
	}
	// Output:
	// 2 attempts, then refused by the breaker since it is open
}

// A circuit breaker of failsafe-go inside a pipeline.
func ExamplePolicy() {
	cb := circuitbreaker.NewBuilder[any]().WithFailureThreshold(2).WithDelay(time.Minute).Build()
	inventory, err := policy.New("inventory", failsafex.Policy("cb", cb), bulkhead.Semaphore{Limit: 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, err := policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
			return 0, errors.New("no answer")
		})
		fmt.Println(err)
	}
	// Output:
	// no answer
	// no answer
	// circuit breaker open
}
