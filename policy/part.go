package policy

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/internal/engine"
)

// A Policy is anything that can be handed to [New]: the Config of a policy package,
// or a live object that several pipelines share.
type Policy interface {
	// BuildPolicy validates the settings and returns what they describe. All faults
	// are reported at once, as joined [*ConfigError].
	BuildPolicy() (Part, error)
}

// Places in the default order of a pipeline, outermost first. Within one place the
// order of the arguments of [New] is kept.
const (
	PlaceRateLimit = 100
	PlaceBulkhead  = 200
	PlaceBreaker   = 300 // last, so that no probe slot is held while waiting, and nothing queued runs after a trip
)

// Part is what a [Policy] contributes to a pipeline. Exactly one of Gate, Runner,
// Retry, Hedge, Fallback, MapError, Timeouts, Classify, Observer, Tracer and Foreign is
// set.
type Part struct {
	// Kind is the kind of policy, such as "breaker"; Name is the instance name,
	// unique in a pipeline and the policy label everywhere. An empty Name is Kind.
	Kind, Name string

	// Gate decides about attempts, at the given Place.
	Gate  Gate
	Place int

	// Waits says that the gate's Enter may wait or do I/O.
	Waits bool

	// Holds says that the gate keeps what it took until the attempt is released,
	// which may be later than its outcome is settled (a permit, until a response
	// body is closed).
	Holds bool

	// RefundsOnly says that the gate's Leave has nothing to do for an attempt that
	// ran, so that it need not be called: it only gives back what an attempt took
	// that never ran. Such a gate keeps no reference in its [Slot].
	RefundsOnly bool

	// Shadow says that the gate only watches: it decides, its decision is counted
	// and reported, and the attempt runs in any case.
	Shadow bool

	// Runner is where the attempts run, innermost. Waits says whether they may be
	// queued.
	Runner Runner

	// Retry decides whether another attempt follows.
	Retry Retrier

	// Hedge decides whether a slow attempt gets another one beside it, up to
	// MaxHedges.
	Hedge     Hedger
	MaxHedges int

	// Budget is what a Retry or a Hedge is paid from, a pointer; nil says nothing.
	// Calls, if not nil, is told of calls on its behalf. Where both of a pipeline name
	// the same budget, the Retry alone hears of first attempts, and its Calls of calls.
	Budget any
	Calls  CallWatcher

	// Fallback answers in place of a call that failed.
	Fallback Fallback[any]

	// Guard, of a fallback, is a gate that admits its answers, as a bulkhead of its own
	// does for one that is expensive. It is asked after Handles, under the call's
	// context. What it refuses is counted as rejected, not as failed.
	Guard Gate

	// AfterCancel says that the fallback also answers when the caller has given up: under a
	// context that has the values of the caller's and does not end.
	AfterCancel bool

	// MapError replaces the error that the caller gets, after all fallbacks, when it returns
	// one; nil keeps it. [errors.Is] finds both. It is not asked when the caller has given
	// up. It runs on the goroutine of the call and may run concurrently.
	MapError func(f FailedCall) error

	// Timeouts bound the call and its attempts.
	Timeouts *Timeouts

	// Classify judges an error before the default classification does; [NotRun]
	// leaves it to the default. It runs on the calling goroutine and may run
	// concurrently.
	Classify func(err error) Kind

	// Observer is told of everything but plain successes.
	Observer Observer

	// Tracer follows single calls.
	Tracer Tracer

	// Derived says that the pipeline was made as it was needed ([Derived]).
	Derived bool

	// Foreign is a failsafe-go policy, put there by package failsafex.
	Foreign *engine.Foreign

	// Warnings are settings that work and are likely to surprise.
	Warnings []string

	// MaxWait, SlowAfter, MaxAttempts, BaseDelay and HedgeDelay are settings that
	// make sense only beside those of other policies: the longest wait of a gate or a
	// runner, the duration above which an attempt is slow, the number of attempts (0
	// is unlimited), the least delay between two of them, and the least time before
	// one is hedged. New warns of those that do not fit together. Zero says nothing.
	MaxWait     time.Duration
	SlowAfter   time.Duration
	MaxAttempts int
	BaseDelay   time.Duration
	HedgeDelay  time.Duration

	spec Policy // that it was built from
}

// contributions returns the number of things that the part is set to be.
func (p *Part) contributions() (n int) {
	for _, set := range []bool{
		p.Gate != nil, p.Runner != nil, p.Retry != nil, p.Hedge != nil, p.Fallback != nil, p.MapError != nil, p.Timeouts != nil,
		p.Classify != nil, p.Observer != nil, p.Tracer != nil, p.Foreign != nil,
		p.Derived,
	} {
		if set {
			n++
		}
	}
	return n
}

// Stop says why no further attempt was made. It is a closed set, usable as a metric
// label.
type Stop uint8

// The reasons for making no further attempt.
const (
	StopNone        Stop = iota // another attempt follows
	StopOutcome                 // the outcome is not one that is retried
	StopAttempts                // the number of attempts is used up
	StopBudget                  // the retry budget is used up
	StopDeadline                // the deadline would pass before the next attempt
	StopMaxDuration             // the time allowed for all attempts would pass
	StopPushback                // the dependency asked not to be asked again, or for longer than is allowed
	StopCall                    // the call asked not to be retried
	StopRejected                // a gate refused the next attempt
	StopCanceled                // the caller gave up
	StopHop                     // the call is itself part of a retry that a layer above makes

	// NumStops is the number of stops, for arrays indexed by Stop.
	NumStops
)

var stopNames = [NumStops]string{
	"none", "outcome", "attempts", "budget", "deadline", "max_duration", "pushback", "call", "rejected", "canceled", "hop",
}

// String returns the stop's name in lower case, as metrics and logs show it.
func (s Stop) String() string {
	if s < NumStops {
		return stopNames[s]
	}
	return "unknown"
}

// RetryState is what a [Retrier] decides from.
type RetryState struct {
	Now       time.Time     // end of the last attempt
	Started   time.Time     // beginning of the call
	Deadline  time.Time     // the earliest deadline of the call; zero is none
	Attempt   int           // number of the last attempt, from 1
	Outcome   Outcome       // how it ended; [NotRun] when a gate refused it
	Err       error         // its error
	LastDelay time.Duration // delay before the last attempt
	Call      *Call         // what the call says about itself
	Hop       *Hop          // what is known of the request that the call is made for; nil is nothing
}

// Decision is a [Retrier]'s answer.
type Decision struct {
	// Stop is [StopNone] when another attempt follows, otherwise why none does.
	Stop Stop

	// Delay is the time to wait before the next attempt.
	Delay time.Duration
}

// A Retrier decides whether another attempt follows one that did not succeed. All
// methods are called concurrently.
type Retrier interface {
	// First is told of the first attempt of each call, once its gates have let it
	// in: what a retry budget is a share of. It is on the path of every call.
	First(a *Attempt)

	// Decide is asked once after each attempt that did not succeed, before any
	// sleep. When it answers with another attempt it has taken what that costs.
	Decide(s RetryState) Decision

	// Undo gives back what the last Decide took: the caller gave up while waiting
	// for the next attempt, which therefore never ran.
	Undo(now time.Time)
}

// FailedCall is what a [Fallback] knows about the call that it answers for.
type FailedCall struct {
	Dependency string  // name of the pipeline
	Attempts   int     // number of attempts that ran; 0 when the first was refused
	Outcome    Outcome // how the last attempt ended; [NotRun] when it was refused
	Err        error   // the error the caller would get
	Canceled   bool    // the caller has given up: only fallbacks with [Part.AfterCancel] are asked
}

// Answer is a fallback's value.
type Answer[T any] struct {
	Value T
	Age   time.Duration // how old the value is; 0 when it is new or ageless
}

// A Fallback answers in place of a call that failed. It is handed to [New] (the
// value is then checked against the type of each call) or to [For].
type Fallback[T any] interface {
	Policy

	// Handles reports whether the fallback answers for this failure. It is never
	// asked when the caller itself has given up, unless its part says AfterCancel.
	Handles(f FailedCall) bool

	// Answer returns the value to use. Its error joins the original one; it never
	// replaces it.
	Answer(ctx context.Context, f FailedCall) (Answer[T], error)
}

// partFunc makes a Policy of a single part.
type partFunc func() Part

// BuildPolicy implements [Policy].
func (f partFunc) BuildPolicy() (Part, error) { return f(), nil }

// Observe adds an observer to a pipeline.
func Observe(o Observer) Policy {
	return partFunc(func() Part { return Part{Kind: "observer", Observer: o} })
}

// Trace makes a pipeline's calls visible to t.
func Trace(t Tracer) Policy {
	return partFunc(func() Part { return Part{Kind: "tracer", Tracer: t} })
}

// ClassifyErrors makes f judge errors before the default classification does, for
// every policy of the pipeline alike; [NotRun] leaves an error to the default. It is
// never asked about an error of a call whose caller has given up. f runs on the
// calling goroutine and may run concurrently.
func ClassifyErrors(f func(err error) Kind) Policy {
	return partFunc(func() Part { return Part{Kind: "classify", Classify: f} })
}
