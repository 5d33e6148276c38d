// Command amplification lets a thousand users call through layers of services that
// all retry, to a dependency that is down, and counts what reaches it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

const (
	users  = 1000
	layers = 4
)

func main() {
	budgets := []struct {
		name   string
		budget retry.BudgetSource
	}{
		{"no budget", retry.NoBudget{}},
		{"the default: 20 % and 10/s", retry.BudgetConfig{}},
		{"20 %, no reserve", retry.BudgetConfig{Ratio: 0.2, MinPerSecond: retry.Off}},
		{"10 %, no reserve", retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}},
	}
	fmt.Printf("calls that reach the dependency for each of %d users' calls, 3 attempts in every layer\n\n", users)
	fmt.Printf("%-28s", "layers that retry")
	for n := 1; n <= layers; n++ {
		fmt.Printf("%8d", n)
	}
	fmt.Println()
	for _, b := range budgets {
		fmt.Printf("%-28s", b.name)
		for n := 1; n <= layers; n++ {
			calls, err := load(n, b.budget)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%8.2f", float64(calls)/users)
		}
		fmt.Println()
	}
}

// load returns how many calls reach a dependency that fails all of them, through n
// layers that each have a budget of their own.
func load(n int, budget retry.BudgetSource) (calls int, err error) {
	next := func(context.Context) (struct{}, error) {
		calls++
		return struct{}{}, errors.New("down")
	}
	for i := range n {
		// Retries follow at once, so that nobody has to wait for the figures.
		p, err := policy.New(fmt.Sprintf("layer %d", i), retry.Config{MaxAttempts: 3, BaseDelay: retry.Off, Budget: budget})
		if err != nil {
			return 0, err
		}
		inner := next
		next = func(ctx context.Context) (struct{}, error) { return policy.Do(ctx, p, inner) }
	}
	for range users {
		_, _ = next(context.Background()) // it fails; what counts is how often it was tried
	}
	return calls, nil
}
