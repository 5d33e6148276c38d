package policy

import (
	"context"
	"time"
)

// A Gate admits or refuses one attempt and is told how it ended. One gate may stand
// in several pipelines at once. All methods are called concurrently.
//
// What a gate must remember between Enter and Leave goes into the attempt's
// [Slot], which it finds under the slot number it is called with.
type Gate interface {
	// Peek reports a refusal that is sure to follow if Enter were called now. It
	// takes nothing, waits for nothing and costs next to nothing; nil when it
	// cannot tell. A pipeline that may wait or do I/O asks every gate first, so
	// that nobody queues in front of an open breaker.
	Peek(a *Attempt) error

	// Enter lets the attempt in (nil) or refuses it with a [*RejectedError], a new one
	// each time, whose Dependency and Policy the pipeline fills in. When a wait is
	// cut short by ctx it returns the context's error. On any error nothing stays
	// taken. A gate that waits calls [Attempt.Waited] afterwards, and must not wait
	// when [Attempt.NoWait] says so.
	Enter(ctx context.Context, a *Attempt, slot int) error

	// Leave is called exactly once for each Enter that returned nil (but see
	// [Part.RefundsOnly]). The kind of o is [NotRun] when a later gate refused the
	// attempt, or a pipeline further down did: the gate then gives back all that it
	// took and counts nothing.
	Leave(a *Attempt, slot int, o Outcome)
}

// An Amender is a gate that can correct an outcome which it was told as a success
// before: the response's body failed after its headers had settled the attempt, or, where
// it is a success still, something that followed took longer.
type Amender interface {
	// Amend comes after Leave, unless the gate holds ([Part.Holds]), and finds what
	// Enter left in the slot.
	Amend(a *Attempt, slot int, o Outcome)
}

// A Snapshotter is a policy that can describe its state. now is the time at which
// the state is asked for; a state that follows from time alone (an open delay that
// has passed) is reported as it is then, without any traffic.
type Snapshotter interface {
	Snapshot(now time.Time) PolicySnapshot
}

// An Emitter is a policy that reports its own changes of state. Subscribe returns a
// function that ends the subscription.
type Emitter interface {
	Subscribe(fn func(Event)) (cancel func())
}

// A Closer is a policy that holds something to be given back: workers, leases,
// watchers. Each pipeline that has it closes it, once.
type Closer interface {
	Close(ctx context.Context) error
}

// Slot is a gate's scratch space in an attempt: one word and one reference. The
// pipeline does not read it, and does not clear it before Enter.
type Slot struct {
	Word uint64
	Ref  any
}

// MaxGates is the largest number of gates in one pipeline.
const MaxGates = 16

// Slot returns the scratch space of the gate that was called with number i.
func (a *Attempt) Slot(i int) *Slot { return &a.slots[i] }

// Now returns the attempt's latest reading of the clock, with its monotonic part:
// the beginning of the attempt, or the end of the last wait; in [Gate.Leave], the
// end of the attempt.
func (a *Attempt) Now() time.Time { return a.pipe.base.Add(a.now) }

// Since returns the time from t, which must have a monotonic part, to [Attempt.Now]. It
// costs less than the difference of the two.
func (a *Attempt) Since(t time.Time) time.Duration { return a.pipe.base.Sub(t) + a.now }

// Waited tells the attempt that its gate has waited: it reads the clock again, so
// that the wait does not count as the dependency's time. It returns the new Now.
func (a *Attempt) Waited() time.Time {
	now := a.pipe.elapsed()
	a.waited += now - a.now
	a.now = now
	return a.Now()
}

// Number returns 1 for the first attempt of a call, 2 for its first retry. A hedge has
// the number of the attempt beside which it runs.
func (a *Attempt) Number() int { return a.number }

// Hedge returns 1 for the first hedge beside an attempt, 2 for the next, and 0 for the
// attempt itself.
func (a *Attempt) Hedge() int { return a.hedge }

// Call returns what the call says about itself. The caller must not keep or change
// it.
func (a *Attempt) Call() *Call { return a.call }

// Cost returns the number of tokens the call takes, at least 1.
func (a *Attempt) Cost() int { return max(a.call.Cost, 1) }

// NoWait reports whether the gate must decide at once: it runs in shadow mode, or the
// attempt is a hedge, which gets what is free and queues in front of nobody.
func (a *Attempt) NoWait() bool { return a.noWait }

// Stripe returns a number that attempts on one processor mostly share and attempts on
// different ones mostly do not: a gate takes it modulo the number of its striped
// counters, so that processors do not write to the same cache line.
func (a *Attempt) Stripe() uint32 { return a.stripe }

// Discard tells the attempt that the gate ignores its outcome, because the state it
// was admitted in has passed. It is called from [Gate.Leave].
func (a *Attempt) Discard() { a.discarded = true }
