package policy

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestDeadlineCtxLikeTheStandardOne runs the same random steps on a deadlineCtx and
// on a standard context with the same deadline.
func TestDeadlineCtxLikeTheStandardOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		own := time.Duration(rapid.IntRange(0, 5).Draw(rt, "own"))*time.Second + 250*time.Millisecond // never at the instant of another step
		parentAfter := time.Duration(rapid.IntRange(-1, 5).Draw(rt, "parent")) * time.Second
		cancelAt := rapid.IntRange(0, 6).Draw(rt, "cancelAt")
		touch := rapid.SliceOfN(rapid.IntRange(0, 3), 7, 7).Draw(rt, "touch")
		type obs struct { // what can be seen of a context after each step
			err      error
			done     bool
			child    error
			childRan bool
			deadline time.Duration
			has      bool
			cause    error
		}
		var got, want []obs
		synctest.Test(t, func(*testing.T) {
			run := func(mk func(context.Context) (context.Context, func())) []obs {
				begin := time.Now()
				parent, cancelParent := context.WithCancel(context.Background()) //nolint:usetesting // the bubble's own
				defer cancelParent()
				if parentAfter >= 0 {
					var stop context.CancelFunc
					parent, stop = context.WithTimeout(parent, parentAfter+500*time.Millisecond)
					defer stop()
				}
				ctx, cancel := mk(parent)
				defer cancel()
				var list []obs
				var child context.Context
				var mu sync.Mutex
				ran := false
				for i, touched := range touch {
					switch touched {
					case 1:
						ctx.Done()
					case 2:
						if child == nil {
							var stop context.CancelFunc
							child, stop = context.WithCancel(ctx) //nolint:fatcontext // once
							defer stop()
						}
					case 3:
						context.AfterFunc(ctx, func() { mu.Lock(); ran = true; mu.Unlock() })
					}
					if i == cancelAt {
						cancelParent()
					}
					synctest.Wait()
					o := obs{err: ctx.Err()}
					if o.err != context.DeadlineExceeded { //nolint:errorlint // a context's error is not wrapped
						o.cause = context.Cause(ctx) // after its own deadline it tells the parent's, see deadlineCtx
					}
					synctest.Wait()
					if touched == 1 {
						select {
						case <-ctx.Done():
							o.done = true
						default:
						}
					}
					if child != nil {
						o.child = child.Err()
					}
					mu.Lock()
					o.childRan = ran
					mu.Unlock()
					d, has := ctx.Deadline()
					o.has = has
					if has {
						o.deadline = d.Sub(begin)
					}
					list = append(list, o)
					time.Sleep(time.Second)
				}
				return list
			}
			want = run(func(p context.Context) (context.Context, func()) {
				c, cancel := context.WithTimeout(p, own)
				return c, cancel
			})
			got = run(func(p context.Context) (context.Context, func()) {
				c := newDeadlineCtx(p, time.Now().Add(own))
				return c, func() { c.cancel(context.Canceled) }
			})
		})
		require.Equal(rt, want, got)
	})
}

func TestDeadlineCtxChildrenCostNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := newDeadlineCtx(parent, time.Now().Add(time.Hour))
		before := runtime.NumGoroutine()
		for range 100 {
			child, stop := context.WithCancel(c)
			defer stop()
			child.Done()
		}
		assert.LessOrEqual(t, runtime.NumGoroutine(), before) // one of another test may end meanwhile
		c.cancel(context.Canceled)
		c.cancel(context.DeadlineExceeded)
		assert.Equal(t, context.Canceled, c.Err(), "the first end counts")
	})
}

func TestDeadlineCtxDisarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, watched := range []bool{false, true} {
			c := newDeadlineCtx(t.Context(), time.Now().Add(time.Second))
			if watched {
				c.Done()
			}
			c.disarm()
			time.Sleep(2 * time.Second)
			require.NoError(t, c.Err())
			c.cancel(context.Canceled)
			<-c.Done()
		}
		c := newDeadlineCtx(t.Context(), time.Now().Add(time.Second))
		time.Sleep(time.Second)
		c.expire()
		c.disarm()
		require.ErrorIs(t, c.Err(), context.DeadlineExceeded, "a deadline that has passed is not taken back")
	})
}

// Whoever ends it, and whatever is asked of it meanwhile, a context ends once, and each
// function that follows it runs once or is stopped.
func TestDeadlineCtxConcurrentSafe(t *testing.T) {
	t.Parallel()
	for round := range 60 {
		synctest.Test(t, func(t *testing.T) {
			parent, cancelParent := context.WithCancel(t.Context())
			defer cancelParent()
			outer := newDeadlineCtx(parent, time.Now().Add(5*time.Millisecond))
			c := newDeadlineCtx(outer, time.Now().Add(4*time.Millisecond))
			var wg sync.WaitGroup
			var ran, stopped, followed atomic.Int64
			for g := range 8 {
				wg.Go(func() {
					for i := range 40 {
						switch (g + i + round) % 8 {
						case 0, 1, 2:
							stop := c.AfterFunc(func() { ran.Add(1) })
							followed.Add(1)
							if i%2 == 0 && stop() {
								stopped.Add(1)
								assert.False(t, stop(), "stopped twice")
							}
						case 3:
							child, cancel := context.WithTimeout(c, time.Duration(i)*time.Millisecond)
							defer cancel()
							context.AfterFunc(child, func() { assert.Error(t, child.Err()) })
						case 4:
							if err := c.Err(); err != nil {
								<-c.Done()
								assert.Equal(t, err, c.Err())
							}
						case 5:
							c.Deadline()
							time.Sleep(100 * time.Microsecond)
						case 6:
							if i == 35 && round%4 == 0 {
								c.disarm()
							}
							if i == 30 && round%3 == 0 {
								cancelParent()
							}
						case 7:
							select {
							case <-c.Done():
								assert.Error(t, c.Err())
							default:
							}
						}
					}
				})
			}
			wg.Wait()
			cancelParent()
			<-c.Done()
			synctest.Wait()
			assert.Equal(t, followed.Load(), ran.Load()+stopped.Load())
			c.cancel(context.Canceled)
			outer.cancel(context.Canceled)
		})
	}
}

// Bounds that no clock reaches are bounds like others.
func TestDeadlineCtxFarAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 / 2, 1 << 60} {
			c := newDeadlineCtx(t.Context(), time.Now().Add(d))
			c.Done()
			time.Sleep(24 * 365 * time.Hour)
			require.NoError(t, c.Err())
			_, has := c.Deadline()
			assert.True(t, has)
			child, stop := context.WithTimeout(c, time.Hour)
			time.Sleep(time.Hour)
			<-child.Done()
			stop()
			require.NoError(t, c.Err())
			c.cancel(context.Canceled)
		}
	})
}
