package breaker

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// BuildPolicy implements [policy.Policy]: all pipelines that are given the breaker
// share its state.
func (b *Breaker) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:     kind,
		Name:     b.config().Name,
		Gate:     b,
		Place:    policy.PlaceBreaker,
		Shadow:   b.config().Shadow,
		Warnings: b.config().warnings(),

		SlowAfter: b.config().SlowAfter,
	}, nil
}

// Peek implements [policy.Gate].
func (b *Breaker) Peek(a *policy.Attempt) error {
	p := b.phase.Load()
	if p.state == Closed {
		return nil
	}
	ns := b.nanos(a.Now())
	if until := p.refuseUntil.Load(); ns < until && !b.observes(ns) {
		return p.refusal(until - ns)
	}
	return nil
}

// Enter implements [policy.Gate]. It does not wait. A refusal is a
// [*policy.RejectedError] with [ErrOpen]: while open its reason is
// [policy.ReasonOpen] and its RetryAfter the time to the first probe; while half-open
// it is [policy.ReasonProbes], and while recovering [policy.ReasonRamp], with no
// RetryAfter; while forced open [policy.ReasonForced], with the time to the end of that
// if it has one.
func (b *Breaker) Enter(_ context.Context, a *policy.Attempt, slot int) error {
	if p := b.phase.Load(); p.state == Closed { // spares reading the attempt's time
		a.Slot(slot).Word = p.word
		return nil
	}
	word, refused := b.enter(a.Now())
	if refused != nil {
		return refused
	}
	if isProbe(word) && !a.NoWait() { // one that only watches probes nothing
		a.Probe()
	}
	a.Slot(slot).Word = word
	return nil
}

// Leave implements [policy.Gate].
func (b *Breaker) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	word := a.Slot(slot).Word
	if p := b.phase.Load(); p.plain(word, o) { // as in leave, with a cheaper time
		if p.quick.AddAt(a.Since(p.quick.Base()), a.Stripe()) {
			b.decide(p.tally, a.Now(), p.quick.Counts(a.Now()), 0)
		}
		return
	}
	if b.leave(word, a.Stripe(), a.Now(), o) {
		a.Discard()
	}
}

// Amend implements [policy.Amender].
func (b *Breaker) Amend(a *policy.Attempt, slot int, o policy.Outcome) {
	slowAfter := b.rules().slowAfter
	if o.Kind.IsFailure() || o.Duration > slowAfter && a.Settled().Duration <= slowAfter {
		b.amend(a.Slot(slot).Word, a.Now(), o)
	}
}

// Recheck implements [policy.Rechecker]: an attempt that was queued since it entered is
// refused if the breaker has opened meanwhile. One that has closed again lets it run,
// and ignores what comes of it.
func (b *Breaker) Recheck(a *policy.Attempt, slot int) error {
	// The attempt's own time is that of its admission.
	if refused := b.recheck(a.Slot(slot).Word, b.now()); refused != nil {
		return refused
	}
	return nil
}

func (b *Breaker) recheck(word uint64, now time.Time) *policy.RejectedError {
	p := b.phase.Load()
	if p.state == Closed || word == ghost || p.tally != nil && p.covers(word) {
		return nil
	}
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	p = b.phase.Load()
	switch {
	case p.state == Closed || p.state == ForcedClosed || b.observes(ns):
		return nil
	case p.state == HalfOpen && generationOf(p.word) == generationOf(word) && b.m.probe(uint32(word)) >= 0: //nolint:gosec // the lower half
		return nil
	}
	return p.refusal(p.until - ns)
}
