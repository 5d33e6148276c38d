package breaker

import (
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// Permit is a call that [Breaker.Acquire] has let in. It must not be copied, and is
// not safe for concurrent use.
type Permit struct {
	_     noCopy
	b     *Breaker
	word  uint64
	start time.Time
}

// noCopy makes go vet report copies: each of them could count the call again.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Acquire admits a call, for use without a pipeline; it allocates nothing. Each
// Permit must be ended with [Permit.Done], also when the call panics, or a probe
// stays in flight until ProbeTimeout:
//
//	permit, err := b.Acquire()
//	if err != nil {
//		return err
//	}
//	kind := policy.Failure // what a panic counts as
//	defer func() { permit.Done(kind) }()
//	err = work(ctx)
//	kind = policy.Classify(ctx, err).Kind
//	return err
//
// The error is a [*policy.RejectedError] with [ErrOpen]. It never comes in shadow mode
// and while observing; the Permit of a call that would have been refused counts
// nothing.
func (b *Breaker) Acquire() (Permit, error) {
	now := b.now()
	word, refused := b.enter(now)
	switch {
	case refused == nil && word != ghost:
		return Permit{b: b, word: word, start: now}, nil
	case refused == nil || b.config().Shadow:
		return Permit{}, nil
	}
	refused.Policy = b.config().Name
	return Permit{}, refused
}

// Done ends the call with its outcome; its duration is the time since
// [Breaker.Acquire]. [policy.NotRun] gives the permit back without an outcome.
//
// It returns false when it did nothing: the outcome was discarded, because the
// state that the call was admitted in has passed or the probe had run out of time;
// or the permit had been ended before, or counts nothing.
func (p *Permit) Done(kind policy.Kind) bool {
	b := p.b
	if b == nil {
		return false
	}
	p.b = nil
	now := b.now()
	return !b.leave(p.word, window.Stripe(), now, policy.Outcome{Kind: kind, Duration: max(now.Sub(p.start), 0)})
}
