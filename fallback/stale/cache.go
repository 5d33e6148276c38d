package stale

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// ErrNotFresh is the cause of a stale value that was served while the load of a new one
// had not ended, or had to wait for its turn.
var ErrNotFresh = errors.New("stale: the value is older than it should be, and a new one is not there yet")

// ErrNoValue is joined with the error of a load when the stale value became too old while
// the load ran.
var ErrNoValue = errors.New("stale: there is no value that may be served")

// ErrClosed is returned where a value would have to be loaded by a cache that was closed.
var ErrClosed = errors.New("stale: the cache is closed")

// Cache remembers the last good value of each key. It is safe for concurrent use.
//
// It is also a [policy.Fallback] of its pipeline, by which its loads are answered; handed to
// [policy.For], it answers calls by the value of their [policy.Call] Key, as far as it has
// one.
type Cache[T any] struct {
	cfg   Config[T]
	pipe  *policy.Pipeline
	typed *policy.Typed[T] // with the cache as its fallback
	bare  *policy.Typed[T] // without: there is no value to serve
	base  time.Time

	entries *otter.Cache[string, *entry[T]]

	mu        sync.Mutex
	flights   map[string]*flight[T]   // of each key, the one that callers join
	running   map[*flight[T]]struct{} // all of them
	refreshes int                     // of running, those that nobody need wait for
	closed    bool
	wg        sync.WaitGroup

	hits, misses, stale, negative, shared atomic.Uint64
	loads, failures, skipped, evicted     atomic.Uint64
	oldest                                atomic.Int64
}

// New returns a cache of values of the dependency behind p, whose loads go through it. A
// nil p means that there are no policies. The error joins everything that is wrong with
// cfg, each as a [*policy.ConfigError].
//
// The pipeline shows the cache in its snapshot, and closes it when it is closed itself.
func New[T any](p *policy.Pipeline, cfg Config[T]) (*Cache[T], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Cache[T]{
		cfg: cfg.withDefaults(), pipe: p, base: time.Now(),
		flights: map[string]*flight[T]{}, running: map[*flight[T]]struct{}{},
	}
	if c.cfg.When == nil {
		c.cfg.When = fallback.Handles
	}
	if p == nil {
		var err error
		if c.pipe, err = policy.New(c.cfg.Name); err != nil {
			return nil, err
		}
	}
	opts := &otter.Options[string, *entry[T]]{
		ExpiryCalculator: otter.ExpiryWritingFunc(c.expiry),
		OnAtomicDeletion: func(e otter.DeletionEvent[string, *entry[T]]) {
			if e.Cause == otter.CauseOverflow {
				c.evicted.Add(1)
			}
		},
		Logger: &otter.NoopLogger{},
	}
	if c.cfg.MaxWeight > 0 {
		opts.MaximumWeight = c.cfg.MaxWeight
		opts.Weigher = func(_ string, e *entry[T]) uint32 { return e.weight }
	} else {
		opts.MaximumSize = c.cfg.MaxEntries
	}
	entries, err := otter.New(opts)
	if err != nil {
		return nil, fmt.Errorf("stale: %w", err)
	}
	c.entries = entries
	var otherwise []policy.Fallback[T]
	if cfg.Otherwise != nil {
		otherwise = append(otherwise, cfg.Otherwise)
	}
	c.bare = policy.For(c.pipe, otherwise...)
	c.typed = policy.For(c.pipe, append([]policy.Fallback[T]{c}, otherwise...)...)
	if err := c.typed.Err(); err != nil {
		c.entries.StopAllGoroutines()
		return nil, err
	}
	return c, nil
}

// expiry is for how long an entry takes up room. What is served is decided elsewhere.
func (c *Cache[T]) expiry(e otter.Entry[string, *entry[T]]) time.Duration {
	if e.Value.err != nil {
		return e.Value.fresh
	}
	return c.cfg.MaxAge
}

// now returns the time since the cache was made.
func (c *Cache[T]) now() time.Duration { return time.Since(c.base) }

// Config returns the settings in effect.
func (c *Cache[T]) Config() Config[T] { return c.cfg }

// Get returns the value of key, loading it with load if need be; see [Cache.GetResult].
func (c *Cache[T]) Get(ctx context.Context, key string, load func(context.Context) (T, error)) (T, error) {
	r, err := c.GetResult(ctx, key, load)
	return r.Value, err
}

// GetResult is Get that also says how old the value is and, when it is Degraded, why: it is
// older than Fresh (the Cause is then the error of the last load, or [ErrNotFresh]), or
// Otherwise has answered.
//
// load runs on a goroutine of the cache, through the pipeline, and for all callers at once;
// ctx gives it its values and does not end it. A panic in it passes to all who wait for it, as a
// [*policy.PanicError]. The error is that of the load as the pipeline returns it, a
// remembered one, [ErrClosed], or that of ctx when it ends before there is anything to
// serve. GetResult waits for nothing while there is a value that may be served, unless Wait
// says so.
func (c *Cache[T]) GetResult(ctx context.Context, key string, load func(context.Context) (T, error)) (policy.Result[T], error) {
	if err := contextError(ctx); err != nil {
		return policy.Result[T]{}, err
	}
	if e, age, ok := c.lookup(key); ok {
		if e.err != nil {
			c.negative.Add(1)
			return policy.Result[T]{Age: age}, e.err
		}
		if age < e.fresh {
			c.hits.Add(1)
			return policy.Result[T]{Value: e.value, Age: age}, nil
		}
		return c.serveStale(ctx, key, e, load)
	}
	return c.miss(ctx, key, load)
}

// lookup returns what is remembered of key and may be served, and its age.
func (c *Cache[T]) lookup(key string) (*entry[T], time.Duration, bool) {
	e, ok := c.entries.GetIfPresent(key)
	if !ok {
		return nil, 0, false
	}
	age := max(c.now()-e.loaded, 0)
	return e, age, e.usable(age, c.cfg.MaxAge)
}

// serveStale serves the value of e, and sees to it that a new one is loaded.
func (c *Cache[T]) serveStale(ctx context.Context, key string, e *entry[T], load func(context.Context) (T, error)) (policy.Result[T], error) {
	if f, changed := c.refresh(ctx, key, e, load); changed {
		return c.GetResult(ctx, key, load)
	} else if f != nil && c.cfg.Wait != 0 {
		if f.wait(ctx, max(c.cfg.Wait, 0)) && !f.stood && f.panicked == nil && (f.err == nil || !f.cut) {
			if f.err == nil && !f.result.Degraded {
				c.hits.Add(1)
			}
			return f.result, f.err
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return policy.Result[T]{}, contextError(ctx)
		}
	}
	age := c.now() - e.loaded
	if age > c.cfg.MaxAge { // it has become too old while we waited
		return c.miss(ctx, key, load)
	}
	c.served(age)
	return policy.Result[T]{Value: e.value, Degraded: true, Cause: e.cause(), Age: age}, nil
}

// served counts a stale value.
func (c *Cache[T]) served(age time.Duration) {
	c.stale.Add(1)
	for {
		old := c.oldest.Load()
		if int64(age) <= old || c.oldest.CompareAndSwap(old, int64(age)) {
			return
		}
	}
}

// refresh begins a load of a key whose value is stale, unless one runs, has failed a moment
// ago, or would be one too many. It returns the one that runs, if any, and reports changed
// when the key has another value by now.
func (c *Cache[T]) refresh(ctx context.Context, key string, e *entry[T], load func(context.Context) (T, error)) (f *flight[T], changed bool) {
	if c.cfg.Wait == 0 && e.loading.Load() || int64(c.now()) < e.retryAt.Load() {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[key]; f != nil {
		return f, false
	}
	if now, ok := c.entries.GetIfPresent(key); ok && now != e {
		return nil, true
	}
	switch {
	case int64(c.now()) < e.retryAt.Load(), c.closed:
		return nil, false
	case c.refreshes >= c.cfg.MaxRefreshes:
		c.skipped.Add(1)
		return nil, false
	}
	return c.startLocked(ctx, key, e, load), false
}

// miss waits for the load of a key of which there is nothing to serve.
func (c *Cache[T]) miss(ctx context.Context, key string, load func(context.Context) (T, error)) (policy.Result[T], error) {
	c.mu.Lock()
	f := c.flights[key]
	if f == nil {
		if _, _, ok := c.lookup(key); ok { // it has come meanwhile
			c.mu.Unlock()
			return c.GetResult(ctx, key, load)
		}
		if c.closed {
			c.mu.Unlock()
			return policy.Result[T]{}, ErrClosed
		}
		f = c.startLocked(ctx, key, nil, load)
	} else {
		c.shared.Add(1)
	}
	f.waiting++
	c.mu.Unlock()
	c.misses.Add(1)
	if !f.wait(ctx, 0) {
		c.leave(ctx, f)
		return policy.Result[T]{}, contextError(ctx)
	}
	switch {
	case f.panicked != nil:
		panic(f.panicked) //nolint:forbidigo // it is the panic of the caller's own function
	case f.stood: // a refresh that this caller joined when its value had become too old
		age := c.now() - f.entry.loaded
		if age > c.cfg.MaxAge {
			return policy.Result[T]{}, errors.Join(f.result.Cause, ErrNoValue)
		}
		c.served(age)
	}
	return f.result, f.err
}

// Set remembers v as the value of key, loaded now.
func (c *Cache[T]) Set(key string, v T) {
	e := &entry[T]{value: v, loaded: c.now(), fresh: shortened(c.cfg.Fresh, c.cfg.Jitter), weight: 1}
	if c.cfg.Weight != nil {
		e.weight = c.weigh(key, v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, key) // what it brings is older
	c.entries.Set(key, e)
}

// Drop forgets what is remembered of key. A load that runs is not remembered either.
func (c *Cache[T]) Drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, key)
	c.entries.Invalidate(key)
}

// Peek returns the value of key and its age if there is one that may be served. It loads
// nothing and counts nothing.
func (c *Cache[T]) Peek(key string) (policy.Answer[T], bool) {
	e, age, ok := c.lookup(key)
	if !ok || e.err != nil {
		return policy.Answer[T]{}, false
	}
	return policy.Answer[T]{Value: e.value, Age: age}, true
}

// Close ends all loads and waits for them until ctx ends. What is remembered is still
// served. Further calls wait too and do nothing else.
func (c *Cache[T]) Close(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	for f := range c.running {
		f.cancel()
	}
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.wg.Wait()
		if first {
			c.entries.StopAllGoroutines()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// contextError returns the error of a context that is done, with its cause, and nil for one
// that is not.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != context.Canceled && cause != context.DeadlineExceeded { //nolint:errorlint // the plain ones say nothing new
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
