package policy

import (
	"context"
	"runtime"
	"time"
)

// Handle is an attempt that was entered by hand with [Pipeline.Enter], or kept by
// [Attempt.Hold]. It is a value; copies refer to the same attempt. Its methods may
// be called from any goroutine and any number of times: each step happens once, and
// a handle whose attempt has been released does nothing. The zero Handle does
// nothing.
type Handle struct {
	a   *Attempt
	gen uint64
	ctx context.Context //nolint:containedctx // the attempt's own, readable whatever became of the attempt
}

// Enter lets one attempt in by hand, for callers that must hold a permit past the
// return of a function. It never retries and never falls back, and a total timeout
// does not bound it: that is the caller's context's business.
//
//	h, err := p.Enter(ctx)
//	if err != nil {
//		return err // a *RejectedError, or the context's error
//	}
//	defer h.Release() // a panic before Leave counts as a failure
//	err = work(h.Context())
//	h.Leave(err)
//
// It blocks only where a gate of the pipeline waits. A nil pipeline lets everything
// in.
func (p *Pipeline) Enter(ctx context.Context) (Handle, error) { return p.enter(ctx, nil, false) }

// Context returns the context that the attempt runs under. If the attempt has a
// timeout, it ends with that, and when the handle is released. It is
// [context.Background] for the zero Handle.
func (h Handle) Context() context.Context {
	if h.ctx == nil {
		return context.Background()
	}
	return h.ctx
}

// Leave ends the attempt with the error of the work, which is classified as in [Do].
// It reports whether the outcome counted: false when the handle was left or released
// before, or when a policy ignored the outcome because it came too late.
func (h Handle) Leave(err error) bool {
	if !h.take(phaseOpen) {
		return false
	}
	defer h.finish() // also when a classifier panics
	return h.settle(err)
}

// Settle tells the outcome of the attempt and gives back everything but held permits
// and the context; the attempt's timeout no longer runs. A kind of [NotRun], which
// says nothing, counts as a [Failure]. It reports what [Handle.Leave] reports.
func (h Handle) Settle(kind Kind, pushback time.Duration) bool {
	if !h.take(phaseOpen) {
		return false
	}
	defer h.put()
	if !kind.judges() {
		kind = Failure
	}
	h.a.SetOutcome(kind, pushback)
	return h.settle(nil)
}

// Amend corrects the outcome of an attempt that was settled as a success: what
// followed (the rest of a response) failed with the given kind. It must come before
// Release, and reports whether it did anything; [Success] and [NotRun] correct nothing.
func (h Handle) Amend(kind Kind) bool {
	if !kind.judges() || kind == Success || !h.take(phaseSettled) {
		return false
	}
	defer h.put()
	a := h.a
	if a.outcome.Kind != Success {
		return false
	}
	a.now = a.pipe.elapsed()
	failed := Outcome{Kind: kind, Duration: max(a.now-a.start, 0)}
	a.amend(failed)
	a.outcome = failed
	a.tellEnd(a.outcome, nil)
	return true
}

// amend tells the gates of an outcome that takes the place of the one they know.
func (a *Attempt) amend(o Outcome) {
	for i := range a.plan.gates {
		if g, ok := a.plan.gates[i].gate.(Amender); ok && a.admitted&(1<<i) != 0 {
			g.Amend(a, i, o)
		}
	}
}

// Settled returns the outcome that the gates have been told last: in [Amender.Amend], the one
// that is corrected.
func (a *Attempt) Settled() Outcome { return a.outcome }

// Prolong corrects the duration of an attempt that was settled as a success: something that
// followed, such as a statement of a transaction, took d. It must come before Release, and
// reports whether it did anything: a duration that is no longer corrects nothing. A breaker
// finds the attempt slow by it; what has been counted of durations stays as it is.
func (h Handle) Prolong(d time.Duration) bool {
	if !h.take(phaseSettled) {
		return false
	}
	defer h.put()
	a := h.a
	if a.outcome.Kind != Success || d <= a.outcome.Duration {
		return false
	}
	a.now = a.pipe.elapsed()
	longer := Outcome{Kind: Success, Duration: d}
	a.amend(longer)
	a.outcome = longer
	return true
}

// Release gives back all that the attempt still holds and ends its context. An
// attempt whose outcome was never told counts as failed. Further calls do nothing.
func (h Handle) Release() { h.end() }

// Abandon is Release for an attempt that nobody released in time, such as that of a
// response body which was never closed: it is counted as abandoned too.
func (h Handle) Abandon() {
	if p := h.end(); p != nil {
		p.stats.abandoned.Add(1)
	}
}

// end releases the attempt and returns its pipeline, or nil when there was nothing
// to release.
func (h Handle) end() *Pipeline {
	open := false
	switch {
	case h.take(phaseSettled):
	case h.take(phaseOpen):
		open = true
	default:
		return nil
	}
	p := h.a.pipe
	defer h.finish() // also when a gate panics
	if open {
		h.a.SetOutcome(Failure, 0)
		h.settle(nil)
	}
	return p
}

// take moves the attempt from the given phase to busy. It waits for another
// goroutine that is moving it on: for as long as leaving the gates takes or, between
// [Attempt.Hold] and the function's return, for the function.
func (h Handle) take(phase uint64) bool {
	if h.a == nil {
		return false
	}
	for tries := 0; ; tries++ {
		switch h.a.state.Load() {
		case h.gen<<phaseBits | phase:
			if h.a.state.CompareAndSwap(h.gen<<phaseBits|phase, h.gen<<phaseBits|phaseBusy) {
				return true
			}
		case h.gen<<phaseBits | phaseBusy:
			if tries < 100 {
				runtime.Gosched()
			} else {
				time.Sleep(50 * time.Microsecond)
			}
		default:
			return false
		}
	}
}

// put moves the attempt from busy to settled.
func (h Handle) put() { h.a.state.Store(h.gen<<phaseBits | phaseSettled) }

// settle judges and settles an attempt entered by hand, and counts it.
func (h Handle) settle(err error) (counted bool) {
	a := h.a
	o := Outcome{Kind: Canceled} // what a panic in a classifier leaves
	defer func() {
		st := a.pipe.stats.at(a.stripe)
		if o.Kind == Success && a.waited == 0 {
			st.direct.Record(o.Duration)
		} else {
			st.call(o.Kind, a.took())
			st.attempt(o)
		}
		a.settle(o)
		counted = !a.discarded
	}()
	o = a.judge(err)
	return
}

// finish leaves the gates that are still held and recycles the attempt, which must
// be busy. A gate that panics keeps neither the others nor the handle.
func (h Handle) finish() {
	if h.a.entered != 0 {
		defer h.close()
		h.a.leaveAll(h.a.outcome)
		return
	}
	h.close()
}

// close ends the handle and recycles its attempt.
func (h Handle) close() {
	for i := range h.a.plan.gates {
		if h.a.slots[i].Ref != nil {
			h.a.slots[i].Ref = nil
		}
	}
	h.retire()
	h.a.recycle()
}

// retire ends the generation: every copy of the handle is dead from here on.
func (h Handle) retire() { h.a.state.Store((h.gen + 1) << phaseBits) }

// onEnd has f called when the attempt ends: now, if it has.
func (h Handle) onEnd(f func()) {
	if !h.take(phaseSettled) {
		f()
		return
	}
	defer h.put()
	h.a.onEnd = f
}

// adopt leaves the total timeout of a call that has returned to its attempt, which
// outlives it: it does not bound what follows, and its context ends with the attempt.
// It reports false when the attempt has ended.
func (h Handle) adopt(total *deadlineCtx) bool {
	if !h.take(phaseSettled) {
		return false
	}
	defer h.put()
	total.disarm()
	h.a.total = total
	return true
}
