// Package vtime runs a function on virtual time, outside of tests too.
//
// A program that replays minutes of an incident cannot wait for them. [Run] opens a
// bubble of [synctest]: all goroutines that the function starts see a clock of their
// own, which stands still while any of them works and jumps to the next timer when all
// of them wait. It begins at the same instant each time, midnight UTC 2000-01-01, so
// that a run repeats, as long as no two goroutines wake at one instant: those run in
// random order.
//
// In the bubble no goroutine may wait for something outside of it: no sockets, no
// channels or timers that were made elsewhere. What has goroutines or timers of its own
// (a pipeline with a pool, say) is built in the bubble, and closed before the function
// returns.
//
// Nothing else opens bubbles outside of tests. A test calls [synctest.Test], or what it
// tests calls Run; both work, though not one within the other.
package vtime

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// ErrStuck is returned by [Run] when the bubble cannot go on: every goroutine waits for
// another one, or the function has returned and has left goroutines behind that wait.
// They wait for ever.
var ErrStuck = errors.New("vtime: goroutines are stuck")

// ErrNested is returned by [Run] when it is called from within a bubble.
var ErrNested = errors.New("vtime: already on virtual time")

// ErrRace is returned by [Run] when the race detector found a race.
var ErrRace = errors.New("vtime: race detected")

// PanicError is what [Run] panics with when the function has panicked.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine that panicked
}

// Error says the value and the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("vtime: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap gives the value, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Run calls fn on virtual time, and returns when fn and all goroutines that it started
// have ended. Time stops when fn returns: a goroutine that sleeps by then is stuck.
//
// A panic of fn is raised again in the caller as a [*PanicError], and [runtime.Goexit]
// ends the caller too, so that fn may fail the test that Run is called from. A panic in
// a goroutine that fn started ends the program, as everywhere.
//
// The error is nil, [ErrStuck], [ErrNested] or [ErrRace].
func Run(fn func()) error {
	end := make(chan ending, 1)
	go func() {
		var e ending
		// Deferred, since the bubble ends this goroutine when the race detector found a race.
		defer func() {
			e.bubble = recover()
			end <- e
		}()
		e.exited = true
		// Test needs a T for what fails inside, and only then. Nothing does: fn does not
		// see the T, and its panics stop in guarded. So the empty one is enough, and neither
		// the flags nor the output of the program know of it.
		synctest.Test(new(testing.T), func(*testing.T) { guarded(fn, &e) })
		e.exited = false
	}()
	return (<-end).resume()
}

// Wait returns when every other goroutine of the bubble waits. It is [synctest.Wait].
func Wait() { synctest.Wait() }

// ending is how a bubble ended.
type ending struct {
	panicked *PanicError
	goexit   bool // fn called runtime.Goexit
	exited   bool // the bubble did, although fn did not
	bubble   any  // what the bubble panicked with
}

// guarded calls fn on a goroutine of its own, since nothing stops a Goexit.
func guarded(fn func(), e *ending) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.goexit = true
		defer func() {
			if v := recover(); v != nil {
				e.goexit = false
				e.panicked = &PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		fn()
		e.goexit = false
	}()
	<-done
}

// resume goes on in the caller.
func (e ending) resume() error {
	switch stuck, isError := e.bubble.(error); {
	case e.panicked != nil:
		panic(e.panicked) //nolint:forbidigo // raised by fn, and only carried on
	case e.goexit && e.bubble == nil:
		runtime.Goexit()
		return nil
	case isError:
		return fmt.Errorf("%w: %w", ErrStuck, stuck)
	case e.bubble != nil: // a string
		return ErrNested
	case e.exited:
		return ErrRace
	}
	return nil
}
