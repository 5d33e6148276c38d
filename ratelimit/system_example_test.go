package ratelimit_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Calls that come in are shed while the process is overloaded. The zero value looks at
// the delay of the Go scheduler; with a reader of package sysload it looks at CPU use too.
func ExampleSystem() {
	inbound, err := policy.New("inbound", ratelimit.System{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := policy.WithPriority(context.Background(), policy.PriorityHigh)
	answer, err := policy.Do(ctx, inbound, func(context.Context) (string, error) { return "200", nil })
	switch {
	case errors.Is(err, ratelimit.ErrOverloaded):
		fmt.Println("503, with Retry-After")
	case err == nil:
		fmt.Println(answer)
	}
	// Output: 200
}
