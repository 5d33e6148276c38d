package policy

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

// A call that did not succeed at once is run by failsafe-go: an executor, built once
// with the pipeline, is first handed the outcome that already happened and then
// waits and makes further attempts, each through the gates again. Attempts that follow
// at once need none. What it asks about an
// outcome (retry it? after which delay?) is answered by the pipeline's [Retrier],
// once per attempt and before any sleep.

// callState is a call that left the fast path.
type callState struct {
	p     *Pipeline
	plan  *plan
	outer context.Context //nolint:containedctx // the caller's context
	ctx   context.Context //nolint:containedctx // the same, bounded by the total timeout
	total *deadlineCtx    // ctx, when there is a total timeout
	span  CallSpan
	call  *Call

	started time.Time

	stripe    uint32  // of the last attempt
	attempts  int     // made so far, refused ones included
	ran       int     // of these, the ones that ran
	out       Outcome // of the last one
	err       error   // of the last one
	lastOut   Outcome // of the last one that ran
	lastErr   error   // of the last one that ran
	delay     time.Duration
	scheduled bool   // another attempt was decided for and has not begun
	asked     bool   // and the executor does not know it yet
	handed    bool   // the executor has been handed the outcome that happened before it
	paid      bool   // the present attempt was decided for by the Retrier, at its cost
	held      Handle // of the last attempt that ran, if it outlives its function
	stop      Stop
	watched   bool // the pipeline's CallWatcher is to be told of the end

	// Of a pipeline with failsafe-go policies: a round is what they make of one
	// decision of the Retrier, which may be no attempt at all, or several.
	fresh bool // an attempt was made in this round
	taken bool // what they answered in this round has been taken over

	racing bool // this is one attempt of a race, and hedge its number
	hedge  int

	discard   func() // gives up the value of the last attempt; nil when values need no care
	valued    bool   // the last attempt that ran came with a value
	discarded bool   // and it has been given up
}

// callStates holds the states of calls that needed no failsafe-go policies of the user's:
// such a policy might still know its call when the call is over.
var callStates = sync.Pool{New: func() any { return new(callState) }}

func (s *callState) recycle() {
	*s = callState{}
	callStates.Put(s)
}

func newCallState(ctx context.Context, p *Pipeline, pl *plan, span CallSpan, call *Call) *callState {
	s := callStates.Get().(*callState) // the pool holds nothing else
	*s = callState{p: p, plan: pl, outer: ctx, ctx: ctx, span: span, call: call, started: p.clock(), watched: pl.calls != nil}
	if call == nil {
		s.call = callFrom(ctx)
	}
	if pl.total > 0 {
		s.total = newDeadlineCtx(ctx, s.started.Add(pl.total))
		s.ctx = s.total
	}
	return s
}

// begin is called before each attempt.
func (s *callState) begin() {
	s.attempts++
	s.paid, s.scheduled = s.scheduled, false
	if s.attempts > 1 {
		s.p.stats.first().retries.Add(1)
	}
}

// record is called after each attempt.
func (s *callState) record(o Outcome, err error) {
	s.out, s.err, s.fresh = o, err, true
	if o.Kind != NotRun {
		s.ran++
		s.lastOut, s.lastErr = o, err
		s.valued, s.discarded = err == nil, false
	}
}

// refunded gives back what a further attempt cost which then did not reach the
// dependency.
func (s *callState) refunded() {
	if s.paid {
		s.paid = false
		s.plan.retry.Undo(s.p.clock())
	}
}

// giveUpValue is called when the value of the last attempt will not be returned.
func (s *callState) giveUpValue() {
	if s.discard != nil && s.valued && !s.discarded {
		s.discarded = true
		s.discard()
	}
}

// recovery is the executor of a plan with a retry policy.
type recovery struct {
	executor failsafe.Executor[any]
}

func newRecovery(pl *plan) *recovery {
	if pl.retry == nil {
		return nil
	}
	r := retryPolicy(
		func(v any, _ error) *callState { return stateOf(v) },
		func(e failsafe.ExecutionAttempt[any]) *callState { return stateOf(e.LastResult()) },
	)
	return &recovery{executor: failsafe.With[any](r)}
}

// retryPolicy makes the failsafe-go policy that asks the Retrier of a call.
func retryPolicy(of func(any, error) *callState, delayed func(failsafe.ExecutionAttempt[any]) *callState) failsafe.Policy[any] {
	return retrypolicy.NewBuilder[any]().
		WithMaxAttempts(-1). // the Retrier counts
		HandleIf(func(v any, err error) bool { return of(v, err).out.Kind != Success }).
		// Asked last, before the sleep, and once for each attempt that failed.
		AbortIf(func(v any, err error) bool { return !of(v, err).again() }).
		WithDelayFunc(func(e failsafe.ExecutionAttempt[any]) time.Duration { return delayed(e).delay }).
		ReturnLastFailure().
		Build()
}

// stateOf returns the call behind the value that travels through the executor of a
// plan.
func stateOf(v any) *callState {
	return v.(*callState) // the pipeline's own executor carries nothing else
}

// recover makes further attempts while the retry policy asks for them. The first
// attempt has been recorded, and the second decided on.
func (s *callState) recover(next func(context.Context)) {
	if s.hurry(next) {
		s.asked, s.handed = true, false
		// What the executor returns is of no use: it replaces the error of a call
		// whose context is done. The state knows.
		_, _ = s.plan.recovery.executor.WithContext(s.ctx).Get(func() (any, error) {
			if s.handed {
				next(s.ctx)
			}
			s.handed = true
			return s, s.err
		})
	}
	s.interrupted()
}

// hurry makes the attempts that follow at once, for which no executor is needed: that is
// twice what such an attempt costs. It reports whether another was decided on, after a
// wait.
func (s *callState) hurry(next func(context.Context)) bool {
	for s.delay == 0 {
		if s.ctx.Err() != nil {
			return false
		}
		next(s.ctx)
		if s.out.Kind == Success || s.ctx.Err() != nil || !s.again() {
			return false
		}
	}
	return true
}

// again asks the retry policy about the last attempt.
func (s *callState) again() bool {
	if s.asked {
		s.asked = false
		return true
	}
	deadline, _ := s.ctx.Deadline()
	d := s.plan.retry.Decide(RetryState{
		Now: s.p.clock(), Started: s.started, Deadline: deadline,
		Attempt: s.attempts, Outcome: s.out, Err: s.err, LastDelay: s.delay, Call: s.call,
		Hop: HopFrom(s.ctx),
	})
	if d.Stop >= NumStops {
		d.Stop = StopOutcome
	}
	if d.Stop != StopNone {
		s.stopped(d.Stop)
		return false
	}
	s.delay = max(d.Delay, 0)
	s.scheduled, s.fresh, s.taken = true, false, false
	if s.p.watched() || s.span != nil {
		s.emit(Event{Kind: EventRetry, Policy: s.plan.retryStats.name, Delay: s.delay})
	}
	s.giveUpValue()
	return true
}

// interrupted is called when no further attempt follows. One that was decided for and
// never began gives back what it cost. Where the Retrier was not asked, because the
// context had ended by then, that is why.
func (s *callState) interrupted() {
	switch {
	case s.scheduled:
		s.scheduled = false
		s.plan.retry.Undo(s.p.clock())
	case s.plan.retry == nil, s.out.Kind == Success, s.stop != StopNone:
		return
	}
	if errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
		s.stopped(StopDeadline)
	} else {
		s.stopped(StopCanceled)
	}
}

func (s *callState) stopped(why Stop) {
	s.stop = why
	s.plan.retryStats.stopped[why].Add(1)
	if s.p.watched() || s.span != nil {
		s.emit(Event{Kind: EventStopped, Policy: s.plan.retryStats.name, Stop: why})
	}
}

// emit completes an event about the last attempt and hands it out.
func (s *callState) emit(e Event) {
	e.Time, e.Dependency, e.Attempt, e.Outcome = time.Now(), s.p.name, s.attempts, s.out.Kind
	if e.Err == nil {
		e.Err = s.err
	}
	s.p.emit(e)
	if s.span != nil {
		notify(s.span.Event, e)
	}
}

// result returns the error of the call, and settles on the outcome that goes with
// it.
func (s *callState) result() error {
	if s.out.Kind == Success || s.ran == 0 {
		return s.err
	}
	refusal := s.err
	if s.out.Kind == NotRun && s.attempts > s.ran {
		// A later attempt did not run: what the dependency said before is the
		// outcome, and the refusal is why there is no more.
		s.out, s.err = s.lastOut, s.lastErr
		if s.stop == StopNone || s.stop == StopOutcome {
			s.stop = StopRejected
		}
	} else {
		refusal = nil
	}
	if s.err == nil {
		if !s.discarded {
			return nil // the function's value was classified; the caller gets the value
		}
		s.err = &AnswerError{Dependency: s.p.name, Kind: s.out.Kind, Code: s.out.Code}
	}
	gave := &GaveUpError{Dependency: s.p.name, Attempts: s.ran, Stop: s.stop, Last: s.err, Cause: refusal}
	ctxErr := contextError(s.ctx)
	switch {
	case refusal != nil:
		if ctxErr != nil && !errors.Is(refusal, ErrRejected) {
			gave.Stop = StopCanceled
			if errors.Is(ctxErr, context.DeadlineExceeded) {
				gave.Stop = StopDeadline
			}
		}
	case s.stop == StopCanceled && ctxErr == nil:
		return s.err // the function was canceled, and not by its caller
	case s.stop == StopCanceled:
		gave.Cause = ctxErr
	case s.stop == StopDeadline:
		gave.Cause = context.DeadlineExceeded
	case s.stop == StopBudget, s.stop == StopMaxDuration, s.stop == StopPushback, s.stop == StopHop:
	default:
		return s.err
	}
	return gave
}

// end closes what a call holds: its span and its total timeout.
func (s *callState) end(deg **degraded, err *error) {
	if s.total != nil && (s.discarded || !s.held.adopt(s.total)) {
		s.total.cancel(context.Canceled)
	}
	if s.span != nil {
		e := CallEnd{Outcome: s.out, Attempts: s.attempts, Duration: s.p.clock().Sub(s.started), Err: *err}
		if *deg != nil {
			e.Degraded, e.Cause = true, (*deg).cause
		}
		notify(s.span.End, e)
	}
}
