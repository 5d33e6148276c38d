package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// Several rules in one breaker: whichever is reached first is the reason.
func ExampleConfig_rules() {
	p, err := policy.New("inventory", breaker.Config{
		FailureRatio:        0.5, // half of at least 20 calls failed
		SlowAfter:           200 * time.Millisecond,
		SlowRatio:           0.1, // p90 above 200 ms
		ConsecutiveFailures: 5,   // whatever the number of calls
		LastCalls:           100, // a window of calls, for a dependency that is asked seldom
		OnStateChange: func(c breaker.StateChange) {
			fmt.Printf("%s because of %s: %v of %v\n", c.To, c.Why, c.Ratio, c.Threshold)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 5 {
		_, _ = policy.Do(context.Background(), p, func(context.Context) (int, error) {
			return 0, errors.New("connection refused")
		})
	}
	// Output: open because of consecutive_failures: 5 of 5
}

// A breaker that opens for longer each time, with chance in it, and lets the load come
// back along a ramp.
func ExampleConfig_recovery() {
	b, err := breaker.New("inventory", breaker.Config{
		OpenFor:    5 * time.Second,
		MaxOpenFor: time.Minute, // 5 s, 10 s, 20 s, 40 s, 1 min
		OpenJitter: 0.2,
		Probes:     5,
		Successes:  4,                // of five
		RampFor:    30 * time.Second, // then 5 % of the calls, rising to all
		RampStart:  0.05,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	eff := b.Config()
	fmt.Println(eff.ForgetAfter, eff.MaxRetryAfter, eff.ProbeTimeout)
	// Output: 1m0s 1m0s 10s
}

// Contradictions are faults, and say what they are.
func ExampleConfig_Validate_contradictions() {
	fmt.Println(breaker.Config{
		Probes: 3, Successes: 4,
		RampFor: time.Second,
	}.Validate())
	// Output:
	// breaker.Successes: 4: is more than the 3 that Probes allows, so the breaker would never close
	// breaker.RampFor: 1s: is shorter than Window, 10s: the rules could not look at the ramp as a whole
}

// An operator takes a dependency out of use for an hour.
func ExampleBreaker_ForceOpen() {
	b, err := breaker.New("inventory", breaker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	b.ForceOpen("ann: moving the database, INV-12", time.Hour)
	_, err = b.Acquire()
	re, _ := errors.AsType[*policy.RejectedError](err)
	fmt.Println(b.State(), re.Reason)

	b.Release("ann: done")
	fmt.Println(b.State(), "until probes have succeeded")
	// Output:
	// forced_open forced
	// half_open until probes have succeeded
}

// A breaker for each host: one that is down does not take the others with it.
func ExampleKeyed() {
	hosts, err := policy.New("inventory", breaker.Keyed{
		Config:       breaker.Config{ConsecutiveFailures: 5},
		MaxOpenShare: 0.5, // should all of them seem to be down, it is us
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(host string, answer error) error {
		ctx := policy.WithCall(context.Background(), policy.Call{Key: host})
		_, err := policy.Do(ctx, hosts, func(context.Context) (int, error) { return 1, answer })
		return err
	}
	_ = ask("a", nil)
	for range 5 {
		_ = ask("b", errors.New("connection refused"))
	}
	fmt.Println("a is refused:", errors.Is(ask("a", nil), breaker.ErrOpen))
	fmt.Println("b is refused:", errors.Is(ask("b", nil), breaker.ErrOpen))
	// Output:
	// a is refused: false
	// b is refused: true
}

// A throttle gives a dependency that sheds load what it can bear; calls that matter
// are refused last.
func ExampleThrottle() {
	p, err := policy.New("search", breaker.Throttle{})
	if err != nil {
		fmt.Println(err)
		return
	}
	refused := 0
	for range 1000 {
		_, err := policy.Do(context.Background(), p, func(context.Context) (int, error) {
			return 0, policy.AsThrottled(errors.New("429 Too Many Requests"), 0)
		})
		if errors.Is(err, breaker.ErrThrottled) {
			refused++
		}
	}
	fmt.Println(refused > 800 && refused < 1000) // about 90 % of them, by chance
	// Output: true
}
