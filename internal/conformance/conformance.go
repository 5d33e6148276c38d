// Package conformance is the test that every adapter passes: whatever becomes of a call,
// its permits come back, its goroutines end, and its breaker counts it right.
//
// An adapter's test says how to make one call that goes the way of each [Case]:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Adapter{Start: func(t *testing.T, p *policy.Pipeline, c conformance.Case) (call func(context.Context) error, stop func()) {
//			server := newServer(t, c) // fails, sleeps for conformance.Slowness, hangs until its caller is gone, …, as c says
//			client := adapter.Wrap(server.Client(), p)
//			return client.Get, server.Close
//		}})
//	}
//
// The test is not parallel: it counts goroutines.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// Case is what becomes of a call.
type Case string

// The cases. "The far end" is the server of a client's adapter, and the handler of a server's.
const (
	Success   Case = "success"   // the far end answers
	Failure   Case = "failure"   // the far end answers that it has failed
	Slow      Case = "slow"      // the far end answers after Slowness
	Refused   Case = "refused"   // no permit is left: the far end is not reached, and the caller told
	Canceled  Case = "canceled"  // the far end hangs, and the caller's context is canceled
	Deadline  Case = "deadline"  // the far end hangs, and the caller's deadline passes
	Panic     Case = "panic"     // what runs under the permits panics
	Abandoned Case = "abandoned" // the caller reads a part of the answer, loses interest, and its context ends
	Gone      Case = "gone"      // the far end has been there and is no longer: Start has stopped it
)

// Cases lists every case.
func Cases() []Case {
	return []Case{Success, Failure, Slow, Refused, Canceled, Deadline, Panic, Abandoned, Gone}
}

// Slowness is how long the far end takes in the case [Slow]. The breaker calls half of it slow.
const Slowness = 100 * time.Millisecond

// permits is the size of the bulkhead.
const permits = 2

// Figures are those of the breaker's window.
type Figures struct{ Calls, Failures, Slow uint64 }

// Adapter is what is tested.
type Adapter struct {
	// Start puts p around a client or a server whose far end goes the way of c, and returns
	// a function that makes one call, and one that ends what Start has begun. In the case
	// Abandoned, call returns after it has read a part of the answer; its context ends then.
	Start func(t *testing.T, p *policy.Pipeline, c Case) (call func(context.Context) error, stop func())

	// Skip holds the cases that the protocol does not have, with the reason.
	Skip map[Case]string

	// Figures replaces what the breaker ordinarily counts in a case.
	Figures map[Case]Figures

	// Check, if not nil, checks the error of a call in place of the ordinary check of
	// the case, if it says that it knows the case. A panic arrives as an error.
	Check func(t *testing.T, c Case, err error) (known bool)

	// Pool tests a pipeline whose attempts run on workers as well.
	Pool bool

	// Policies are put into the pipeline, beside the bulkhead and the breaker.
	Policies []policy.Policy
}

// figures is what a breaker ordinarily counts. A caller that is gone is nobody's failure; a
// deadline that passes is one, since a dependency that hangs would hide behind it otherwise.
func (a *Adapter) figures(c Case) Figures {
	if f, ok := a.Figures[c]; ok {
		return f
	}
	switch c {
	case Failure, Deadline, Panic, Gone:
		return Figures{Calls: 1, Failures: 1}
	case Slow:
		return Figures{Calls: 1, Slow: 1}
	case Refused, Canceled:
		return Figures{}
	case Success, Abandoned:
	}
	return Figures{Calls: 1}
}

// Run runs every case.
func Run(t *testing.T, a Adapter) {
	t.Helper()
	for c := range a.Skip {
		require.Contains(t, Cases(), c, "Skip")
	}
	for c := range a.Figures {
		require.Contains(t, Cases(), c, "Figures")
	}
	bulkheads := []policy.Policy{bulkhead.Semaphore{Limit: permits}}
	if a.Pool {
		bulkheads = append(bulkheads, bulkhead.Pool{Workers: permits, Queue: bulkhead.NoQueue})
	}
	for _, b := range bulkheads {
		for _, c := range Cases() {
			t.Run(fmt.Sprintf("%T/%s", b, c), func(t *testing.T) {
				if why := a.Skip[c]; why != "" {
					t.Skip(why)
				}
				a.run(t, c, b)
			})
		}
	}
}

func (a *Adapter) run(t *testing.T, c Case, b policy.Policy) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	slowAfter := time.Hour // whatever the machine is busy with
	if c == Slow {
		slowAfter = Slowness / 2
	}
	p, err := policy.New("conformance", append([]policy.Policy{
		b, breaker.Config{Window: time.Hour, MinCalls: 1000, SlowAfter: slowAfter},
	}, a.Policies...)...)
	require.NoError(t, err)

	call, stop := a.Start(t, p, c)
	release := func() {}
	if c == Refused {
		release = fill(t, p)
	}
	err = a.call(t, p, c, call)
	if a.Check == nil || !a.Check(t, c, err) {
		check(t, c, err)
	}
	release()

	assert.Eventually(t, func() bool { return inFlight(p) == 0 }, 10*time.Second, time.Millisecond, "permits are out")
	assert.Equal(t, a.figures(c), figuresOf(p), "the breaker's figures")
	stop()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, p.Close(ctx))
	for range 4 { // each looks for about a second
		if err = goleak.Find(before); err == nil {
			break
		}
	}
	assert.NoError(t, err, "goroutines are left")
}

// call makes the call, and does to its context what the case says.
func (a *Adapter) call(t *testing.T, p *policy.Pipeline, c Case, call func(context.Context) error) (err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	switch c {
	case Canceled:
		done := make(chan struct{})
		defer func() { <-done }()
		go func() {
			defer close(done)
			for range 10_000 { // the call is on its way when it holds a permit
				if inFlight(p) > 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond) // and has arrived, most likely, soon after
			cancel()
		}()
	case Deadline:
		c, cancel := context.WithTimeout(ctx, 2*Slowness)
		defer cancel()
		ctx = c
	case Success, Failure, Slow, Refused, Panic, Abandoned, Gone:
	}
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r}
		}
	}()
	return call(ctx)
}

// PanicError is the panic of a call.
type PanicError struct{ Value any }

// Error says what the panic's value was.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

func check(t *testing.T, c Case, err error) {
	t.Helper()
	if c != Refused {
		require.NotErrorIs(t, err, policy.ErrRejected)
	}
	switch c {
	case Success, Slow, Abandoned:
		require.NoError(t, err)
	case Refused:
		require.ErrorIs(t, err, policy.ErrRejected)
	case Canceled:
		require.ErrorIs(t, err, context.Canceled)
	case Deadline:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case Failure, Panic, Gone:
		require.Error(t, err)
	}
	if pe := (*PanicError)(nil); errors.As(err, &pe) {
		require.Equal(t, Panic, c, "%v", err)
	}
}

// fill takes all permits.
func fill(t *testing.T, p *policy.Pipeline) (release func()) {
	t.Helper()
	blocked, free := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{}, permits)
	for range permits {
		go func() {
			// A canceled call is neutral: the breaker's figures are not disturbed.
			_ = policy.Run(t.Context(), p, func(context.Context) error {
				blocked <- struct{}{}
				<-free
				return context.Canceled
			})
			ended <- struct{}{}
		}()
	}
	for range permits {
		<-blocked
	}
	return func() {
		close(free)
		for range permits {
			<-ended
		}
	}
}

// inFlight returns the number of permits that are taken.
func inFlight(p *policy.Pipeline) int {
	n := 0
	for _, ps := range p.Snapshot().Policies {
		if ps.Bulkhead != nil {
			n += ps.Bulkhead.InFlight
		}
	}
	return n
}

func figuresOf(p *policy.Pipeline) Figures {
	policies := p.Snapshot().Policies
	i := slices.IndexFunc(policies, func(ps policy.PolicySnapshot) bool { return ps.Breaker != nil })
	b := policies[i].Breaker
	return Figures{Calls: b.Calls, Failures: b.Failures, Slow: b.Slow}
}
