package policy_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// spec is a configuration of a gate that can be resized.
type spec struct {
	Name  string
	Limit int
	Deep  int // cannot be changed in place
	Bad   bool
}

func (s spec) BuildPolicy() (policy.Part, error) {
	if s.Bad {
		return policy.Part{Kind: "sized", Name: s.Name}, &policy.ConfigError{Policy: "sized", Field: "Bad", Value: true, Want: "want false"}
	}
	g := &sized{deep: s.Deep, gate: &gate{name: s.Name, limit: s.Limit}}
	return policy.Part{Kind: "sized", Name: s.Name, Gate: g}, nil
}

type sized struct {
	*gate

	deep   int
	closed atomic.Bool
}

func (g *sized) Reload(next policy.Policy) (func(), error) {
	s, ok := next.(spec)
	if !ok || s.Deep != g.deep {
		return nil, errors.New("Deep cannot be changed in place")
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.limit = s.Limit
	}, nil
}

func (g *sized) Close(context.Context) error {
	g.closed.Store(true)
	return nil
}

func replacements(u *policy.Update) (list []string) {
	for _, r := range u.Replacements {
		list = append(list, r.String())
	}
	return list
}

func prepared(t *testing.T, p *policy.Pipeline, policies ...policy.Policy) *policy.Update {
	t.Helper()
	u, err := p.Prepare(policies...)
	require.NoError(t, err)
	return u
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	p, err := policy.New("dep", spec{Name: "a", Limit: 2}, spec{Name: "b", Limit: -1}, spec{Name: "c"}, policy.Timeouts{Total: time.Minute})
	require.NoError(t, err)
	ok := func(context.Context) error { return nil }
	require.ErrorIs(t, policy.Run(t.Context(), p, ok), policy.ErrRejected)

	u := prepared(t, p, spec{Name: "a", Limit: 3}, spec{Name: "b", Limit: -1}, spec{Name: "c", Deep: 1}, spec{Name: "d"}, policy.Timeouts{Total: time.Hour})
	assert.Equal(t, []string{"timeout: resized", "a: resized", "b: kept", "c: reset (Deep cannot be changed in place)", "d: added"}, replacements(u))
	assert.Len(t, p.Snapshot().Policies, 4, "nothing has changed yet")
	require.NoError(t, u.Apply())
	require.ErrorIs(t, u.Apply(), policy.ErrStale)
	snap := p.Snapshot()
	require.Len(t, snap.Policies, 5)
	assert.Equal(t, time.Hour, snap.Policies[0].Timeouts.Total)
	assert.Equal(t, uint64(1), snap.Policies[2].Rejected[policy.ReasonConcurrency], "what was counted stays")

	u = prepared(t, p, spec{Name: "b", Limit: 1})
	assert.Equal(t, []string{"b: resized", "timeout: removed", "a: removed", "c: removed", "d: removed"}, replacements(u))
	require.NoError(t, u.Apply())
	require.NoError(t, policy.Run(t.Context(), p, ok))
	require.NoError(t, p.Close(t.Context()))
	_, err = p.Prepare()
	require.ErrorIs(t, err, policy.ErrClosed)
}

// What is wrong is reported at once, and changes nothing.
func TestUpdateFaults(t *testing.T) {
	t.Parallel()
	p, err := policy.New("dep", spec{Name: "a", Limit: 2})
	require.NoError(t, err)
	_, err = p.Prepare(spec{Name: "a", Bad: true}, spec{Name: "b"}, spec{Name: "b"}, policy.Timeouts{Total: -1})
	for _, want := range []string{"dep.a.Bad", "dep.b", "dep.timeout.Total"} {
		require.ErrorContains(t, err, want)
	}
	assert.Len(t, p.Snapshot().Policies, 1)
	require.NoError(t, p.SetShadow("a", true))
	u := prepared(t, p, spec{Name: "a", Limit: 2})
	require.NoError(t, u.Apply())
	assert.True(t, p.Snapshot().Policies[0].Shadow, "what was switched by hand stays while the settings do")
}

// An attempt that has entered leaves through the gates it entered; the next one meets
// the new ones.
func TestUpdateInFlight(t *testing.T) {
	t.Parallel()
	old, next := &gate{name: "a", holds: true}, &gate{name: "a"}
	p, err := policy.New("dep", old)
	require.NoError(t, err)
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	require.NoError(t, prepared(t, p, next).Apply())
	require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
	h.Leave(nil)
	h.Release()
	assert.Equal(t, 0, old.inFlight)
	assert.Len(t, old.outcomes, 1)
	assert.Len(t, next.outcomes, 1)
}

// What was replaced is closed by the update after that, or with the pipeline.
func TestUpdateCloses(t *testing.T) {
	t.Parallel()
	first := &sized{gate: &gate{name: "a"}, deep: 1}
	second := &sized{gate: &gate{name: "a"}, deep: 2}
	p, err := policy.New("dep", live{first})
	require.NoError(t, err)
	require.NoError(t, prepared(t, p, live{second}).Apply())
	assert.False(t, first.closed.Load(), "a call may be on its way to it")
	require.NoError(t, prepared(t, p, live{second}).Apply())
	assert.True(t, first.closed.Load())
	assert.False(t, second.closed.Load())
	require.NoError(t, prepared(t, p).Apply())
	require.NoError(t, p.Close(t.Context()))
	assert.True(t, second.closed.Load())
}

type live struct{ g *sized }

func (l live) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "sized", Name: l.g.name, Gate: l.g}, nil
}

func TestUpdateConcurrentSafe(t *testing.T) {
	t.Parallel()
	var r policy.Registry
	r.Use(policy.Observe(policy.ObserverFunc(func(policy.Event) {})))
	p, err := r.New("dep", spec{Name: "a", Limit: 1000})
	require.NoError(t, err)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					assert.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
				}
			}
		})
	}
	for i := range 200 {
		u, err := r.Prepare("dep", spec{Name: "a", Limit: 1000 + i%3}, policy.Timeouts{Total: time.Duration(i%2) * time.Minute})
		require.NoError(t, err)
		require.NoError(t, u.Apply())
		cancel := p.Watch(idleWatcher{})
		_ = p.Snapshot()
		cancel()
	}
	close(stop)
	wg.Wait()
	require.NoError(t, r.Remove(t.Context(), "dep"))
	require.NoError(t, r.Remove(t.Context(), "dep"))
	_, err = r.Prepare("dep")
	require.Error(t, err)
	require.ErrorIs(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }), policy.ErrClosed)
	_, err = r.New("dep")
	require.NoError(t, err)
}

type idleWatcher struct{}

func (idleWatcher) OnEvent(policy.Event)                         {}
func (idleWatcher) OnAttempt(context.Context, policy.AttemptEnd) {}

// A pool that an update adds or removes counts from the next attempt on, also where that
// is a retry.
func TestUpdateOfThePoolDuringACall(t *testing.T) {
	t.Parallel()
	r, w := &retrier{max: 3}, newWorker()
	p := build(t, r)
	on := func(policies ...policy.Policy) {
		u, err := p.Prepare(policies...)
		require.NoError(t, err)
		require.NoError(t, u.Apply())
	}
	var pooled []bool
	_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
		pooled = append(pooled, len(w.busy) == 1)
		switch len(pooled) {
		case 1:
			on(r, w)
		case 2:
			on(r)
		}
		return 0, errBoom
	})
	require.ErrorIs(t, err, errBoom)
	assert.Equal(t, []bool{false, true, false}, pooled)
	w.wg.Wait()
}

// turnstile is a live gate: what is in it changes while others look.
type turnstile struct {
	*gate

	mu     sync.Mutex
	passed int
}

func (g *turnstile) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "turnstile", Gate: g}, nil
}

func (g *turnstile) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	g.mu.Lock()
	g.passed++
	g.mu.Unlock()
	return g.gate.Enter(ctx, a, slot)
}

// Of two live objects that are in the same state, the one that is handed over counts. What
// is in them is not looked at, since calls change it.
func TestUpdateTellsLiveObjectsApart(t *testing.T) {
	t.Parallel()
	a, b := &turnstile{gate: &gate{}}, &turnstile{gate: &gate{}}
	p, err := policy.New("dep", a)
	require.NoError(t, err)
	assert.Equal(t, []string{"turnstile: reset (its settings have changed)"}, replacements(prepared(t, p, b)))
	assert.Equal(t, []string{"turnstile: kept"}, replacements(prepared(t, p, a)))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 100 {
			_ = policy.Run(t.Context(), p, func(context.Context) error { return nil })
		}
	})
	for range 100 {
		prepared(t, p, b)
	}
	wg.Wait()
}

// A pointer to a spec stands for what it points to at the time.
func TestUpdateByPointer(t *testing.T) {
	t.Parallel()
	s := &spec{Name: "a", Limit: 1}
	p, err := policy.New("dep", s)
	require.NoError(t, err)
	assert.Equal(t, []string{"a: kept"}, replacements(prepared(t, p, s)))
	s.Limit = 2
	assert.Equal(t, []string{"a: resized"}, replacements(prepared(t, p, s)))
	assert.Equal(t, []string{"a: kept"}, replacements(prepared(t, p, spec{Name: "a", Limit: 1})))
}

// Maps and slices of a spec count as they were when it was handed over.
func TestUpdateOfAMapThatHasChanged(t *testing.T) {
	t.Parallel()
	s := tiers{Limits: map[string]int{"gold": 1}, Order: []string{"gold"}}
	p, err := policy.New("dep", s)
	require.NoError(t, err)
	assert.Equal(t, []string{"tiers: kept"}, replacements(prepared(t, p, s)))
	s.Limits["gold"] = 2
	assert.Equal(t, []string{"tiers: reset (its settings have changed)"}, replacements(prepared(t, p, s)))
	s.Limits["gold"] = 1
	s.Order[0] = "silver"
	assert.Equal(t, []string{"tiers: reset (its settings have changed)"}, replacements(prepared(t, p, s)))
}

// tiers is a spec with more in it than values.
type tiers struct {
	Limits map[string]int
	Order  []string
}

func (tiers) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "tiers", Gate: &gate{}}, nil
}

// made is a spec that makes a gate which has to be closed.
type made struct {
	Limit int
	Open  *atomic.Int32
}

func (m made) BuildPolicy() (policy.Part, error) {
	m.Open.Add(1)
	return policy.Part{Kind: "made", Gate: &madeGate{&gate{limit: m.Limit}, m}}, nil
}

type madeGate struct {
	*gate

	made
}

func (*madeGate) Reload(policy.Policy) (func(), error) { return func() {}, nil }

func (g *madeGate) Close(context.Context) error {
	g.Open.Add(-1)
	return nil
}

// What an update makes and does not need does not stay open.
func TestUpdateClosesWhatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	m := made{Limit: 1, Open: new(atomic.Int32)}
	p, err := policy.New("dep", m)
	require.NoError(t, err)
	assert.Equal(t, []string{"made: kept"}, replacements(prepared(t, p, m)))
	assert.Equal(t, int32(1), m.Open.Load())
	m.Limit = 2
	assert.Equal(t, []string{"made: resized"}, replacements(prepared(t, p, m)))
	assert.Equal(t, int32(1), m.Open.Load())
	require.NoError(t, p.Close(t.Context()))
	assert.Zero(t, m.Open.Load())
}

// What an update that is not applied has made does not stay open, whatever became of it.
func TestUpdateDiscarded(t *testing.T) {
	t.Parallel()
	m := made{Limit: 1, Open: new(atomic.Int32)}
	live := &sized{gate: &gate{name: "live"}}
	p, err := policy.New("dep", m, wrapper{live})
	require.NoError(t, err)
	named := func(name string) policy.Policy { return renamed{m, name} }

	_, err = policy.New("dep", m, spec{Bad: true})
	require.Error(t, err)
	_, err = p.Prepare(named("other"), wrapper{live}, spec{Bad: true})
	require.Error(t, err)
	assert.Equal(t, int32(1), m.Open.Load(), "of those that failed")

	u := prepared(t, p, named("other"), wrapper{live})
	assert.Equal(t, int32(2), m.Open.Load())
	u.Discard()
	u.Discard()
	assert.Equal(t, int32(1), m.Open.Load())
	require.ErrorIs(t, u.Apply(), policy.ErrStale)

	stale, good := prepared(t, p, named("other")), prepared(t, p, named("next"))
	require.NoError(t, good.Apply())
	require.ErrorIs(t, stale.Apply(), policy.ErrStale)
	good.Discard()
	require.ErrorIs(t, good.Apply(), policy.ErrStale)
	assert.Equal(t, int32(2), m.Open.Load(), "the one in use, and the one before it")
	assert.False(t, live.closed.Load())
	require.NoError(t, p.Close(t.Context()))
	assert.Zero(t, m.Open.Load())
	assert.True(t, live.closed.Load(), "it was the pipeline's")
}

// A live object is the caller's when no pipeline is made of it.
func TestFailedNewLeavesLiveObjectsAlone(t *testing.T) {
	t.Parallel()
	live := &sized{gate: &gate{name: "live"}}
	for _, handed := range []policy.Policy{wrapper{live}, &pointer{wrapper{live}}} {
		_, err := policy.New("dep", handed, spec{Bad: true})
		require.Error(t, err)
		assert.False(t, live.closed.Load())
	}
}

// pointer is a policy around another one.
type pointer struct{ of policy.Policy }

func (p *pointer) BuildPolicy() (policy.Part, error) { return p.of.BuildPolicy() }
func (p *pointer) Unwrap() policy.Policy             { return p.of }

// wrapper hands over a live object in a policy of its own.
type wrapper struct{ live *sized }

func (w wrapper) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "sized", Name: w.live.name, Gate: w.live}, nil
}

// renamed is a policy under another name.
type renamed struct {
	policy.Policy

	name string
}

func (r renamed) BuildPolicy() (policy.Part, error) {
	part, err := r.Policy.BuildPolicy()
	part.Name = r.name
	return part, err
}

// An update leaves the number of a derived pipeline alone.
func TestUpdateOfADerivedPipeline(t *testing.T) {
	t.Parallel()
	var r policy.Registry
	for _, name := range []string{"a", "b"} {
		p, err := r.New(name, policy.Derived())
		require.NoError(t, err)
		n := p.Snapshot().Derived
		prepared(t, p, policy.Derived())
		assert.Equal(t, n, p.Snapshot().Derived)
	}
}

// Who has taken a pipeline out of the registry closes it, whenever that may be.
func TestUnregister(t *testing.T) {
	t.Parallel()
	var r policy.Registry
	p, err := r.New("dep")
	require.NoError(t, err)
	assert.Same(t, p, r.Unregister("dep"))
	assert.Nil(t, r.Unregister("dep"))
	_, ok := r.Get("dep")
	assert.False(t, ok)
	require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }), "calls that have it go on")
	_, err = r.New("dep")
	require.NoError(t, err, "the name is free")
	require.NoError(t, p.Close(t.Context()))
}

// holder is a policy that can be compared by its type, and not by its value.
type holder struct {
	policy.Fallback[any]

	what any
}

func (h holder) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "fallback", Name: "fallback", Fallback: h}, nil
}

func TestUpdateOfWhatCannotBeCompared(t *testing.T) {
	t.Parallel()
	p, err := policy.New("dep", holder{what: []int{1}})
	require.NoError(t, err)
	for range 2 {
		u, err := p.Prepare(holder{what: []int{1}})
		require.NoError(t, err)
		require.NoError(t, u.Apply())
	}
}
