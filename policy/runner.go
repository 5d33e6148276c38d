package policy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrPooled is returned by [Pipeline.Enter] of a pipeline whose attempts run on
// workers: there is no function to hand to one.
var ErrPooled = errors.New("policy: the pipeline runs its attempts on a pool, so none can be entered by hand")

// ErrGoexit is the error of an attempt whose function ended its worker's goroutine
// with [runtime.Goexit].
var ErrGoexit = errors.New("policy: the function called runtime.Goexit on a worker")

// PanicError is the value of the panic that a caller sees when its function panicked
// on a worker.
type PanicError struct {
	Value any    // what the function panicked with
	Stack []byte // of the worker, as [runtime/debug.Stack] formats it
}

// Error shows the value and the worker's stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic on a worker: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A Runner is where the attempts of a pipeline run, in place of the goroutines of
// its callers. It stands innermost, and a pipeline has at most one. All methods are
// called concurrently.
type Runner interface {
	// Peek reports a refusal that is sure to follow if Run were called now, like
	// [Gate.Peek].
	Peek(a *Attempt) error

	// Run has a worker take the task and waits for it. It returns when the task has
	// been run, refused or dropped, and also when ctx or, once the task has begun,
	// the task's own context ends: the worker then goes on without its caller.
	Run(ctx context.Context, a *Attempt, t Task) RunResult
}

// A Task is an attempt, as a worker sees it. Each method is called at most once, in
// this order, on the worker.
type Task interface {
	// Look asks the gates again, which may have changed their mind while the task
	// was queued. On an error the task is dropped.
	Look() error

	// Begin starts the attempt's clock and returns the context that bounds it.
	Begin() context.Context

	// Run runs the function. A panic in it is not caught here.
	Run()

	// Late is called after Run when the caller has left: it disposes of the value.
	Late()
}

// RunState says how far a task came.
type RunState uint8

// The states in which [Runner.Run] leaves a task.
const (
	RunRefused   RunState = iota // it never began: Err is a [*RejectedError], or the context's error
	RunDone                      // its function returned, or ended with Err: a [*PanicError] or [ErrGoexit]
	RunAbandoned                 // it still runs; Err is the error of the context that ended
)

// RunResult is what became of a task.
type RunResult struct {
	State RunState
	Err   error
}

// job is the [Task] of a call.
type job[A, T any] struct {
	a     *Attempt
	b     *body[A, T]
	v     T
	err   error
	gone  bool                        // a gate that was asked again has refused: the refusal is complete
	ran   bool                        // the function returned, and did not panic
	bound atomic.Pointer[deadlineCtx] // set by Begin when there is an attempt timeout
	start atomic.Int64                // set by Begin: since the pipeline's base
}

func (j *job[A, T]) Look() error {
	for i := range j.a.plan.gates {
		if g := &j.a.plan.gates[i]; !g.shadow && j.a.admitted&(1<<i) != 0 {
			if r, ok := g.gate.(Rechecker); ok {
				if err := r.Recheck(j.a, i); err != nil {
					j.gone = true
					return j.a.complete(g.name, g.rejected, err)
				}
			}
		}
	}
	return nil
}

func (j *job[A, T]) Begin() context.Context {
	a := j.a
	a.now = a.pipe.elapsed()
	j.start.Store(int64(a.now))
	a.stage = stageRunning
	if a.plan.first != nil && a.number == 1 && a.hedge == 0 {
		a.plan.first.First(a)
	}
	if d := a.plan.attemptTimeout; d > 0 {
		c := newDeadlineCtx(a.ctx, a.Now().Add(d))
		j.bound.Store(c)
		a.ctx = c // for a Handle; the caller asks for bound
		return c
	}
	return a.ctx
}

func (j *job[A, T]) context() context.Context {
	if c := j.bound.Load(); c != nil {
		return c
	}
	return j.a.ctx
}

func (j *job[A, T]) Run() {
	j.v, j.err = j.b.run(j.context(), j.a)
	j.ran = true
}

func (j *job[A, T]) Late() {
	j.a.letGo()
	if c := j.bound.Load(); c != nil {
		// The caller may be classifying the end of this context, which it has been
		// told of and the context itself perhaps not: that end must come first.
		_ = c.Err()
		c.cancel(context.Canceled)
	}
	if j.ran && j.err == nil && j.b.discard != nil {
		j.b.discard(j.v)
	}
}

// A Rechecker is a gate that an attempt has entered and that may want to refuse it
// after all, because the attempt was queued since: the breaker has opened. It takes
// nothing and gives nothing back; the pipeline leaves the gate as usual.
type Rechecker interface {
	Recheck(a *Attempt, slot int) error
}

// tryPooled is try for a pipeline whose attempts run on workers. The attempt may
// outlive the call, so it does not come from the pool and does not go back there.
func tryPooled[A, T any](ctx context.Context, pl *plan, s *callState, number int, b *body[A, T]) (v T, stripe uint32, o Outcome, err error) {
	if err = contextError(ctx); err != nil {
		return v, 0, Outcome{}, err
	}
	var span AttemptSpan
	if s.span != nil {
		ctx, span = startAttempt(ctx, s.span, number)
	}
	a := &Attempt{stripe: nextStripe.Add(1)}
	a.begin(ctx, s.p, pl, number, b.call)
	if s.racing {
		a.race(s.hedge)
	}
	ended, held := false, false
	defer func() {
		if !ended {
			s.out = a.unwind(span)
		}
	}()
	if err = a.admit(); err == nil {
		j := &job[A, T]{a: a, b: b}
		res := a.plan.runner.Run(a.ctx, a, j)
		if span != nil {
			tellAdmission(span, Admission{Waited: j.waited(res.State), Probe: a.probe})
		}
		switch res.State {
		case RunDone:
			v, o, err = j.done(res.Err)
			held = a.held
		case RunRefused:
			a.leave(Outcome{Kind: NotRun}, ^uint32(0))
			if err = res.Err; !j.gone {
				err = a.complete(a.plan.runnerName, a.plan.runnerRejected, err)
			}
		case RunAbandoned:
			err = res.Err
			a = j.leaveBehind()
			o = a.judge(err)
			a.settle(o)
		}
	} else if span != nil {
		tellAdmission(span, Admission{Waited: a.waited, Probe: a.probe})
	}
	ended = true
	if span != nil {
		endAttempt(span, o, err)
	}
	if held {
		a.handOver(s)
	}
	return v, a.stripe, o, err
}

// waited returns how long the task stood in the queues of the gates and of the runner.
func (j *job[A, T]) waited(s RunState) time.Duration {
	a := j.a
	if s == RunRefused {
		return a.waited + a.pipe.elapsed() - a.start
	}
	return a.waited + time.Duration(j.start.Load()) - a.start
}

// done settles a task that has been run. It panics again with what the function
// panicked with.
func (j *job[A, T]) done(err error) (T, Outcome, error) {
	a := j.a
	a.start = time.Duration(j.start.Load())
	a.bound = j.bound.Load()
	if pe, ok := err.(*PanicError); ok { //nolint:errorlint // the runner's own
		panic(pe) //nolint:forbidigo // the function's panic goes on in its caller
	}
	if err == nil {
		err = j.err
	} else {
		a.preset = false // the function did not come to its end, whatever it said before
		a.letGo()
	}
	a.ctx = j.context()
	o := a.judge(err)
	a.settle(o)
	if !a.held && a.bound != nil {
		a.bound.cancel(context.Canceled)
	}
	return j.v, o, err
}

// leaveBehind returns a copy of the attempt for its caller, who leaves. The function
// still has the attempt itself; the copy has its place in the gates.
func (j *job[A, T]) leaveBehind() *Attempt {
	a := j.a
	c := &Attempt{
		pipe: a.pipe, plan: a.plan, call: a.call, ctx: j.context(), number: a.number, stripe: a.stripe,
		start: time.Duration(j.start.Load()), entered: a.entered, admitted: a.admitted, slots: a.slots,
		racing: a.racing, hedge: a.hedge,
	}
	a.entered = 0
	return c
}
