package policy_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	errBoom  = errors.New("boom")
	errLimit = errors.New("limit")
)

// gate is a Gate with a number of permits, which writes down what happens to it.
type gate struct {
	name        string
	place       int
	limit       int // permits; negative is none at all
	shadow      bool
	holds       bool
	refundsOnly bool
	waits       bool
	enter       func(ctx context.Context, a *policy.Attempt) error

	mu       sync.Mutex
	inFlight int
	log      []string
	outcomes []policy.Outcome
	amended  []policy.Kind
}

func (g *gate) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind: "gate", Name: g.name, Gate: g, Place: g.place,
		Shadow: g.shadow, Holds: g.holds, Waits: g.waits, RefundsOnly: g.refundsOnly,
	}, nil
}

func (g *gate) reject() error {
	return &policy.RejectedError{Reason: policy.ReasonConcurrency, RetryAfter: 1500 * time.Millisecond, Err: errLimit}
}

func (g *gate) Peek(*policy.Attempt) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, "peek")
	if g.limit < 0 {
		return g.reject()
	}
	return nil
}

func (g *gate) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	if g.enter != nil {
		if err := g.enter(ctx, a); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, fmt.Sprintf("enter %d", a.Number()))
	if g.limit < 0 || (g.limit > 0 && g.inFlight == g.limit) {
		return g.reject()
	}
	g.inFlight++
	a.Slot(slot).Word = uint64(a.Number()) + 100
	a.Slot(slot).Ref = g
	return nil
}

func (g *gate) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	if a.Slot(slot).Word != uint64(a.Number())+100 || a.Slot(slot).Ref != g {
		panic("another gate wrote into the slot")
	}
	g.log = append(g.log, "leave "+o.Kind.String())
	g.outcomes = append(g.outcomes, o)
}

func (g *gate) Amend(_ *policy.Attempt, _ int, o policy.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.amended = append(g.amended, o.Kind)
}

func (g *gate) kinds() []policy.Kind {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ks []policy.Kind
	for _, o := range g.outcomes {
		ks = append(ks, o.Kind)
	}
	return ks
}

func (g *gate) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// retrier retries failures up to max attempts with a fixed delay.
type retrier struct {
	max     int // 0 is unlimited
	delay   time.Duration
	refused bool // retry refusals too

	mu            sync.Mutex
	firsts, undos int
	states        []policy.RetryState
}

func (r *retrier) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: r}, nil
}

func (r *retrier) First(*policy.Attempt) { r.mu.Lock(); r.firsts++; r.mu.Unlock() }
func (r *retrier) Undo(time.Time)        { r.mu.Lock(); r.undos++; r.mu.Unlock() }

func (r *retrier) Decide(s policy.RetryState) policy.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, s)
	switch {
	case s.Outcome.Kind == policy.NotRun && !r.refused, s.Outcome.Kind == policy.Permanent, s.Outcome.Kind == policy.Canceled:
		return policy.Decision{Stop: policy.StopOutcome}
	case s.Call.NoRetry:
		return policy.Decision{Stop: policy.StopCall}
	case r.max > 0 && s.Attempt >= r.max:
		return policy.Decision{Stop: policy.StopAttempts}
	case !s.Deadline.IsZero() && !s.Now.Add(r.delay).Before(s.Deadline):
		return policy.Decision{Stop: policy.StopDeadline}
	}
	return policy.Decision{Delay: r.delay}
}

// fallbackFunc is a fallback made of a function.
type fallbackFunc[T any] struct {
	name    string
	answer  func(context.Context, policy.FailedCall) (T, error)
	handles func(policy.FailedCall) bool
}

func (f *fallbackFunc[T]) BuildPolicy() (policy.Part, error) {
	name := f.name
	if name == "" {
		name = "fallback"
	}
	return policy.Part{Kind: "fallback", Name: name, Fallback: untyped[T]{f}}, nil
}

func (f *fallbackFunc[T]) Handles(c policy.FailedCall) bool {
	return f.handles == nil || f.handles(c)
}

func (f *fallbackFunc[T]) Answer(ctx context.Context, c policy.FailedCall) (policy.Answer[T], error) {
	v, err := f.answer(ctx, c)
	return policy.Answer[T]{Value: v, Age: time.Minute}, err
}

type untyped[T any] struct{ *fallbackFunc[T] }

func (u untyped[T]) Answer(ctx context.Context, c policy.FailedCall) (policy.Answer[any], error) {
	a, err := u.fallbackFunc.Answer(ctx, c)
	return policy.Answer[any]{Value: a.Value, Age: a.Age}, err
}

// recorder is an Observer that keeps events.
type recorder struct {
	mu     sync.Mutex
	events []policy.Event
}

func (r *recorder) OnEvent(e policy.Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
}

func (r *recorder) kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ks []string
	for _, e := range r.events {
		ks = append(ks, e.Kind.String())
	}
	return ks
}

func build(tb testing.TB, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New("stock", policies...)
	require.NoError(tb, err)
	return p
}

func succeed(context.Context) (int, error) { return 42, nil }
func fail(context.Context) (int, error)    { return 0, errBoom }
