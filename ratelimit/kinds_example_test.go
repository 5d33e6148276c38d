package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Turns come 100 ms apart. In a pipeline a call waits for its own for up to MaxWait; here
// they are only asked for.
func ExamplePacer() {
	p, err := ratelimit.NewPace("mail", ratelimit.Pacer{Rate: ratelimit.PerSecond(10), MaxWait: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now()
	for range 3 {
		r := p.Reserve(now, 1)
		fmt.Println(r.Delay())
	}
	wait, ok := p.Take(now, 1)
	fmt.Println(wait, ok)
	// Output:
	// 0s
	// 100ms
	// 200ms
	// 300ms false
}

// A turn that would come after the deadline is not waited for.
func ExamplePace_Wait() {
	p, err := ratelimit.NewPace("", ratelimit.Pacer{Rate: ratelimit.PerMinute(1), MaxWait: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(p.Wait(ctx, 1))
	err = p.Wait(ctx, 1)
	re, ok := errors.AsType[*policy.RejectedError](err)
	fmt.Println(ok, re.Reason, re.RetryAfter.Round(time.Second), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// <nil>
	// true deadline 1m0s true
}

// Around the end of a window twice the limit passes.
func ExampleFixedWindow() {
	w, err := ratelimit.NewWindow("", ratelimit.FixedWindow{Limit: 2, Window: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for _, second := range []int{50, 51, 52, 61, 62, 63} {
		at := time.Duration(second) * time.Second
		_, ok := w.Take(start.Add(at), 1)
		fmt.Println(at, ok)
	}
	// Output:
	// 50s true
	// 51s true
	// 52s false
	// 1m1s true
	// 1m2s true
	// 1m3s false
}

// In no minute, wherever it begins, more than the limit passes.
func ExampleSlidingWindow() {
	s, err := ratelimit.NewSliding("", ratelimit.SlidingWindow{Limit: 2, Window: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for _, second := range []int{50, 51, 52, 61, 62, 110, 111} {
		at := time.Duration(second) * time.Second
		wait, ok := s.Take(start.Add(at), 1)
		fmt.Println(at, ok, wait)
	}
	// Output:
	// 50s true 0s
	// 51s true 0s
	// 52s false 58s
	// 1m1s false 49s
	// 1m2s false 48s
	// 1m50s true 0s
	// 1m51s true 0s
}

// Cold, it lets in a third of the rate; after ten seconds of use all of it.
func ExampleWarmUp() {
	r, err := ratelimit.NewRamp("", ratelimit.WarmUp{Rate: ratelimit.PerSecond(90), ColdFactor: 3, Period: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for at := time.Duration(0); at < 15*time.Second; at += time.Millisecond {
		r.Take(start.Add(at), 1)
		if at%(5*time.Second) == 0 {
			s := r.Snapshot(start.Add(at)).Limiter
			fmt.Printf("%2.0f/s\n", s.Rate)
		}
	}
	// Output:
	// 30/s
	// 60/s
	// 90/s
}

// Two kinds of traffic share a quota of ten per second. Batch makes way while realtime
// has fewer than two tokens left.
func ExampleLanes() {
	quota, err := ratelimit.NewLaneSet("ocr", ratelimit.Lanes{
		Lanes: []ratelimit.LaneConfig{
			{Name: "realtime", Rate: ratelimit.PerSecond(6), Burst: 8, MaxWait: 200 * time.Millisecond, MaxWaiters: 8},
			{Name: "batch", Priority: policy.PriorityLow, Rate: ratelimit.PerSecond(4), Burst: 10, YieldTo: "realtime", YieldBelow: 2, Floor: ratelimit.Every(time.Hour)},
		},
		Total: ratelimit.SlidingWindow{Limit: 10, Window: time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ocr, err := policy.New("ocr", quota)
	if err != nil {
		fmt.Println(err)
		return
	}
	scan := func(ctx context.Context) error {
		_, err := policy.Do(ctx, ocr, func(context.Context) (int, error) { return 1, nil })
		return err
	}
	batch := policy.WithPriority(context.Background(), policy.PriorityLow)
	fmt.Println(scan(batch))
	for range 7 {
		_ = scan(context.Background())
	}
	err = scan(batch)
	part, _ := errors.AsType[*ratelimit.PartError](err)
	fmt.Println(errors.Is(err, ratelimit.ErrLimited), part)
	// Output:
	// <nil>
	// true batch: ratelimit: it makes way for another lane
}

// A lane by name, whatever the priority; and one by itself.
func ExampleWithLane() {
	quota, err := ratelimit.NewLaneSet("ocr", ratelimit.Lanes{
		Lanes: []ratelimit.LaneConfig{
			{Name: "realtime", Rate: ratelimit.Every(time.Hour), Burst: 2},
			{Name: "batch", Rate: ratelimit.Every(time.Hour), Burst: 1},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := ratelimit.WithLane(context.Background(), "batch")
	fmt.Println(quota.Wait(ctx, 1))
	fmt.Println(quota.Wait(ctx, 1) == nil)
	fmt.Println(quota.Lane("realtime").Allow(), quota.Lane("batch").Allow())
	// Output:
	// <nil>
	// false
	// true false
}
