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

// marks is what layers tell each other about retries.
type marks int

const (
	silent  marks = iota
	request       // a request says which attempt it is
	both          // and a response that it has been retried in vain
)

func main() {
	budgets := []struct {
		name   string
		budget retry.BudgetSource
		tell   marks
	}{
		{"no budget", retry.NoBudget{}, silent},
		{"the default: 20 % and 10/s", retry.BudgetConfig{}, silent},
		{"20 %, no reserve", retry.BudgetConfig{Ratio: 0.2, MinPerSecond: retry.Off}, silent},
		{"10 %, no reserve", retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}, silent},
		{"no budget, requests marked", retry.NoBudget{}, request},
		{"no budget, responses too", retry.NoBudget{}, both},
		{"10 %, both marked", retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}, both},
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
			calls, err := load(n, b.budget, b.tell)
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
func load(n int, budget retry.BudgetSource, tell marks) (calls int, err error) {
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
		if i > 0 && tell != silent {
			inner = served(inner, tell)
		}
		next = func(ctx context.Context) (struct{}, error) {
			return policy.DoAttempt(ctx, p, nil, inner, send, nil)
		}
	}
	for range users {
		_, _ = next(context.Background()) // it fails; what counts is how often it was tried
	}
	return calls, nil
}

type service = func(context.Context) (struct{}, error)

// attemptKey has the number of the attempt that a call is: what httpx sends as a header.
type attemptKey struct{}

// send calls the next layer and says which attempt it is, counted over all layers.
func send(ctx context.Context, next service, at *policy.Attempt) (struct{}, error) {
	return next(context.WithValue(ctx, attemptKey{}, policy.HopFrom(ctx).Next(at.Number())))
}

// served is the server's side of a layer: what httpx.Hop does with headers.
func served(layer service, tell marks) service {
	return func(ctx context.Context) (struct{}, error) {
		attempt, _ := ctx.Value(attemptKey{}).(int)
		hop := policy.NewHop(attempt)
		v, err := layer(policy.WithHop(ctx, hop))
		if tell == both && hop.Spent() {
			err = policy.AsBusy(err, -1) // not to be asked again
		}
		return v, err
	}
}
