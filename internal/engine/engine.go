// Package engine keeps failsafe-go out of public signatures: a pipeline carries
// failsafe-go's policies in the types of this package, which only the module itself
// can name. It also hides where failsafe-go and this module see things differently.
package engine

import (
	"context"
	"errors"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/common"
	"github.com/failsafe-go/failsafe-go/timeout"
)

// Foreign is a failsafe-go policy that stands in a pipeline.
type Foreign struct {
	Policy failsafe.Policy[any]
}

// IsTimeout reports whether err says that a timeout policy of failsafe-go has ended an
// execution.
func IsTimeout(err error) bool { return errors.Is(err, timeout.ErrExceeded) }

// internal is the part of failsafe-go's policy.ExecutionInternal that is needed here.
type internal[R any] interface {
	IsCanceledWithResult() (bool, *common.PolicyResult[R])
	DeferCancel() func()
}

// Context returns the context of an execution. Where a timeout policy has ended it, its
// error is [context.DeadlineExceeded], as that of any other deadline; failsafe-go
// itself cancels it.
func Context[R any](e failsafe.Execution[R]) context.Context {
	if i, ok := e.(internal[R]); ok {
		return executionContext[R]{e.Context(), i}
	}
	return e.Context()
}

type executionContext[R any] struct {
	context.Context //nolint:containedctx // this is a context

	exec internal[R]
}

func (c executionContext[R]) Err() error {
	err := c.Context.Err()
	if errors.Is(err, context.Canceled) {
		if _, res := c.exec.IsCanceledWithResult(); res != nil && IsTimeout(res.Error) {
			return context.DeadlineExceeded
		}
	}
	return err
}

// Keep keeps the context of an execution from being ended when the execution is: it
// ends when end is called.
func Keep[R any](e failsafe.Execution[R]) (end func()) {
	if i, ok := e.(internal[R]); ok {
		return i.DeferCancel()
	}
	return func() {}
}
