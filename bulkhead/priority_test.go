package bulkhead_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func TestPermitsReserve(t *testing.T) {
	t.Parallel()
	p := newPermits(t, bulkhead.Semaphore{Limit: 3, Reserve: 1})
	acquire := func(prio policy.Priority) error { return p.Acquire(policy.WithPriority(t.Context(), prio)) }
	require.True(t, p.TryAcquire())
	require.NoError(t, acquire(policy.PriorityLow))
	require.Equal(t, policy.ReasonConcurrency, reasonOf(t, acquire(policy.PriorityNormal)))
	require.False(t, p.TryAcquire(), "the last permit is kept")
	require.NoError(t, acquire(policy.PriorityHigh))
	require.Equal(t, policy.ReasonConcurrency, reasonOf(t, acquire(policy.PriorityCritical)), "the limit holds for everybody")
	p.Release()
	require.False(t, p.TryAcquire(), "what is given back fills up the reserve, whoever held it")
	require.NoError(t, acquire(policy.PriorityCritical))
	p.Release()
	p.Release()
	require.True(t, p.TryAcquire())
	assert.Equal(t, 1, p.Snapshot(time.Now()).Bulkhead.Reserve)

	err := p.SetLimit(1)
	ce, ok := errors.AsType[*policy.ConfigError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "Limit", ce.Field)
	assert.Contains(t, err.Error(), "Reserve", "the contradiction names both")
}

// A caller of high priority that cannot queue does not fail because ordinary ones do.
func TestPermitsReservePastWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Limit: 2, Reserve: 1, MaxWait: time.Hour})
		require.True(t, p.TryAcquire())
		got := order(t, p, 1, func(int) context.Context { return t.Context() })
		start := time.Now()
		require.NoError(t, p.Acquire(policy.WithPriority(t.Context(), policy.PriorityHigh)))
		assert.Zero(t, time.Since(start))
		assert.Empty(t, got())
		p.Release()
		assert.Empty(t, got(), "a permit of the reserve is not for an ordinary waiter")
		p.Release()
		assert.Equal(t, []int{0}, got())
		p.Release()
		idle(t, p)
	})
}

func TestPermitsServeByPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Limit: 1, MaxWait: time.Hour, MaxWaiters: 6})
		require.True(t, p.TryAcquire())
		prios := []policy.Priority{-100, policy.PriorityNormal, policy.PriorityHigh, policy.PriorityNormal, policy.PriorityLow, 100}
		got := order(t, p, len(prios), func(i int) context.Context { return policy.WithPriority(t.Context(), prios[i]) })
		for range prios {
			p.Release()
			got()
		}
		assert.Equal(t, []int{5, 2, 1, 3, 0, 4}, got(), "by priority, and within one as they came")
		p.Release()
		idle(t, p)
	})
}

// With the queue full, the last of the lowest priority makes room.
func TestPermitsMakeRoomForPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPermits(t, bulkhead.Semaphore{Limit: 1, MaxWait: time.Hour, MaxWaiters: 3})
		require.True(t, p.TryAcquire())
		var mu sync.Mutex
		told := map[string]error{}
		wait := func(name string, prio policy.Priority) {
			go func() {
				err := p.Acquire(policy.WithPriority(t.Context(), prio))
				mu.Lock()
				defer mu.Unlock()
				told[name] = err
			}()
			synctest.Wait()
		}
		wait("low 1", policy.PriorityLow)
		wait("normal", policy.PriorityNormal)
		wait("low 2", policy.PriorityLow)
		wait("low 3", policy.PriorityLow)
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, told["low 3"]), "no room for one more that matters as little")
		wait("high", policy.PriorityHigh)
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, told["low 2"]), "the last of the lowest makes room")
		wait("critical", policy.PriorityCritical)
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, told["low 1"]))
		wait("high 2", policy.PriorityHigh)
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, told["normal"]))
		wait("high 3", policy.PriorityHigh)
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, told["high 3"]))
		assert.Equal(t, 3, p.Snapshot(time.Now()).Bulkhead.Waiting)
		for range 4 {
			p.Release()
		}
		synctest.Wait()
		for _, name := range []string{"high", "high 2", "critical"} {
			assert.Contains(t, told, name)
			assert.NoError(t, told[name])
		}
		idle(t, p)
	})
}
