package bulkhead_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func newPipeline(t *testing.T, policies ...policy.Policy) *policy.Pipeline {
	t.Helper()
	p, err := policy.New("inventory", policies...)
	require.NoError(t, err)
	return p
}

// hold returns a function for policy.Do that takes d.
func hold(d time.Duration) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		time.Sleep(d)
		return 1, nil
	}
}

// spy is a gate behind the bulkhead that refuses, or notes how long attempts took.
type spy struct {
	refuse  bool
	entered atomic.Int64

	mu        sync.Mutex
	durations []time.Duration
}

func (s *spy) Peek(*policy.Attempt) error { return nil }

func (s *spy) Enter(context.Context, *policy.Attempt, int) error {
	s.entered.Add(1)
	if s.refuse {
		return &policy.RejectedError{Reason: policy.ReasonOpen}
	}
	return nil
}

func (s *spy) Leave(_ *policy.Attempt, _ int, o policy.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durations = append(s.durations, o.Duration)
}

func (s *spy) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "spy", Gate: s, Place: policy.PlaceBreaker}, nil
}

func TestBuildPolicyDescribesTheGate(t *testing.T) {
	t.Parallel()
	part, err := bulkhead.Semaphore{Name: "db", Limit: 3, MaxWait: time.Second, Shadow: true}.BuildPolicy()
	require.NoError(t, err)
	assert.Equal(t, "bulkhead", part.Kind)
	assert.Equal(t, "db", part.Name)
	assert.Equal(t, policy.PlaceBulkhead, part.Place)
	assert.True(t, part.Waits, "with MaxWait it waits")
	assert.True(t, part.Holds, "a permit is held until release")
	assert.True(t, part.Shadow)

	part, err = bulkhead.Semaphore{Limit: 3}.BuildPolicy()
	require.NoError(t, err)
	assert.False(t, part.Waits, "without MaxWait it does not wait")

	live := newPermits(t, bulkhead.Semaphore{Limit: 3})
	one, err := live.BuildPolicy()
	require.NoError(t, err)
	two, err := live.BuildPolicy()
	require.NoError(t, err)
	assert.Same(t, one.Gate, two.Gate, "live permits are shared")
}

func TestPipelineNamesTheFault(t *testing.T) {
	t.Parallel()
	_, err := policy.New("inventory", bulkhead.Semaphore{Name: "db", Limit: -1, MaxWait: -1})
	require.Error(t, err)
	assert.Contains(t, err.Error(), "inventory.db.Limit: -1: want 1 to 2147483647, or 0 (100)")
	assert.Contains(t, err.Error(), "inventory.db.MaxWait: -1ns: want at least 1µs")
}

func TestPipelineRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, bulkhead.Semaphore{Limit: 1})
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		_, err = policy.Do(t.Context(), p, hold(0))
		assert.Equal(t, policy.ReasonConcurrency, reasonOf(t, err))
		assert.EqualError(t, err, "inventory: rejected by bulkhead (concurrency)")
		h.Leave(nil)
		_, err = policy.Do(t.Context(), p, hold(0))
		require.NoError(t, err)
		ps := p.Snapshot().Policies[0]
		assert.EqualValues(t, 1, ps.Rejected[policy.ReasonConcurrency])
		assert.Equal(t, policy.BulkheadSnapshot{Limit: 1, HighWater: 1}, *ps.Bulkhead)
	})
}

// What a held permit waits for is not the dependency's time.
func TestPipelineWaitIsNotDuration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		see := &spy{}
		p := newPipeline(t, bulkhead.Semaphore{Limit: 1, MaxWait: time.Minute}, see)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, hold(time.Second))
				assert.NoError(t, err)
			})
		}
		start := time.Now()
		wg.Wait()
		assert.Equal(t, 2*time.Second, time.Since(start), "the second call waited for the first")
		assert.Equal(t, []time.Duration{time.Second, time.Second}, see.durations, "without the wait")
	})
}

// slow is a gate in front of the bulkhead that may wait, so that all gates are asked
// before anybody does.
type slow struct{ entered int }

func (s *slow) Peek(*policy.Attempt) error                        { return nil }
func (s *slow) Enter(context.Context, *policy.Attempt, int) error { s.entered++; return nil }
func (s *slow) Leave(*policy.Attempt, int, policy.Outcome)        {}
func (s *slow) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "slow", Gate: s, Place: policy.PlaceRateLimit, Waits: true}, nil
}

// Nobody is asked to wait in front of a bulkhead that is sure to refuse.
func TestPeekSparesTheWait(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		cfg    bulkhead.Semaphore
		taken  int
		prio   policy.Priority
		reason policy.Reason
	}{
		{name: "free", cfg: bulkhead.Semaphore{Limit: 1}},
		{name: "full", cfg: bulkhead.Semaphore{Limit: 1}, taken: 1, reason: policy.ReasonConcurrency},
		{name: "may queue", cfg: bulkhead.Semaphore{Limit: 1, MaxWait: time.Second, MaxWaiters: 1}, taken: 1},
		{name: "queue full", cfg: bulkhead.Semaphore{Limit: 1, MaxWait: time.Second, MaxWaiters: 1}, taken: 2, reason: policy.ReasonWaiters},
		{name: "goes first", cfg: bulkhead.Semaphore{Limit: 1, MaxWait: time.Second, MaxWaiters: 1}, taken: 2, prio: policy.PriorityHigh},
		{name: "reserve", cfg: bulkhead.Semaphore{Limit: 2, Reserve: 1}, taken: 1, reason: policy.ReasonConcurrency},
		{name: "in reserve", cfg: bulkhead.Semaphore{Limit: 2, Reserve: 1}, taken: 1, prio: policy.PriorityHigh},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				live, front := newPermits(t, tt.cfg), &slow{}
				p := newPipeline(t, front, live)
				for range tt.taken {
					go func() { _ = live.Acquire(t.Context()) }()
					synctest.Wait()
				}
				before := *live.Snapshot(time.Now()).Bulkhead
				if tt.reason == 0 {
					ctx, cancel := context.WithTimeout(policy.WithPriority(t.Context(), tt.prio), time.Millisecond)
					defer cancel()
					_, _ = policy.Do(ctx, p, hold(0))
					assert.Equal(t, 1, front.entered, "it may be let in")
					return
				}
				_, err := policy.Do(policy.WithPriority(t.Context(), tt.prio), p, hold(0))
				assert.Equal(t, tt.reason, reasonOf(t, err))
				assert.Zero(t, front.entered, "refused before anybody waits")
				assert.Equal(t, before, *live.Snapshot(time.Now()).Bulkhead, "looking takes nothing")
				assert.EqualValues(t, 1, live.Snapshot(time.Now()).Rejected[tt.reason], "the permits count it")
			})
		})
	}
}

func TestLaterRefusalGivesThePermitBack(t *testing.T) {
	t.Parallel()
	live := newPermits(t, bulkhead.Semaphore{Limit: 1})
	no := &spy{refuse: true}
	p := newPipeline(t, live, no)
	for range 3 {
		_, err := policy.Do(t.Context(), p, hold(0))
		require.ErrorIs(t, err, policy.ErrRejected)
		require.Zero(t, live.InFlight())
	}
	assert.EqualValues(t, 3, no.entered.Load())
}

func TestShadowOnlyWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := newPermits(t, bulkhead.Semaphore{Limit: 2, MaxWait: time.Hour, Shadow: true})
		p := newPipeline(t, live)
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, hold(time.Second))
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		assert.Equal(t, 2, live.InFlight(), "nothing is taken for a call that it would refuse")
		wg.Wait()
		assert.Equal(t, time.Second, time.Since(start), "nobody waited")
		ps := p.Snapshot().Policies[0]
		assert.True(t, ps.Shadow)
		assert.EqualValues(t, 3, ps.Rejected[policy.ReasonConcurrency])
		idle(t, live)
	})
}

func TestPermitsSharedByPipelines(t *testing.T) {
	t.Parallel()
	live := newPermits(t, bulkhead.Semaphore{Limit: 1})
	reads, writes := newPipeline(t, live), newPipeline(t, live)
	h, err := reads.Enter(t.Context())
	require.NoError(t, err)
	_, err = writes.Enter(t.Context())
	require.ErrorIs(t, err, bulkhead.ErrFull, "the other pipeline has the permit")
	h.Leave(nil)
	idle(t, live)

	own := bulkhead.Semaphore{Limit: 1}
	reads, writes = newPipeline(t, own), newPipeline(t, own)
	h, err = reads.Enter(t.Context())
	require.NoError(t, err)
	g, err := writes.Enter(t.Context())
	require.NoError(t, err, "a spec gives each pipeline permits of its own")
	g.Leave(nil)
	h.Leave(nil)
}

// The permit of an attempt entered by hand stays taken until it is released, which
// may be after its outcome is known.
func TestHandleHoldsThePermitUntilRelease(t *testing.T) {
	t.Parallel()
	live := newPermits(t, bulkhead.Semaphore{Limit: 1})
	p := newPipeline(t, live)
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	require.True(t, h.Settle(policy.Success, 0))
	assert.Equal(t, 1, live.InFlight(), "settled, and still reading")
	h.Release()
	h.Release()
	idle(t, live)
}

func TestCaseB41PanicGivesThePermitBack(t *testing.T) {
	t.Parallel()
	live := newPermits(t, bulkhead.Semaphore{Limit: 1})
	p := newPipeline(t, live)
	for range 100 {
		require.PanicsWithValue(t, "x", func() {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic("x") })
		})
		require.Zero(t, live.InFlight())
	}
	for range 100 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) {
				runtime.Goexit()
				return 0, nil
			})
			t.Error("Goexit did not reach the caller's goroutine")
		}()
		<-done
		require.Zero(t, live.InFlight())
	}
	func() {
		defer func() {
			_, ok := recover().(*runtime.PanicNilError)
			assert.True(t, ok, "panic(nil) reaches the caller")
		}()
		_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic(nil) })
	}()
	assert.Zero(t, live.InFlight())
	assert.True(t, live.TryAcquire(), "the slot is free")
	assert.Zero(t, p.Snapshot().Calls[policy.Success], "no success was recorded")
}

func TestCaseB46NestedThroughPipeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := newPermits(t, bulkhead.Semaphore{Limit: 4, MaxWait: 100 * time.Millisecond})
		p := newPipeline(t, live)
		var wg, outer sync.WaitGroup
		outer.Add(4)
		start := time.Now()
		for range 4 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
					outer.Done()
					outer.Wait()
					_, inner := policy.Do(ctx, p, hold(0))
					assert.Equal(t, policy.ReasonWait, reasonOf(t, inner))
					time.Sleep(time.Millisecond)
					return 1, nil
				})
				assert.NoError(t, err, "outer calls return")
			})
		}
		wg.Wait()
		assert.Equal(t, 101*time.Millisecond, time.Since(start))
		idle(t, live)
	})
}

// Concurrency 50 and 100 callers in a loop: never more than 50 in flight, the rest
// refused at once.
func TestIncidentAggregatorConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			limit   = 50
			callers = 100
			span    = time.Second
			work    = 50 * time.Millisecond
		)
		live := newPermits(t, bulkhead.Semaphore{Limit: limit})
		p := newPipeline(t, live)
		var inside, peak, served, refused atomic.Int64
		start := time.Now()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				for time.Since(start) < span {
					asked := time.Now()
					_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
						raise(&peak, inside.Add(1))
						defer inside.Add(-1)
						time.Sleep(work)
						return 1, nil
					})
					if errors.Is(err, bulkhead.ErrFull) {
						refused.Add(1)
						assert.Zero(t, time.Since(asked), "a refusal takes no time")
						time.Sleep(7 * time.Millisecond)
						continue
					}
					served.Add(1)
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, limit, peak.Load(), "calls at the same time")
		assert.Equal(t, limit, live.Snapshot(time.Now()).Bulkhead.HighWater)
		assert.Positive(t, refused.Load())
		assert.InEpsilon(t, float64(limit)*float64(span/work), float64(served.Load()), 0.1, "every permit is used all the time")
		s := p.Snapshot()
		assert.EqualValues(t, served.Load(), s.Calls[policy.Success])
		assert.EqualValues(t, refused.Load(), s.Policies[0].Rejected[policy.ReasonConcurrency])
		idle(t, live)
	})
}
