package bulkhead_test

import (
	"context"
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
	})
}

// A larger reserve takes no permit from those who have one; a smaller one lets the first
// waiter in.
func TestReloadOfAReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", bulkhead.Semaphore{Limit: 3, MaxWait: time.Minute})
		require.NoError(t, err)
		for range 2 {
			_, err := p.Enter(t.Context())
			require.NoError(t, err)
		}
		assert.Equal(t, "bulkhead: resized", reloadOf(t, p, bulkhead.Semaphore{Limit: 3, Reserve: 2, MaxWait: time.Minute}))
		s := p.Snapshot().Policies[0].Bulkhead
		assert.Equal(t, []int{2, 3, 2}, []int{s.InFlight, s.Limit, s.Reserve})
		_, err = p.Enter(policy.WithPriority(t.Context(), policy.PriorityHigh))
		require.NoError(t, err)
		waited := make(chan time.Duration)
		go func() {
			start := time.Now()
			_, err := p.Enter(t.Context())
			assert.NoError(t, err)
			waited <- time.Since(start)
		}()
		time.Sleep(time.Second)
		assert.Equal(t, "bulkhead: resized", reloadOf(t, p, bulkhead.Semaphore{Limit: 5, Reserve: 2, MaxWait: time.Minute}))
		time.Sleep(time.Second)
		assert.Equal(t, 1, p.Snapshot().Policies[0].Bulkhead.Waiting, "the two more are the reserve's")
		assert.Equal(t, "bulkhead: resized", reloadOf(t, p, bulkhead.Semaphore{Limit: 5, MaxWait: time.Minute}))
		assert.Equal(t, 2*time.Second, <-waited)
		assert.Equal(t, 4, p.Snapshot().Policies[0].Bulkhead.InFlight)
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
		require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
		require.NoError(t, p.Close(t.Context()))
	})
}

// Who stands in the queue stays there, whatever becomes of it; a new call finds the new one.
func TestReloadOfAQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", bulkhead.Pool{Workers: 1, Queue: 4, MaxWait: time.Minute})
		require.NoError(t, err)
		work := func(context.Context) error { time.Sleep(time.Second); return nil }
		done := make(chan error, 5)
		for range 5 {
			go func() { done <- policy.Run(t.Context(), p, work) }()
		}
		synctest.Wait()
		assert.Equal(t, "pool: resized", reloadOf(t, p, bulkhead.Pool{Workers: 1, Queue: bulkhead.NoQueue, MinWorkers: 1}))
		s := p.Snapshot().Policies[0].Bulkhead
		assert.Equal(t, []int{1, 4, 0}, []int{s.InFlight, s.Waiting, s.MaxWaiters})
		require.ErrorIs(t, policy.Run(t.Context(), p, work), bulkhead.ErrFull)
		for range 5 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, "pool: resized", reloadOf(t, p, bulkhead.Pool{Workers: 1, Queue: 1, MaxWait: time.Minute, IdleTimeout: time.Hour}))
		for range 2 {
			go func() { done <- policy.Run(t.Context(), p, work) }()
		}
		synctest.Wait()
		require.ErrorIs(t, policy.Run(t.Context(), p, work), bulkhead.ErrFull, "one runs and one waits")
		assert.Equal(t, "pool: resized", reloadOf(t, p, bulkhead.Pool{Workers: 1, Queue: 1, WhenFull: bulkhead.CallerRuns, MaxWait: time.Minute}))
		require.NoError(t, policy.Run(t.Context(), p, work))
		for range 2 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, 1, p.Snapshot().Policies[0].Bulkhead.Idle)
		time.Sleep(11 * time.Second)
		assert.Zero(t, p.Snapshot().Policies[0].Bulkhead.Workers, "by the new idle timeout")
		require.NoError(t, p.Close(t.Context()))
	})
}

// A queue that has not been empty for long is shed as soon as CoDel is turned on.
func TestReloadTurnsCoDelOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", bulkhead.Pool{Workers: 1, Queue: 10, MaxWait: time.Minute})
		require.NoError(t, err)
		done := make(chan error, 5)
		for range 5 {
			go func() {
				done <- policy.Run(t.Context(), p, func(context.Context) error { time.Sleep(time.Second); return nil })
			}()
		}
		time.Sleep(500 * time.Millisecond)
		reloadOf(t, p, bulkhead.Pool{Workers: 1, Queue: 10, MaxWait: time.Minute, CoDel: bulkhead.CoDel{Target: 10 * time.Millisecond}})
		assert.True(t, p.Snapshot().Policies[0].Bulkhead.Overloaded)
		refused := 0
		for range 5 {
			if err := <-done; err != nil {
				require.ErrorIs(t, err, bulkhead.ErrFull)
				refused++
			}
		}
		assert.Equal(t, 4, refused)
		require.NoError(t, p.Close(t.Context()))
	})
}

// The limit that was found stays, within the new bounds, and the permits in flight count
// against it.
func TestReloadOfAdaptiveKeepsTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := bulkhead.Adaptive{Min: 5, Initial: 10, Max: 100}
		p, err := policy.New("dep", cfg)
		require.NoError(t, err)
		limit := func() int { return p.Snapshot().Policies[0].Bulkhead.Limit }
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for range 400 {
					_ = policy.Run(t.Context(), p, func(context.Context) error { time.Sleep(50 * time.Millisecond); return nil })
				}
			})
		}
		time.Sleep(15*time.Second + 25500*time.Microsecond)
		found := limit()
		require.Greater(t, found, 10)
		cfg.MaxWait, cfg.Tolerance, cfg.Reserve = time.Second, 3, 2
		assert.Equal(t, "adaptive: resized", reloadOf(t, p, cfg))
		assert.Equal(t, found, limit())
		cfg.Max = 200
		assert.Equal(t, "adaptive: resized", reloadOf(t, p, cfg))
		assert.Equal(t, found, limit())
		s := p.Snapshot().Policies[0].Bulkhead
		assert.Equal(t, []int{5, 200, 2, 8}, []int{s.MinLimit, s.MaxLimit, s.Reserve, s.InFlight})
		cfg.Max, cfg.Initial = 7, 6
		assert.Equal(t, "adaptive: resized", reloadOf(t, p, cfg))
		assert.Equal(t, 7, limit())
		wg.Wait()
		assert.LessOrEqual(t, limit(), 7)
		assert.Zero(t, p.Snapshot().Policies[0].Bulkhead.InFlight)
		_, err = bulkhead.Adaptive{}.BuildPolicy()
		require.NoError(t, err)
	})
}

func TestReloadOfSomethingElse(t *testing.T) {
	t.Parallel()
	s, err := bulkhead.New("", bulkhead.Semaphore{})
	require.NoError(t, err)
	w, err := bulkhead.NewPool("", bulkhead.Pool{})
	require.NoError(t, err)
	a, err := bulkhead.NewAdaptive("", bulkhead.Adaptive{})
	require.NoError(t, err)
	for _, bad := range []policy.Policy{
		policy.Timeouts{}, bulkhead.Semaphore{Limit: -1}, bulkhead.Pool{Workers: -1}, bulkhead.Adaptive{Min: -1},
	} {
		for _, r := range []policy.Reloader{s, w, a} {
			_, err := r.Reload(bad)
			require.Error(t, err)
		}
	}
}

// Reloads under way while calls come and go lose no permit and no place.
func TestReloadConcurrentSafe(t *testing.T) {
	t.Parallel()
	specs := map[string]func(i int) policy.Policy{
		"bulkhead": func(i int) policy.Policy {
			return bulkhead.Semaphore{Limit: 4 + i%5, Reserve: i % 4, MaxWait: time.Minute, MaxWaiters: 100}
		},
		"adaptive": func(i int) policy.Policy {
			return bulkhead.Adaptive{Min: 2 + i%5, Initial: 10, Max: 20 + i%7, MaxWait: time.Minute, MaxWaiters: 100, Reserve: i % 2}
		},
		"pool": func(i int) policy.Policy {
			return bulkhead.Pool{Workers: 2 + i%5, MinWorkers: i % 2, Queue: 50 + i%50, MaxWait: time.Minute, IdleTimeout: time.Duration(1+i%3) * time.Millisecond}
		},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := policy.New("dep", spec(0))
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 1000 {
						assert.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { runtime.Gosched(); return nil }))
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			for i, over := 1, false; !over; i++ {
				require.Equal(t, name+": resized", reloadOf(t, p, spec(i)))
				select {
				case <-done:
					over = true
				default:
				}
			}
			s := p.Snapshot().Policies[0].Bulkhead
			assert.Equal(t, []int{0, 0}, []int{s.InFlight, s.Waiting})
			require.NoError(t, p.Close(t.Context()))
		})
	}
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
