package bulkhead

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// kind is the kind of policy, and the default of every instance name.
const kind = "bulkhead"

const (
	// defaultLimit carries 1,000 calls a second at 100 ms each: far above what a
	// healthy dependency of an ordinary service needs, far below the number of
	// goroutines and sockets at which a process dies of a dependency that hangs.
	defaultLimit = 100

	// maxLimit bounds Limit and MaxWaiters, which share a word with other counts.
	maxLimit = math.MaxInt32
)

// Semaphore configures [Permits]: at most Limit calls at the same time, and a
// bounded queue in front of them if MaxWait is set. The zero value is valid: every
// field documents what zero means. [New] copies it; later changes have no effect.
type Semaphore struct {
	// Name is the instance name: the policy label of metrics, events and errors,
	// unique within a pipeline. Empty means "bulkhead".
	Name string

	// Limit is the number of permits, from 1 to 2,147,483,647. Zero means 100.
	Limit int

	// MaxWait is the longest time that a call waits for a permit. Zero means that
	// it does not wait: it is refused at once when no permit is free. A deadline of
	// the call's context that comes first ends the wait first.
	MaxWait time.Duration

	// MaxWaiters is the largest number of calls that wait at the same time, up to
	// 2,147,483,647. Zero means as many as Limit. It needs MaxWait. A call that finds
	// the queue full takes the place of the one that came last among those of lowest
	// priority, if that is lower than its own.
	MaxWaiters int

	// Reserve is how many of the permits only calls of high and critical priority
	// get: an ordinary call is let in while more than Reserve are free. From 1 to
	// Limit - 1; zero means none.
	Reserve int

	// Shadow only watches: every call runs, and those that found no permit free are
	// counted as refused. It never waits, so calls that would have got a permit
	// within MaxWait count too.
	Shadow bool
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Semaphore) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Value: value, Want: want})
	}
	if c.Limit < 0 || c.Limit > maxLimit {
		fault("Limit", c.Limit, "want 1 to 2147483647, or 0 (100)")
	}
	if c.MaxWait != 0 && c.MaxWait < time.Microsecond {
		fault("MaxWait", c.MaxWait, "want at least 1µs, or 0 (does not wait); a number alone is nanoseconds")
	}
	switch {
	case c.MaxWaiters < 0 || c.MaxWaiters > maxLimit:
		fault("MaxWaiters", c.MaxWaiters, "want 1 to 2147483647, or 0 (as many as Limit)")
	case c.MaxWaiters > 0 && c.MaxWait == 0:
		fault("MaxWaiters", c.MaxWaiters, "want 0 while MaxWait is 0: nobody waits; set MaxWait too")
	}
	limit := c.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	if c.Reserve < 0 || (c.Reserve >= limit && limit > 0) {
		fault("Reserve", c.Reserve, fmt.Sprintf("want 0 to Limit - 1 (%d): ordinary calls would get none", limit-1))
	}
	return errors.Join(errs...)
}

// BuildPolicy returns a part with permits of its own: each pipeline that the
// Semaphore is handed to has as many as Limit. To share them, hand over [Permits].
func (c Semaphore) BuildPolicy() (policy.Part, error) {
	p, err := New(c.Name, c)
	if err != nil {
		return policy.Part{Kind: kind, Name: c.Name}, err
	}
	return p.BuildPolicy()
}

// withDefaults returns what a valid c means, with every field filled in.
func (c Semaphore) withDefaults() Semaphore {
	if c.Name == "" {
		c.Name = kind
	}
	if c.Limit == 0 {
		c.Limit = defaultLimit
	}
	if c.MaxWait > 0 && c.MaxWaiters == 0 {
		c.MaxWaiters = c.Limit
	}
	return c
}
