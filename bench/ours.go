package bench

import (
	"context"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// errDependency is what the dependency answers while a breaker is being opened.
var errDependency = errors.New("dependency failed")

// work is the guarded call: it does next to nothing, so that what is measured is
// what stands around it. n makes the closures around it capture something.
func work(n *int) (int, error) {
	*n++
	return *n, nil
}

// add is work in the form that DoWith takes.
func add(_ context.Context, n *int) (int, error) { return work(n) }

// newPipeline returns the pipeline under measurement: limiter, breaker with both
// rules, semaphore, retry with a budget, fallback.
func newPipeline() (*policy.Pipeline, error) {
	return policy.New("dependency",
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e12), Burst: 1 << 30},
		bulkhead.Semaphore{Limit: 1000},
		breaker.Config{
			FailureRatio: 0.5, SlowAfter: time.Second, SlowRatio: 0.5,
			Window: 10 * time.Second, MinCalls: 20, OpenFor: time.Hour,
		},
		retry.Config{MaxAttempts: 3},
		fallback.Value(-1),
	)
}

// newOpenPipeline returns the same with an open breaker.
func newOpenPipeline() (*policy.Pipeline, error) {
	p, err := newPipeline()
	if err != nil {
		return nil, err
	}
	for range 100 {
		if h, err := p.Enter(context.Background()); err == nil {
			h.Leave(errDependency)
		}
	}
	for _, ps := range p.Snapshot().Policies {
		if ps.Breaker != nil && ps.Breaker.State == "open" {
			return p, nil
		}
	}
	return nil, errors.New("the breaker did not open")
}
