package retry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// Retries, hedges and every other policy at once, while settings change, callers give up,
// and functions fail, panic and end their goroutines: in the end nothing is in flight, and
// every value has been returned or given up once.
func TestHedgesAndRetriesConcurrentSafe(t *testing.T) {
	t.Parallel()
	const goroutines, calls = 8, 200
	for _, pooled := range []bool{false, true} {
		budget, err := retry.NewInFlightBudget(retry.InFlightBudgetConfig{Share: 0.5})
		require.NoError(t, err)
		list := func(hedges int) []policy.Policy {
			l := []policy.Policy{
				ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1e6), Burst: 1000},
				breaker.Config{FailureRatio: 0.95, MinCalls: 50, Window: time.Second, OpenFor: time.Millisecond},
				retry.Config{MaxAttempts: 3, BaseDelay: 50 * time.Microsecond, Budget: budget},
				retry.Hedge{Delay: 100 * time.Microsecond, MaxHedges: hedges, Budget: budget},
				policy.Timeouts{Total: 20 * time.Millisecond, Attempt: 5 * time.Millisecond},
				fallback.Value[any](int64(-1)),
			}
			if pooled {
				l = append(l, bulkhead.Pool{Workers: 16, Queue: 100})
			} else {
				l = append(l, bulkhead.Semaphore{Limit: 24, MaxWait: 2 * time.Millisecond, MaxWaiters: 100})
			}
			return l
		}
		p, err := policy.New("dep", list(2)...)
		require.NoError(t, err)
		var made, back atomic.Int64
		var inFlight atomic.Int64
		var wg sync.WaitGroup
		stop := make(chan struct{})
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				if !pooled {
					u, err := p.Prepare(list(1 + i%3)...)
					if assert.NoError(t, err) {
						assert.NoError(t, u.Apply())
					}
				}
				p.Snapshot()
			}
		})
		var callers sync.WaitGroup
		for range goroutines {
			callers.Go(func() {
				for i := range calls {
					func() {
						defer func() { _ = recover() }()
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(30))*time.Millisecond)
						defer cancel()
						if rand.IntN(10) == 0 {
							go cancel()
						}
						c := &policy.Call{Idempotent: i%4 != 0}
						v, err := policy.DoAttempt(ctx, p, c, 0, func(ctx context.Context, _ int, a *policy.Attempt) (int64, error) {
							inFlight.Add(1)
							defer inFlight.Add(-1)
							if rand.IntN(3) == 0 {
								select {
								case <-time.After(time.Duration(rand.IntN(1500)) * time.Microsecond):
								case <-ctx.Done():
									return 0, ctx.Err()
								}
							}
							switch rand.IntN(30) {
							case 0:
								panic("x")
							case 1:
								if a.Hedge() > 0 {
									runtime.Goexit()
								}
							case 2, 3, 4, 5:
								return 0, errors.New("x")
							case 6:
								a.SetOutcome(policy.Busy, time.Duration(rand.IntN(3))*time.Millisecond)
							}
							return made.Add(1), nil
						}, func(int64) { back.Add(1) })
						if err == nil && v > 0 {
							back.Add(1)
						}
					}()
				}
			})
		}
		callers.Wait()
		close(stop)
		wg.Wait()
		require.Eventually(t, func() bool { return inFlight.Load() == 0 }, 5*time.Second, time.Millisecond)
		idle := func() bool { // losers return a moment after their calls
			for _, ps := range p.Snapshot().Policies {
				if ps.Bulkhead != nil && ps.Bulkhead.InFlight+ps.Bulkhead.Waiting > 0 {
					return false
				}
				if ps.Retry != nil && ps.Retry.BudgetInFlight+ps.Retry.BudgetRetries > 0 {
					return false
				}
			}
			return made.Load() == back.Load()
		}
		require.Eventually(t, idle, 10*time.Second, time.Millisecond)
		var ended uint64
		for _, n := range p.Snapshot().Calls {
			ended += n
		}
		assert.Equal(t, uint64(goroutines*calls), ended)
		require.NoError(t, p.Close(t.Context()))
	}
}
