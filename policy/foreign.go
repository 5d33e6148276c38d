package policy

import (
	"context"
	"reflect"

	"github.com/failsafe-go/failsafe-go"

	"github.com/breakwater-go/breakwater/internal/engine"
)

// compose runs a call of a pipeline that holds failsafe-go policies: they see every
// attempt, the first one too, and the call's own values, so the executor is put
// together for the call. value returns the value of the last attempt. compose returns
// the value they settled on, and whether there is one.
func (s *callState) compose(next func(context.Context), value func() any) (any, bool) {
	var policies []failsafe.Policy[any]
	if s.plan.retry != nil {
		policies = append(policies, retryPolicy(
			func(v any, err error) *callState { s.takeOver(v, value, err); return s },
			func(failsafe.ExecutionAttempt[any]) *callState { return s },
		))
	}
	for _, f := range s.plan.foreign {
		policies = append(policies, f.Policy)
	}
	v, err := failsafe.With(policies...).WithContext(s.ctx).GetWithExecution(func(e failsafe.Execution[any]) (any, error) {
		if s.fresh {
			s.giveUpValue() // one of them wants another attempt
		}
		next(engine.Context(e))
		if s.fresh && s.held.a != nil {
			s.held.onEnd(engine.Keep(e))
		}
		return value(), s.err
	})
	switch {
	case err == nil || s.ctx.Err() == nil:
		s.takeOver(v, value, err)
	case s.attempts == 0:
		s.err = contextError(s.ctx)
	default: // the executor's error says less than the state
	}
	s.interrupted()
	return v, err == nil
}

// takeOver takes over what the failsafe-go policies made of a round. Asked again about
// the same round it changes nothing.
func (s *callState) takeOver(v any, value func() any, err error) {
	if s.taken {
		return
	}
	s.taken = true
	own := s.fresh && sameError(err, s.err)
	switch {
	case own && (err != nil || sameValue(v, value())):
		// the attempt's own result
	case err == nil: // a value in place of an attempt's result, or of an attempt
		s.giveUpValue()
		s.out, s.err = Outcome{Kind: Success}, nil
	case s.fresh: // an error in place of an attempt's result
		s.giveUpValue()
		o := s.plan.classify(s.ctx, err)
		if o.Kind != NotRun && s.out.Kind != NotRun {
			o.Duration = s.out.Duration
			s.lastOut, s.lastErr = o, err
		}
		s.out, s.err = o, err
	default: // a refusal
		s.begin()
		s.refunded()
		s.p.stats.at(s.stripe).attempt(Outcome{})
		s.out, s.err = Outcome{}, err
	}
}

// sameError compares two errors, also those of types that do not compare.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if va, vb := reflect.ValueOf(a), reflect.ValueOf(b); !va.Comparable() || !vb.Comparable() {
		return va.Type() == vb.Type()
	}
	return a == b //nolint:errorlint // identity is what is asked
}

// sameValue compares two values, as far as they can be told apart.
func sameValue(a, b any) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if !va.IsValid() || !vb.IsValid() || va.Type() != vb.Type() {
		return va.IsValid() == vb.IsValid() && !va.IsValid()
	}
	switch {
	case va.Comparable() && vb.Comparable():
		return a == b || (a != a && b != b) //nolint:gocritic // not a number is not itself
	case va.Kind() == reflect.Slice, va.Kind() == reflect.Map, va.Kind() == reflect.Func:
		return va.UnsafePointer() == vb.UnsafePointer()
	default:
		return true
	}
}
