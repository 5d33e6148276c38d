package bulkhead_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
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

func newPermits(t *testing.T, cfg bulkhead.Semaphore) *bulkhead.Permits {
	t.Helper()
	p, err := bulkhead.New("", cfg)
	require.NoError(t, err)
	return p
}

// reasonOf returns the reason of a refusal, and fails for any other error.
func reasonOf(t *testing.T, err error) policy.Reason {
	t.Helper()
	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok, "%v (%T) is a refusal", err, err)
	assert.ErrorIs(t, err, bulkhead.ErrFull)
	assert.ErrorIs(t, err, policy.ErrRejected)
	assert.Zero(t, re.RetryAfter, "nobody knows how long a call will take")
	return re.Reason
}

// idle asserts that nothing is taken and nobody waits.
func idle(t *testing.T, p *bulkhead.Permits) {
	t.Helper()
	b := p.Snapshot(time.Now()).Bulkhead
	assert.Zero(t, b.InFlight, "in flight")
	assert.Zero(t, b.Waiting, "waiting")
}

func TestPermitsRefuseAtOnceWithoutMaxWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Name: "db", Limit: 2})
		require.NoError(t, p.Acquire(t.Context()))
		require.True(t, p.TryAcquire())
		start := time.Now()
		err := p.Acquire(t.Context())
		assert.Equal(t, policy.ReasonConcurrency, reasonOf(t, err))
		assert.EqualError(t, err, "rejected by db (concurrency)")
		assert.False(t, p.TryAcquire())
		assert.Zero(t, time.Since(start), "a refusal takes no time")
		p.Release()
		assert.True(t, p.TryAcquire(), "a permit that was given back is free")
		assert.Equal(t, 2, p.InFlight())
	})
}

func TestPermitsWait(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		release  time.Duration // when the one permit is given back
		deadline time.Duration // of the waiter's context; 0 is none
		cancel   time.Duration // when the waiter's context is cancelled; 0 is never
		reason   policy.Reason // of the refusal
		err      error         // other than a refusal
		at       time.Duration // when the wait ends
	}{
		{name: "admitted", release: 30 * time.Millisecond, at: 30 * time.Millisecond},
		{name: "too late", release: 101 * time.Millisecond, reason: policy.ReasonWait, at: 100 * time.Millisecond},
		{
			name: "deadline first", release: time.Second, deadline: 40 * time.Millisecond,
			err: context.DeadlineExceeded, at: 40 * time.Millisecond,
		},
		{
			name: "deadline far", release: time.Second, deadline: 400 * time.Millisecond,
			reason: policy.ReasonWait, at: 100 * time.Millisecond,
		},
		{name: "permit before the deadline", release: 30 * time.Millisecond, deadline: 40 * time.Millisecond, at: 30 * time.Millisecond},
		{name: "cancelled", release: time.Second, cancel: 20 * time.Millisecond, err: context.Canceled, at: 20 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPermits(t, bulkhead.Semaphore{Limit: 1, MaxWait: 100 * time.Millisecond})
				require.True(t, p.TryAcquire())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				release := time.AfterFunc(tt.release, p.Release)
				start := time.Now()

				err := p.Acquire(ctx)
				assert.Equal(t, tt.at, time.Since(start), "end of the wait")
				switch {
				case tt.err != nil:
					require.ErrorIs(t, err, tt.err)
					assert.NotErrorIs(t, err, policy.ErrRejected, "the caller's own doing is no refusal")
				case tt.reason != 0:
					assert.Equal(t, tt.reason, reasonOf(t, err))
				default:
					require.NoError(t, err)
					p.Release()
				}
				wait := p.Snapshot(time.Now()).Bulkhead.Wait
				assert.EqualValues(t, 1, wait.Count(), "waits are counted, however they end")
				assert.Equal(t, tt.at, wait.Sum)
				if release.Stop() {
					p.Release()
				}
				idle(t, p)
			})
		})
	}
}

func TestPermitsDoneContextTakesNothing(t *testing.T) {
	t.Parallel()
	p := newPermits(t, bulkhead.Semaphore{Limit: 1, MaxWait: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Acquire(ctx), context.Canceled, "with a permit free")
	assert.Zero(t, p.InFlight())
	require.True(t, p.TryAcquire())
	require.ErrorIs(t, p.Acquire(ctx), context.Canceled, "with none")
	p.Release()
	idle(t, p)
}

func TestPermitsBoundTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Limit: 1, MaxWait: time.Second, MaxWaiters: 2})
		require.True(t, p.TryAcquire())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { assert.NoError(t, p.Acquire(t.Context())) })
		}
		synctest.Wait()
		b := *p.Snapshot(time.Now()).Bulkhead
		assert.Zero(t, b.Wait.Count(), "nobody has waited yet")
		b.Wait = policy.Latency{}
		assert.Equal(t, policy.BulkheadSnapshot{InFlight: 1, Limit: 1, Waiting: 2, MostWaiting: 2, MaxWaiters: 2, HighWater: 1}, b)
		start := time.Now()
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, p.Acquire(t.Context())))
		assert.Zero(t, time.Since(start), "a refusal takes no time")
		for range 3 {
			p.Release()
			synctest.Wait()
		}
		wg.Wait()
		idle(t, p)
	})
}

// order starts n callers that queue one after the other and returns where they note
// that they were admitted.
func order(t *testing.T, p *bulkhead.Permits, n int, ctx func(i int) context.Context) (got func() []int) {
	t.Helper()
	var mu sync.Mutex
	var list []int
	for i := range n {
		go func() {
			if p.Acquire(ctx(i)) == nil {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, i)
			}
		}()
		synctest.Wait()
	}
	return func() []int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return append([]int{}, list...)
	}
}

func TestPermitsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Limit: 1, MaxWait: time.Hour, MaxWaiters: 5})
		require.True(t, p.TryAcquire())
		ctx2, leave2 := context.WithCancel(t.Context())
		got := order(t, p, 5, func(i int) context.Context {
			if i == 2 {
				return ctx2
			}
			return t.Context()
		})
		assert.Empty(t, got())
		p.Release()
		assert.Equal(t, []int{0}, got())
		assert.False(t, p.TryAcquire(), "a newcomer does not overtake")
		leave2()
		assert.Equal(t, []int{0}, got(), "a waiter that leaves frees nothing")
		p.Release()
		assert.Equal(t, []int{0, 1}, got())
		p.Release()
		assert.Equal(t, []int{0, 1, 3}, got(), "those behind the one that left moved up")
		p.Release()
		p.Release()
		assert.Equal(t, []int{0, 1, 3, 4}, got())
		idle(t, p)
	})
}

func TestPermitsSetLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Limit: 2, MaxWait: time.Hour, MaxWaiters: 10})
		require.True(t, p.TryAcquire())
		require.True(t, p.TryAcquire())
		got := order(t, p, 4, func(int) context.Context { return t.Context() })

		require.NoError(t, p.SetLimit(4))
		assert.Equal(t, []int{0, 1}, sorted(got()), "two more are let in at once, and they are the first two")
		assert.Equal(t, 4, p.InFlight())

		require.NoError(t, p.SetLimit(1))
		assert.Equal(t, 4, p.InFlight(), "nobody loses a permit")
		for range 3 {
			p.Release()
			assert.Len(t, got(), 2, "nobody is let in above the new limit")
		}
		p.Release()
		assert.Equal(t, []int{0, 1, 2}, sorted(got()))
		assert.Equal(t, 1, p.Config().Limit)
		assert.Equal(t, 10, p.Config().MaxWaiters)
		assert.Equal(t, 4, p.Snapshot(time.Now()).Bulkhead.HighWater)
		p.Release()
		assert.Equal(t, []int{0, 1, 2, 3}, sorted(got()))
		p.Release()
		idle(t, p)
	})
}

func TestPermitsSetLimitRefusesNonsense(t *testing.T) {
	t.Parallel()
	p := newPermits(t, bulkhead.Semaphore{Name: "db", Limit: 3})
	for _, n := range []int{0, -1} {
		err := p.SetLimit(n)
		ce, ok := errors.AsType[*policy.ConfigError](err)
		require.True(t, ok, "SetLimit(%d) = %v", n, err)
		assert.Equal(t, "db", ce.Policy)
		assert.Equal(t, "Limit", ce.Field)
		assert.Equal(t, 3, p.Config().Limit, "nothing changed")
	}
}

// A permit reaches a waiter in the same moment in which the waiter gives up: it may
// go either way, and the permit is never lost.
func TestPermitsHandedOverWhileLeaving(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"deadline", "max wait"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			admitted := 0
			const rounds = 200
			for range rounds {
				synctest.Test(t, func(t *testing.T) {
					const tie = 50 * time.Millisecond
					cfg := bulkhead.Semaphore{Limit: 1, MaxWait: tie}
					ctx := t.Context()
					if how == "deadline" {
						cfg.MaxWait = time.Hour
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tie)
						defer cancel()
					}
					p := newPermits(t, cfg)
					require.True(t, p.TryAcquire())
					time.AfterFunc(tie, p.Release)
					if p.Acquire(ctx) == nil {
						admitted++
						assert.NoError(t, ctx.Err(), "nothing is taken for a context that is done")
						p.Release()
					}
					synctest.Wait()
					idle(t, p)
					assert.True(t, p.TryAcquire(), "the permit is still there")
				})
			}
			t.Logf("%d of %d were admitted", admitted, rounds)
		})
	}
}

func TestCaseB44DoubleRelease(t *testing.T) {
	t.Parallel()
	p := newPermits(t, bulkhead.Semaphore{Limit: 1})
	require.True(t, p.TryAcquire())
	p.Release()
	p.Release()
	assert.Zero(t, p.InFlight(), "never below 0")
	assert.True(t, p.TryAcquire())
	assert.False(t, p.TryAcquire(), "a second release invents no permit")
	p.Release()

	for range 100 { // the two at once
		require.True(t, p.TryAcquire())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(p.Release)
		}
		wg.Wait()
		require.Zero(t, p.InFlight())
	}
}

func TestCaseB44ExactLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 10} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			t.Parallel()
			for range 50 {
				p := newPermits(t, bulkhead.Semaphore{Limit: limit})
				var got atomic.Int64
				start := make(chan struct{})
				var wg sync.WaitGroup
				for range limit + 1 {
					wg.Go(func() {
						<-start
						if p.TryAcquire() {
							got.Add(1)
						}
					})
				}
				close(start)
				wg.Wait()
				require.EqualValues(t, limit, got.Load())
				require.Equal(t, limit, p.InFlight())
			}
		})
	}
}

func TestCaseB46NestedAcquisition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Limit: 4, MaxWait: 100 * time.Millisecond})
		var wg, outer sync.WaitGroup
		outer.Add(4)
		start := time.Now()
		for range 4 {
			wg.Go(func() {
				err := p.Acquire(t.Context())
				outer.Done()
				if !assert.NoError(t, err) {
					return
				}
				defer p.Release()
				outer.Wait() // all four hold a permit
				err = p.Acquire(t.Context())
				assert.Equal(t, policy.ReasonWait, reasonOf(t, err))
				assert.Equal(t, 100*time.Millisecond, time.Since(start))
				time.Sleep(time.Millisecond) // a permit given back in that very moment may reach another waiter
			})
		}
		wg.Wait()
		assert.Equal(t, 101*time.Millisecond, time.Since(start), "all have returned")
		idle(t, p)
	})
}

func TestCaseB46OppositeOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := bulkhead.Semaphore{Limit: 1, MaxWait: 100 * time.Millisecond}
		a, b := newPermits(t, cfg), newPermits(t, cfg)
		var wg sync.WaitGroup
		var failed atomic.Int64
		start := time.Now()
		path := func(first, second *bulkhead.Permits) {
			if !assert.NoError(t, first.Acquire(t.Context())) {
				return
			}
			defer first.Release()
			time.Sleep(time.Millisecond) // the other path holds its first by now
			if err := second.Acquire(t.Context()); err != nil {
				failed.Add(1)
				assert.Equal(t, policy.ReasonWait, reasonOf(t, err))
				return
			}
			second.Release()
		}
		wg.Go(func() { path(a, b) })
		wg.Go(func() { path(b, a) })
		wg.Wait()
		assert.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
		assert.Positive(t, failed.Load(), "at least one path gave up")
		idle(t, a)
		idle(t, b)
	})
}

func TestPermitsConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const largest = 5
		p := newPermits(t, bulkhead.Semaphore{Limit: largest, MaxWait: 3 * time.Millisecond, MaxWaiters: 8})
		var inside, peak, admitted, refused, left atomic.Int64
		var wg sync.WaitGroup
		for g := range 24 {
			wg.Go(func() {
				for i := range 100 {
					ctx, cancel := context.WithCancel(t.Context())
					if (g+i)%5 == 0 {
						time.AfterFunc(2*time.Millisecond, cancel)
					}
					if (g+i)%17 == 0 {
						assert.NoError(t, p.SetLimit(1+i%largest))
					}
					_ = p.Snapshot(time.Now())
					err := p.Acquire(ctx)
					switch {
					case err == nil:
						raise(&peak, inside.Add(1))
						admitted.Add(1)
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						p.Release()
					case errors.Is(err, policy.ErrRejected):
						refused.Add(1)
						time.Sleep(time.Millisecond)
					default:
						left.Add(1)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		assert.LessOrEqual(t, peak.Load(), int64(largest))
		assert.EqualValues(t, 24*100, admitted.Load()+refused.Load()+left.Load())
		assert.Positive(t, admitted.Load())
		assert.Positive(t, refused.Load())
		assert.Positive(t, left.Load())
		synctest.Wait()
		idle(t, p)
	})
}

func sorted(list []int) []int {
	slices.Sort(list)
	return list
}

// raise makes m at least n.
func raise(m *atomic.Int64, n int64) {
	for old := m.Load(); old < n; old = m.Load() {
		if m.CompareAndSwap(old, n) {
			return
		}
	}
}
