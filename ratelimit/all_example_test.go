package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Limits per user, for the route and over all. A refusal says which one it was, and takes
// nothing from the others.
func ExampleAll() {
	search, err := policy.New("search", ratelimit.All{
		Limits: []policy.Policy{
			ratelimit.Keyed{Name: "per user", Rate: ratelimit.PerMinute(6), Burst: 2},
			ratelimit.SlidingWindow{Name: "route", Limit: 3, Window: time.Minute},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"ann", "ann", "ann", "bob", "bob"} {
		ctx := policy.WithCall(context.Background(), policy.Call{Key: user})
		_, err := policy.Do(ctx, search, func(context.Context) (int, error) { return 1, nil })
		if part, ok := errors.AsType[*ratelimit.PartError](err); ok {
			fmt.Println(user, "is refused by", part.Part)
			continue
		}
		fmt.Println(user)
	}
	// Output:
	// ann
	// ann
	// ann is refused by per user
	// bob
	// bob is refused by route
}
