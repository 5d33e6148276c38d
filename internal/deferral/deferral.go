// Package deferral is what the workers of deferred tasks have in common: running a handler,
// and judging what is to become of the task.
package deferral

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
)

// ErrUnknownKind reports a task for whose kind there is no handler.
var ErrUnknownKind = errors.New("no handler for the kind of the task")

// ErrTooOften reports a task whose workers have died with it as often as is allowed.
var ErrTooOften = errors.New("the task was begun as often as is allowed, and its workers have not ended it")

// Verdict is what is to become of a task.
type Verdict uint8

// The verdicts.
const (
	Done      Verdict = iota // forget it
	Again                    // another attempt, which counts
	Postponed                // another attempt, as if this had not been
	Dead                     // to the dead letters
)

// Runner runs handlers and counts what comes of it.
type Runner struct {
	Handlers    map[string]fallback.Handler
	MaxAttempts int
	Timeout     time.Duration // of one attempt

	running                       atomic.Int64
	done, failed, postponed, dead atomic.Uint64
}

// Run makes an attempt of d, whose Last it sets. The context ends when the worker stops.
func (r *Runner) Run(ctx context.Context, d fallback.Delivery) (Verdict, error) {
	d.Last = d.Attempt >= r.MaxAttempts
	v, err := r.run(ctx, d)
	switch v {
	case Done:
		r.done.Add(1)
	case Again:
		r.failed.Add(1)
	case Postponed:
		r.postponed.Add(1)
	case Dead:
		r.dead.Add(1)
	}
	return v, err
}

func (r *Runner) run(ctx context.Context, d fallback.Delivery) (Verdict, error) {
	if d.Attempt > r.MaxAttempts {
		return Dead, ErrTooOften
	}
	h := r.Handlers[d.Kind]
	err := ErrUnknownKind
	if h != nil {
		hctx, cancel := context.WithTimeout(ctx, r.Timeout)
		err = r.call(hctx, h, d)
		cancel()
	}
	if err == nil {
		return Done, nil
	}
	kind := policy.Classify(ctx, err).Kind
	switch {
	case kind == policy.Permanent:
		return Dead, err
	case kind == policy.NotRun, ctx.Err() != nil:
		return Postponed, err
	case d.Last:
		return Dead, err
	default:
		return Again, err
	}
}

// call runs the handler. A panic, and the end of the goroutine, are errors: the worker goes
// on.
func (r *Runner) call(ctx context.Context, h fallback.Handler, d fallback.Delivery) (err error) {
	r.running.Add(1)
	ended := make(chan struct{})
	go func() { // a goroutine of its own, which Goexit may end
		defer close(ended)
		returned := false
		defer func() {
			r.running.Add(-1)
			if returned {
				return
			}
			err = policy.ErrGoexit
			if v := recover(); v != nil {
				err = &policy.PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		err = h(ctx, d)
		returned = true
	}()
	<-ended
	return err
}

// Snapshot returns the counters.
func (r *Runner) Snapshot() fallback.WorkerSnapshot {
	return fallback.WorkerSnapshot{
		Running: int(r.running.Load()), Done: r.done.Load(), Failed: r.failed.Load(),
		Postponed: r.postponed.Load(), Dead: r.dead.Load(),
	}
}

// Delay returns the time before attempt n+1: least times 2 to the n-1, up to most, of which
// chance takes off up to half; and not before a refusal in err says that it is of use, which
// is bounded by most, too.
func Delay(n int, err error, least, most time.Duration) time.Duration {
	d := least
	for range n - 1 {
		if d >= most/2 {
			d = most
			break
		}
		d *= 2
	}
	d = min(d, most)
	d -= time.Duration(rand.Float64() * float64(d) / 2) //nolint:gosec // nothing is secret about it
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		d = max(d, min(re.RetryAfter, most))
	}
	return d
}

// CheckHandlers returns what is wrong with the handlers of a worker.
func CheckHandlers(pkg string, handlers map[string]fallback.Handler) error {
	if len(handlers) == 0 {
		return &policy.ConfigError{Policy: pkg, Field: "Handlers", Want: "want at least one"}
	}
	var errs []error
	for kind, h := range handlers {
		if h == nil {
			errs = append(errs, &policy.ConfigError{Policy: pkg, Field: "Handlers", Value: fmt.Sprintf("%q", kind), Want: "want a function, not nil"})
		}
		if err := (fallback.Task{Kind: kind, Key: "k"}).Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
