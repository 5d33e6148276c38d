package stale_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/fallback/stale"
	"github.com/breakwater-go/breakwater/policy"
)

var (
	errDown     = errors.New("down")
	errNotFound = errors.New("not found")
)

// backend is a dependency that counts its calls.
type backend struct {
	mu    sync.Mutex
	err   error
	delay time.Duration
	calls int
}

func (b *backend) load(ctx context.Context) (int, error) {
	b.mu.Lock()
	b.calls++
	n, err, delay := b.calls, b.err, b.delay
	b.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (b *backend) set(err error, delay time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.delay = err, delay
}

func (b *backend) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// newCache returns a cache, whose freshness is not shortened unless cfg says so, and its
// pipeline.
func newCache(t *testing.T, cfg stale.Config[int], policies ...policy.Policy) (*stale.Cache[int], *policy.Pipeline) {
	t.Helper()
	p, err := policy.New("inventory", policies...)
	require.NoError(t, err)
	if cfg.Jitter == 0 {
		cfg.Jitter = -1
	}
	c, err := stale.New(p, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) }) //nolint:usetesting // that of the test has ended
	return c, p
}

func figures(c *stale.Cache[int]) policy.StaleSnapshot {
	return *c.Snapshot(time.Now()).Fallback.Stale
}

func TestCaseB57gLastGoodValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := newCache(t, stale.Config[int]{Fresh: time.Minute, MaxAge: 600 * time.Second})
		b := &backend{}
		v, err := c.Get(t.Context(), "sku", b.load)
		require.NoError(t, err)
		require.Equal(t, 1, v)

		time.Sleep(599 * time.Second)
		b.set(errDown, 0)
		start := time.Now()
		r, err := c.GetResult(t.Context(), "sku", b.load)
		require.NoError(t, err)
		assert.Equal(t, policy.Result[int]{Value: 1, Degraded: true, Cause: stale.ErrNotFresh, Age: 599 * time.Second}, r)
		synctest.Wait()
		r, err = c.GetResult(t.Context(), "sku", b.load)
		require.NoError(t, err)
		assert.Equal(t, policy.Result[int]{Value: 1, Degraded: true, Cause: errDown, Age: 599 * time.Second}, r, "now it is known why")
		assert.Zero(t, time.Since(start))
		s := p.Snapshot()
		assert.EqualValues(t, 1, s.Policies[0].Fallback.Served, "it stood in for the load that failed")
		assert.EqualValues(t, 1, s.Calls[policy.Failure])
		assert.EqualValues(t, 2, s.Policies[0].Fallback.Stale.Stale)
		assert.Equal(t, 599*time.Second, s.Policies[0].Fallback.Stale.OldestAge)

		time.Sleep(2 * time.Second)
		_, err = c.Get(t.Context(), "sku", b.load)
		require.Equal(t, errDown, err, "601 s: no value, whatever the dependency does")

		// Permanent errors are not masked, neither of what is there nor of what is stale.
		b.set(nil, 0)
		_, err = c.Get(t.Context(), "sku", b.load)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		b.set(policy.AsPermanent(errNotFound), 0)
		_, err = c.Get(t.Context(), "sku", b.load)
		require.NoError(t, err, "nobody knows yet")
		synctest.Wait()
		_, err = c.Get(t.Context(), "sku", b.load)
		require.ErrorIs(t, err, errNotFound)

		// The first success after the recovery returns fresh data, and so it goes on.
		b.set(nil, 0)
		time.Sleep(5 * time.Second)
		r, err = c.GetResult(t.Context(), "sku", b.load)
		require.NoError(t, err)
		assert.False(t, r.Degraded)
		assert.Equal(t, b.count(), r.Value)
		assert.Zero(t, r.Age)
	})
}

// 1,000 callers on one key whose value has expired: one load.
func TestStampede(t *testing.T) {
	t.Parallel()
	const callers = 1000
	for _, tt := range []struct {
		name     string
		cfg      stale.Config[int]
		idle     time.Duration
		degraded bool
		takes    time.Duration
	}{
		{name: "nothing there", takes: 50 * time.Millisecond},
		{name: "too old", idle: time.Hour, takes: 50 * time.Millisecond},
		{name: "stale", idle: 2 * time.Minute, degraded: true},
		{name: "stale, and they wait", idle: 2 * time.Minute, cfg: stale.Config[int]{Wait: -1}, takes: 50 * time.Millisecond},
		{name: "stale, and they wait a little", idle: 2 * time.Minute, cfg: stale.Config[int]{Wait: 10 * time.Millisecond}, degraded: true, takes: 10 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _ := newCache(t, tt.cfg)
				b := &backend{delay: 50 * time.Millisecond}
				want := 1
				if tt.idle > 0 {
					_, err := c.Get(t.Context(), "sku", b.load)
					require.NoError(t, err)
					time.Sleep(tt.idle)
					want = 2
				}
				start := time.Now()
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						r, err := c.GetResult(t.Context(), "sku", b.load)
						assert.NoError(t, err)
						assert.Equal(t, tt.degraded, r.Degraded)
						if tt.degraded {
							assert.Equal(t, 1, r.Value)
						} else {
							assert.Equal(t, want, r.Value)
						}
						assert.Equal(t, tt.takes, time.Since(start))
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				assert.Equal(t, want, b.count(), "one load")
				s := figures(c)
				assert.EqualValues(t, want, s.Loads)
				if tt.degraded {
					assert.EqualValues(t, callers, s.Stale)
				}
				r, err := c.GetResult(t.Context(), "sku", b.load)
				require.NoError(t, err)
				assert.Equal(t, want, r.Value)
				assert.False(t, r.Degraded)
			})
		})
	}
}

// A backend that is dead, be it silent or loud: nobody waits, and it is not asked by
// everybody.
func TestDeadBackend(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		err   error
		delay time.Duration
		loads int // in 60 s, at most
	}{
		{name: "refuses", err: errDown, loads: 60},
		{name: "hangs", delay: time.Hour, loads: 31},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			policies := []policy.Policy{policy.Timeouts{Attempt: time.Second}}
			synctest.Test(t, func(t *testing.T) {
				c, p := newCache(t, stale.Config[int]{Fresh: time.Minute, MaxAge: 2 * time.Minute}, policies...)
				b := &backend{}
				_, err := c.Get(t.Context(), "sku", b.load)
				require.NoError(t, err)
				time.Sleep(time.Minute)
				b.set(tt.err, tt.delay)
				before := b.count()
				for range 600 { // for a minute
					start := time.Now()
					var wg sync.WaitGroup
					for range 10 {
						wg.Go(func() {
							r, err := c.GetResult(t.Context(), "sku", b.load)
							assert.NoError(t, err)
							assert.True(t, r.Degraded)
							assert.Equal(t, 1, r.Value)
						})
					}
					wg.Wait()
					assert.Zero(t, time.Since(start), "a stale value takes no time")
					time.Sleep(100 * time.Millisecond)
				}
				assert.LessOrEqual(t, b.count()-before, tt.loads)
				assert.Greater(t, b.count()-before, 20, "it is tried again")
				time.Sleep(time.Millisecond)
				_, err = c.Get(t.Context(), "sku", b.load)
				require.Error(t, err, "and not served beyond its maximum age")
				assert.LessOrEqual(t, figures(c).OldestAge, 2*time.Minute)
				assert.Positive(t, p.Snapshot().Policies[0].Fallback.Served)
			})
		})
	}
}

func TestOpenBreakerServesStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		br, err := breaker.New("breaker", breaker.Config{})
		require.NoError(t, err)
		var events []policy.Event
		var mu sync.Mutex
		p, err := policy.New("inventory", br, policy.Observe(policy.ObserverFunc(func(e policy.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		})))
		require.NoError(t, err)
		c, err := stale.New(p, stale.Config[int]{Wait: -1, Otherwise: fallback.Value(-1)})
		require.NoError(t, err)
		b := &backend{}
		_, err = c.Get(t.Context(), "sku", b.load)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		br.ForceOpen("test", 0)

		r, err := c.GetResult(t.Context(), "sku", b.load)
		require.NoError(t, err)
		assert.Equal(t, 1, r.Value)
		assert.True(t, r.Degraded)
		assert.Equal(t, 2*time.Minute, r.Age)
		re, ok := errors.AsType[*policy.RejectedError](r.Cause)
		require.True(t, ok, "%v", r.Cause)
		assert.Equal(t, policy.ReasonForced, re.Reason)

		// With nothing to serve, the next fallback answers, and that is not remembered.
		r, err = c.GetResult(t.Context(), "other", b.load)
		require.NoError(t, err)
		assert.Equal(t, -1, r.Value)
		assert.True(t, r.Degraded)
		_, ok = c.Peek("other")
		assert.False(t, ok)

		names := map[string]uint64{}
		for _, ps := range p.Snapshot().Policies {
			if ps.Fallback != nil {
				names[ps.Name] = ps.Fallback.Served
			}
		}
		assert.Equal(t, map[string]uint64{"stale": 1, "fallback": 1}, names)
		require.NoError(t, p.Close(t.Context()))
		mu.Lock()
		defer mu.Unlock()
		kinds := map[policy.EventKind]int{}
		for _, e := range events {
			kinds[e.Kind]++
		}
		assert.Equal(t, 2, kinds[policy.EventFallback])
	})
}

func TestNegativeResults(t *testing.T) {
	t.Parallel()
	gone := policy.AsPermanent(errNotFound)
	t.Run("remembered", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, p := newCache(t, stale.Config[int]{NegativeFor: 2 * time.Second})
			b := &backend{err: gone}
			for range 5 {
				_, err := c.Get(t.Context(), "sku", b.load)
				require.ErrorIs(t, err, errNotFound)
			}
			assert.Equal(t, 1, b.count())
			assert.EqualValues(t, 4, figures(c).Negative)
			_, ok := c.Peek("sku")
			assert.False(t, ok)
			_, err := policy.For(p, policy.Fallback[int](c)).Do(
				policy.WithCall(t.Context(), policy.Call{Key: "sku"}),
				func(context.Context) (int, error) { return 0, errDown },
			)
			require.ErrorIs(t, err, errDown)
			require.ErrorIs(t, err, errNotFound)

			time.Sleep(2 * time.Second)
			b.set(nil, 0)
			v, err := c.Get(t.Context(), "sku", b.load)
			require.NoError(t, err)
			assert.Equal(t, 2, v)
		})
	})
	t.Run("not remembered", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, _ := newCache(t, stale.Config[int]{NegativeFor: -1, Wait: -1})
			b := &backend{}
			_, err := c.Get(t.Context(), "sku", b.load)
			require.NoError(t, err)
			time.Sleep(2 * time.Minute)
			b.set(gone, 0)
			_, err = c.Get(t.Context(), "sku", b.load)
			require.ErrorIs(t, err, errNotFound)
			b.set(errDown, 0)
			_, err = c.Get(t.Context(), "sku", b.load)
			require.Equal(t, errDown, err, "what is gone does not come back")
		})
	})
	t.Run("by choice", func(t *testing.T) {
		t.Parallel()
		cfg := stale.Config[int]{Negative: func(err error) bool { return errors.Is(err, errDown) }}
		synctest.Test(t, func(t *testing.T) {
			c, _ := newCache(t, cfg)
			b := &backend{err: errDown}
			for range 3 {
				_, err := c.Get(t.Context(), "sku", b.load)
				require.ErrorIs(t, err, errDown)
			}
			assert.Equal(t, 1, b.count())
		})
	})
	t.Run("as the pipeline classifies", func(t *testing.T) {
		t.Parallel()
		policies := []policy.Policy{policy.ClassifyErrors(func(error) policy.Kind { return policy.Permanent })}
		synctest.Test(t, func(t *testing.T) {
			c, _ := newCache(t, stale.Config[int]{}, policies...)
			b := &backend{err: errDown}
			for range 3 {
				_, err := c.Get(t.Context(), "sku", b.load)
				require.ErrorIs(t, err, errDown)
			}
			assert.Equal(t, 1, b.count())
		})
	})
	t.Run("a choice that panics", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, _ := newCache(t, stale.Config[int]{Negative: func(error) bool { panic("choice") }})
			_, err := c.Get(t.Context(), "sku", (&backend{err: errDown}).load)
			require.Equal(t, errDown, err)
		})
	})
}

// When the last caller has left, the load ends, and is judged by why they left.
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := newCache(t, stale.Config[int]{})
		b := &backend{delay: time.Second}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Get(short, "a", b.load)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		assert.EqualValues(t, 1, p.Snapshot().Calls[policy.Timeout], "a dependency that hangs is seen")
		assert.Zero(t, figures(c).Loading)

		canceled, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Get(canceled, "b", b.load)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		leave()
		wg.Wait()
		synctest.Wait()
		assert.EqualValues(t, 1, p.Snapshot().Calls[policy.Canceled])

		// One of two leaves: the other gets its value.
		canceled, leave = context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := c.Get(canceled, "c", b.load)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		calls := b.count()
		wg.Go(func() {
			v, err := c.Get(t.Context(), "c", b.load)
			assert.NoError(t, err)
			assert.Equal(t, calls, v)
		})
		synctest.Wait()
		leave()
		wg.Wait()
		assert.EqualValues(t, 1, figures(c).Shared)

		_, err = c.Get(canceled, "c", b.load)
		require.ErrorIs(t, err, context.Canceled, "nobody is there to be answered")
	})
}

func TestPanicReachesThoseWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, stale.Config[int]{})
		boom := func(context.Context) (int, error) { time.Sleep(time.Millisecond); panic("load") }
		var caught atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				defer func() {
					if pe, ok := recover().(*policy.PanicError); ok && pe.Value == "load" {
						caught.Add(1)
					}
				}()
				_, _ = c.Get(t.Context(), "sku", boom)
			})
		}
		wg.Wait()
		assert.EqualValues(t, 3, caught.Load())
		_, err := c.Get(t.Context(), "sku", func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
		require.ErrorIs(t, err, policy.ErrGoexit)

		// In the background nobody is told but by the cause.
		b := &backend{}
		_, err = c.Get(t.Context(), "sku", b.load)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		_, err = c.Get(t.Context(), "sku", boom)
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		r, err := c.GetResult(t.Context(), "sku", boom)
		require.NoError(t, err)
		pe, ok := errors.AsType[*policy.PanicError](r.Cause)
		require.True(t, ok, "%v", r.Cause)
		assert.Equal(t, "load", pe.Value)
		assert.Zero(t, figures(c).Loading)
	})
}

func TestRefreshesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, stale.Config[int]{MaxRefreshes: 4})
		for i := range 20 {
			c.Set(strconv.Itoa(i), i)
		}
		time.Sleep(2 * time.Minute)
		b := &backend{delay: time.Second}
		for i := range 20 {
			r, err := c.GetResult(t.Context(), strconv.Itoa(i), b.load)
			require.NoError(t, err)
			assert.True(t, r.Degraded)
			assert.Equal(t, i, r.Value)
		}
		synctest.Wait()
		assert.Equal(t, 4, b.count())
		s := figures(c)
		assert.Equal(t, 4, s.Loading)
		assert.EqualValues(t, 16, s.Skipped)
		time.Sleep(2 * time.Second)
		assert.Zero(t, figures(c).Loading)
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, stale.Config[int]{MaxEntries: 100})
		for i := range 10_000 {
			c.Set(strconv.Itoa(i), i)
		}
		synctest.Wait()
		s := figures(c)
		assert.LessOrEqual(t, s.Entries, 100)
		assert.Equal(t, 100, s.MaxEntries)
		assert.GreaterOrEqual(t, s.Evicted, uint64(9900))
		time.Sleep(time.Hour)
		assert.Zero(t, figures(c).Entries, "and what nobody may be served is dropped")
	})
	cfg := stale.Config[int]{MaxWeight: 1000, Weight: func(_ string, v int) uint32 {
		if v < 0 {
			panic("weight")
		}
		return uint32(v)
	}}
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, cfg)
		for i := range 100 {
			c.Set(strconv.Itoa(i), 100)
		}
		c.Set("panics", -1)
		synctest.Wait()
		s := figures(c)
		assert.LessOrEqual(t, s.Weight, uint64(1000))
		assert.LessOrEqual(t, s.Entries, 10)
		assert.EqualValues(t, 1000, s.MaxWeight)
		_, ok := c.Peek("panics")
		assert.False(t, ok)
	})
}

// What is set or dropped while a load runs is not overwritten by what the load brings.
func TestSetAndDropBesideALoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, stale.Config[int]{})
		b := &backend{delay: time.Second}
		var wg sync.WaitGroup
		get := func() {
			wg.Go(func() {
				_, err := c.Get(t.Context(), "sku", b.load)
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		get()
		c.Set("sku", 100)
		wg.Wait()
		a, ok := c.Peek("sku")
		require.True(t, ok)
		assert.Equal(t, 100, a.Value)
		assert.Equal(t, time.Second, a.Age)

		c.Drop("sku")
		get()
		c.Drop("sku")
		get()
		assert.Equal(t, 3, b.count(), "a load that began before is not joined")
		wg.Wait()
		a, ok = c.Peek("sku")
		require.True(t, ok)
		assert.Equal(t, 3, a.Value)
	})
}

func TestJitterSpreadsExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newCache(t, stale.Config[int]{Fresh: 100 * time.Second, Jitter: 0.5})
		const keys = 1000
		for i := range keys {
			c.Set(strconv.Itoa(i), i)
		}
		expired := func() (n int) {
			for i := range keys {
				r, err := c.GetResult(t.Context(), strconv.Itoa(i), func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
				require.NoError(t, err)
				if r.Degraded {
					n++
				}
			}
			return n
		}
		time.Sleep(49 * time.Second)
		assert.Zero(t, expired())
		time.Sleep(26 * time.Second)
		assert.InDelta(t, keys/2, expired(), keys/10)
		time.Sleep(25 * time.Second)
		assert.Equal(t, keys, expired(), "never longer than Fresh")
	})
}

func TestCloseEndsLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := newCache(t, stale.Config[int]{Wait: -1})
		c.Set("sku", 1)
		time.Sleep(2 * time.Minute)
		b := &backend{delay: time.Hour}
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := c.GetResult(t.Context(), "sku", b.load)
			assert.NoError(t, err)
			assert.True(t, r.Degraded, "the load has ended, the value is there")
		})
		wg.Go(func() {
			_, err := c.Get(t.Context(), "other", b.load)
			assert.Error(t, err)
		})
		synctest.Wait()
		assert.Equal(t, 2, figures(c).Loading)
		require.NoError(t, p.Close(t.Context()))
		wg.Wait()
		require.NoError(t, c.Close(t.Context()))
		assert.Zero(t, figures(c).Loading)
		_, err := c.Get(t.Context(), "third", b.load)
		require.ErrorIs(t, err, stale.ErrClosed)
		r, err := c.GetResult(t.Context(), "sku", b.load)
		require.NoError(t, err)
		assert.True(t, r.Degraded)
	})
}

func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := stale.New(nil, stale.Config[int]{})
		require.NoError(t, err)
		go func() {
			_, _ = c.Get(t.Context(), "deaf", func(context.Context) (int, error) { time.Sleep(time.Minute); return 1, nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Close(ctx), context.DeadlineExceeded)
		require.NoError(t, c.Close(t.Context()))
	})
}

// Handed to policy.For, the cache answers calls by their key.
func TestCacheAsFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, p := newCache(t, stale.Config[int]{})
		c.Set("sku", 7)
		time.Sleep(time.Minute)
		h := policy.For(p, policy.Fallback[int](c))
		require.NoError(t, h.Err())
		fails := func(context.Context) (int, error) { return 0, errDown }
		r, err := h.DoResult(policy.WithCall(t.Context(), policy.Call{Key: "sku"}), fails)
		require.NoError(t, err)
		assert.Equal(t, policy.Result[int]{Value: 7, Degraded: true, Cause: errDown, Age: time.Minute}, r)
		_, err = h.Do(t.Context(), fails)
		require.ErrorIs(t, err, stale.ErrNoValue)
		require.ErrorIs(t, err, errDown)
		time.Sleep(10 * time.Minute)
		_, err = h.Do(policy.WithCall(t.Context(), policy.Call{Key: "sku"}), fails)
		require.ErrorIs(t, err, stale.ErrNoValue)

		untyped, err := policy.New("other", c)
		require.NoError(t, err)
		c.Set("sku", 8)
		v, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Key: "sku"}), untyped, fails)
		require.NoError(t, err)
		assert.Equal(t, 8, v)
		assert.Equal(t, 1, untyped.Snapshot().Policies[0].Fallback.Stale.Entries)
	})
}

func TestCacheConcurrentSafe(t *testing.T) {
	t.Parallel()
	c, err := stale.New(nil, stale.Config[int]{Fresh: time.Nanosecond, MaxAge: time.Hour, MaxEntries: 50, RetryIn: -1})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				key := strconv.Itoa(i % 80)
				switch (i + g) % 16 {
				case 0:
					c.Set(key, i)
				case 1:
					c.Drop(key)
				case 2:
					c.Peek(key)
				case 3:
					c.Snapshot(time.Time{})
				default:
					_, err := c.Get(t.Context(), key, func(context.Context) (int, error) {
						if i%3 == 0 {
							return 0, errDown
						}
						return i, nil
					})
					if err != nil {
						assert.ErrorIs(t, err, errDown)
					}
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close(t.Context()))
	assert.Zero(t, figures(c).Loading)
}

// A load may itself make calls that the cache stands in for: it gets the value of their keys,
// and not that of its own.
func TestFallbackInsideALoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("inventory")
		require.NoError(t, err)
		c, err := stale.New(p, stale.Config[int]{Fresh: time.Minute, Wait: -1})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close(t.Context())) }()
		h := policy.For(p, policy.Fallback[int](c))
		page := func(ctx context.Context) (int, error) {
			return h.Do(policy.WithCall(ctx, policy.Call{Key: "sku"}), func(context.Context) (int, error) { return 0, errDown })
		}
		for _, n := range []int{7, 8} {
			c.Set("sku", n)
			v, err := c.Get(t.Context(), "page", page)
			require.NoError(t, err)
			assert.Equal(t, n, v)
			time.Sleep(2 * time.Minute) // a value to be refreshed
		}
	})
}
