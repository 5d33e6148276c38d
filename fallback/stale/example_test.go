package stale_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/stale"
	"github.com/breakwater-go/breakwater/policy"
)

// One load for each key; what it brings is served to everybody.
func Example() {
	inventory, err := policy.New("inventory")
	if err != nil {
		fmt.Println(err)
		return
	}
	counts, err := stale.New(inventory, stale.Config[int]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = inventory.Close(context.Background()) }()
	for range 3 {
		n, err := counts.Get(context.Background(), "apple", func(context.Context) (int, error) {
			fmt.Println("loading")
			return 7, nil
		})
		fmt.Println(n, err)
	}
	// Output:
	// loading
	// 7 <nil>
	// 7 <nil>
	// 7 <nil>
}

// Where there is no value to serve, another fallback answers.
func ExampleConfig() {
	inventory, err := policy.New("inventory")
	if err != nil {
		fmt.Println(err)
		return
	}
	counts, err := stale.New(inventory, stale.Config[int]{Otherwise: fallback.Value(-1)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = inventory.Close(context.Background()) }()
	r, err := counts.GetResult(context.Background(), "pear", func(context.Context) (int, error) {
		return 0, errors.New("connection refused")
	})
	fmt.Println(r.Value, r.Degraded, r.Cause, err)
	// Output: -1 true connection refused <nil>
}
