package bulkhead_test

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func TestWorkersIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 10, MinWorkers: 2, IdleTimeout: time.Minute})
		p := newPipeline(t, w)
		assert.Zero(t, state(w).Workers, "nothing is started before there is work")
		burst := func(n int) {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() { _, _ = policy.Do(t.Context(), p, hold(time.Second)) })
			}
			wg.Wait()
		}
		burst(10)
		assert.Equal(t, 10, state(w).Workers)
		time.Sleep(30 * time.Second)
		burst(4) // four of them stay in use
		time.Sleep(30 * time.Second)
		synctest.Wait()
		assert.Equal(t, 4, state(w).Workers, "those without work for a minute have gone home")
		time.Sleep(31 * time.Second)
		synctest.Wait()
		assert.Equal(t, 2, state(w).Workers, "but MinWorkers stay")
		time.Sleep(time.Hour)
		assert.Equal(t, 2, state(w).Workers)
		burst(3)
		assert.Equal(t, 3, state(w).Workers)
		atRest(t, w)
	})
}

func TestWorkersSetLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Name: "db", Workers: 4, MinWorkers: 1, IdleTimeout: time.Hour, Queue: 10, MaxWait: time.Hour})
		p := newPipeline(t, w)
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, hold(time.Duration(10+i)*time.Second))
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		require.NoError(t, w.SetLimit(6))
		synctest.Wait()
		assert.Equal(t, 6, state(w).InFlight, "two leave the queue at once")
		assert.Equal(t, 3, state(w).Waiting)
		assert.Equal(t, 5, state(w).MostWaiting)
		require.NoError(t, w.SetLimit(2))
		assert.Equal(t, 6, w.InFlight(), "nothing that runs is ended")
		time.Sleep(13 * time.Second) // four have ended
		synctest.Wait()
		assert.Equal(t, 2, w.InFlight())
		assert.Equal(t, 2, state(w).Workers)
		assert.Equal(t, 3, state(w).Waiting, "and nobody came in their place")
		assert.Equal(t, 2, w.Config().Workers)
		assert.Equal(t, 10, w.Config().Queue)
		wg.Wait()
		assert.Equal(t, 2, state(w).Idle)
		require.NoError(t, w.SetLimit(1))
		synctest.Wait()
		assert.Equal(t, 1, state(w).Workers, "one that idles is one too many")
		atRest(t, w)

		for _, n := range []int{0, -1} {
			err := w.SetLimit(n)
			ce, ok := errors.AsType[*policy.ConfigError](err)
			require.True(t, ok, "SetLimit(%d) = %v", n, err)
			assert.Equal(t, "db", ce.Policy)
			assert.Equal(t, "Workers", ce.Field)
		}
		min2 := newWorkers(t, bulkhead.Pool{Workers: 3, MinWorkers: 2})
		require.ErrorContains(t, min2.SetLimit(1), "MinWorkers (2)")
		assert.Equal(t, 3, min2.Config().Workers, "nothing changed")
	})
}

func TestWorkersNamedInProfiles(t *testing.T) {
	t.Parallel()
	w := newWorkers(t, bulkhead.Pool{Name: "stock-db", Workers: 1, MinWorkers: 1})
	p := newPipeline(t, w)
	dump := func() string {
		var buf bytes.Buffer
		assert.NoError(t, pprof.Lookup("goroutine").WriteTo(&buf, 1))
		return buf.String()
	}
	_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
		assert.Contains(t, dump(), `"pool":"stock-db"`, "a function at work")
		pprof.Do(ctx, pprof.Labels("mine", "1"), func(context.Context) {})
		return 0, nil
	})
	require.NoError(t, err)
	ctx := pprof.WithLabels(t.Context(), pprof.Labels("route", "/checkout"))
	_, err = policy.Do(ctx, p, func(context.Context) (int, error) {
		text := dump()
		assert.Contains(t, text, `"pool":"stock-db"`, "also after a function has changed its labels")
		assert.Contains(t, text, `"route":"/checkout"`, "next to the caller's own")
		return 0, nil
	})
	require.NoError(t, err)
	text := dump()
	assert.Contains(t, text, `"pool":"stock-db"`, "an idle worker")
	assert.NotContains(t, text, `"route":"/checkout"`, "without those of a call that is over")
}
