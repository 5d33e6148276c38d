package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Timeouts bounds a call and its attempts. The zero value bounds nothing. The
// function sees the bound as the deadline of its context; a function that ignores
// its context runs on.
type Timeouts struct {
	// Name is the instance name. Empty means "timeout".
	Name string

	// Total bounds the whole call: every attempt and every wait between them. A
	// fallback still answers after it. Zero means no bound.
	Total time.Duration

	// Attempt bounds each attempt, from the moment the last gate let it in. Zero
	// means no bound. At or above Total it can never fire first.
	Attempt time.Duration
}

// Validate reports every invalid field, joined.
func (t Timeouts) Validate() error {
	var errs []error
	check := func(field string, d time.Duration) {
		if d != 0 && d < time.Microsecond {
			errs = append(errs, &ConfigError{Policy: "timeout", Field: field, Value: d, Want: "want at least 1µs (0 means no bound); a number alone is nanoseconds"})
		}
	}
	check("Total", t.Total)
	check("Attempt", t.Attempt)
	return errors.Join(errs...)
}

// BuildPolicy implements [Policy].
func (t Timeouts) BuildPolicy() (Part, error) {
	if err := t.Validate(); err != nil {
		return Part{Kind: "timeout", Name: t.Name}, err
	}
	part := Part{Kind: "timeout", Name: t.Name, Timeouts: &t}
	if t.Total > 0 && t.Attempt >= t.Total {
		part.Warnings = append(part.Warnings, fmt.Sprintf("Attempt %s is not below Total %s: it never fires first, and leaves no time for a retry", t.Attempt, t.Total))
	}
	return part, nil
}

// deadlineCtx is a context with a deadline that costs one allocation: its channel,
// its timer and its watch on the parent are made when somebody first asks for Done.
// Unlike the standard one it can be disarmed, which ends the deadline without ending
// the context (the rest of a response body is read under it).
//
// One thing differs: [context.Cause] of a context whose own deadline ended it tells
// the parent's cause once the parent has ended too.
type deadlineCtx struct {
	context.Context //nolint:containedctx // the parent: this is a context

	deadline time.Time

	mu         sync.Mutex
	err        error // set once
	done       chan struct{}
	disarmed   bool
	timer      *time.Timer
	stopParent func() bool
	after      map[*func()]struct{} // functions to run when the context is done
}

func newDeadlineCtx(parent context.Context, deadline time.Time) *deadlineCtx {
	return &deadlineCtx{Context: parent, deadline: deadline}
}

// Deadline returns the earlier of the parent's deadline and the own one, which a
// disarmed context no longer has.
func (c *deadlineCtx) Deadline() (time.Time, bool) {
	c.mu.Lock()
	disarmed := c.disarmed
	c.mu.Unlock()
	d, ok := c.Context.Deadline()
	if disarmed || (ok && d.Before(c.deadline)) {
		return d, ok
	}
	return c.deadline, true
}

func (c *deadlineCtx) Done() <-chan struct{} {
	_ = c.Err() // an end that nobody has seen yet comes before all that follows
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		} else {
			c.watchLocked()
		}
	}
	return c.done
}

// watchLocked starts the timer and the watch on the parent, once. It requires that
// c.mu is held.
func (c *deadlineCtx) watchLocked() {
	if c.stopParent != nil {
		return
	}
	if !c.disarmed {
		c.timer = time.AfterFunc(time.Until(c.deadline), c.expire)
	}
	// AfterFunc runs its function on a goroutine of its own, so the lock held here
	// is no obstacle even if the parent is done already.
	c.stopParent = context.AfterFunc(c.Context, func() { c.cancel(c.Context.Err()) })
}

// Err asks the clock and the parent, since there may be no timer and no watch. When
// both would end the context and neither was seen to, the deadline counts.
func (c *deadlineCtx) Err() error {
	c.mu.Lock()
	err, expired := c.err, !c.disarmed && time.Until(c.deadline) <= 0
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if expired {
		c.expire()
	} else if err = c.Context.Err(); err != nil { // without the lock: the parent may be of this kind
		c.cancel(err)
	} else {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AfterFunc lets [context.AfterFunc] and child contexts follow this context without
// a goroutine of their own.
func (c *deadlineCtx) AfterFunc(f func()) (stop func() bool) {
	_ = c.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.watchLocked()
	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	key := &f
	c.after[key] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, ok := c.after[key]
		delete(c.after, key)
		return ok
	}
}

// disarm ends the deadline; the context lives on until cancel or its parent's end.
func (c *deadlineCtx) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disarmed = true
	if c.timer != nil {
		c.timer.Stop()
	}
}

// cancel ends the context with err, once.
func (c *deadlineCtx) cancel(err error) { c.end(err, false) }

// expire ends the context because its deadline has passed, unless it was disarmed.
func (c *deadlineCtx) expire() { c.end(context.DeadlineExceeded, true) }

func (c *deadlineCtx) end(err error, expired bool) {
	c.mu.Lock()
	if c.err != nil || (expired && c.disarmed) {
		c.mu.Unlock()
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	stop, after := c.stopParent, c.after
	c.after = nil
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	for f := range after {
		(*f)() // children hand over functions that return at once
	}
}
