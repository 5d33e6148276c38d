package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// The vendor's quota is not known. When it answers 429, nobody calls it for as long as it
// asked, and from then on at a lower rate.
func ExampleFeedback() {
	vendor, err := policy.New("vendor",
		ratelimit.Feedback{Ceiling: ratelimit.PerSecond(50), Burst: 10},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	tooMany := errors.New("429")
	answers := []error{nil, policy.AsThrottled(tooMany, 30*time.Second), nil}
	for _, answer := range answers {
		_, err := policy.Do(context.Background(), vendor, func(context.Context) (int, error) { return 0, answer })
		switch re, refused := errors.AsType[*policy.RejectedError](err); {
		case refused:
			fmt.Println("not called, retry after", re.RetryAfter.Round(time.Second))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("ok")
		}
	}
	// Output:
	// ok
	// 429
	// not called, retry after 31s
}
