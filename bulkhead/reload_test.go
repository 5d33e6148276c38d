package bulkhead_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func reloadOf(t *testing.T, p *policy.Pipeline, spec policy.Policy) string {
	t.Helper()
	u, err := p.Prepare(spec)
	require.NoError(t, err)
	require.NoError(t, u.Apply())
	return u.Replacements[0].String()
}

// Permits in flight stay, and count against the new limit.
func TestReloadOfPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", bulkhead.Semaphore{Limit: 2})
		require.NoError(t, err)
		first, err := p.Enter(t.Context())
		require.NoError(t, err)
		_, err = p.Enter(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "bulkhead: resized", reloadOf(t, p, bulkhead.Semaphore{Limit: 1, MaxWait: time.Second, MaxWaiters: 1}))
		s := p.Snapshot().Policies[0].Bulkhead
		assert.Equal(t, []int{2, 1, 1}, []int{s.InFlight, s.Limit, s.MaxWaiters})
		first.Leave(nil)
		first.Release()
		start := time.Now()
		_, err = p.Enter(t.Context())
		require.ErrorIs(t, err, bulkhead.ErrFull)
		assert.Equal(t, time.Second, time.Since(start), "it waits now")
		assert.Equal(t, "bulkhead: reset (Reserve cannot be changed in place)", reloadOf(t, p, bulkhead.Semaphore{Limit: 3, Reserve: 1}))
	})
}

func TestReloadOfWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", bulkhead.Pool{Workers: 1, Queue: 5})
		require.NoError(t, err)
		done := make(chan error, 3)
		for range 3 {
			go func() {
				done <- policy.Run(t.Context(), p, func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil })
			}()
		}
		synctest.Wait()
		start := time.Now()
		assert.Equal(t, "pool: resized", reloadOf(t, p, bulkhead.Pool{Workers: 3, Queue: 5}))
		for range 3 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, 100*time.Millisecond, time.Since(start), "those in the queue run at once")
		assert.Equal(t, "pool: reset (Queue cannot be changed in place)", reloadOf(t, p, bulkhead.Pool{Workers: 3, Queue: 6}))
		require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
		require.NoError(t, p.Close(t.Context()))
	})
}

// A live pool that an update keeps is closed with its pipeline.
func TestReloadOfALivePool(t *testing.T) {
	t.Parallel()
	w, err := bulkhead.NewPool("", bulkhead.Pool{Workers: 1})
	require.NoError(t, err)
	p, err := policy.New("dep", w)
	require.NoError(t, err)
	assert.Equal(t, "pool: kept", reloadOf(t, p, w))
	require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
	require.NoError(t, p.Close(t.Context()))
	other, err := policy.New("dep", w)
	require.NoError(t, err)
	err = policy.Run(t.Context(), other, func(context.Context) error { return nil })
	require.ErrorIs(t, err, policy.ErrClosed)
}
