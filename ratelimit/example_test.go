package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// A limit in a pipeline. It never waits: a refusal is an error that says when the next
// call may come.
func Example() {
	captcha, err := policy.New("captcha",
		ratelimit.TokenBucket{Rate: ratelimit.PerMinute(1), Burst: 2},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_, err = policy.Do(context.Background(), captcha, func(context.Context) (string, error) { return "image", nil })
		if re, ok := errors.AsType[*policy.RejectedError](err); ok {
			seconds, _ := re.RetryAfterSeconds()
			fmt.Printf("429, %s, Retry-After: %d\n", re.Reason, seconds)
			continue
		}
		fmt.Println("200")
	}
	// Output:
	// 200
	// 200
	// 429, rate, Retry-After: 60
}

// A live bucket is shared by pipelines, and can be used by hand.
func ExampleNew() {
	quota, err := ratelimit.New("quota", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(10), Burst: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	scan, err := policy.New("scan", quota)
	if err != nil {
		fmt.Println(err)
		return
	}
	ocr := policy.WithCall(context.Background(), policy.Call{Cost: 8})
	_, err = policy.Do(ocr, scan, func(context.Context) (int, error) { return 1, nil })
	fmt.Println(err)
	fmt.Println(quota.AllowN(2), quota.Allow())
	// Output:
	// <nil>
	// true false
}

func ExampleNew_invalid() {
	_, err := ratelimit.New("", ratelimit.TokenBucket{Burst: -1})
	fmt.Println(err)
	// Output:
	// ratelimit.Rate: unset: want a rate above 0 (+Inf is no rate limit)
	// ratelimit.Burst: -1: want at least 0 (0 means what arrives in a second)
}

// Take tells when to come back, to the nanosecond.
func ExampleBucket_Take() {
	b, err := ratelimit.New("", ratelimit.TokenBucket{Rate: ratelimit.Per(6, time.Minute), Burst: 6})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now().Add(time.Minute) // the bucket is full
	fmt.Println(b.Take(now, 6))
	fmt.Println(b.Take(now, 1))
	fmt.Println(b.Take(now.Add(4*time.Second), 1))
	fmt.Println(b.Take(now.Add(10*time.Second), 1))
	// Output:
	// 0s true
	// 10s false
	// 6s false
	// 0s true
}

// A wait that cannot end in time is refused at once, and takes nothing.
func ExampleBucket_Wait() {
	b, err := ratelimit.New("", ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(b.Wait(ctx, 1))
	err = b.Wait(ctx, 1)
	fmt.Println(errors.Is(err, policy.ErrRejected), errors.Is(err, context.DeadlineExceeded))
	cancel()
	err = b.Wait(ctx, 1)
	fmt.Println(errors.Is(err, policy.ErrRejected), err)
	// Output:
	// <nil>
	// true true
	// false context canceled
}

// Tokens that are reserved and not needed go to who comes next.
func ExampleBucket_Reserve() {
	b, err := ratelimit.New("", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now().Add(time.Minute)
	for range 3 {
		r := b.Reserve(now, 1)
		fmt.Println(r.Delay())
	}
	r := b.Reserve(now, 1)
	fmt.Println(r.Delay())
	r.Cancel(now)
	r = b.Reserve(now, 1)
	fmt.Println(r.Delay())
	// Output:
	// 0s
	// 1s
	// 2s
	// 3s
	// 3s
}

// A change takes effect at once and grants nothing.
func ExampleBucket_SetLimit() {
	b, err := ratelimit.New("", ratelimit.TokenBucket{Rate: ratelimit.Every(time.Hour), Burst: 5, Initial: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := b.SetLimit(ratelimit.Every(time.Minute), 100); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.AllowN(3), b.AllowN(2), b.Config().Rate, b.Config().Burst)
	// Output: false true 1/1m0s 100
}
