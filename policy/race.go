package policy

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// ErrLost is the cause ([context.Cause]) of the end of an attempt's context in whose
// place another attempt, a hedge or the one it ran beside, was answered.
var ErrLost = errors.New("policy: another attempt of the call was answered first")

// race is an attempt with the hedges beside it. Each of them is a racer; the goroutine
// of the call waits in failsafe-go's hedge policy until the race is over.
//
// The first answer wins. An attempt that failed has not lost yet while others run, since
// one of these may still be answered; but then no more hedges are started, for what
// fails is retried. Once the caller has given up nothing is waited for: the first
// attempt to return ends the race.
//
// A racer that has lost may run on after the call has returned: it refers to the race,
// and never to the call's state.
type race[A, T any] struct {
	p      *Pipeline
	plan   *plan
	call   *Call
	number int             // of the attempt
	b      *body[A, T]     // of the call: read only
	ctx    context.Context //nolint:containedctx // what the racers run under
	delay  time.Duration
	span   CallSpan // nil when the call is not followed

	spans sync.Mutex // serialises what the call's spans are told; taken before mu

	mu      sync.Mutex
	over    bool
	failed  bool // an attempt has ended without an answer
	started bool // the attempt itself runs, since began
	began   time.Duration
	hedges  int            // that were due
	racers  []*racer[A, T] // the attempt itself and its hedges
	running int            // how many of them have not ended
	best    *racer[A, T]   // what the race has come to so far
	room    [2]*racer[A, T]
}

// racer is one attempt of a race.
type racer[A, T any] struct {
	race   *race[A, T]
	hedge  int // 0 for the attempt itself
	s      callState
	b      body[A, T]
	ctx    context.Context //nolint:containedctx // the racer's own
	cancel context.CancelCauseFunc

	reached bool // the function was called; guarded by race.mu
	done    bool // it has ended; likewise
	allowed bool // the hedge policy has allowed this hedge
	v       T
	stripe  uint32
	o       Outcome
	err     error
	crash   *PanicError
	over    bool // the race was over when this one had ended
	ended   sync.WaitGroup
	traced  racingAttempt // guarded by race.spans
}

// compete makes an attempt, with hedges beside it, of a call that is off the fast path.
func compete[A, T any](ctx context.Context, s *callState, b *body[A, T], v *T, delay time.Duration) {
	s.begin()
	before := s.held
	s.held = Handle{}
	r := &race[A, T]{p: s.p, plan: s.plan, call: s.call, number: s.attempts, b: b, ctx: ctx, delay: delay, span: s.span}
	r.racers = r.room[:0]
	r.enter(0)
	s.plan.hedging.Run(r)
	if r.span != nil {
		r.endSpans()
	}
	w := r.best
	if w.crash != nil {
		w.cancel(context.Canceled)
		s.p.stats.at(w.stripe).calls[w.o.Kind].Add(1)
		panic(w.crash) //nolint:forbidigo // the function's panic goes on in its caller
	}
	s.stripe = w.stripe
	s.record(w.o, w.err)
	if w.o.Kind == NotRun {
		s.refunded()
		s.held = before // and its value stays
	} else {
		s.spent()
		*v, s.held = w.v, w.s.held
	}
	if w.s.held.a == nil {
		w.cancel(context.Canceled)
	}
}

// enter adds a racer. It returns nil when there is nothing to win any more.
func (r *race[A, T]) enter(hedge int) *racer[A, T] {
	x := &racer[A, T]{race: r, hedge: hedge}
	x.s = callState{p: r.p, plan: r.plan, racing: true, hedge: hedge}
	x.b = body[A, T]{arg: r.b.arg, attempt: x.run, call: r.call, discard: r.b.discard}
	if r.span != nil {
		x.s.span = racingSpan[A, T]{x}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.failed {
		return nil
	}
	x.ctx, x.cancel = context.WithCancelCause(r.ctx)
	if len(r.plan.foreign) > 0 {
		x.ctx = racerContext{x.ctx, r.ctx}
	}
	r.racers = append(r.racers, x)
	r.running++
	return x
}

// racerContext is the context of a racer below a failsafe-go timeout, whose end reads as
// that of a deadline on the context above only.
type racerContext struct {
	context.Context //nolint:containedctx // this is a context

	above context.Context //nolint:containedctx // likewise
}

func (c racerContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(c.above.Err(), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// Delay implements [engine.Race].
func (r *race[A, T]) Delay() time.Duration { return r.delay }

// Run implements [engine.Race]: it is called once for each racer, on a goroutine of
// failsafe-go's. A function that ended it would leave failsafe-go waiting for ever, so
// it runs on another.
func (r *race[A, T]) Run(hedge bool, gone <-chan struct{}) bool {
	x := r.room[0] // set before the race began
	if hedge {
		x = nil
		if n := r.due(gone); n > 0 {
			x = r.enter(n)
		}
	}
	if x == nil {
		return false
	}
	x.ended.Add(1)
	go x.attempt()
	x.ended.Wait()
	return x.over
}

// due waits until the next hedge is due, counted from when the attempt itself began to
// run: what stands in a queue of ours is not slow. It returns the number of the hedge,
// or 0 when it is not needed any more.
func (r *race[A, T]) due(gone <-chan struct{}) int {
	r.mu.Lock()
	r.hedges++
	n := r.hedges
	r.mu.Unlock()
	for {
		wait := r.remaining(n)
		switch {
		case wait < 0, r.ctx.Err() != nil:
			return 0
		case wait == 0:
			return n
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-gone:
			t.Stop()
			return 0
		}
	}
}

// remaining returns the time until the n-th hedge is due, or until it pays to ask again;
// negative when it never will be.
func (r *race[A, T]) remaining(n int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over, r.failed:
		return -1
	case !r.started:
		return max(r.delay, time.Millisecond)
	default:
		return max(r.began+time.Duration(n)*r.delay-r.p.elapsed(), 0)
	}
}

// attempt makes the attempt of a racer, on a goroutine of its own. Whatever becomes of
// it stays there.
func (x *racer[A, T]) attempt() {
	defer x.ended.Done()
	returned := false
	defer func() {
		if !returned {
			x.crashed(recover())
		}
		x.finish()
	}()
	if x.hedge == 0 || x.ask() {
		if pl := x.s.p.plan.Load(); pl.runner != nil {
			x.v, x.stripe, x.o, x.err = tryPooled(x.ctx, pl, &x.s, x.race.number, &x.b)
		} else {
			x.v, x.stripe, x.o, x.err = try(x.ctx, x.s.p, pl, &x.s, x.race.number, &x.b)
		}
		x.s.p.stats.at(x.stripe).attempt(x.o)
	}
	returned = true
}

// ask asks the hedge policy for the hedge that is due.
func (x *racer[A, T]) ask() bool {
	r := x.race
	now := r.p.clock()
	ran := now.Sub(r.p.base) - r.began // began is set, or it would not be due
	x.allowed = r.plan.hedge.Allow(HedgeState{Now: now, Attempt: r.number, Hedge: x.hedge, Delay: ran, Call: r.call})
	if !x.allowed {
		r.plan.hedgeStats.suppressed.Add(1)
		r.emit(EventSuppressed, ran)
	}
	return x.allowed
}

// run is the function of a racer's attempt: its gates have let it in.
func (x *racer[A, T]) run(ctx context.Context, _ A, a *Attempt) (v T, err error) {
	r := x.race
	r.mu.Lock()
	x.reached = !r.over
	if !r.started {
		r.started, r.began = true, r.p.elapsed()
	}
	ran := r.p.elapsed() - r.began
	reached := x.reached
	r.mu.Unlock()
	if !reached {
		a.SetOutcome(Canceled, 0) // which its context may not say yet
		return v, ErrLost
	}
	if x.hedge > 0 {
		r.plan.hedgeStats.started.Add(1)
		r.emit(EventHedge, ran)
	}
	return r.b.run(ctx, a)
}

// crashed notes what the attempt panicked with; nil when it ended its goroutine, which
// gives the caller an error, as on the worker of a pool.
func (x *racer[A, T]) crashed(v any) {
	x.o = x.s.out // as it was counted
	switch pe, ok := v.(*PanicError); {
	case v == nil:
		x.err = ErrGoexit
	case ok: // of a worker
		x.crash = pe
	default:
		x.crash = &PanicError{Value: v, Stack: debug.Stack()}
	}
}

// finish settles what the end of a racer means for the race.
func (x *racer[A, T]) finish() {
	r := x.race
	if x.s.held.a != nil {
		x.s.held.onEnd(func() { x.cancel(context.Canceled) })
	}
	r.mu.Lock()
	r.running--
	x.done = true
	reached, late := x.reached && x.o.Kind != NotRun, r.over
	lost := x.settleLocked()
	x.over = r.over
	var losers []*racer[A, T]
	if x.over && !late {
		losers = r.racers // which no longer grow
	}
	best, slow := r.best, !r.room[0].done
	ran := r.p.elapsed() - r.began
	r.mu.Unlock()

	for _, l := range losers {
		if l != best {
			l.cancel(ErrLost)
		}
	}
	if late {
		x.cancel(ErrLost)
	}
	// From here on it may be user code that is called, whose panics nobody waits for.
	won := x.over && !late && x == best && x.o.Kind.IsAnswer()
	h := r.plan.hedge
	switch {
	case x.hedge == 0 && !late:
		x.quietly(func() { r.plan.observe(r.p, x.o) })
	case x.allowed && !reached:
		x.quietly(func() { h.Undo(r.p.clock()) })
	case x.allowed:
		x.quietly(h.Done)
	}
	if won && x.hedge > 0 {
		r.plan.hedgeStats.won.Add(1)
		if slow { // and will not be told of, since it is canceled
			x.quietly(func() { h.Observe(r.p.clock(), ran) })
		}
	}
	if x.allowed && x.o.Kind == NotRun && !late {
		r.plan.hedgeStats.refused.Add(1)
	}
	if lost != nil {
		lost.giveUp()
	}
}

// settleLocked takes the end of x into account and returns the racer whose value nobody
// gets because of it, if any. It requires that r.mu is held and x counted as ended.
func (x *racer[A, T]) settleLocked() (lost *racer[A, T]) {
	r := x.race
	switch {
	case r.over:
		return x
	case x.hedge > 0 && !x.allowed && x.crash == nil:
		// It was no attempt.
	case r.best == nil, x.crash != nil, x.o.Kind.IsAnswer(), x.o.Kind != NotRun && !r.best.o.asksMore(x.o):
		lost, r.best = r.best, x
		r.failed = true
	default:
		lost, r.failed = x, true
	}
	r.over = r.best != nil && (r.running == 0 || r.best.crash != nil || r.best.o.Kind.IsAnswer() || r.ctx.Err() != nil)
	return lost
}

// asksMore reports whether an attempt that failed asked to be left alone for longer than
// another one that did.
func (o Outcome) asksMore(other Outcome) bool {
	if o.Pushback < 0 || other.Pushback < 0 {
		return o.Pushback < 0 && other.Pushback >= 0
	}
	return o.Pushback > other.Pushback
}

// giveUp disposes of what a racer that has lost brings.
func (x *racer[A, T]) giveUp() {
	switch {
	case x.err != nil, x.crash != nil, x.o.Kind == NotRun:
	case x.b.discard != nil:
		x.quietly(func() { x.b.discard(x.v) })
	default:
		x.s.held.Release() // nobody else can
	}
	x.v = *new(T) // what follows may be long
}

// quietly calls f, whose panic is counted: there is nobody to tell.
func (x *racer[A, T]) quietly(f func()) {
	defer func() {
		if recover() != nil {
			x.s.p.stats.at(x.stripe).panics.Add(1)
		}
	}()
	f()
}

// emit reports what became of a hedge that was due after the given time.
func (r *race[A, T]) emit(kind EventKind, after time.Duration) {
	if !r.p.watched() && r.span == nil {
		return
	}
	e := Event{
		Kind: kind, Time: time.Now(), Dependency: r.p.name, Policy: r.plan.hedgeStats.name,
		Attempt: r.number, Delay: after,
	}
	r.p.emit(e)
	if r.span != nil {
		r.tell(e)
	}
}
