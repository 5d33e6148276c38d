package httpx

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// BodyTimeoutError is what a read of a response body returns once Config.BodyTimeout or
// Config.BodyIdleTimeout has ended it. It is a [net.Error] and matches
// [context.DeadlineExceeded].
type BodyTimeoutError struct {
	Dependency string        // name of the pipeline
	Field      string        // of Config: "BodyTimeout" or "BodyIdleTimeout"
	After      time.Duration // its value
}

// The fields of Config that bound a body.
const (
	bodyTimeout     = "BodyTimeout"
	bodyIdleTimeout = "BodyIdleTimeout"
)

// Error says which bound was reached.
func (e *BodyTimeoutError) Error() string {
	if e.Field == bodyIdleTimeout {
		return fmt.Sprintf("httpx: %s: no byte of the response body came for %s (%s)", e.Dependency, e.After, e.Field)
	}
	return fmt.Sprintf("httpx: %s: the response body did not end within %s (%s)", e.Dependency, e.After, e.Field)
}

// Unwrap returns [context.DeadlineExceeded].
func (e *BodyTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// Timeout is true.
func (e *BodyTimeoutError) Timeout() bool { return true }

// Temporary is true, as for every timeout.
func (e *BodyTimeoutError) Temporary() bool { return true }

// bounds limits the time that a body takes. Its timers hold the tail, which does not
// refer to what the caller has.
type bounds struct {
	t *tail

	mu      sync.Mutex
	total   *time.Timer // nil when there is no such bound
	idle    *time.Timer // likewise
	waiting bool        // a read waits for the server
	since   time.Time   // when it began to
	err     error       // a *BodyTimeoutError, once a bound was reached
}

// bound starts the clock of a body, if Config says so.
func (t *tail) bound() {
	cfg := &t.rt.cfg
	if t.duplex || cfg.BodyTimeout == 0 && cfg.BodyIdleTimeout == 0 {
		return
	}
	b := &bounds{t: t}
	t.bounds = b
	b.mu.Lock() // a timer may be quick
	defer b.mu.Unlock()
	if cfg.BodyIdleTimeout > 0 {
		b.idle = time.AfterFunc(cfg.BodyIdleTimeout, b.onIdle)
		b.idle.Stop() // until somebody reads
	}
	if cfg.BodyTimeout > 0 {
		b.total = time.AfterFunc(cfg.BodyTimeout, b.onTotal)
	}
}

// begin is called before a read. It returns the error of a body that has been ended.
func (b *bounds) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.waiting = true
	if b.idle != nil {
		b.since = time.Now()
		b.idle.Reset(b.t.rt.cfg.BodyIdleTimeout)
	}
	return nil
}

// end is called after a read, and returns what begin would now.
func (b *bounds) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = false
	if b.idle != nil {
		b.idle.Stop()
	}
	return b.err
}

// stop is called when the body is over. Timers that run already find it closed or ended.
func (b *bounds) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idle != nil {
		b.idle.Stop()
	}
	if b.total != nil {
		b.total.Stop()
	}
}

func (b *bounds) onIdle() {
	after := b.t.rt.cfg.BodyIdleTimeout
	b.mu.Lock()
	reached := b.waiting && time.Since(b.since) >= after
	b.mu.Unlock()
	if reached { // otherwise that read has ended, and another has set the timer anew
		b.t.timeOut(&BodyTimeoutError{Dependency: b.t.p.Name(), Field: bodyIdleTimeout, After: after}, true)
	}
}

func (b *bounds) onTotal() {
	b.mu.Lock()
	waiting := b.waiting
	b.mu.Unlock()
	b.t.timeOut(&BodyTimeoutError{Dependency: b.t.p.Name(), Field: bodyTimeout, After: b.t.rt.cfg.BodyTimeout}, waiting)
}

// fail has reads return err from now on.
func (b *bounds) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// timeOut ends an attempt whose body took too long. It is the server's fault if a read
// waits for it at that moment; otherwise the caller has been slow to read.
func (t *tail) timeOut(err error, waiting bool) {
	if t.ended.Swap(true) || t.closed.Swap(true) {
		return
	}
	if waiting {
		t.amend(err)
	}
	t.bounds.stop()
	// In this order: who is told has nothing left to give back, and the read that waits
	// returns when the body is closed.
	t.handle.Release()
	t.bounds.fail(err)
	_ = t.inner.Close()
}
