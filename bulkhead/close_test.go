package bulkhead_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// Close waits for what runs and what is queued, and lets nothing new in.
func TestCloseDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 2, MinWorkers: 2, Queue: 4, MaxWait: time.Hour})
		p := newPipeline(t, w)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, hold(time.Second))
				assert.NoError(t, err, "every call that was taken in has run")
			})
		}
		synctest.Wait()
		start := time.Now()
		wg.Go(func() {
			assert.NoError(t, w.Close(t.Context()))
			assert.Equal(t, 3*time.Second, time.Since(start), "three rounds of two")
		})
		synctest.Wait()
		_, err := policy.Do(t.Context(), p, hold(0))
		re, ok := errors.AsType[*policy.RejectedError](err)
		require.True(t, ok, "got %v", err)
		assert.Equal(t, policy.ReasonClosed, re.Reason)
		require.ErrorIs(t, err, policy.ErrClosed)
		require.NotErrorIs(t, err, bulkhead.ErrFull)
		wg.Wait()
		assert.Zero(t, state(w).Workers, "all workers have gone home, MinWorkers too")
		assert.EqualValues(t, 6, state(w).Completed)
		require.NoError(t, w.Close(t.Context()), "again")
		atRest(t, w)
	})
}

func TestCloseBeforeTheFirstCall(t *testing.T) {
	t.Parallel()
	w, err := bulkhead.NewPool("", bulkhead.Pool{MinWorkers: 5})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Close(ctx), "there is nothing to wait for")
	require.NoError(t, w.Close(ctx))
	require.NoError(t, w.SetLimit(7), "harmless")
	assert.Zero(t, state(w).Workers)
}

// A Close whose patience ends refuses what is queued; nothing can end what runs.
func TestCloseGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := bulkhead.NewPool("db", bulkhead.Pool{Workers: 1, Queue: 3, MaxWait: time.Hour})
		require.NoError(t, err)
		p := newPipeline(t, w)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := policy.Do(t.Context(), p, deaf(time.Minute))
			assert.NoError(t, err, "it runs to its end")
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				start := time.Now()
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
				assert.ErrorIs(t, err, policy.ErrClosed)
				assert.Equal(t, time.Second, time.Since(start))
			})
		}
		synctest.Wait()
		cause := errors.New("killed")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		err = w.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, cause)
		assert.EqualError(t, err, "bulkhead: pool db: functions still running: 1: context deadline exceeded: killed")
		synctest.Wait()
		assert.EqualValues(t, 3, w.Snapshot(time.Now()).Rejected[policy.ReasonClosed])
		wg.Wait()
		require.NoError(t, w.Close(t.Context()), "waiting for longer helps")
		assert.Zero(t, state(w).Workers)
		atRest(t, w)
	})
}

// The worker that is replaced while the pool closes is counted as well.
func TestCloseWithGoexit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 1, Queue: 2, MaxWait: time.Hour})
		p := newPipeline(t, w)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
					time.Sleep(time.Second)
					runtime.Goexit()
					return 0, nil
				})
				assert.ErrorIs(t, err, policy.ErrGoexit)
			})
		}
		synctest.Wait()
		require.NoError(t, w.Close(t.Context()))
		wg.Wait()
		assert.Zero(t, state(w).Workers)
	})
}

func TestPipelineCloseDrainsThePool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		p, err := reg.New("inventory", bulkhead.Pool{Workers: 1, MinWorkers: 1, Queue: 1})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, hold(100*time.Millisecond))
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		require.NoError(t, reg.Close(t.Context()))
		b := p.Snapshot().Policies[0].Bulkhead
		assert.EqualValues(t, 2, b.Completed)
		assert.Zero(t, b.Workers)
		_, err = policy.Do(t.Context(), p, hold(0))
		require.ErrorIs(t, err, policy.ErrClosed)
		wg.Wait()
	})
}

// Pipelines that share workers close them with the last one.
func TestPipelinesShareWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 1, MinWorkers: 1, Queue: bulkhead.NoQueue})
		reads, writes := newPipeline(t, w), newPipeline(t, w)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = policy.Do(t.Context(), reads, hold(time.Second)) })
		synctest.Wait()
		_, err := policy.Do(t.Context(), writes, hold(0))
		assert.Equal(t, policy.ReasonConcurrency, reasonOf(t, err), "the other pipeline has the worker")
		wg.Wait()
		require.NoError(t, reads.Close(t.Context()))
		require.NoError(t, reads.Close(t.Context()), "a pipeline counts once")
		_, err = policy.Do(t.Context(), writes, hold(0))
		require.NoError(t, err, "the pool is still somebody's")
		require.NoError(t, writes.Close(t.Context()))
		assert.Zero(t, state(w).Workers)

		w = newWorkers(t, bulkhead.Pool{Workers: 1})
		shares := make([]policy.Closer, 2)
		for i := range shares {
			part, err := w.BuildPolicy()
			require.NoError(t, err)
			shares[i] = part.Runner.(policy.Closer)
		}
		require.NoError(t, shares[0].Close(t.Context()))
		require.NoError(t, shares[0].Close(t.Context()), "a share counts once")
		_, err = policy.Do(t.Context(), newPipeline(t, w), hold(0))
		require.NoError(t, err, "the other one is open")

		own := bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue}
		one, two := newPipeline(t, own), newPipeline(t, own)
		wg.Go(func() { _, _ = policy.Do(t.Context(), one, hold(time.Second)) })
		synctest.Wait()
		_, err = policy.Do(t.Context(), two, hold(0))
		require.NoError(t, err, "a spec gives each pipeline workers of its own")
		wg.Wait()
		require.NoError(t, one.Close(t.Context()))
		require.NoError(t, two.Close(t.Context()))
	})
}
