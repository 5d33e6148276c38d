package ratelimit_test

import (
	"context"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// A limit for each shop. One that is over its limit does not harm the others.
func ExampleKeyed() {
	orders, err := policy.New("orders",
		ratelimit.Keyed{
			Rate: ratelimit.PerMinute(1), Burst: 2,
			Exceptions: map[string]ratelimit.Limit{"flagship": {Rate: ratelimit.PerSecond(100)}},
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	order := func(shop string) {
		ctx := policy.WithCall(context.Background(), policy.Call{Key: shop})
		_, err := policy.Do(ctx, orders, func(context.Context) (int, error) { return 1, nil })
		fmt.Println(shop+":", err == nil)
	}
	for range 3 {
		order("corner")
	}
	order("market")
	for range 3 {
		order("flagship")
	}
	// Output:
	// corner: true
	// corner: true
	// corner: false
	// market: true
	// flagship: true
	// flagship: true
	// flagship: true
}

// The live form is used by hand, and its limits change while it runs.
func ExampleNewKeyed() {
	perUser, err := ratelimit.NewKeyed("per user", ratelimit.Keyed{Rate: ratelimit.PerMinute(10), Burst: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now()
	fmt.Println(perUser.Take(now, "alice", 10))
	fmt.Println(perUser.Take(now, "alice", 1))
	if err := perUser.SetException("alice", ratelimit.Limit{Rate: ratelimit.PerMinute(60), Burst: 60}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(perUser.Allow("alice"), perUser.Allow("bob"), perUser.Len())
	// Output:
	// 0s true
	// 6s false
	// false true 1
}

// The keys that are refused most are easily found.
func ExampleBuckets_Top() {
	perUser, err := ratelimit.NewKeyed("per user", ratelimit.Keyed{Rate: ratelimit.Every(time.Hour), Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		perUser.Allow("mallory")
		perUser.Allow("alice")
	}
	perUser.Allow("mallory")
	for _, k := range perUser.Top(time.Now(), 10) {
		fmt.Println(k.Key, k.Refused)
	}
	// Output:
	// mallory 5
	// alice 4
}
