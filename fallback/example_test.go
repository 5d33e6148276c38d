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

// The first that succeeds answers, and each is counted under its own name.
func ExampleChain() {
	replica := fallback.Config[int]{Name: "replica", Func: func(context.Context, policy.FailedCall) (int, error) {
		return 0, errors.New("replica is behind")
	}}
	inventory, err := policy.New("inventory", fallback.Chain(replica, fallback.Value(1)))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, err := policy.Do(context.Background(), inventory, func(context.Context) (int, error) {
		return 0, errors.New("connection refused")
	})
	fmt.Println(n, err)
	for _, p := range inventory.Snapshot().Policies {
		fmt.Println(p.Name, p.Fallback.Served, p.Fallback.Failed)
	}
	// Output:
	// 1 <nil>
	// replica 0 1
	// fallback-2 1 0
}

// The caller sees an error of the application, in which the original can be found.
func ExampleErrorMap() {
	errUnknown := errors.New("the stock is unknown right now")
	inventory, err := policy.New("inventory", fallback.ErrorMap{Func: func(policy.FailedCall) error { return errUnknown }})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = inventory.Close(context.Background())
	_, err = policy.Do(context.Background(), inventory, func(context.Context) (int, error) { return 1, nil })
	fmt.Println(err)
	fmt.Println(errors.Is(err, errUnknown), errors.Is(err, policy.ErrRejected))
	// Output:
	// the stock is unknown right now
	// true true
}

// printer is a queue only in name.
type printer struct{}

func (printer) Enqueue(_ context.Context, t fallback.Task) error {
	fmt.Printf("kept: %s %s %s\n", t.Kind, t.Key, t.Payload)
	return nil
}

// The write happens later, and the caller is told so.
func ExampleDefer() {
	orderService, err := policy.New("orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := policy.For(orderService, fallback.Defer[string]{
		Queue:    printer{},
		Accepted: func(t fallback.Task) string { return "order " + t.Key + " is accepted" },
	})
	ctx := fallback.WithTask(context.Background(), fallback.Task{Kind: "order.create", Key: "4711", Payload: []byte("2 apples")})
	r, err := orders.DoResult(ctx, func(context.Context) (string, error) {
		return "", errors.New("connection refused")
	})
	fmt.Println(r.Value, err)
	fmt.Println(r.Degraded, r.Cause)
	// Output:
	// kept: order.create 4711 2 apples
	// order 4711 is accepted <nil>
	// true connection refused
}
