package bulkhead_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
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

func TestCaseB41PoolSurvivesPanicAndGoexit(t *testing.T) {
	t.Parallel()
	w := newWorkers(t, bulkhead.Pool{Workers: 1, MinWorkers: 1, Queue: bulkhead.NoQueue})
	p := newPipeline(t, w)
	raised := func(fn func(context.Context) (int, error)) (v any) {
		defer func() {
			pe, ok := recover().(*policy.PanicError)
			require.True(t, ok, "the panic reaches the caller")
			v = pe.Value
		}()
		_, _ = policy.Do(t.Context(), p, fn)
		return nil
	}
	for range 100 {
		require.Equal(t, "x", raised(func(context.Context) (int, error) { panic("x") }))
		require.Zero(t, w.InFlight(), "the slot is free before the caller knows")
	}
	for range 100 {
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
		require.ErrorIs(t, err, policy.ErrGoexit)
		require.Zero(t, w.InFlight())
	}
	require.IsType(t, &runtime.PanicNilError{}, raised(func(context.Context) (int, error) { panic(nil) }))
	require.Zero(t, w.InFlight())
	require.Equal(t, 1, state(w).Workers, "the worker was kept, or replaced")
	assert.Zero(t, p.Snapshot().Calls[policy.Success], "no success was recorded")
	_, err := policy.Do(t.Context(), p, hold(0))
	require.NoError(t, err, "the slot is free")
}

// Calls that go through the pool again from inside: with every worker held by an
// outer call, the inner ones end after MaxWait, refused.
func TestCaseB46NestedInPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(t, bulkhead.Pool{Workers: 4, MaxWait: 100 * time.Millisecond})
		p := newPipeline(t, w)
		var wg, outer sync.WaitGroup
		outer.Add(4)
		start := time.Now()
		for range 4 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
					outer.Done()
					outer.Wait() // all four are at work
					_, inner := policy.Do(ctx, p, hold(0))
					assert.Equal(t, policy.ReasonWait, reasonOf(t, inner))
					time.Sleep(time.Millisecond) // a worker free in that very moment may take another's call
					return 1, nil
				})
				assert.NoError(t, err, "outer calls return")
			})
		}
		wg.Wait()
		assert.Equal(t, 101*time.Millisecond, time.Since(start))
		atRest(t, w)
	})
}

// A timeout of 10 ms around a function that hangs for 1 s, 1000 times: the goroutines
// are the pool's, and gone when the functions are.
//
// Not parallel: it counts the goroutines of the process.
func TestCaseB47NoGoroutinesLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, workers = 1000, 50
		before := runtime.NumGoroutine()
		w := newWorkers(t, bulkhead.Pool{Workers: workers, MinWorkers: 2, IdleTimeout: 500 * time.Millisecond, Queue: bulkhead.NoQueue})
		p := newPipeline(t, w, policy.Timeouts{Attempt: 10 * time.Millisecond})
		var timeouts, refused int
		for range calls {
			start := time.Now()
			_, err := policy.Do(t.Context(), p, deaf(time.Second))
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				timeouts++
				require.Equal(t, 10*time.Millisecond, time.Since(start), "the caller goes on after its timeout")
			case errors.Is(err, bulkhead.ErrFull):
				refused++
				require.Zero(t, time.Since(start))
				time.Sleep(10 * time.Millisecond)
			default:
				require.Fail(t, "unexpected", "%v", err)
			}
			require.LessOrEqual(t, runtime.NumGoroutine(), before+workers+2, "never more than the pool has, but for a timer that fires")
		}
		assert.Positive(t, refused, "a pool of %d cannot hold 100 hung calls", workers)
		synctest.Wait() // some functions may be ending in this very moment
		b := state(w)
		assert.EqualValues(t, timeouts, b.Abandoned)
		assert.Equal(t, workers, b.HighWater)
		assert.Positive(t, b.Orphans)
		assert.Equal(t, b.InFlight, b.Orphans, "all that run are without a caller")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+5)
		atRest(t, w)
		assert.Equal(t, 2, state(w).Workers)
	})
}

// Three dependencies with a pool each. One of them goes from 20 ms to 10 s: the calls
// to the others are as fast as before and none fails; its own are refused at once.
func TestIncidentOrdersThreePools(t *testing.T) {
	t.Parallel()
	names := []string{"orders", "inventory", "catalogue"}
	// run offers 100 calls a second to each for 5 s and returns their durations.
	run := func(t *testing.T, inventory time.Duration) (took map[string][]time.Duration, failed map[string]int) {
		t.Helper()
		took, failed = map[string][]time.Duration{}, map[string]int{}
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			for k, name := range names {
				w := newWorkers(t, bulkhead.Pool{Name: name, Workers: 10, Queue: 2, MaxWait: 100 * time.Millisecond})
				p := newPipeline(t, w, policy.Timeouts{Attempt: time.Second})
				for i := range 500 {
					wg.Go(func() {
						time.Sleep(time.Duration(i)*10*time.Millisecond + time.Duration(k)*time.Millisecond)
						work := time.Duration(15+i%10) * time.Millisecond
						if name == "inventory" && inventory > 0 {
							work = inventory
						}
						start := time.Now()
						_, err := policy.Do(t.Context(), p, deaf(work))
						d := time.Since(start)
						mu.Lock()
						defer mu.Unlock()
						took[name] = append(took[name], d)
						if err != nil {
							failed[name]++
						}
					})
				}
			}
			wg.Wait()
		})
		return took, failed
	}
	p99 := func(ds []time.Duration) time.Duration {
		slices.Sort(ds)
		return ds[len(ds)*99/100]
	}
	healthy, failed := run(t, 0)
	assert.Empty(t, failed)
	sick, failed := run(t, 10*time.Second)
	for _, name := range []string{"orders", "catalogue"} {
		assert.Zero(t, failed[name], "%s does not fail", name)
		assert.LessOrEqual(t, float64(p99(sick[name])), 1.5*float64(p99(healthy[name])), "%s is as fast as before", name)
	}
	assert.Equal(t, 500, failed["inventory"])
	at := func(d time.Duration) int {
		n := 0
		for _, took := range sick["inventory"] {
			if took == d {
				n++
			}
		}
		return n
	}
	assert.GreaterOrEqual(t, at(0), 300, "most calls to the sick one are refused in no time")
	assert.Equal(t, 10, at(time.Second), "one attempt timeout for each worker")
	assert.LessOrEqual(t, p99(sick["inventory"]), time.Second, "and nobody is held for longer than a timeout")
}

// Everything at once: never more functions at a time than the limit was, none lost,
// none run twice, every caller told.
func TestWorkersConcurrentSafe(t *testing.T) {
	t.Parallel()
	for _, cfg := range []bulkhead.Pool{
		{Workers: 5, Queue: 8, MaxWait: 3 * time.Millisecond, IdleTimeout: time.Millisecond},
		{Workers: 5, Queue: bulkhead.NoQueue, MinWorkers: 1},
		{Workers: 5, Queue: 8, MaxWait: 9 * time.Millisecond, CoDel: bulkhead.CoDel{Target: time.Millisecond, Interval: 2 * time.Millisecond}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorkers(t, cfg)
			p := newPipeline(t, w, policy.Timeouts{Attempt: 2 * time.Millisecond})
			var inside, peak, begun, done, refused, left, lost atomic.Int64
			var wg sync.WaitGroup
			for g := range 24 {
				wg.Go(func() {
					for i := range 60 {
						ctx, cancel := context.WithCancel(policy.WithPriority(t.Context(), policy.Priority(i%4-1)))
						if (g+i)%5 == 0 {
							time.AfterFunc(time.Millisecond, cancel)
						}
						if (g+i)%17 == 0 {
							assert.NoError(t, w.SetLimit(1+i%5))
						}
						_ = p.Snapshot()
						_, err := policy.Do(ctx, p, func(context.Context) (int, error) {
							raise(&peak, inside.Add(1))
							defer inside.Add(-1)
							begun.Add(1)
							time.Sleep(time.Duration(i%4) * time.Millisecond)
							if i%7 == 0 {
								runtime.Goexit()
							}
							return 0, nil
						})
						switch {
						case err == nil:
							done.Add(1)
						case errors.Is(err, policy.ErrRejected):
							refused.Add(1)
							time.Sleep(time.Millisecond)
						case errors.Is(err, policy.ErrGoexit):
							lost.Add(1)
						default:
							left.Add(1)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
			assert.LessOrEqual(t, peak.Load(), int64(5))
			assert.EqualValues(t, 24*60, done.Load()+refused.Load()+left.Load()+lost.Load())
			b := state(w)
			assert.EqualValues(t, begun.Load(), b.Completed)
			assert.EqualValues(t, begun.Load(), uint64(done.Load()+lost.Load())+b.Abandoned, "what was begun has ended or was abandoned")
			assert.EqualValues(t, left.Load(), b.Abandoned+b.Expired, "who left did so while it ran, or before")
			for _, n := range []*atomic.Int64{&done, &refused, &left, &lost} {
				assert.Positive(t, n.Load())
			}
			atRest(t, w)
		})
	}
}
