package policy

import (
	"context"
	"errors"
	"time"
)

// Typed is a pipeline seen by calls of one type: it may have a fallback and a
// classification of its own, which see the value. It shares everything else with
// the pipeline. It is safe for concurrent use.
type Typed[T any] struct {
	p         *Pipeline
	fallbacks []typedFallback[T]
	classify  func(v T, err error) Kind
	err       error
}

type typedFallback[T any] struct {
	fallbackHead // its counts are the pipeline's

	fb Fallback[T]
}

// For returns a handle on p for calls that return a T, with fallbacks that are asked
// in order, before the pipeline's own. An invalid fallback is reported by
// [Typed.Err], and by every call that needs it. One that has a method Fallbacks,
// returning a list of its type, stands for those: they are asked in its place.
func For[T any](p *Pipeline, fallbacks ...Fallback[T]) *Typed[T] {
	fallbacks = flattened(fallbacks)
	t := &Typed[T]{p: p, fallbacks: make([]typedFallback[T], len(fallbacks))}
	var errs []error
	for i, fb := range fallbacks {
		part, faults := partOf(p, fb)
		head := fallbackHead{name: part.Name, counts: new(fallbackCounts)}
		if len(faults) == 0 {
			var err error
			if head, err = p.adopt(fb, part); err != nil {
				faults = append(faults, err)
			}
		}
		if len(faults) > 0 {
			fb = invalidFallback[T]{fb, errors.Join(faults...)}
		}
		t.fallbacks[i] = typedFallback[T]{head, fb}
		errs = append(errs, faults...)
	}
	t.err = errors.Join(errs...)
	return t
}

// partOf asks a fallback for its part, and returns all that is wrong with it.
func partOf(p *Pipeline, fb Policy) (Part, []error) {
	if what := isNil(fb); what != "" {
		return Part{Name: "fallback"}, []error{&ConfigError{Dependency: p.Name(), Field: "fallbacks", Want: "a nil " + what + " is in the list"}}
	}
	part, err := fb.BuildPolicy()
	if part.Name == "" {
		part.Name = part.Kind
	}
	faults := inPipeline(err, p.Name(), part.Name)
	if err == nil && !isLabel(part.Name) {
		faults = append(faults, badName(p.Name(), part))
	}
	return part, faults
}

// invalidFallback answers every call that needs it with what is wrong with it.
type invalidFallback[T any] struct {
	Fallback[T] // may be nil

	err error
}

func (f invalidFallback[T]) BuildPolicy() (Part, error) {
	if isNil(f.Fallback) != "" {
		return Part{Name: "fallback"}, f.err
	}
	part, _ := f.Fallback.BuildPolicy()
	return part, f.err
}

func (f invalidFallback[T]) Handles(c FailedCall) bool {
	return isNil(f.Fallback) != "" || f.Fallback.Handles(c)
}

func (f invalidFallback[T]) Answer(context.Context, FailedCall) (Answer[T], error) {
	return Answer[T]{}, f.err
}

// Classify returns a copy of the handle that judges each value and error with f
// before the pipeline's classification does; [NotRun] leaves it to that. It is not
// asked about an error of a call whose caller has given up. A value
// that is classified as anything but [Success] is retried like an error, and is what
// the caller gets, with a nil error, when no attempt does better.
func (t *Typed[T]) Classify(f func(v T, err error) Kind) *Typed[T] {
	c := For(t.p, fallbacksOf(t)...)
	c.classify = f
	return c
}

func fallbacksOf[T any](t *Typed[T]) []Fallback[T] {
	fbs := make([]Fallback[T], len(t.fallbacks))
	for i := range t.fallbacks {
		fbs[i] = t.fallbacks[i].fb
	}
	return fbs
}

// Err reports the invalid settings of the handle's fallbacks, joined.
func (t *Typed[T]) Err() error { return t.err }

// Pipeline returns the pipeline behind the handle.
func (t *Typed[T]) Pipeline() *Pipeline { return t.p }

// Result is a value and where it comes from.
type Result[T any] struct {
	Value T

	// Degraded says that a fallback answered, Cause for which error, and Age how
	// old its value is.
	Degraded bool
	Cause    error
	Age      time.Duration
}

// Do is [Do] through the handle.
func (t *Typed[T]) Do(ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	v, _, err := do(ctx, t.p, body[struct{}, T]{plain: fn, typed: t})
	return v, err
}

// DoResult is Do that also says whether the value is a fallback's.
func (t *Typed[T]) DoResult(ctx context.Context, fn func(context.Context) (T, error)) (Result[T], error) {
	v, deg, err := do(ctx, t.p, body[struct{}, T]{plain: fn, typed: t})
	r := Result[T]{Value: v}
	if deg != nil {
		r.Degraded, r.Cause, r.Age = true, deg.cause, deg.age
	}
	return r, err
}

// DoResult is [Do] that also says whether the value is a fallback's.
func DoResult[T any](ctx context.Context, p *Pipeline, fn func(context.Context) (T, error)) (Result[T], error) {
	return For[T](p).DoResult(ctx, fn)
}
