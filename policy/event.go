package policy

import (
	"context"
	"time"
)

// EventKind says what an [Event] reports.
type EventKind uint8

// The kinds of event.
const (
	EventRejected    EventKind = iota // a gate refused an attempt
	EventShadow                       // a gate in shadow mode would have refused an attempt
	EventRetry                        // another attempt follows after Delay
	EventStopped                      // no further attempt follows although one is allowed by number: Stop says why
	EventFallback                     // a fallback answered, or failed to (Err)
	EventStateChange                  // a policy changed state
	EventDiscarded                    // an outcome came too late to count
	EventHedge                        // another attempt was started beside one that had run for Delay
	EventSuppressed                   // one was due after Delay, and the budget had none left
	EventConfig                       // a configuration was applied to a registry, or refused (Err); Change names the versions

	numEventKinds
)

var eventNames = [numEventKinds]string{
	"rejected", "shadow", "retry", "stopped", "fallback", "state_change", "discarded",
	"hedge", "suppressed", "config",
}

// String returns the event's name in lower case.
func (k EventKind) String() string {
	if k < numEventKinds {
		return eventNames[k]
	}
	return "unknown"
}

// Event reports something other than a plain success. Which fields are set depends
// on Kind; the others are zero.
type Event struct {
	Kind       EventKind
	Time       time.Time
	Dependency string // name of the pipeline
	Policy     string // instance name of the policy
	Attempt    int    // number of the attempt, from 1; 0 when it is about none

	Outcome    Kind          // of the attempt: retry, stopped, fallback, discarded
	Reason     Reason        // of a refusal
	RetryAfter time.Duration // of a refusal
	Delay      time.Duration // before the next attempt, or of a hedge
	Stop       Stop          // why there is none
	Err        error         // error of the attempt, or of the fallback

	Change StateChange // of a state change
}

// StateChange describes a transition of a policy's state machine. From equals To when
// a command has changed what the policy does about its state, and not the state.
type StateChange struct {
	From, To   string // names of the states
	Why        string // the rule or command behind it, from a closed set
	Generation uint64 // number of the state that begins, rising by one each time; that of the present state when From equals To
	Key        string // of a keyed policy, the key whose state has changed; no label for metrics
	Note       string // who and why, when the change was made by hand

	Calls, Failures, Slow uint64        // what the policy's window held
	Ratio, Threshold      float64       // the figure that decided, a ratio or a number of calls, and its limit; both 0 when none did
	RetryAfter            time.Duration // time until the next change that needs no traffic; 0 when there is none
}

// An Observer is told of events. OnEvent runs on the goroutine of the call, outside
// locks, and must return quickly; it is called concurrently. A panic in it is caught
// and dropped. Changes of one policy's state arrive once each and in order.
type Observer interface {
	OnEvent(e Event)
}

// ObserverFunc makes a function an [Observer].
type ObserverFunc func(Event)

// OnEvent calls f.
func (f ObserverFunc) OnEvent(e Event) { f(e) }

// A Tracer follows single calls, as spans do. A panic in one of its methods, or in
// those of its spans, is caught and dropped: the call goes on, unfollowed if it was
// to begin.
type Tracer interface {
	// StartCall begins to follow a call. A nil CallSpan means that this call is not
	// followed, which costs nothing further.
	StartCall(ctx context.Context, dependency string) (context.Context, CallSpan)
}

// A CallSpan follows one call. Its methods are not called concurrently.
type CallSpan interface {
	// StartAttempt begins to follow an attempt, before its gates are asked. The
	// returned context is the one the attempt runs under.
	StartAttempt(ctx context.Context, number int) (context.Context, AttemptSpan)

	// Event reports what happened between attempts.
	Event(e Event)

	// End is called once, when the call returns.
	End(e CallEnd)
}

// An AttemptSpan follows one attempt.
type AttemptSpan interface {
	// End is called once, with the outcome and the error of the attempt.
	End(o Outcome, err error)
}

// CallEnd is how a call ended. One that ended in a panic or in [runtime.Goexit] has a
// zero Outcome and no Err.
type CallEnd struct {
	Outcome  Outcome       // of the last attempt; [NotRun] when it was refused
	Attempts int           // number of attempts, refused ones included
	Duration time.Duration // of the call, as its caller saw it
	Degraded bool          // a fallback answered
	Err      error         // what the caller gets
	Cause    error         // what the fallback answered for, when Degraded
}

// startCall asks the tracer, which the pipeline must have, to follow a call.
func (p *Pipeline) startCall(ctx context.Context) (tctx context.Context, span CallSpan) {
	defer func() {
		if recover() != nil {
			span = nil
		}
	}()
	return p.tracer.StartCall(ctx, p.name)
}

// startAttempt asks span to follow an attempt that runs under ctx.
func startAttempt(ctx context.Context, span CallSpan, number int) (actx context.Context, as AttemptSpan) {
	defer func() {
		if recover() != nil {
			actx, as = ctx, nil
		}
	}()
	return span.StartAttempt(ctx, number)
}

func endAttempt(span AttemptSpan, o Outcome, err error) {
	defer func() { _ = recover() }()
	span.End(o, err)
}
