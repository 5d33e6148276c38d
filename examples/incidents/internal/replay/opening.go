package replay

import (
	"context"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Opening is the first time that a breaker opened. It is a [policy.Watcher].
type Opening struct {
	start time.Time

	mu     sync.Mutex
	at     time.Duration
	why    string
	failed int // attempts, until then
}

// WatchOpening watches the breaker of a pipeline from now on.
func WatchOpening(p *policy.Pipeline) *Opening {
	o := &Opening{start: time.Now()}
	p.Watch(o)
	return o
}

// OnEvent implements [policy.Observer].
func (o *Opening) OnEvent(e policy.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := e.Change; e.Kind == policy.EventStateChange && c.To == "open" && o.why == "" {
		o.at, o.why = e.Time.Sub(o.start), c.Why
	}
}

// OnAttempt implements [policy.Watcher].
func (o *Opening) OnAttempt(_ context.Context, e policy.AttemptEnd) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Outcome.Kind.IsFailure() && o.why == "" {
		o.failed++
	}
}

// First returns when it opened, by which rule, and how many attempts had failed by then.
func (o *Opening) First() (at time.Duration, why string, failed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at, o.why, o.failed
}
