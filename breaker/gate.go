package breaker

import (
	"context"

	"github.com/breakwater-go/breakwater/policy"
)

// BuildPolicy implements [policy.Policy]: all pipelines that are given the breaker
// share its state.
func (b *Breaker) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:     kind,
		Name:     b.cfg.Name,
		Gate:     b,
		Place:    policy.PlaceBreaker,
		Shadow:   b.cfg.Shadow,
		Warnings: b.cfg.warnings(),
	}, nil
}

// Peek implements [policy.Gate].
func (b *Breaker) Peek(a *policy.Attempt) error {
	p := b.phase.Load()
	if p.state == Closed {
		return nil
	}
	ns := b.nanos(a.Now())
	if until := p.refuseUntil.Load(); ns < until {
		return p.refusal(until - ns)
	}
	return nil
}

// Enter implements [policy.Gate]. It does not wait. A refusal is a
// [*policy.RejectedError] with [ErrOpen]: while open its reason is
// [policy.ReasonOpen] and its RetryAfter the time to the first probe; while
// half-open [policy.ReasonProbes], with no RetryAfter.
func (b *Breaker) Enter(_ context.Context, a *policy.Attempt, slot int) error {
	word, refused := b.enter(a.Now())
	if refused != nil {
		return refused
	}
	a.Slot(slot).Word = word
	return nil
}

// Leave implements [policy.Gate].
func (b *Breaker) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	if b.leave(a.Slot(slot).Word, a.Stripe(), a.Now(), o) {
		a.Discard()
	}
}

// Amend implements [policy.Amender].
func (b *Breaker) Amend(a *policy.Attempt, slot int, o policy.Outcome) {
	if o.Kind.IsFailure() {
		b.amend(a.Slot(slot).Word, a.Now())
	}
}
