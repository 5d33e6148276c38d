package fallback

import (
	"context"
	"errors"
	"reflect"

	"github.com/breakwater-go/breakwater/policy"
)

// kind is the kind of policy, and the default of every instance name.
const kind = "fallback"

var (
	_ policy.Fallback[int] = Config[int]{}
	_ policy.Fallback[any] = untyped[int]{}
)

// Value returns a fallback that answers every failure that [Handles] reports with v.
// All callers get the same v: if it is a pointer, a map or a slice, they share what
// it refers to and must not change it.
func Value[T any](v T) policy.Fallback[T] { return Config[T]{Value: v} }

// Func returns a fallback that answers every failure that [Handles] reports with what
// fn returns; see [Config]. A nil fn is a [*policy.ConfigError], reported by the
// pipeline, or typed handle, that the fallback is handed to.
func Func[T any](fn func(ctx context.Context, f policy.FailedCall) (T, error)) policy.Fallback[T] {
	return Config[T]{Func: fn, wantFunc: true}
}

// Handles reports whether a fallback answers for f by default: when the call was
// refused, failed, timed out, or found the dependency busy or over a limit. It does
// not for a permanent error, nor for a call that was canceled. A When function can
// start from it.
func Handles(f policy.FailedCall) bool {
	switch f.Outcome.Kind {
	case policy.NotRun, policy.Failure, policy.Timeout, policy.Busy, policy.Throttled:
		return true
	default:
		return false
	}
}

// Config configures a fallback. The zero value is valid, and answers with the zero
// value of T. It has no state of its own, so it is also the live form: it can be
// handed to any number of pipelines as it is.
type Config[T any] struct {
	// Name is the instance name: the policy label of metrics and events, unique
	// within a pipeline. Empty means "fallback".
	Name string

	// Value is the answer where Func is nil. All callers share it.
	Value T

	// Func makes the answer, in place of Value. It runs on the goroutine of the
	// call and may run concurrently. ctx is the caller's, without the pipeline's
	// total timeout; its own deadline may have passed. Its error is joined with
	// that of the call, and another fallback of the pipeline may then answer. A
	// panic passes through to the caller. Nil means that Value is the answer.
	Func func(ctx context.Context, f policy.FailedCall) (T, error)

	// When says whether the fallback answers for f. It is never asked when the
	// caller has given up. It runs on the goroutine of the call and may run
	// concurrently. Nil means [Handles].
	When func(f policy.FailedCall) bool

	wantFunc bool // made by Func: a nil one is a fault
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Config[T]) Validate() error {
	var errs []error
	fault := func(field, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: field, Want: want})
	}
	switch {
	case c.wantFunc && c.Func == nil:
		fault("Func", "want a function, not nil")
	case c.Func != nil && !reflect.ValueOf(&c.Value).Elem().IsZero():
		fault("Value", "want no Value beside a Func, which makes the answer")
	}
	return errors.Join(errs...)
}

// BuildPolicy returns a part for calls of any type.
func (c Config[T]) BuildPolicy() (policy.Part, error) {
	part := policy.Part{Kind: kind, Name: c.Name}
	if err := c.Validate(); err != nil {
		return part, err
	}
	part.Fallback = untyped[T]{c}
	return part, nil
}

// Handles reports whether the fallback answers for f.
func (c Config[T]) Handles(f policy.FailedCall) bool {
	if c.When == nil {
		return Handles(f)
	}
	return c.When(f)
}

// Answer returns the value to use, or the error of Func; of a Func that is nil, made by
// [Func], the error of [Config.Validate].
func (c Config[T]) Answer(ctx context.Context, f policy.FailedCall) (policy.Answer[T], error) {
	if c.Func == nil {
		if c.wantFunc {
			return policy.Answer[T]{}, c.Validate()
		}
		return policy.Answer[T]{Value: c.Value}, nil
	}
	v, err := c.Func(ctx, f)
	if err != nil {
		return policy.Answer[T]{}, err
	}
	return policy.Answer[T]{Value: v}, nil
}

// untyped is a fallback whose value lost its type on the way.
type untyped[T any] struct{ Config[T] }

func (u untyped[T]) Answer(ctx context.Context, f policy.FailedCall) (policy.Answer[any], error) {
	a, err := u.Config.Answer(ctx, f)
	if err != nil {
		return policy.Answer[any]{}, err
	}
	return policy.Answer[any]{Value: a.Value, Age: a.Age}, nil
}
