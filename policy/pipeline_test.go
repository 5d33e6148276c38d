package policy_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

func TestDoPassesThrough(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*policy.Pipeline{"nil": nil, "empty": build(t), "gate": build(t, &gate{})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := policy.Do(t.Context(), p, succeed)
			require.NoError(t, err)
			assert.Equal(t, 42, v)

			_, err = policy.Do(t.Context(), p, fail)
			assert.Equal(t, errBoom, err, "the dependency's own error is not touched") //nolint:testifylint // identity

			v, err = policy.DoWith(t.Context(), p, 7, func(_ context.Context, n int) (int, error) { return n + 1, nil })
			require.NoError(t, err)
			assert.Equal(t, 8, v)

			v, err = policy.DoAttempt(t.Context(), p, nil, 7, func(_ context.Context, n int, a *policy.Attempt) (int, error) {
				return n + a.Number(), nil
			}, nil)
			require.NoError(t, err)
			assert.Equal(t, 8, v)
		})
	}
}

func TestGatesNestAndUnwind(t *testing.T) {
	t.Parallel()
	outer := &gate{name: "outer", place: policy.PlaceRateLimit}
	inner := &gate{name: "inner", place: policy.PlaceBreaker, limit: -1}
	p := build(t, inner, outer) // sorted by place
	ran := false
	_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { ran = true; return 0, nil })

	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, "stock", re.Dependency)
	assert.Equal(t, "inner", re.Policy)
	assert.Equal(t, policy.ReasonConcurrency, re.Reason)
	require.ErrorIs(t, err, policy.ErrRejected)
	require.ErrorIs(t, err, errLimit)
	s, ok := re.RetryAfterSeconds()
	assert.True(t, ok)
	assert.Equal(t, 2, s, "rounded up")
	assert.False(t, ran)
	assert.Equal(t, []string{"enter 1", "leave not_run"}, outer.log, "the outer gate takes back what it gave")
	assert.Equal(t, []string{"enter 1"}, inner.log)

	snap := p.Snapshot()
	assert.Equal(t, uint64(1), snap.Calls[policy.NotRun])
	assert.Equal(t, uint64(1), snap.Attempts[policy.NotRun])
	assert.Equal(t, uint64(1), snap.Policies[1].Rejected[policy.ReasonConcurrency])
	assert.Zero(t, snap.Latency.Count(), "a refused attempt has no duration")
}

func TestRefundsOnlyIsLeftByAttemptsThatNeverRan(t *testing.T) {
	t.Parallel()
	g := &gate{name: "refunds", refundsOnly: true}
	p := build(t, g, &gate{name: "later", place: 1, limit: 1})
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	_, err = policy.Do(t.Context(), p, succeed)
	require.ErrorIs(t, err, policy.ErrRejected)
	h.Leave(nil)
	assert.Equal(t, []string{"enter 1", "enter 1", "leave not_run"}, g.log)
}

func TestOrderedKeepsTheOrder(t *testing.T) {
	t.Parallel()
	a, b := &gate{name: "a", place: policy.PlaceBreaker}, &gate{name: "b", place: policy.PlaceRateLimit}
	names := func(p *policy.Pipeline) (ns []string) {
		for _, ps := range p.Snapshot().Policies {
			ns = append(ns, ps.Name)
		}
		return ns
	}
	assert.Equal(t, []string{"b", "a"}, names(build(t, a, b)))
	assert.Equal(t, []string{"a", "b"}, names(build(t, policy.Ordered(a, b))))
}

func TestPeekBeforeAnyWait(t *testing.T) {
	t.Parallel()
	waiting := &gate{name: "waiting", waits: true, enter: func(context.Context, *policy.Attempt) error {
		return errors.New("nobody should wait")
	}}
	shut := &gate{name: "shut", place: 1, limit: -1}
	_, err := policy.Do(t.Context(), build(t, waiting, shut), succeed)
	re, ok := errors.AsType[*policy.RejectedError](err)
	require.True(t, ok, "got %v", err)
	assert.Equal(t, "shut", re.Policy)
	assert.Equal(t, []string{"peek"}, waiting.log)
}

func TestDurationExcludesOwnWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{waits: true, enter: func(_ context.Context, a *policy.Attempt) error {
			before := a.Now()
			time.Sleep(3 * time.Second)
			assert.Equal(t, 3*time.Second, a.Waited().Sub(before))
			return nil
		}}
		p := build(t, g)
		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(time.Second); return 0, nil })
		require.NoError(t, err)
		assert.Equal(t, time.Second, g.outcomes[0].Duration)
		assert.Equal(t, time.Second, p.Snapshot().Latency.Sum)
	})
}

func TestShadowGateWatches(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	g := &gate{shadow: true, limit: -1, waits: true, enter: func(_ context.Context, a *policy.Attempt) error {
		if !a.NoWait() {
			return errors.New("a shadow must not wait")
		}
		return nil
	}}
	p := build(t, g, policy.Observe(rec))
	v, err := policy.Do(t.Context(), p, succeed)
	require.NoError(t, err)
	assert.Equal(t, 42, v)
	assert.Empty(t, g.outcomes, "an outcome that it would have prevented is not told")
	assert.Equal(t, []string{"shadow"}, rec.kinds())
	ps := p.Snapshot().Policies[0]
	assert.True(t, ps.Shadow)
	assert.Equal(t, uint64(1), ps.Rejected[policy.ReasonConcurrency])

	g.limit = 0
	_, err = policy.Do(t.Context(), p, fail)
	require.ErrorIs(t, err, errBoom)
	assert.Equal(t, []policy.Kind{policy.Failure}, g.kinds(), "what it lets in it hears of")
}

func TestContextDoneNeverRuns(t *testing.T) {
	t.Parallel()
	g := &gate{}
	fb := &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return 1, nil }}
	p := build(t, g, &retrier{}, fb)
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err := policy.Do(ctx, p, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
	assert.Empty(t, g.log)
	_, err = p.Enter(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, g.log)
	assert.Equal(t, uint64(2), p.Snapshot().Calls[policy.NotRun])
}

func TestCaseB41_PanicAndGoexitUnwind(t *testing.T) {
	t.Parallel()
	g := &gate{limit: 1}
	p := build(t, g)
	for range 100 {
		assert.PanicsWithValue(t, "x", func() {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic("x") })
		})
		require.Zero(t, g.held())
	}
	for range 100 {
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
			t.Error("Goexit was swallowed")
		})
		wg.Wait()
		require.Zero(t, g.held())
	}
	assert.Panics(t, func() {
		_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic(nil) })
	})
	require.Zero(t, g.held())
	for _, k := range g.kinds() {
		require.Equal(t, policy.Failure, k)
	}
	snap := p.Snapshot()
	assert.Equal(t, uint64(201), snap.Panics)
	assert.Equal(t, uint64(201), snap.Attempts[policy.Failure])
	assert.Zero(t, snap.Attempts[policy.Success])

	// The stack of the panic is the function's own.
	defer func() {
		require.NotNil(t, recover())
		buf := make([]byte, 1<<16)
		assert.Contains(t, string(buf[:runtime.Stack(buf, false)]), "deepInTheFunction")
	}()
	_, _ = policy.Do(t.Context(), p, deepInTheFunction)
}

func deepInTheFunction(context.Context) (int, error) { panic("deep") }

func TestPanicInClassifierIsNeutral(t *testing.T) {
	t.Parallel()
	g := &gate{limit: 1}
	p := build(t, g, policy.ClassifyErrors(func(error) policy.Kind { panic("classifier") }))
	assert.PanicsWithValue(t, "classifier", func() { _, _ = policy.Do(t.Context(), p, fail) })
	assert.Equal(t, []policy.Kind{policy.Canceled}, g.kinds())
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	assert.PanicsWithValue(t, "classifier", func() { h.Leave(errBoom) })
	assert.Zero(t, g.held())
	assert.Equal(t, []policy.Kind{policy.Canceled, policy.Canceled}, g.kinds())
	assert.PanicsWithValue(t, "adapter", func() {
		_, _ = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
			a.Judging()
			panic("adapter")
		}, nil)
	})
	assert.Equal(t, policy.Canceled, g.kinds()[2])
	typed := policy.For[int](p).Classify(func(int, error) policy.Kind { panic("typed") })
	assert.PanicsWithValue(t, "typed", func() { _, _ = typed.Do(t.Context(), succeed) })
	assert.Equal(t, policy.Canceled, g.kinds()[3])
}

func TestPanicInGateUnwindsTheOthers(t *testing.T) {
	t.Parallel()
	outer := &gate{name: "outer"}
	inner := &gate{name: "inner", place: 1, enter: func(context.Context, *policy.Attempt) error { panic("gate") }}
	p := build(t, outer, inner)
	assert.PanicsWithValue(t, "gate", func() { _, _ = policy.Do(t.Context(), p, succeed) })
	assert.Equal(t, []policy.Kind{policy.NotRun}, outer.kinds())
	assert.PanicsWithValue(t, "gate", func() { _, _ = p.Enter(t.Context()) })
	assert.Zero(t, outer.held())
}

func TestObserverHearsOfRefusalsAndMayPanic(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	p := build(t, &gate{name: "g", limit: -1}, policy.Observe(policy.ObserverFunc(func(policy.Event) { panic("observer") })), policy.Observe(rec))
	_, err := policy.Do(t.Context(), p, succeed)
	require.ErrorIs(t, err, policy.ErrRejected)
	require.Len(t, rec.events, 1)
	e := rec.events[0]
	assert.Equal(t, "stock", e.Dependency)
	assert.Equal(t, "g", e.Policy)
	assert.Equal(t, policy.ReasonConcurrency, e.Reason)
	assert.Equal(t, 1500*time.Millisecond, e.RetryAfter)
}

func TestNewReportsEverythingWrong(t *testing.T) {
	t.Parallel()
	_, err := policy.New("stock",
		policy.Timeouts{Total: -1, Attempt: -2},
		&gate{name: "a"}, &gate{name: "a"},
		&retrier{}, &retrier{},
		nil,
		policy.Observe(nil),
	)
	require.Error(t, err)
	for _, want := range []string{
		"stock.timeout.Total: -1ns: want at least 1µs",
		"stock.timeout.Attempt: -2ns: want at least 1µs",
		"stock.a: the name is used twice",
		"stock.retry: a pipeline has one retry policy",
		"stock.policies: a nil policy is in the list",
		"stock.observer: the policy contributes nothing",
	} {
		assert.Contains(t, err.Error(), want)
	}
	ce, ok := errors.AsType[*policy.ConfigError](err)
	require.True(t, ok)
	assert.Equal(t, "stock", ce.Dependency)

	for _, name := range []string{"", strings.Repeat("x", 129), "a\nb", "\xff", "a\u202eb", "a\u200bb", "a\u00a0b"} {
		_, err := policy.New(name)
		require.Error(t, err, "name %q", name)
		if name != "" { // an empty one is the kind
			_, err = policy.New("stock", &gate{name: name})
			require.ErrorContains(t, err, "stock.gate.Name", "name %q", name)
		}
	}
	many := make([]policy.Policy, policy.MaxGates+1)
	for i := range many {
		many[i] = &gate{name: strings.Repeat("g", i+1)}
	}
	_, err = policy.New("stock", many...)
	require.ErrorContains(t, err, "want at most 16 gates")
	_, err = policy.New("stock", many[:policy.MaxGates]...)
	require.NoError(t, err)
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	p := build(t, policy.Timeouts{Total: time.Second, Attempt: time.Second})
	require.Len(t, p.Warnings(), 1)
	assert.Contains(t, p.Warnings()[0], "stock.timeout: Attempt 1s is not below Total 1s")
	assert.Empty(t, build(t, policy.Timeouts{Total: 2 * time.Second, Attempt: time.Second}).Warnings())
}

// facts is a policy that says something about its settings.
type facts struct{ policy.Part }

func (f facts) BuildPolicy() (policy.Part, error) { return f.Part, nil }

func TestWarningsAboutPoliciesTogether(t *testing.T) {
	t.Parallel()
	of := func(p policy.Part) policy.Policy { return facts{p} }
	wait := policy.Part{Kind: "bulkhead", Gate: &gate{}, MaxWait: 2 * time.Second}
	slow := policy.Part{Kind: "breaker", Gate: &gate{}, SlowAfter: time.Second}
	tries := policy.Part{Kind: "retry", Retry: &retrier{}, MaxAttempts: 3}
	long := policy.Part{Kind: "retry", Retry: &retrier{}, BaseDelay: 5 * time.Second}
	for _, tt := range []struct {
		part     policy.Part
		timeouts policy.Timeouts
		want     string
	}{
		{wait, policy.Timeouts{Total: time.Second}, "stock.bulkhead: MaxWait 2s is not below the total timeout 1s"},
		{wait, policy.Timeouts{Total: 3 * time.Second}, ""},
		{wait, policy.Timeouts{}, ""},
		{slow, policy.Timeouts{Attempt: 500 * time.Millisecond}, "stock.breaker: SlowAfter 1s is not below the attempt timeout 500ms"},
		{slow, policy.Timeouts{Attempt: 2 * time.Second}, ""},
		{tries, policy.Timeouts{Total: 2 * time.Second, Attempt: 1900 * time.Millisecond}, "stock.retry: 3 attempts of up to 1.9s each do not fit into the total timeout 2s"},
		{tries, policy.Timeouts{Total: 6 * time.Second, Attempt: 2 * time.Second}, ""},
		{tries, policy.Timeouts{Total: time.Second}, ""},
		{long, policy.Timeouts{Total: time.Second}, "stock.retry: BaseDelay 5s is not below the total timeout 1s"},
	} {
		got := build(t, of(tt.part), tt.timeouts).Warnings()
		if tt.want == "" {
			assert.Empty(t, got)
			continue
		}
		if assert.Len(t, got, 1) {
			assert.Contains(t, got[0], tt.want)
		}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	g := &gate{}
	p := build(t, g)
	require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
	require.ErrorIs(t, policy.Run(t.Context(), p, func(context.Context) error { return errBoom }), errBoom)
	assert.Equal(t, []policy.Kind{policy.Success, policy.Failure}, g.kinds())
	require.ErrorIs(t, policy.Run(t.Context(), nil, func(context.Context) error { return errBoom }), errBoom)
}

func TestCloseRefuses(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	p, err := reg.New("stock", &gate{})
	require.NoError(t, err)
	require.NoError(t, reg.Close(t.Context()))
	require.NoError(t, reg.Close(t.Context()), "closing twice does nothing")
	_, err = policy.Do(t.Context(), p, succeed)
	require.ErrorIs(t, err, policy.ErrClosed)
	require.ErrorIs(t, err, policy.ErrRejected)
	assert.Equal(t, uint64(1), p.Snapshot().Policies[1].Rejected[policy.ReasonClosed])
	_, err = reg.New("other")
	require.ErrorIs(t, err, policy.ErrClosed)
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	rec := &recorder{}
	reg.Use(policy.Observe(rec))
	b, err := reg.New("b", &gate{limit: -1})
	require.NoError(t, err)
	_, err = reg.New("a")
	require.NoError(t, err)
	_, err = reg.New("a", &gate{})
	require.ErrorIs(t, err, policy.ErrDuplicate)
	_, err = reg.New("c", policy.Timeouts{Total: -1})
	require.Error(t, err)
	_, ok := reg.Get("c")
	assert.False(t, ok, "a pipeline that was refused is not kept")
	got, ok := reg.Get("b")
	assert.True(t, ok)
	assert.Same(t, b, got)
	var names []string
	for _, s := range reg.Snapshot() {
		names = append(names, s.Dependency)
	}
	assert.Equal(t, []string{"a", "b"}, names)
	_, _ = policy.Do(t.Context(), b, succeed)
	assert.Equal(t, []string{"rejected"}, rec.kinds())
	ready, why := reg.Ready()
	assert.True(t, ready, why)
}

func TestCallTravelsInTheContext(t *testing.T) {
	t.Parallel()
	var got policy.Call
	g := &gate{enter: func(_ context.Context, a *policy.Attempt) error { got = *a.Call(); return nil }}
	p := build(t, g)
	ctx := policy.WithCall(t.Context(), policy.Call{Key: "shop-1", Cost: 3})
	ctx = policy.WithPriority(ctx, policy.PriorityHigh)
	_, err := policy.Do(ctx, p, succeed)
	require.NoError(t, err)
	assert.Equal(t, policy.Call{Key: "shop-1", Cost: 3, Priority: policy.PriorityHigh}, got)
	_, err = policy.DoAttempt(ctx, p, &policy.Call{NoRetry: true}, 0, func(context.Context, int, *policy.Attempt) (int, error) { return 0, nil }, nil)
	require.NoError(t, err)
	assert.Equal(t, policy.Call{NoRetry: true}, got)
	for cost, want := range map[int]int{0: 1, -5: 1, math.MinInt: 1, 1: 1, 7: 7} {
		g.enter = func(_ context.Context, a *policy.Attempt) error { assert.Equal(t, want, a.Cost()); return nil }
		_, err = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: cost}), p, succeed)
		require.NoError(t, err)
	}
}

func TestDoConcurrentSafe(t *testing.T) {
	t.Parallel()
	g := &gate{limit: 4}
	r := &retrier{max: 2}
	p := build(t, g, r, &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return -1, nil }})
	const workers, each = 16, 300
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				switch (w + i) % 4 {
				case 0:
					_, _ = policy.Do(t.Context(), p, succeed)
				case 1:
					_, _ = policy.Do(t.Context(), p, fail)
				case 2:
					if h, err := p.Enter(t.Context()); err == nil {
						h.Leave(nil)
						h.Leave(nil)
					}
				case 3:
					func() {
						defer func() { _ = recover() }()
						_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic("x") })
					}()
				}
				if i%50 == 0 {
					p.Snapshot()
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, g.held())
	snap := p.Snapshot()
	var calls uint64
	for _, n := range snap.Calls {
		calls += n
	}
	assert.Equal(t, uint64(workers*each), calls, "a call whose function panics is a call too")
}
