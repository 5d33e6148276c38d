package retry_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// inFlightOf counts what is in flight at a dependency.
type inFlightOf struct {
	mu                      sync.Mutex
	firsts, retries, most   int
	totalFirsts, totalRetry int
}

// enter counts an attempt of a call that may make several, and returns what ends it.
func (d *inFlightOf) enter(first bool) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := &d.retries
	if first {
		n = &d.firsts
		d.totalFirsts++
	} else {
		d.totalRetry++
	}
	*n++
	d.most = max(d.most, d.retries)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		*n--
	}
}

// (b) 20 %, at least 3: 25 calls in flight have 5 retries at a time, and 2 calls 3, of
// which they can use 2.
func TestCaseB53ShareOfWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for calls, want := range map[int]int{25: 5, 10: 3, 16: 3, 20: 4} {
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.InFlightBudgetConfig{Share: 0.2, MinRetries: 3}})
			var d inFlightOf
			var wg sync.WaitGroup
			release := make(chan struct{})
			for range calls {
				wg.Go(func() {
					first := true
					_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) {
						defer d.enter(first)()
						if !first {
							<-release
							return 0, errDown
						}
						first = false
						time.Sleep(time.Second) // all of them are in flight
						return 0, errDown
					})
				})
			}
			time.Sleep(500 * time.Millisecond)
			s := budgetOf(p)
			assert.EqualValues(t, calls, s.BudgetInFlight)
			assert.InDelta(t, want, s.BudgetRemaining, 0)
			assert.InDelta(t, 1, s.BudgetLevel, 0)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, want, d.most, "retries of %d calls", calls)
			assert.EqualValues(t, want, budgetOf(p).BudgetRetries)
			close(release)
			wg.Wait()
			assert.EqualValues(t, calls-want, stopped(p, policy.StopBudget))
			assert.Equal(t, policy.RetrySnapshot{
				MaxAttempts: 2, HasBudget: true, BudgetKind: "in_flight", BudgetRatio: 0.2, BudgetLevel: 1, BudgetRemaining: 3,
			}, budgetOf(p), "nothing stays in flight")
		})
	}
}

// (b) two calls in flight, at least 3.
func TestCaseB53LeastOfWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b, err := retry.NewInFlightBudget(retry.InFlightBudgetConfig{})
	require.NoError(t, err)
	assert.Equal(t, retry.InFlightBudgetConfig{Share: 0.2, MinRetries: 3}, b.Config())
	now := time.Now()
	for range 3 {
		assert.True(t, b.Take(now))
	}
	assert.False(t, b.Take(now))
	b.Undo(now)
	assert.True(t, b.Take(now))
	b.Done()
	assert.True(t, b.Take(now))
	for range 9 {
		b.Done() // more than were taken: nothing
	}
	for range 3 {
		assert.True(t, b.Take(now))
	}
	assert.False(t, b.Take(now))
}

// (c) all of it, no minimum: the retry of the only call is allowed.
func TestCaseB53OwnRetryOfTheOnlyCallInFlight(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, retry.Config{MaxAttempts: 4, BaseDelay: retry.Off, Budget: retry.InFlightBudgetConfig{Share: 1, MinRetries: retry.Off}})
	calls := 0
	_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { calls++; return 0, errDown })
	require.Equal(t, errDown, err, "the attempts are used up, not the budget")
	assert.Equal(t, 4, calls)
}

// (d) 6 concurrent calls that all fail, half: 3 retries, whatever the order, since
// those that wait for their retry stay in the denominator.
func TestCaseB53BackoffStaysInTheDenominator(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		takes := rapid.SliceOfN(rapid.IntRange(0, 5), 6, 6).Draw(rt, "seconds that each call takes")
		delay := rapid.SampledFrom([]time.Duration{retry.Off, time.Millisecond, time.Hour}).Draw(rt, "backoff")
		same := true
		for _, n := range takes {
			same = same && n == takes[0]
		}
		var retries uint64
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, retry.Config{
				MaxAttempts: 2, BaseDelay: delay, Jitter: retry.NoJitter, MaxDelay: max(delay, 0),
				Budget: retry.InFlightBudgetConfig{Share: 0.5, MinRetries: retry.Off},
			})
			var wg sync.WaitGroup
			for _, n := range takes {
				wg.Go(func() {
					first := true
					_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) {
						if first {
							first = false
							time.Sleep(10*time.Second + time.Duration(n)*time.Second)
						} else {
							time.Sleep(time.Hour) // until all have failed
						}
						return 0, errDown
					})
				})
			}
			wg.Wait()
			retries = p.Snapshot().Retries
		})
		// Those that are not retried leave, one by one where they fail at different
		// times: 6 failures with 3 retries at the most, and never more.
		if retries != 3 {
			rt.Fatalf("%d retries, want 3 (calls of %v s, backoff %v, at once: %v)", retries, takes, delay, same)
		}
	})
}

// However calls and retries interleave, retries in flight never exceed the share of the
// calls that were in flight when they were allowed, and nothing is left in the end.
func TestCaseB53InFlightConcurrentSafe(t *testing.T) {
	t.Parallel()
	const workers, each = 64, 100
	p := newPipeline(t, retry.Config{MaxAttempts: 3, BaseDelay: retry.Off, Budget: retry.InFlightBudgetConfig{Share: 0.25, MinRetries: 2}})
	var d inFlightOf
	var wg sync.WaitGroup
	var panics atomic.Int64
	for g := range workers {
		wg.Go(func() {
			for i := range each {
				first := true
				func() {
					defer func() {
						if recover() != nil {
							panics.Add(1)
						}
					}()
					_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) {
						defer d.enter(first)()
						first = false
						switch (g + i) % 5 {
						case 0:
							return 1, nil
						case 1:
							if i%7 == 0 {
								panic("x")
							}
						}
						return 0, errDown
					})
				}()
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, d.most, workers/4)
	assert.Positive(t, d.totalRetry)
	assert.Positive(t, panics.Load())
	s := budgetOf(p)
	assert.Zero(t, s.BudgetInFlight)
	assert.Zero(t, s.BudgetRetries)
}
