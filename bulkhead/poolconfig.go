package bulkhead

import (
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// poolKind is the kind of policy, and the default of every instance name.
const poolKind = "pool"

const (
	// defaultWorkers is a semaphore's default limit, for the same reasons.
	defaultWorkers = defaultLimit

	defaultIdleTimeout = 10 * time.Second

	// defaultQueueWait is the wait that most callers bear, and the one behind the
	// sizing rule for the queue: throughput × acceptable wait.
	defaultQueueWait = 500 * time.Millisecond
)

// NoQueue is the [Pool] Queue of a pool without one: with every worker busy the next
// call is refused at once.
const NoQueue = -1

// WhenFull says what becomes of a call that finds every worker busy and the queue
// full.
type WhenFull uint8

const (
	// Abort refuses the call. It is the zero value.
	Abort WhenFull = iota

	// CallerRuns runs the call on its caller's goroutine.
	//
	// It is a trap. It looks like backpressure and takes away what the pool is for:
	// just when the dependency hangs, calls run where they can hold their callers,
	// without a bound on their number, for as long as they like, deaf to a context
	// that the function ignores. Its place is batch work, whose callers are few and
	// have nothing better to do.
	CallerRuns
)

// String returns "abort" or "caller_runs".
func (f WhenFull) String() string {
	switch f {
	case Abort:
		return "abort"
	case CallerRuns:
		return "caller_runs"
	default:
		return "unknown"
	}
}

// Pool configures [Workers]: a bounded number of goroutines that run the calls of a
// pipeline in place of their callers, and a bounded queue in front of them. The zero
// value is valid: every field documents what zero means. [NewPool] copies it; later
// changes have no effect.
type Pool struct {
	// Name is the instance name: the policy label of metrics, events and errors,
	// unique within a pipeline, and the value of the pprof label "pool" of the
	// goroutines. Empty means "pool"; give it the dependency's name, so that
	// profiles and goroutine dumps tell pools apart.
	Name string

	// Workers is the most functions that run at the same time, from 1 to
	// 2,147,483,647. Zero means 100. Goroutines start when there is work: no call is
	// queued while there may be another worker.
	Workers int

	// MinWorkers is how many goroutines are kept when there is no work, once they
	// have started; at most Workers. Zero keeps none.
	MinWorkers int

	// IdleTimeout is how long a goroutine above MinWorkers stays without work. Zero
	// means 10 s.
	IdleTimeout time.Duration

	// Queue is the most calls that wait for a worker, from 1 to 2,147,483,647. Zero
	// means as many as Workers; [NoQueue] means that nobody waits. A call that finds
	// it full takes the place of the one that came last among those of lowest
	// priority, if that is lower than its own.
	Queue int

	// MaxWait is the longest time in the queue. Zero means 500 ms. A deadline of the
	// call's context that comes first ends the wait first. It needs a queue.
	MaxWait time.Duration

	// WhenFull says what becomes of a call that finds no worker and no place in the
	// queue. Zero is [Abort]: it is refused.
	WhenFull WhenFull

	// CoDel sheds the queue when it does not empty. Zero is off. It needs a queue.
	CoDel CoDel
}

// Validate reports every invalid field, and every contradiction between two of them,
// as a [*policy.ConfigError], joined with [errors.Join].
func (c Pool) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: poolKind, Field: field, Value: value, Want: want})
	}
	workers := c.Workers
	switch {
	case c.Workers < 0 || c.Workers > maxLimit:
		fault("Workers", c.Workers, "want 1 to 2147483647, or 0 (100)")
		workers = maxLimit
	case c.Workers == 0:
		workers = defaultWorkers
	}
	if c.MinWorkers < 0 || c.MinWorkers > workers {
		fault("MinWorkers", c.MinWorkers, fmt.Sprintf("want 0 to Workers (%d)", workers))
	}
	if c.IdleTimeout < 0 {
		fault("IdleTimeout", c.IdleTimeout, "want a positive duration, or 0 (10s)")
	}
	if c.Queue < NoQueue || c.Queue > maxLimit {
		fault("Queue", c.Queue, "want 1 to 2147483647, 0 (as many as Workers) or NoQueue (-1)")
	}
	maxWait := c.MaxWait
	switch {
	case c.MaxWait < 0:
		fault("MaxWait", c.MaxWait, "want a positive duration, or 0 (500ms)")
	case c.MaxWait == 0:
		maxWait = defaultQueueWait
	case c.Queue == NoQueue:
		fault("MaxWait", c.MaxWait, "want 0 while Queue is NoQueue: nobody waits")
	}
	if c.WhenFull > CallerRuns {
		fault("WhenFull", uint8(c.WhenFull), "want Abort (0) or CallerRuns (1)")
	}
	switch d := c.CoDel; {
	case d.Target < 0:
		fault("CoDel.Target", d.Target, "want a positive duration, or 0 (off)")
	case d.Target == 0 && d.Interval != 0:
		fault("CoDel.Interval", d.Interval, "want 0 while CoDel.Target is 0: nothing is shed; set CoDel.Target too")
	case d.Target > 0 && c.Queue == NoQueue:
		fault("CoDel.Target", d.Target, "want 0 while Queue is NoQueue: there is nothing to shed")
	case d.Target > 0 && d.Target >= maxWait && maxWait > 0:
		fault("CoDel.Target", d.Target, fmt.Sprintf("want less than MaxWait (%s), which ends the wait first", maxWait))
	case d.Target > 0 && d.Interval != 0 && d.Interval < d.Target:
		fault("CoDel.Interval", d.Interval, fmt.Sprintf("want at least CoDel.Target (%s), or 0 (20 times that)", d.Target))
	}
	return errors.Join(errs...)
}

// BuildPolicy returns a part with workers of its own: each pipeline that the Pool is
// handed to has as many. To share them, hand over [Workers].
func (c Pool) BuildPolicy() (policy.Part, error) {
	w, err := NewPool(c.Name, c)
	if err != nil {
		return policy.Part{Kind: poolKind, Name: c.Name}, err
	}
	return w.BuildPolicy()
}

// withDefaults returns what a valid c means, with every field filled in.
func (c Pool) withDefaults() Pool {
	if c.Name == "" {
		c.Name = poolKind
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = defaultIdleTimeout
	}
	if c.Queue == 0 {
		c.Queue = c.Workers
	}
	if c.MaxWait == 0 && c.Queue != NoQueue {
		c.MaxWait = defaultQueueWait
	}
	c.CoDel = c.CoDel.withDefaults()
	return c
}
