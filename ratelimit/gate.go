package ratelimit

import (
	"context"

	"github.com/breakwater-go/breakwater/policy"
)

// BuildPolicy implements [policy.Policy]: pipelines that are given the same Bucket
// share it.
func (b *Bucket) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:        kind,
		Name:        b.name,
		Gate:        b,
		Place:       policy.PlaceRateLimit,
		RefundsOnly: true,
		Shadow:      b.shadow,
		Warnings:    b.Config().warnings(),
	}, nil
}

// Peek implements [policy.Gate]: it reports that too few tokens are there, and takes
// none.
func (b *Bucket) Peek(a *policy.Attempt) error {
	if retryAfter, v := b.look(int64(a.Since(b.start)), a.Cost()); v != taken {
		return rejection(b.name, v, retryAfter)
	}
	return nil
}

// Enter implements [policy.Gate]: it takes the tokens that the call costs, or refuses
// at once. It never waits.
func (b *Bucket) Enter(_ context.Context, a *policy.Attempt, slot int) error {
	at := int64(a.Since(b.start))
	if retryAfter, v := b.take(at, a.Cost()); v != taken {
		return rejection(b.name, v, retryAfter)
	}
	a.Slot(slot).Word = uint64(at) //nolint:gosec // the same bits come back in Leave
	return nil
}

// Leave implements [policy.Gate]: an attempt that never ran gets its tokens back.
func (b *Bucket) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	if o.Kind == policy.NotRun {
		b.giveBack(b.now(), int64(a.Slot(slot).Word), a.Cost()) //nolint:gosec // see Enter
	}
}
