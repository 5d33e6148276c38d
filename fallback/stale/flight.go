package stale

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// flight is a load of one key, which any number of callers share.
type flight[T any] struct {
	key     string
	load    func(context.Context) (T, error)
	entry   *entry[T] // the stale value that stands in; nil when there is none
	refresh bool      // nobody need wait for it
	ctx     *loadCtx
	cancel  context.CancelFunc
	waiting int // callers, under the lock of the cache

	began atomic.Int64 // of the first attempt, since the cache was made; negative before
	stood bool         // the stale value stands in
	cut   bool         // its context has ended before it has

	done     chan struct{} // closed when the rest is set
	result   policy.Result[T]
	err      error
	panicked *policy.PanicError
}

// flightKey finds the load of a cache in the context of its calls.
type flightKey[T any] struct{ cache *Cache[T] }

// loadCtx is the context of a load. When the last caller has left because its deadline
// passed, the load has run into a timeout, and was not canceled.
type loadCtx struct {
	context.Context //nolint:containedctx // it is one

	late atomic.Bool
}

func (c *loadCtx) Err() error {
	err := c.Context.Err()
	if err != nil && c.late.Load() {
		return context.DeadlineExceeded
	}
	return err
}

// startLocked begins a load. It requires that c.mu is held.
func (c *Cache[T]) startLocked(ctx context.Context, key string, e *entry[T], load func(context.Context) (T, error)) *flight[T] {
	inner, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.LoadTimeout) //nolint:gosec // canceled when the load ends
	f := &flight[T]{
		key: key, load: load, entry: e, refresh: e != nil,
		ctx: &loadCtx{Context: inner}, cancel: cancel, done: make(chan struct{}),
	}
	f.began.Store(-1)
	c.flights[key] = f
	c.running[f] = struct{}{}
	if f.refresh {
		e.loading.Store(true)
		c.refreshes++
	}
	c.loads.Add(1)
	c.wg.Go(func() { c.run(f) })
	return f
}

// run makes the load.
func (c *Cache[T]) run(f *flight[T]) {
	defer f.cancel()
	returned := false
	defer func() {
		if !returned {
			f.err = policy.ErrGoexit
			if v := recover(); v != nil {
				pe, ok := v.(*policy.PanicError) // of a worker further down
				if !ok {
					pe = &policy.PanicError{Value: v, Stack: debug.Stack()}
				}
				f.panicked, f.err = pe, pe
			}
		}
		c.settle(f)
	}()
	through := c.bare
	if f.entry != nil {
		through = c.typed
	}
	f.result, f.err = through.DoResult(context.WithValue(f.ctx, flightKey[T]{c}, f), func(ctx context.Context) (T, error) {
		f.began.CompareAndSwap(-1, int64(c.now()))
		// Other calls that the load makes are not this one.
		return f.load(context.WithValue(ctx, flightKey[T]{c}, (*flight[T])(nil)))
	})
	returned = true
}

// settle remembers what a load has brought and lets those who wait have it.
func (c *Cache[T]) settle(f *flight[T]) {
	f.cut = f.ctx.Err() != nil
	cause := f.err
	if f.err == nil {
		cause = f.result.Cause
	}
	fresh := f.err == nil && !f.result.Degraded
	negative := f.err != nil && f.panicked == nil && !f.cut && c.isNegative(f.ctx, f.err)
	e := &entry[T]{loaded: time.Duration(f.began.Load()), weight: 1}
	switch {
	case fresh:
		e.value, e.fresh = f.result.Value, shortened(c.cfg.Fresh, c.cfg.Jitter)
		if c.cfg.Weight != nil {
			e.weight = c.weigh(f.key, e.value)
		}
	case negative:
		e.err, e.loaded, e.fresh = f.err, c.now(), c.cfg.NegativeFor
	}

	c.mu.Lock()
	current := c.flights[f.key] == f // nobody has set or dropped the key meanwhile
	if current {
		delete(c.flights, f.key)
	}
	delete(c.running, f)
	if f.refresh {
		c.refreshes--
	}
	switch {
	case !current:
	case fresh, negative && c.cfg.NegativeFor > 0:
		c.entries.Set(f.key, e)
	case negative:
		c.entries.Invalidate(f.key)
	case f.entry != nil:
		f.entry.failed(cause, c.now()+shortened(c.cfg.RetryIn, c.cfg.Jitter))
	}
	if f.entry != nil {
		f.entry.loading.Store(false)
	}
	c.mu.Unlock()
	if !fresh {
		c.failures.Add(1)
	}
	close(f.done)
}

// weigh asks for the weight of a value. A panic in it makes the value as heavy as can be:
// it is served once and not remembered.
func (c *Cache[T]) weigh(key string, v T) (w uint32) {
	defer func() {
		if recover() != nil {
			w = ^uint32(0)
		}
	}()
	return max(c.cfg.Weight(key, v), 1)
}

func (c *Cache[T]) isNegative(ctx context.Context, err error) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	if c.cfg.Negative != nil {
		return c.cfg.Negative(err)
	}
	return c.pipe.Classify(ctx, err).Kind == policy.Permanent
}

// wait waits until the load has ended, ctx has, or limit has passed; zero is no limit. It
// reports whether the load has ended.
func (f *flight[T]) wait(ctx context.Context, limit time.Duration) bool {
	var timer <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-f.done:
		return true
	default:
	}
	select {
	case <-f.done:
		return true
	case <-ctx.Done():
	case <-timer:
	}
	return false
}

// leave is called by a caller who does not wait any longer. The last one ends a load that
// is no refresh.
func (c *Cache[T]) leave(ctx context.Context, f *flight[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.waiting--
	if f.waiting > 0 || f.refresh {
		return
	}
	if c.flights[f.key] == f {
		delete(c.flights, f.key)
	}
	f.ctx.late.Store(errors.Is(ctx.Err(), context.DeadlineExceeded))
	f.cancel()
}
