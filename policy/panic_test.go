package policy_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// brittle is a gate that panics when it is left.
type brittle struct {
	name  string
	place int
	holds bool

	mu       sync.Mutex
	inFlight int
}

func (g *brittle) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "brittle", Name: g.name, Gate: g, Place: g.place, Holds: g.holds}, nil
}
func (g *brittle) Peek(*policy.Attempt) error { return nil }

func (g *brittle) Enter(context.Context, *policy.Attempt, int) error { g.add(1); return nil }

func (g *brittle) Leave(*policy.Attempt, int, policy.Outcome) {
	g.add(-1)
	panic(g.name)
}

func (g *brittle) add(n int) { g.mu.Lock(); g.inFlight += n; g.mu.Unlock() }

func (g *brittle) held() int { g.mu.Lock(); defer g.mu.Unlock(); return g.inFlight }

func TestPanicInLeaveLeavesTheOtherGates(t *testing.T) {
	t.Parallel()
	outer := &gate{name: "outer"}
	a, b := &brittle{name: "a", place: 1}, &brittle{name: "b", place: 2}
	refusing := &gate{name: "refusing", place: 3, limit: -1}
	for name, p := range map[string]*policy.Pipeline{
		"ran":     build(t, outer, a, b),
		"refused": build(t, outer, a, b, refusing),
	} {
		assert.Panics(t, func() { _, _ = policy.Do(t.Context(), p, succeed) }, name)
		assert.Zero(t, outer.held(), name)
		assert.Zero(t, a.held(), name)
		assert.Zero(t, b.held(), name)
		assert.Panics(t, func() {
			h, err := p.Enter(t.Context())
			if err == nil {
				h.Leave(nil)
			}
		}, name)
		assert.Zero(t, outer.held(), name)
	}
}

// A deferred Release is what the documentation asks for: it must not wait for ever
// for the Leave that panicked.
func TestPanicInLeaveEndsTheHandle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer, inner := &gate{name: "outer", holds: true}, &brittle{name: "inner", place: 1, holds: true}
		p := build(t, outer, inner)
		for name, end := range map[string]func(h policy.Handle){
			"leave":   func(h policy.Handle) { h.Leave(nil) },
			"release": policy.Handle.Release,
			"settled": func(h policy.Handle) { h.Settle(policy.Success, 0); h.Release() },
			"abandon": policy.Handle.Abandon,
		} {
			h, err := p.Enter(t.Context())
			require.NoError(t, err)
			assert.PanicsWithValue(t, "inner", func() {
				defer h.Release()
				end(h)
			}, name)
			assert.Zero(t, outer.held(), name)
			assert.False(t, h.Leave(nil), name)
		}
		assert.Equal(t, uint64(4), sum(p.Snapshot().Calls), "each was a call")

		// A gate that is left when the outcome is told.
		early := &brittle{name: "early", place: 1}
		p = build(t, outer, early)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		assert.PanicsWithValue(t, "early", func() {
			defer h.Release()
			h.Release()
		})
		assert.Zero(t, outer.held())
	})
}

func sum(counts [policy.NumKinds]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// faultyTracer panics in one of its methods.
type faultyTracer struct{ at string }

func (f faultyTracer) fault(at string) {
	if f.at == at {
		panic("tracer")
	}
}

func (f faultyTracer) StartCall(ctx context.Context, _ string) (context.Context, policy.CallSpan) {
	f.fault("StartCall")
	return ctx, f
}

func (f faultyTracer) StartAttempt(ctx context.Context, _ int) (context.Context, policy.AttemptSpan) {
	f.fault("StartAttempt")
	return ctx, faultyAttempt{f}
}
func (f faultyTracer) Event(policy.Event) { f.fault("Event") }
func (f faultyTracer) End(policy.CallEnd) { f.fault("End") }

type faultyAttempt struct{ f faultyTracer }

func (a faultyAttempt) End(policy.Outcome, error) { a.f.fault("AttemptSpan.End") }

func TestPanicInTracerHarmsNoCall(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"StartCall", "StartAttempt", "Event", "End", "AttemptSpan.End"} {
		g := &gate{holds: true}
		p := build(t, g, &retrier{max: 2}, policy.Trace(faultyTracer{at}))
		n := 0
		h, err := policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (policy.Handle, error) {
			if n++; n == 1 {
				return policy.Handle{}, errBoom
			}
			return a.Hold(), nil
		}, nil)
		require.NoError(t, err, at)
		assert.Equal(t, 1, g.held(), at)
		h.Release()
		assert.Zero(t, g.held(), at)
	}
}

// The function still has the attempt when its caller leaves, so a panic in the
// classifier must not hand the attempt to another call.
func TestPanicInClassifierOfAnAbandonedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorker(), &gate{holds: true}
		p := build(t, w, g, policy.ClassifyErrors(func(error) policy.Kind { panic("classifier") }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := make(chan struct{})
		assert.PanicsWithValue(t, "classifier", func() {
			_, _ = policy.DoAttempt(ctx, p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
				defer close(late)
				time.Sleep(time.Minute)
				// All of this must touch nobody else's attempt, nor a cleared one.
				assert.Equal(t, 1, a.Number())
				assert.NotNil(t, a.Call())
				a.SetOutcome(policy.Busy, 0)
				a.Hold()
				return 0, nil
			}, nil)
		})
		assert.Equal(t, []policy.Kind{policy.Canceled}, g.kinds())
		assert.Zero(t, g.held())
		var others []policy.Handle
		q := build(t, &gate{})
		for range 100 { // some of these would be the attempt that still runs
			h, err := q.Enter(t.Context())
			require.NoError(t, err)
			others = append(others, h)
		}
		<-late
		w.wg.Wait()
		for _, h := range others {
			assert.True(t, h.Leave(nil))
		}
		assert.Equal(t, uint64(100), q.Snapshot().Calls[policy.Success])
	})
}

// A function that ends its worker's goroutine has no outcome of its own to tell, and
// nobody to keep its permits for.
func TestGoexitOnAWorkerOverridesWhatTheFunctionSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, g := newWorker(), &gate{holds: true}
		p := build(t, w, g, policy.Timeouts{Attempt: time.Hour})
		_, err := policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
			a.SetOutcome(policy.Success, 0)
			a.Hold()
			runtime.Goexit()
			return 0, nil
		}, nil)
		w.wg.Wait()
		require.ErrorIs(t, err, policy.ErrGoexit)
		assert.Equal(t, []policy.Kind{policy.Failure}, g.kinds())
		assert.Zero(t, g.held())
	})
}

// inline is a Runner that runs a task where it is.
type inline struct{}

func (inline) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "inline", Runner: inline{}}, nil
}
func (inline) Peek(*policy.Attempt) error { return nil }

func (inline) Run(_ context.Context, _ *policy.Attempt, t policy.Task) (res policy.RunResult) {
	if err := t.Look(); err != nil {
		return policy.RunResult{Err: err}
	}
	t.Begin()
	defer func() {
		if v := recover(); v != nil {
			res.Err = &policy.PanicError{Value: v}
		}
	}()
	res.State = policy.RunDone
	t.Run()
	return res
}

// doubtful is a gate that panics when it is asked again.
type doubtful struct{ gate }

func (d *doubtful) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "doubtful", Gate: d}, nil
}
func (d *doubtful) Recheck(*policy.Attempt, int) error { panic("recheck") }

// On a worker a panic means what it means anywhere else.
func TestPanicOnAWorkerByStage(t *testing.T) {
	t.Parallel()
	bad := func(context.Context) (int, error) { panic("x") }
	judge := func(int, error) policy.Kind { panic("typed") }
	g := &gate{}
	p := build(t, inline{}, g)
	assert.Panics(t, func() { _, _ = policy.Do(t.Context(), p, bad) })
	assert.Panics(t, func() { _, _ = policy.For[int](p).Classify(judge).Do(t.Context(), succeed) })
	assert.Panics(t, func() {
		_, _ = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
			a.Judging()
			panic("adapter")
		}, nil)
	})
	assert.Equal(t, []policy.Kind{policy.Failure, policy.Canceled, policy.Canceled}, g.kinds())

	d := &doubtful{}
	assert.PanicsWithValue(t, "recheck", func() { _, _ = policy.Do(t.Context(), build(t, inline{}, d), succeed) })
	assert.Equal(t, []policy.Kind{policy.NotRun}, d.kinds(), "the function did not run")
}

func TestPanicCountsAsACall(t *testing.T) {
	t.Parallel()
	bad := func(context.Context) (int, error) { panic("x") }
	for name, p := range map[string]*policy.Pipeline{
		"fast":    build(t, &gate{}),
		"bounded": build(t, &gate{}, policy.Timeouts{Total: time.Hour}),
		"retried": build(t, &gate{}, &retrier{max: 2}),
		"pooled":  build(t, &gate{}, newWorker()),
	} {
		n := 0
		assert.Panics(t, func() {
			_, _ = policy.Do(t.Context(), p, func(ctx context.Context) (int, error) {
				if n++; n == 1 && name == "retried" {
					return 0, errBoom
				}
				return bad(ctx)
			})
		}, name)
		snap := p.Snapshot()
		assert.Equal(t, uint64(1), snap.Panics, name)
		assert.Equal(t, uint64(1), snap.Calls[policy.Failure], name)
		assert.Equal(t, uint64(1), sum(snap.Calls), name)
	}
}

func TestPanicInFallbackDiscardsTheValue(t *testing.T) {
	t.Parallel()
	fb := &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { panic("fallback") }}
	for name, policies := range map[string][]policy.Policy{
		"refused at once": {fb},
		"retried":         {fb, &retrier{max: 2}},
		"bounded":         {fb, policy.Timeouts{Total: time.Hour}},
	} {
		p := build(t, policies...)
		made, discarded := 0, 0
		assert.PanicsWithValue(t, "fallback", func() {
			_, _ = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
				a.SetOutcome(policy.Busy, 0)
				made++
				return 0, nil
			}, func(int) { discarded++ })
		}, name)
		assert.Equal(t, made, discarded, name)
	}
}

// A retry that was paid for and cannot happen gives back what it cost.
func TestPanicInDiscardGivesTheRetryBack(t *testing.T) {
	t.Parallel()
	for name, policies := range map[string][]policy.Policy{
		"plain":   nil,
		"bounded": {policy.Timeouts{Total: time.Hour}},
	} {
		r := &retrier{max: 3}
		p := build(t, append(policies, r)...)
		assert.PanicsWithValue(t, "discard", func() {
			_, _ = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
				a.SetOutcome(policy.Busy, 0)
				return 0, nil
			}, func(int) { panic("discard") })
		}, name)
		assert.Equal(t, 1, r.undos, name)
	}
}
