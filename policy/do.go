package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// Do calls fn through p: its gates decide whether it runs, its retry policy whether
// it runs again, its fallback what the caller gets when it failed.
//
// The error is nil, a [*RejectedError] when a policy refused the call, the error of
// fn itself, a [*GaveUpError] around it when something other than the number of
// attempts ended the call, or the context's error when ctx was done before fn ran.
// Do blocks as long as fn does, plus waits that the policies are configured for; all
// waits end with ctx. A nil p calls fn directly.
//
// A closure that captures variables costs its caller one allocation; [DoWith] costs
// none.
func Do[T any](ctx context.Context, p *Pipeline, fn func(context.Context) (T, error)) (T, error) {
	v, _, err := do(ctx, p, body[struct{}, T]{plain: fn})
	return v, err
}

// Run is [Do] for a function that returns nothing but an error.
func Run(ctx context.Context, p *Pipeline, fn func(context.Context) error) error {
	_, _, err := do(ctx, p, body[func(context.Context) error, struct{}]{arg: fn, fn: runError})
	return err
}

func runError(ctx context.Context, fn func(context.Context) error) (struct{}, error) {
	return struct{}{}, fn(ctx)
}

// DoWith is [Do] for a function that gets what it needs as an argument. With a
// function that captures nothing, a call that succeeds at once allocates nothing.
func DoWith[A, T any](ctx context.Context, p *Pipeline, arg A, fn func(context.Context, A) (T, error)) (T, error) {
	v, _, err := do(ctx, p, body[A, T]{arg: arg, fn: fn})
	return v, err
}

// DoAttempt is [DoWith] for adapters: fn is also given the attempt, which it may
// classify ([Attempt.SetOutcome]) and keep ([Attempt.Hold]). What the context says
// about the call is replaced by c where c is not nil.
//
// discard, if not nil, is called once for each value that came with a nil error and
// that the caller will not get: when another attempt has been decided on, before any
// sleep, when a fallback answers instead, and, on the worker of a [Runner], when the
// caller has left before it came. A value that was discarded is gone: if
// no later attempt runs, the caller gets an [*AnswerError] in its place.
func DoAttempt[A, T any](ctx context.Context, p *Pipeline, c *Call, arg A, fn func(context.Context, A, *Attempt) (T, error), discard func(T)) (T, error) {
	v, _, err := do(ctx, p, body[A, T]{arg: arg, attempt: fn, call: c, discard: discard})
	return v, err
}

// body is what a call runs.
type body[A, T any] struct {
	arg     A
	fn      func(context.Context, A) (T, error)
	plain   func(context.Context) (T, error)              // in place of fn
	attempt func(context.Context, A, *Attempt) (T, error) // in place of fn
	discard func(T)
	call    *Call         // nil for what the context says
	calls   CallWatcher   // of the plan under which the call began; nil for nearly all
	typed   *Typed[T]     // nil for an untyped call
	took    time.Duration // of a first attempt, on the fast path, that waited or did not succeed
}

func (b *body[A, T]) run(ctx context.Context, a *Attempt) (v T, err error) {
	switch {
	case b.fn != nil:
		v, err = b.fn(ctx, b.arg)
	case b.plain != nil:
		v, err = b.plain(ctx)
	default:
		return b.attempt(ctx, b.arg, a)
	}
	if a != nil && b.typed != nil && b.typed.classify != nil && (err == nil || !errors.Is(ctx.Err(), context.Canceled)) {
		a.stage = stageJudging
		if k := b.typed.classify(v, err); k != NotRun {
			a.SetOutcome(k, pushbackOf(err))
		}
	}
	return v, err
}

// do runs a call. Its own code is the path of a call that succeeds at once; all else
// is handed on.
func do[A, T any](ctx context.Context, p *Pipeline, b body[A, T]) (T, *degraded, error) {
	if p == nil {
		return doBare(ctx, b)
	}
	pl := p.plan.Load()
	if pl.calls != nil {
		b.calls = pl.calls
		ctx = b.calls.Begin(ctx)
	}
	if p.tracer != nil {
		if tctx, span := p.startCall(ctx); span != nil {
			return doFull(tctx, p, pl, span, b)
		}
	}
	if pl.full || (pl.hedge != nil && pl.hedgeable(callOr(ctx, b.call))) {
		return doFull(ctx, p, pl, nil, b)
	}
	v, stripe, o, err := try(ctx, p, pl, nil, 1, &b)
	st := p.stats.at(stripe)
	if o.Kind == Success {
		if b.took == 0 {
			st.direct.Record(o.Duration)
		} else {
			st.attempt(o)
			st.call(Success, b.took)
		}
		if b.calls != nil {
			b.calls.End(ctx, Success)
		}
		return v, nil, err
	}
	st.attempt(o)
	if pl.recovery == nil && len(pl.fallbacks)+len(pl.mappers) == 0 && (b.typed == nil || len(b.typed.fallbacks) == 0) {
		st.call(o.Kind, b.took)
		if b.calls != nil {
			b.calls.End(ctx, o.Kind)
		}
		return v, nil, err
	}
	return doFailed(ctx, p, pl, stripe, b, v, o, err)
}

// doFailed goes on after a first attempt that did not succeed.
func doFailed[A, T any](ctx context.Context, p *Pipeline, pl *plan, stripe uint32, b body[A, T], v T, o Outcome, err error) (T, *degraded, error) {
	s := newCallState(ctx, p, pl, nil, b.call)
	s.started = s.started.Add(-b.took)
	s.attempts, s.stripe = 1, stripe
	s.record(o, err)
	ended := false
	defer func() {
		if !ended {
			abort(s, &b, v)
		}
	}()
	if s.plan.recovery != nil && s.again() {
		ended = true
		return doAgain(s, b, v)
	}
	// A call that is not tried again costs no executor and no closures: while a
	// breaker is open, every call is one.
	rv, deg, err := finish(s, &b, v)
	ended = true
	s.recycle()
	return rv, deg, err
}

// doAgain makes further attempts after a first one; the next is decided on.
func doAgain[A, T any](s *callState, b body[A, T], v T) (T, *degraded, error) {
	ended := false
	defer func() {
		if !ended {
			abort(s, &b, v)
		}
	}()
	b.watchDiscard(s, &v)
	s.giveUpValue()
	s.recover(func(ctx context.Context) { step(ctx, s, &b, &v) })
	rv, deg, err := finish(s, &b, v)
	ended = true
	s.recycle()
	return rv, deg, err
}

// doFull runs a call that is bounded, followed by a tracer, may be hedged, or passes
// through failsafe-go policies.
func doFull[A, T any](ctx context.Context, p *Pipeline, pl *plan, span CallSpan, b body[A, T]) (rv T, deg *degraded, err error) {
	s := newCallState(ctx, p, pl, span, b.call)
	defer s.end(&deg, &err)
	var v T
	ended := false
	defer func() {
		if !ended {
			abort(s, &b, v)
		}
	}()
	b.watchDiscard(s, &v)
	next := func(ctx context.Context) { attempt(ctx, s, &b, &v) }
	if len(s.plan.foreign) > 0 {
		out, ok := s.compose(next, func() any { return v })
		if ok {
			got, err := as[T](out)
			if err != nil {
				s.giveUpValue()
				s.out, s.err = Outcome{Kind: Failure}, err
			}
			v = got
		}
	} else {
		next(s.ctx)
		if s.plan.recovery != nil && s.out.Kind != Success && s.again() {
			s.giveUpValue()
			s.recover(next)
		}
	}
	rv, deg, err = finish(s, &b, v)
	ended = true
	return rv, deg, err
}

// abort ends a call that does not return: a panic or [runtime.Goexit], in an attempt
// or in something else that the call asks. Nobody gets its value, and a retry that was
// decided on does not happen.
func abort[A, T any](s *callState, b *body[A, T], v T) {
	s.out = Outcome{}
	if s.scheduled {
		s.scheduled = false
		s.plan.retry.Undo(s.p.clock())
	}
	s.spent()
	s.over()
	giveUp(s, b, v)
}

// watchDiscard lets the call give up the value it holds.
func (b *body[A, T]) watchDiscard(s *callState, v *T) {
	if b.discard == nil {
		return
	}
	discard := b.discard
	s.discard = func() {
		old := *v
		*v = *new(T)
		discard(old)
	}
}

// step makes an attempt of a call that is off the fast path. The value of the last
// attempt that ran is kept.
func step[A, T any](ctx context.Context, s *callState, b *body[A, T], v *T) {
	s.begin()
	before := s.held
	s.held = Handle{}
	var (
		got    T
		stripe uint32
		o      Outcome
		err    error
	)
	// The plan as it is now: an update counts from the next attempt on.
	if pl := s.p.plan.Load(); pl.runner != nil {
		got, stripe, o, err = tryPooled(ctx, pl, s, s.attempts, b)
	} else {
		got, stripe, o, err = try(ctx, s.p, pl, s, s.attempts, b)
	}
	s.stripe = stripe
	s.p.stats.at(stripe).attempt(o)
	s.record(o, err)
	if o.Kind == NotRun {
		s.refunded()
		s.held = before // and its value stays
	} else {
		s.spent()
		*v = got
	}
}

// finish makes the call's result and notes how long that took.
func finish[A, T any](s *callState, b *body[A, T], v T) (T, *degraded, error) {
	rv, deg, err := conclude(s, b, v)
	if s.out.Kind != NotRun {
		s.p.stats.at(s.stripe).callTime.Record(s.p.clock().Sub(s.started))
	}
	return rv, deg, err
}

// conclude makes the call's result, with the help of a fallback if it needs one.
func conclude[A, T any](s *callState, b *body[A, T], v T) (T, *degraded, error) {
	err := s.result()
	s.p.stats.at(s.stripe).calls[s.out.Kind].Add(1)
	s.over()
	if s.out.Kind == Success {
		return v, nil, err
	}
	s.tellHop()
	f := s.failure(err)
	if b.typed != nil {
		for i := range b.typed.fallbacks {
			fb := &b.typed.fallbacks[i]
			if (f.Canceled && !fb.afterCancel) || !fb.fb.Handles(f) {
				continue
			}
			ans, refused, ferr := answer(s, fb.fb, &fb.fallbackHead, f)
			s.answered(&fb.fallbackHead, refused, ferr)
			if ferr == nil {
				giveUp(s, b, v)
				return ans.Value, &degraded{cause: f.Err, age: ans.Age}, nil
			}
			err = unanswered(f, err, ferr)
		}
	}
	for i := range s.plan.fallbacks {
		fb := &s.plan.fallbacks[i]
		if (f.Canceled && !fb.afterCancel) || !fb.fb.Handles(f) {
			continue
		}
		ans, refused, ferr := answer(s, fb.fb, &fb.fallbackHead, f)
		var val T
		if ferr == nil {
			if val, ferr = as[T](ans.Value); ferr != nil {
				ferr = fmt.Errorf("%s.%s: %w", s.p.name, fb.name, ferr)
			}
		}
		s.answered(&fb.fallbackHead, refused, ferr)
		if ferr == nil {
			giveUp(s, b, v)
			return val, &degraded{cause: f.Err, age: ans.Age}, nil
		}
		err = unanswered(f, err, ferr)
	}
	return v, nil, s.mapped(f, err)
}

// giveUp disposes of the value that the caller does not get.
func giveUp[A, T any](s *callState, b *body[A, T], v T) {
	if b.discard != nil && s.valued && !s.discarded {
		s.discarded = true
		b.discard(v)
	}
}

// as converts a value that lost its type. Nothing is a value where T has a nil.
func as[T any](v any) (T, error) {
	if d, ok := v.(Decodable); ok {
		return decoded[T](d)
	}
	t, ok := v.(T)
	if ok {
		return t, nil
	}
	want := reflect.TypeFor[T]()
	if v == nil {
		switch want.Kind() {
		case reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice, reflect.UnsafePointer:
			return t, nil
		default:
		}
	}
	return t, fmt.Errorf("answered with type %T, where the call returns type %s", v, want)
}

// decoded lets a value take the type of the call.
func decoded[T any](d Decodable) (T, error) {
	var t T
	err := d.DecodeAnswer(&t)
	return t, err
}

// degraded says what a fallback answered for.
type degraded struct {
	cause error
	age   time.Duration
}

// doBare runs a call without a pipeline.
func doBare[A, T any](ctx context.Context, b body[A, T]) (T, *degraded, error) {
	if b.attempt == nil {
		v, err := b.run(ctx, nil)
		return v, nil, err
	}
	// An adapter's function wants an attempt: it gets one of a pipeline that has
	// no policies.
	p := &Pipeline{base: time.Now(), stats: &stats{stripes: make([]stripe, 1)}}
	p.plan.Store(&plan{})
	return do(ctx, p, b)
}

// try makes one attempt; s is nil on the fast path. It returns the stripe to count
// on.
//
// There is no recover: a panic of the function passes with its own stack, and the
// deferred function, which also runs on [runtime.Goexit], only gives back what the
// attempt holds.
func try[A, T any](ctx context.Context, p *Pipeline, pl *plan, s *callState, number int, b *body[A, T]) (v T, stripe uint32, o Outcome, err error) {
	if err = contextError(ctx); err != nil {
		return v, 0, Outcome{}, err
	}
	var span AttemptSpan
	if s != nil && s.span != nil {
		ctx, span = startAttempt(ctx, s.span, number)
	}
	a := p.newAttempt(ctx, pl, number, b.call)
	stripe = a.stripe
	if s != nil && s.racing {
		a.race(s.hedge)
	}
	returned := false
	defer func() {
		if !returned {
			o := a.unwind(span)
			switch {
			case s != nil:
				s.out = o
			case b.calls != nil:
				b.calls.End(ctx, NotRun)
			}
		}
	}()
	err = a.admit()
	if span != nil {
		tellAdmission(span, Admission{Waited: a.waited, Probe: a.probe})
	}
	if err == nil {
		v, err = b.run(a.ctx, a)
		if err == nil && !a.preset && !a.held {
			// What judge and settle come to for a plain success, without the calls:
			// some 4 % of the path of nearly every call.
			a.stage = stageJudging
			a.now = p.elapsed()
			o = Outcome{Kind: Success, Duration: max(a.now-a.start, 0)}
			a.leave(o, ^uint32(0))
			if a.discarded {
				a.tellDiscarded(o)
			}
		} else {
			o = a.judge(err)
			a.settle(o)
		}
	}
	returned = true
	if s == nil && (o.Kind != Success || a.waited != 0) {
		b.took = a.took()
	}
	if span != nil {
		endAttempt(span, o, err)
	}
	if a.held {
		a.handOver(s)
	} else {
		a.recycle()
	}
	return v, stripe, o, err
}
