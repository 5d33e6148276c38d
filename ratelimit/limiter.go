package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// A Limiter is a rate limit of whatever kind: what the live types of this package have
// in common. It stands in pipelines as it is, and can be used by hand. All methods are
// safe for concurrent use.
//
// Only types of this package implement it, and those that embed [Outside], so that it
// can grow.
//
// Every limiter keeps these promises. A refusal takes nothing. A cost (n) of zero or
// less takes nothing, gives nothing and is allowed; in a pipeline the least cost is 1.
// A call that can never be let in is refused at once with [policy.Never]. By default
// nobody waits; where waiting is asked for, both its length and the number of those
// who wait are bounded, and a wait that cannot end in time is refused before it
// begins. A change of the rate takes effect at once, grants nothing and forgets
// nothing.
type Limiter interface {
	policy.Policy
	policy.Gate
	policy.Snapshotter

	// Take takes n tokens if they are there at the given time, and otherwise none.
	// It then returns the time after which they will be there if nobody else takes
	// any. It never waits.
	Take(now time.Time, n int) (retryAfter time.Duration, ok bool)

	// Wait takes n tokens, waiting for them within the limiter's bounds. It returns
	// nil when they are the caller's, a [*policy.RejectedError] when they cannot be
	// had, or the error of ctx, matching its cause, when that is done before or
	// during the wait. On an error nothing is taken.
	Wait(ctx context.Context, n int) error

	// Reserve takes n tokens, and says when the caller may act. It never waits. Nothing
	// is taken when the Reservation is not OK. Limits of one kind of call reserve
	// tokens that have yet to arrive; those whose future depends on others (lanes, keys,
	// several limits, feedback) are OK only without a delay.
	Reserve(now time.Time, n int) Reservation

	// Refund gives back n tokens that were taken at the given time for a call which
	// did not run: the time that Take was given, or that of a reservation, or at
	// which Wait returned. No more calls run for it than if that one had not been.
	// What came from a bucket shared with others ([Keyed.Overflow], a lane that lends)
	// goes back there as far as the limiter knows; a pipeline always does.
	Refund(taken time.Time, n int)

	// SetRate changes the rate and leaves the rest of the limit as it is. An invalid
	// rate changes nothing and is reported as joined [*policy.ConfigError].
	SetRate(rate Rate) error

	titled
}

// titled is what keeps types that do not embed [Outside] from being a [Limiter].
type titled interface {
	// title is the instance name.
	title() string
}

// member is how limiters that are made of others see these: asked for a call, which
// may decide what it is counted as (its key, its priority).
type member interface {
	// takeFor is Take for a call. n is its cost, above 0.
	takeFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict)

	// lookFor is takeFor, taking nothing.
	lookFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict)

	// refundFor gives back what takeFor took at the given time for a call that did
	// not run, see [Limiter].
	refundFor(taken time.Time, c *policy.Call, n int)

	// undoFor is refundFor at that very time.
	undoFor(taken time.Time, c *policy.Call, n int)

	titled
}

// PartError is the cause of a refusal by a limiter that is made of several: it says
// which of them refused. It comes inside a [*policy.RejectedError]; [errors.As] finds
// it.
type PartError struct {
	// Part is the name of the lane or of the limit.
	Part string

	// Err is the cause as the part alone would give it, such as [ErrLimited].
	Err error
}

// Error names the part and the cause.
func (e *PartError) Error() string { return e.Part + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *PartError) Unwrap() error { return e.Err }

// reserver is a limiter as a [Reservation] knows it.
type reserver interface {
	// at returns t as the limiter keeps time.
	at(t time.Time) int64

	// cancel gives a promise back whose time is yet to come.
	cancel(at int64, p promise)
}

var _ Limiter = (*Bucket)(nil)

// SetRate implements [Limiter]: it is [Bucket.SetLimit] with the burst as it is.
func (b *Bucket) SetRate(rate Rate) error {
	if err := errors.Join(rate.validate()...); err != nil {
		return err
	}
	b.setLimit(b.now(), rate, b.state.Load().burst)
	return nil
}

func (b *Bucket) takeFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return b.take(b.at(now), n)
}

func (b *Bucket) lookFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return b.look(b.at(now), n)
}

func (b *Bucket) refundFor(taken time.Time, _ *policy.Call, n int) { b.Refund(taken, n) }

func (b *Bucket) undoFor(taken time.Time, _ *policy.Call, n int) {
	b.giveBack(b.at(taken), b.at(taken), n)
}

func (b *Bucket) title() string { return b.name }
