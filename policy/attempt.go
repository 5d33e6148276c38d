package policy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Attempt is one try of a call, as its gates see it. Attempts are pooled: nothing
// may keep one beyond the method it was handed to.
type Attempt struct {
	now, start time.Duration // since the pipeline's base
	waited     time.Duration // in all gates together
	pipe       *Pipeline
	plan       *plan
	call       *Call
	number     int
	hedge      int // which one beside attempt number; 0 for that itself

	// ctx is the context the function runs under; bound is the same when the
	// attempt has a timeout. Both are here because the attempt may outlive the
	// call that began it (a response body), and are cleared when it is recycled.
	ctx   context.Context //nolint:containedctx // see above
	bound *deadlineCtx
	total *deadlineCtx // the call's, once the attempt has outlived it, or has no other
	onEnd func()       // ends what else belongs to the attempt; nil for nearly all

	entered   uint32 // bit i is set while gate i has let the attempt in
	admitted  uint32 // bit i is set if gate i did, once all were asked
	stage     stage
	noWait    bool
	discarded bool
	preset    bool // outcome was set by the function
	racing    bool // it is one attempt of a race
	held      bool // a Handle keeps the attempt beyond its function
	probe     bool // a breaker let it in to find out how the dependency is
	outcome   Outcome

	// state guards an attempt that a Handle refers to: generation and phase. An
	// attempt that never had a Handle does not touch it.
	state atomic.Uint64

	stripe uint32 // fixed for life, see stats
	slots  [MaxGates]Slot
}

// stage is how far an attempt has come; it decides what a panic means.
type stage uint8

const (
	stageAdmission stage = iota // gates are being asked: the attempt did not run
	stageRunning                // the function runs: a panic is the dependency's failure
	stageJudging                // the outcome is being classified: a panic there says nothing about the dependency
)

// The phases of an attempt with a Handle, in the low bits of Attempt.state; the
// generation is above them and rises when the attempt is recycled, so that a Handle
// of an earlier use does nothing.
const (
	phaseOpen    = iota // outcome unknown; also without a Handle, so that making one costs nothing
	phaseSettled        // outcome told, permits still held
	phaseBusy           // somebody is moving it on
	phaseBits    = 2
	phaseMask    = 1<<phaseBits - 1
)

var (
	attempts   = sync.Pool{New: func() any { return &Attempt{stripe: nextStripe.Add(1)} }}
	nextStripe atomic.Uint32
)

// newAttempt takes an attempt from the pool and starts its clock.
func (p *Pipeline) newAttempt(ctx context.Context, pl *plan, number int, call *Call) *Attempt {
	a := attempts.Get().(*Attempt) // the pool holds nothing else
	a.begin(ctx, p, pl, number, call)
	return a
}

func (a *Attempt) begin(ctx context.Context, p *Pipeline, pl *plan, number int, call *Call) {
	if call == nil {
		call = callFrom(ctx)
	}
	a.pipe = p
	a.plan = pl
	a.ctx = ctx
	a.number = number
	a.stage = stageAdmission
	a.call = call
	a.waited = 0
	a.now = p.elapsed()
}

// took returns the time since the attempt began, waits included.
func (a *Attempt) took() time.Duration {
	if a.stage == stageAdmission {
		return a.waited
	}
	return a.now - a.start + a.waited
}

// recycle returns an attempt whose gates have all been left to the pool.
func (a *Attempt) recycle() {
	if a.bound != nil {
		a.bound.cancel(context.Canceled)
		a.bound = nil
	}
	if a.held { // otherwise it has outlived nothing
		if a.total != nil {
			a.total.cancel(context.Canceled)
			a.total = nil
		}
		if a.onEnd != nil {
			a.onEnd()
			a.onEnd = nil
		}
	}
	a.pipe, a.plan, a.ctx, a.call = nil, nil, nil, nil
	a.preset, a.held, a.discarded, a.noWait, a.probe, a.racing = false, false, false, false, false, false
	a.hedge = 0
	attempts.Put(a)
}

// admit asks the gates in order. On an error nothing stays taken.
func (a *Attempt) admit() error {
	ctx, pl := a.ctx, a.plan
	if a.pipe.shut.Load() {
		return a.complete("pipeline", &a.pipe.shutRefused, &RejectedError{Reason: ReasonClosed, Err: ErrClosed})
	}
	if pl.waits {
		// Nobody queues for one gate while another is sure to refuse.
		for i := range pl.gates {
			g := &pl.gates[i]
			if g.shadow {
				continue
			}
			if err := g.gate.Peek(a); err != nil {
				return a.refused(i, err)
			}
		}
		if pl.runner != nil {
			if err := pl.runner.Peek(a); err != nil {
				return a.complete(pl.runnerName, pl.runnerRejected, err)
			}
		}
	}
	for i := range pl.gates {
		g := &pl.gates[i]
		if g.shadow {
			a.noWait = true
			err := g.gate.Enter(ctx, a, i)
			a.noWait = a.hedge != 0
			if err != nil {
				a.shadowed(i, err)
				continue
			}
		} else if err := g.gate.Enter(ctx, a, i); err != nil {
			return a.refused(i, err)
		}
		a.entered |= 1 << i
	}
	a.admitted = a.entered
	a.start = a.now
	if pl.runner == nil { // otherwise a worker does it
		if pl.first != nil && a.number == 1 && a.hedge == 0 {
			pl.first.First(a)
		}
		if pl.attemptTimeout > 0 {
			a.bound = newDeadlineCtx(ctx, a.Now().Add(pl.attemptTimeout))
			a.ctx = a.bound
		}
		a.stage = stageRunning
	}
	return nil
}

// refused gives back what the gates before i took and completes the error.
func (a *Attempt) refused(i int, err error) error {
	a.leave(Outcome{Kind: NotRun}, ^uint32(0))
	g := &a.plan.gates[i]
	return a.complete(g.name, g.rejected, err)
}

// complete fills in, counts and reports a refusal of the policy called name. Another
// error, that of a context which ended a wait, passes through.
func (a *Attempt) complete(name string, counts *rejections, err error) error {
	re, ok := err.(*RejectedError) //nolint:errorlint // a policy's own refusal is never wrapped
	if !ok {
		return err
	}
	re.Dependency, re.Policy = a.pipe.name, name
	counts.count(re.Reason)
	if a.pipe.watched() {
		a.pipe.emit(Event{
			Kind: EventRejected, Time: time.Now(), Policy: name, Attempt: a.number,
			Reason: re.Reason, RetryAfter: re.RetryAfter, Err: re,
		})
		a.tellEnd(Outcome{}, re)
	}
	return re
}

// shadowed counts a refusal that does not take effect.
func (a *Attempt) shadowed(i int, err error) {
	g := &a.plan.gates[i]
	e := Event{Kind: EventShadow, Policy: g.name, Attempt: a.number, Err: err}
	if re, ok := err.(*RejectedError); ok { //nolint:errorlint // a gate's own refusal is never wrapped
		re.Dependency, re.Policy = a.pipe.name, g.name
		e.Reason, e.RetryAfter = re.Reason, re.RetryAfter
		g.rejected.count(re.Reason)
	}
	if a.pipe.watched() {
		e.Time = time.Now()
		a.pipe.emit(e)
	}
}

// leave leaves the gates in mask that the attempt is in, innermost first.
func (a *Attempt) leave(o Outcome, mask uint32) {
	if o.Kind != NotRun {
		a.entered &^= a.plan.refunds
	}
	for i := len(a.plan.gates) - 1; i >= 0; i-- {
		bit := uint32(1) << i
		if a.entered&mask&bit == 0 {
			continue
		}
		// The bit goes first: should Leave panic, the attempt is not left twice.
		a.entered &^= bit
		a.plan.gates[i].gate.Leave(a, i, o)
		if a.slots[i].Ref != nil && !a.held { // a held attempt may still be amended
			a.slots[i].Ref = nil
		}
	}
}

// leaveAll leaves every gate that the attempt is in, also when one of them panics or
// ends its goroutine: what one gate does must not cost another its permit. The panic
// goes on when all have been left.
func (a *Attempt) leaveAll(o Outcome) {
	defer func() {
		if a.entered != 0 {
			a.leaveAll(o)
		}
	}()
	a.leave(o, ^uint32(0))
}

// judge makes the outcome of a function that returned err, and stops the clock.
func (a *Attempt) judge(err error) Outcome {
	a.stage = stageJudging
	o := Outcome{Kind: Success}
	switch {
	case a.preset:
		o = a.outcome
	case err != nil:
		o = a.plan.classify(a.ctx, err)
	}
	a.now = a.pipe.elapsed()
	if o.Kind != NotRun { // a refusal further down: the dependency was not reached
		o.Duration = max(a.now-a.start, 0)
	}
	if o.Kind != Success {
		a.tellEnd(o, err)
	}
	return o
}

// settle tells the gates how the attempt ended. Gates that hold a permit are left
// only if the attempt is not held.
func (a *Attempt) settle(o Outcome) {
	mask := ^uint32(0)
	if a.held {
		a.outcome = o
		mask = ^a.plan.holds
		if a.bound != nil {
			a.bound.disarm()
		}
		if a.total != nil {
			a.total.disarm()
		}
	}
	a.leave(o, mask)
	a.tellDiscarded(o)
}

// tellDiscarded counts and reports that a gate ignored the outcome.
func (a *Attempt) tellDiscarded(o Outcome) {
	if a.discarded {
		a.pipe.stats.at(a.stripe).discarded.Add(1)
		if a.pipe.watched() {
			a.pipe.emit(Event{Kind: EventDiscarded, Time: time.Now(), Attempt: a.number, Outcome: o.Kind})
		}
	}
}

// unwind ends an attempt whose function did not return: a panic or
// [runtime.Goexit], in it, in a gate or in a classifier. The panic goes on with its
// own stack.
func (a *Attempt) unwind(span AttemptSpan) (o Outcome) {
	a.now = a.pipe.elapsed()
	o = Outcome{Kind: NotRun}
	switch a.stage {
	case stageAdmission:
	case stageRunning:
		o = Outcome{Kind: Failure, Duration: max(a.now-a.start, 0)}
	case stageJudging:
		o = Outcome{Kind: Canceled, Duration: max(a.now-a.start, 0)}
	}
	st := a.pipe.stats.at(a.stripe)
	st.panics.Add(1)
	st.attempt(o)
	if !a.racing {
		st.calls[o.Kind].Add(1) // it ends the call too
	}
	if o.Kind != NotRun {
		a.tellEnd(o, nil)
	}
	a.letGo()
	defer func() { // also when a gate panics too
		a.tellDiscarded(o)
		if span != nil {
			endAttempt(span, o, nil)
		}
		a.recycle()
	}()
	a.leaveAll(o)
	return o
}

// race makes the attempt one of several that run at the same time.
func (a *Attempt) race(hedge int) {
	a.racing, a.hedge, a.noWait = true, hedge, hedge != 0
}

// letGo makes nothing of a Hold: the function that asked for it did not return, or
// nobody waits for it.
func (a *Attempt) letGo() {
	if a.held {
		a.held = false
		Handle{a: a, gen: a.state.Load() >> phaseBits}.retire()
	}
}

// handOver leaves a held attempt to its Handle. The call s, if any, may yet give up its
// value and go on, so its total timeout stays as it is until the call ends.
func (a *Attempt) handOver(s *callState) {
	if s != nil {
		s.held = Handle{a: a, gen: a.state.Load() >> phaseBits}
	}
	a.state.Store(a.state.Load()&^phaseMask | phaseSettled)
}

// Judging lets the function of [DoAttempt] say that the dependency is done and what
// follows classifies the attempt: a panic from here on says nothing about the
// dependency, and counts as [Canceled].
func (a *Attempt) Judging() { a.stage = stageJudging }

// SetOutcome lets the function of [DoAttempt] classify its own attempt; a kind of
// [NotRun] takes back what was said before. Duration is filled in by the pipeline.
func (a *Attempt) SetOutcome(kind Kind, pushback time.Duration) {
	a.preset = kind.judges()
	a.outcome = Outcome{Kind: kind, Pushback: pushback}
}

// SetCode adds to the outcome the status code of the answer in its own protocol, such as
// 503: an [*AnswerError] that has to stand for the answer says so. It comes after
// SetOutcome, which takes it back.
func (a *Attempt) SetCode(code uint16) { a.outcome.Code = code }

// Hold lets the function of [DoAttempt] keep the attempt's permits, and its context,
// beyond its return: the outcome is settled when the function returns, the rest when
// the handle is released. It is called at most once per attempt. Should the function
// panic after it, the handle does nothing. The methods of the handle wait until the
// function has returned, so it must not call them itself.
func (a *Attempt) Hold() Handle {
	a.held = true
	a.state.Store(a.state.Load()&^phaseMask | phaseBusy) // until the pipeline has settled the outcome
	return a.handle()
}

// handle returns a Handle for the attempt.
func (a *Attempt) handle() Handle {
	return Handle{a: a, gen: a.state.Load() >> phaseBits, ctx: a.ctx}
}
