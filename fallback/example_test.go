package fallback_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// Orders go on while inventory is down: everything counts as in stock.
func Example() {
	inventory, err := policy.New("inventory")
	if err != nil {
		fmt.Println(err)
		return
	}
	inStock := policy.For(inventory, fallback.Value(true)) // typed handle
	r, err := inStock.DoResult(context.Background(), func(context.Context) (bool, error) {
		return false, errors.New("connection refused")
	})
	fmt.Println(r.Value, err)
	fmt.Println(r.Degraded, r.Cause)
	// Output:
	// true <nil>
	// true connection refused
}

// Among the other policies it serves calls of every type that fits.
func ExampleValue() {
	inventory, err := policy.New("inventory", fallback.Value("unknown"))
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := policy.Do(context.Background(), inventory, func(context.Context) (string, error) {
		return "", errors.New("connection refused")
	})
	fmt.Println(v, err)
	// Output: unknown <nil>
}

// The function sees what failed, and may fail itself.
func ExampleFunc() {
	last := map[string]int{"apple": 7}
	inventory, err := policy.New("inventory", fallback.Func(func(ctx context.Context, _ policy.FailedCall) (int, error) {
		if n, ok := last[policy.CallFrom(ctx).Key]; ok {
			return n, nil
		}
		return 0, errors.New("never seen")
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, product := range []string{"apple", "pear"} {
		ctx := policy.WithCall(context.Background(), policy.Call{Key: product})
		n, err := policy.Do(ctx, inventory, func(context.Context) (int, error) {
			return 0, errors.New("connection refused")
		})
		fmt.Printf("%s: %d, %q\n", product, n, fmt.Sprint(err))
	}
	// Output:
	// apple: 7, "<nil>"
	// pear: 0, "connection refused\nnever seen"
}

// Only refusals are answered; an error of the dependency reaches the caller.
func ExampleConfig() {
	inventory, err := policy.New("inventory", fallback.Config[int]{
		Name:  "when-refused",
		Value: -1,
		When:  func(f policy.FailedCall) bool { return errors.Is(f.Err, policy.ErrRejected) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
		return 0, errors.New("connection refused")
	})
	fmt.Println(err)

	_ = inventory.Close(context.Background())
	n, err := policy.Do(context.Background(), inventory, func(context.Context) (int, error) { return 1, nil })
	fmt.Println(n, err)
	// Output:
	// connection refused
	// -1 <nil>
}
