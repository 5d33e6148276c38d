package fallback

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/breakwater-go/breakwater/policy"
)

// ErrNoTask reports that a [Defer] was to hand over work and the context had none.
var ErrNoTask = errors.New("fallback: the context carries no task to defer")

// Task is work that a queue keeps until a worker has done it, at least once.
type Task struct {
	// Kind says what is to be done, such as "order.create": workers find the [Handler] by
	// it. 1 to 128 bytes of printable UTF-8.
	Kind string

	// Key is the idempotency key: two tasks of one Kind and Key are the same work, and
	// doing it twice must be like doing it once. The call that failed should have had
	// the same key, since it may have reached the dependency. 1 to 255 bytes of
	// printable UTF-8.
	Key string

	// Payload is what the handler needs to know, encoded by the caller.
	Payload []byte

	// Header travels with the task, such as a trace context.
	Header map[string]string
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (t Task) Validate() error {
	var errs []error
	check := func(field, s string, most int) {
		if s == "" || len(s) > most || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			errs = append(errs, &policy.ConfigError{
				Policy: "task", Field: field, Value: fmt.Sprintf("%q", s),
				Want: fmt.Sprintf("want 1 to %d bytes of printable UTF-8", most),
			})
		}
	}
	check("Kind", t.Kind, 128)
	check("Key", t.Key, 255)
	return errors.Join(errs...)
}

type taskKey struct{}

// WithTask returns a context that carries the work of the call made with it, for a
// [Defer] whose Task is nil.
func WithTask(ctx context.Context, t Task) context.Context {
	return context.WithValue(ctx, taskKey{}, &t)
}

// TaskFrom returns the task that ctx carries, and whether there is one.
func TaskFrom(ctx context.Context) (Task, bool) {
	if t, ok := ctx.Value(taskKey{}).(*Task); ok {
		return *t, true
	}
	return Task{}, false
}

// A Queue keeps tasks durably. Its methods are called concurrently.
//
// A queue may also have a method DeferSnapshot() policy.DeferSnapshot, which the snapshot
// of a pipeline then shows.
type Queue interface {
	// Enqueue returns nil once the queue has the task so that it survives the loss of
	// this process, also when it had a task of this Kind and Key already. After any
	// error the task may be there or not; handing it over again does no harm.
	Enqueue(ctx context.Context, t Task) error
}

// A Delivery is a task as a worker gets it.
type Delivery struct {
	Task

	// Attempt is the number of this attempt, from 1.
	Attempt int

	// Returned is how often the queue has taken the task back since the last attempt, from
	// workers that died or lost their connection; whether they had begun is not known. It is
	// 0 where the queue counts that as an attempt.
	Returned int

	// Last says that the task goes to the dead letters when this attempt fails.
	Last bool
}

// A Handler does the work of a task. Nil means that it is done. An error means that it is
// to be tried again, later and a bounded number of times; one that is marked with
// [policy.AsPermanent] means that trying again cannot help. It is called concurrently, and
// may be called again for a task that was done: see [Task] Key.
type Handler func(ctx context.Context, d Delivery) error

// deferKind is the kind of policy, and the default of its name.
const deferKind = "defer"

// Defer is a fallback that hands the work to a durable queue and answers "accepted". It is
// for writes that may happen later: the caller gets an answer that says so, and a worker
// does the work when the dependency is back.
//
// Its Queue and its Task func are called concurrently. The zero value is not valid: it
// needs a Queue.
type Defer[T any] struct {
	// Name is the instance name: the policy label of metrics and events, unique
	// within a pipeline. Empty means "defer".
	Name string

	// Queue takes the tasks. It must not be nil.
	Queue Queue

	// Task makes the task of a failed call. It runs on the goroutine of the call. Nil
	// means the one that the context carries, see [WithTask].
	Task func(ctx context.Context, f policy.FailedCall) (Task, error)

	// Accepted makes the answer, once the queue has the task. Nil means the zero value
	// of T; the result of policy.DoResult says that it is degraded in any case.
	Accepted func(t Task) T

	// When says which failures are deferred. Nil means [Handles], and with AfterCancel also
	// the calls whose callers have given up.
	When func(f policy.FailedCall) bool

	// Gate admits the hand-overs, see [Config]. Nil lets everything in.
	Gate policy.Gate

	// AfterCancel makes the work deferred also when the caller has given up.
	AfterCancel bool

	// Timeout bounds the hand-over, which otherwise ends with nothing: the caller's own
	// deadline, which may be what ended the call, does not. Zero means 1s.
	Timeout time.Duration
}

const defaultDeferTimeout = time.Second

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (d Defer[T]) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: deferKind, Field: field, Value: value, Want: want})
	}
	if d.Queue == nil || isNilPointer(d.Queue) {
		fault("Queue", nil, "want a queue, not nil")
	}
	if d.Timeout < 0 {
		fault("Timeout", d.Timeout, "at least 0 (0 means 1s)")
	}
	if d.Gate != nil && isNilPointer(d.Gate) {
		fault("Gate", nil, "want a gate, not a nil pointer to one")
	}
	return errors.Join(errs...)
}

// BuildPolicy returns a part for calls of any type.
func (d Defer[T]) BuildPolicy() (policy.Part, error) {
	part := policy.Part{Kind: deferKind, Name: d.Name, Guard: d.Gate, AfterCancel: d.AfterCancel}
	if part.Name == "" {
		part.Name = deferKind
	}
	if err := d.Validate(); err != nil {
		return part, err
	}
	part.Fallback = untypedDefer[T]{d}
	return part, nil
}

// Handles reports whether the work of f is deferred.
func (d Defer[T]) Handles(f policy.FailedCall) bool { return handles(f, d.When, d.AfterCancel) }

// Answer hands the work over and returns what Accepted makes of it. Its error is that of
// Task, [ErrNoTask], that of [Task.Validate], or that of the queue.
func (d Defer[T]) Answer(ctx context.Context, f policy.FailedCall) (a policy.Answer[T], err error) {
	if err := d.Validate(); err != nil {
		return a, err
	}
	t, ok := TaskFrom(ctx)
	switch {
	case d.Task != nil:
		if t, err = d.Task(ctx, f); err != nil {
			return a, err
		}
	case !ok:
		return a, ErrNoTask
	}
	if err := t.Validate(); err != nil {
		return a, err
	}
	timeout := d.Timeout
	if timeout == 0 {
		timeout = defaultDeferTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if err := d.Queue.Enqueue(ctx, t); err != nil {
		return a, fmt.Errorf("fallback: the work was not deferred: %w", err)
	}
	if d.Accepted != nil {
		a.Value = d.Accepted(t)
	}
	return a, nil
}

// Snapshot returns what the queue says about itself.
func (d Defer[T]) Snapshot(time.Time) policy.PolicySnapshot {
	q, ok := d.Queue.(interface{ DeferSnapshot() policy.DeferSnapshot })
	if !ok {
		return policy.PolicySnapshot{}
	}
	s := q.DeferSnapshot()
	return policy.PolicySnapshot{Fallback: &policy.FallbackSnapshot{Defer: &s}}
}

type untypedDefer[T any] struct{ Defer[T] }

func (u untypedDefer[T]) Answer(ctx context.Context, f policy.FailedCall) (policy.Answer[any], error) {
	a, err := u.Defer.Answer(ctx, f)
	return policy.Answer[any]{Value: a.Value, Age: a.Age}, err
}
