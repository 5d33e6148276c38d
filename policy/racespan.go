package policy

import "context"

// HedgeSpan is a [CallSpan] that tells hedges from the attempts beside which they run.
type HedgeSpan interface {
	// StartHedge is StartAttempt for the given hedge, counted from 1, beside attempt
	// number.
	StartHedge(ctx context.Context, number, hedge int) (context.Context, AttemptSpan)
}

// The spans of a race are told of one thing at a time, and of nothing once the call goes
// on: what then still runs has ended as far as they are concerned.

// racingSpan is the span of the call, as a racer sees it.
type racingSpan[A, T any] struct{ x *racer[A, T] }

// racingAttempt is the span of a racer's attempt. The end of one that ends the race is
// told after those of the losers, so that the last thing a span of the call hears is
// what the call came to.
type racingAttempt struct {
	span AttemptSpan // nil when there is none, or it has been ended
	kept bool
	o    Outcome
	err  error
}

func (s racingSpan[A, T]) StartAttempt(ctx context.Context, number int) (context.Context, AttemptSpan) {
	r := s.x.race
	r.spans.Lock()
	defer r.spans.Unlock()
	if r.isOver() {
		return ctx, nil
	}
	var span AttemptSpan
	if h, ok := r.span.(HedgeSpan); ok && s.x.hedge > 0 {
		ctx, span = h.StartHedge(ctx, number, s.x.hedge)
	} else {
		ctx, span = r.span.StartAttempt(ctx, number)
	}
	if span == nil {
		return ctx, nil
	}
	s.x.traced.span = span
	return ctx, racerSpan[A, T](s)
}

func (racingSpan[A, T]) Event(Event) {}
func (racingSpan[A, T]) End(CallEnd) {}

// racerSpan is the span of an attempt, as the attempt sees it.
type racerSpan[A, T any] struct{ x *racer[A, T] }

func (s racerSpan[A, T]) End(o Outcome, err error) {
	r, t := s.x.race, &s.x.traced
	r.spans.Lock()
	defer r.spans.Unlock()
	switch {
	case t.span == nil, r.isOver(): // in that case the call ends it
	case o.Kind.IsAnswer(), r.ctx.Err() != nil:
		t.kept, t.o, t.err = true, o, err
	default:
		t.end(o, err)
	}
}

// Admission implements [AdmissionSpan].
func (s racerSpan[A, T]) Admission(ad Admission) {
	r, t := s.x.race, &s.x.traced
	r.spans.Lock()
	defer r.spans.Unlock()
	if t.span != nil && !r.isOver() {
		tellAdmission(t.span, ad)
	}
}

func (t *racingAttempt) end(o Outcome, err error) {
	if span := t.span; span != nil {
		t.span = nil
		endAttempt(span, o, err)
	}
}

// endSpans ends the spans of all racers, that of the best last.
func (r *race[A, T]) endSpans() {
	r.spans.Lock()
	defer r.spans.Unlock()
	r.mu.Lock()
	racers, best := r.racers, r.best
	r.mu.Unlock()
	for _, x := range racers {
		if x == best {
			continue
		}
		if t := &x.traced; t.kept {
			t.end(t.o, t.err)
		} else {
			t.end(Outcome{Kind: Canceled}, ErrLost)
		}
	}
	best.traced.end(best.o, best.err)
}

// tell tells the span of the call of an event.
func (r *race[A, T]) tell(e Event) {
	r.spans.Lock()
	defer r.spans.Unlock()
	if !r.isOver() {
		notify(r.span.Event, e)
	}
}

func (r *race[A, T]) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}
