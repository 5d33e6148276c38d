package bench

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	fsbulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	fsfallback "github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// RecoveryCases are the cases of what follows a failed attempt: a call that fails once
// and then succeeds, through a retry policy alone and through all five policies, and a
// call that could be hedged and is not. Retries follow at once, but in recovery_wait,
// where what is measured is mostly a timer.
func RecoveryCases() ([]Case, error) {
	ctx := context.Background()
	// A budget that is there and never empty; ours has one, failsafe-go's would be
	// checked after the wait.
	retries := retry.Config{
		MaxAttempts: 3, BaseDelay: retry.Off,
		Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: 1e6},
	}
	alone, err1 := policy.New("dependency", retries)
	// Half of the attempts fail, which must not open a breaker.
	gates := []policy.Policy{
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e12), Burst: 1 << 30},
		bulkhead.Semaphore{Limit: 1000},
		breaker.Config{FailureRatio: 0.9, SlowAfter: time.Second, SlowRatio: 0.5, Window: 10 * time.Second, MinCalls: 20},
	}
	all, err2 := policy.New("dependency", append(gates, retries, fallback.Value(-1))...)
	wait := retries
	wait.BaseDelay, wait.Jitter = time.Microsecond, retry.NoJitter
	waiting, err4 := policy.New("dependency", wait)
	hedged, err3 := policy.New("dependency", retry.Hedge{Delay: time.Hour})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	fsRetry := func() failsafe.Policy[int] {
		return retrypolicy.NewBuilder[int]().WithMaxAttempts(3).AbortOnErrors(circuitbreaker.ErrOpen).ReturnLastFailure().Build()
	}
	fsAlone := failsafe.With(fsRetry())
	fsAll := failsafe.With[int](
		fsfallback.NewWithResult(-1),
		fsRetry(),
		ratelimiter.NewBursty[int](1<<30, time.Second),
		fsbulkhead.New[int](1000),
		circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.9, 20, 10*time.Second).Build(),
	)
	fsWaiting := failsafe.With[int](retrypolicy.NewBuilder[int]().WithMaxAttempts(3).WithDelay(time.Microsecond).ReturnLastFailure().Build())
	fsHedged := failsafe.With[int](hedgepolicy.NewWithDelay[int](time.Hour))

	ours := func(p *policy.Pipeline) func(*int) {
		return func(n *int) {
			failed := false
			_, _ = policy.Do(ctx, p, func(context.Context) (int, error) { return second(n, &failed) })
		}
	}
	theirs := func(ex failsafe.Executor[int]) func(*int) {
		return func(n *int) {
			failed := false
			_, _ = callFailsafe(ctx, ex, func(context.Context) (int, error) { return second(n, &failed) })
		}
	}
	idempotent := policy.WithCall(ctx, policy.Call{Idempotent: true})
	against := func(name string, ours, theirs func(*int)) Case {
		return Case{name, []Subject{{"breakwater", one(ours), ours}, {"failsafe", one(theirs), theirs}}}
	}
	return []Case{
		against("recovery", ours(alone), theirs(fsAlone)),
		against("recovery_all", ours(all), theirs(fsAll)),
		against("recovery_wait", ours(waiting), theirs(fsWaiting)),
		against("hedge_none",
			func(n *int) { _, _ = policy.DoWith(idempotent, hedged, n, add) },
			func(n *int) {
				_, _ = callFailsafe(ctx, fsHedged, func(context.Context) (int, error) { return work(n) })
			}),
	}, nil
}

// second is work that fails the first time.
func second(n *int, failed *bool) (int, error) {
	if !*failed {
		*failed = true
		return 0, errDependency
	}
	return work(n)
}
