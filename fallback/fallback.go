package fallback

import (
	"context"
	"errors"
	"reflect"
	"time"

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
// not for a permanent error, nor for a call whose caller has given up. A When function
// can start from it.
func Handles(f policy.FailedCall) bool { return !f.Canceled && couldNotAnswer(f.Outcome.Kind) }

// couldNotAnswer reports whether the kind says that the dependency has given no answer.
func couldNotAnswer(k policy.Kind) bool {
	switch k {
	case policy.NotRun, policy.Failure, policy.Timeout, policy.Busy, policy.Throttled:
		return true
	default:
		return false
	}
}

// handles is what When and AfterCancel come to.
func handles(f policy.FailedCall, when func(policy.FailedCall) bool, afterCancel bool) bool {
	switch {
	case f.Canceled && !afterCancel:
		return false
	case when != nil:
		return when(f)
	default:
		return couldNotAnswer(f.Outcome.Kind) || f.Outcome.Kind == policy.Canceled && f.Canceled
	}
}

// Config configures a fallback. The zero value is valid, and answers with the zero
// value of T. It has no state but that of its Gate, so it is also the live form: it can
// be handed to any number of pipelines as it is.
type Config[T any] struct {
	// Name is the instance name: the policy label of metrics and events, unique
	// within a pipeline. Empty means "fallback".
	Name string

	// Value is the answer where Func is nil. All callers share it.
	Value T

	// Func makes the answer, in place of Value. It runs on the goroutine of the
	// call and may run concurrently. ctx is the caller's, without the pipeline's
	// total timeout; its own deadline may have passed; see also Timeout. Its error is joined with
	// that of the call, and another fallback of the pipeline may then answer. A
	// panic passes through to the caller. Nil means that Value is the answer.
	Func func(ctx context.Context, f policy.FailedCall) (T, error)

	// When says whether the fallback answers for f. It is never asked when the
	// caller has given up, unless AfterCancel is set. It runs on the goroutine of the
	// call and may run concurrently. Nil means [Handles], and with AfterCancel also the
	// calls whose callers have given up.
	When func(f policy.FailedCall) bool

	// Gate admits the answers: a bulkhead of its own for a Func that is expensive, such
	// as one made with bulkhead.New. It is a live object, so that everything that uses
	// this Config shares its permits. An answer that it refuses is counted as rejected,
	// not as failed, and the next fallback is asked. Nil lets everything in.
	Gate policy.Gate

	// AfterCancel makes the fallback answer also when the caller has given up: work that
	// must be done although nobody waits for the answer. Func then gets a context that
	// has the values of the caller's and does not end but by Timeout.
	AfterCancel bool

	// Timeout bounds Func. Zero is no bound but the caller's own deadline.
	Timeout time.Duration

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
	if c.Timeout < 0 {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Timeout", Value: c.Timeout, Want: "at least 0 (0 is no bound)"})
	}
	if c.Gate != nil && isNilPointer(c.Gate) {
		fault("Gate", "want a gate, not a nil pointer to one")
	}
	return errors.Join(errs...)
}

// BuildPolicy returns a part for calls of any type.
func (c Config[T]) BuildPolicy() (policy.Part, error) {
	part := policy.Part{Kind: kind, Name: c.Name, Guard: c.Gate, AfterCancel: c.AfterCancel}
	if err := c.Validate(); err != nil {
		return part, err
	}
	part.Fallback = untyped[T]{c}
	if c.AfterCancel && c.Func != nil && c.Timeout == 0 {
		part.Warnings = append(part.Warnings, "AfterCancel without a Timeout: nothing ends the Func of a caller who has given up")
	}
	return part, nil
}

// Handles reports whether the fallback answers for f.
func (c Config[T]) Handles(f policy.FailedCall) bool {
	return handles(f, c.When, c.AfterCancel)
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
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	v, err := c.Func(ctx, f)
	if err != nil {
		return policy.Answer[T]{}, err
	}
	return policy.Answer[T]{Value: v}, nil
}

func isNilPointer(v any) bool {
	rv := reflect.ValueOf(v)
	return rv.Kind() == reflect.Pointer && rv.IsNil()
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
