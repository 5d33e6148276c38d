package policy_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// watcher writes down what it is told.
type watcher struct {
	mu     sync.Mutex
	events []policy.Event
	ends   []policy.AttemptEnd
	values []any
}

type watchKey struct{}

func (w *watcher) OnEvent(e policy.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

func (w *watcher) OnAttempt(ctx context.Context, e policy.AttemptEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, e)
	w.values = append(w.values, ctx.Value(watchKey{}))
}

func call(p *policy.Pipeline, err error) error {
	ctx := context.WithValue(context.Background(), watchKey{}, "trace")
	return policy.Run(ctx, p, func(context.Context) error { return err })
}

func TestWatchComesAndGoes(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	g := &gate{name: "gate"}
	early, err := reg.New("early", g)
	require.NoError(t, err)
	require.ErrorIs(t, call(early, errBoom), errBoom)

	w := &watcher{}
	cancel := reg.Watch(w)
	late, err := reg.New("late", &gate{name: "full", limit: -1})
	require.NoError(t, err)

	require.NoError(t, call(early, nil))
	require.Empty(t, w.ends, "a success is nobody's business")
	require.ErrorIs(t, call(early, errBoom), errBoom)
	require.ErrorIs(t, call(late, nil), policy.ErrRejected)

	require.Len(t, w.ends, 2)
	assert.Equal(t, "early", w.ends[0].Dependency)
	assert.Equal(t, policy.Failure, w.ends[0].Outcome.Kind)
	assert.ErrorIs(t, w.ends[0].Err, errBoom)
	assert.Equal(t, "late", w.ends[1].Dependency)
	assert.Equal(t, policy.NotRun, w.ends[1].Outcome.Kind)
	assert.ErrorIs(t, w.ends[1].Err, policy.ErrRejected)
	assert.Equal(t, []any{"trace", "trace"}, w.values)
	require.Len(t, w.events, 1)
	assert.Equal(t, policy.EventRejected, w.events[0].Kind)

	cancel()
	cancel()
	require.ErrorIs(t, call(early, errBoom), errBoom)
	require.ErrorIs(t, call(late, nil), policy.ErrRejected)
	assert.Len(t, w.ends, 2)
	assert.Len(t, w.events, 1)
}

func TestWatchSeesPanicsAndHandles(t *testing.T) {
	t.Parallel()
	p, err := policy.New("api", &gate{name: "gate"})
	require.NoError(t, err)
	w := &watcher{}
	defer p.Watch(w)()
	assert.Panics(t, func() {
		_ = policy.Run(t.Context(), p, func(context.Context) error { panic("boom") })
	})
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	h.Settle(policy.Success, 0)
	h.Amend(policy.Timeout)
	h.Release()
	require.Len(t, w.ends, 2)
	assert.Equal(t, policy.Failure, w.ends[0].Outcome.Kind)
	assert.Equal(t, policy.Timeout, w.ends[1].Outcome.Kind)
}

func TestSetShadow(t *testing.T) {
	t.Parallel()
	g := &gate{name: "gate", limit: -1, waits: true}
	p, err := policy.New("api", g, &gate{name: "other"})
	require.NoError(t, err)
	rejected := func() (counts uint64, shadow bool) {
		ps := p.Snapshot().Policies[0]
		return ps.Rejected[policy.ReasonConcurrency], ps.Shadow
	}
	require.ErrorIs(t, call(p, nil), policy.ErrRejected)
	require.NoError(t, p.SetShadow("gate", true))
	require.NoError(t, call(p, nil))
	require.NoError(t, call(p, nil))
	n, shadow := rejected()
	assert.True(t, shadow)
	assert.Equal(t, uint64(2), n, "the two modes are counted apart")
	require.NoError(t, p.SetShadow("gate", true))
	require.NoError(t, p.SetShadow("gate", false))
	require.ErrorIs(t, call(p, nil), policy.ErrRejected)
	n, shadow = rejected()
	assert.False(t, shadow)
	assert.Equal(t, uint64(2), n)

	var fault *policy.ConfigError
	require.ErrorAs(t, p.SetShadow("nothing", true), &fault)
	assert.Equal(t, "nothing", fault.Policy)
}

func TestSetShadowLeavesThroughThePlanThatWasEntered(t *testing.T) {
	t.Parallel()
	g := &gate{name: "gate", limit: 1, holds: true}
	p, err := policy.New("api", g)
	require.NoError(t, err)
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.SetShadow("gate", true))
	require.NoError(t, call(p, nil), "a full gate that watches lets the call through")
	assert.Equal(t, 1, g.held())
	h.Leave(nil)
	assert.Zero(t, g.held())
}

func TestSetShadowConcurrentSafe(t *testing.T) {
	t.Parallel()
	g := &gate{name: "gate", limit: 2, holds: true}
	p, err := policy.New("api", g)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				err := errBoom
				if i%2 == 0 {
					err = nil
				}
				if got := call(p, err); got != nil && !errors.Is(got, errBoom) && !errors.Is(got, policy.ErrRejected) {
					t.Errorf("unexpected %v", got)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 500 {
			_ = p.SetShadow("gate", i%2 == 0)
		}
		p.Watch(&watcher{})()
	})
	wg.Wait()
	assert.Zero(t, g.held(), "nothing stays taken")
}

func TestControls(t *testing.T) {
	t.Parallel()
	p, err := policy.New("api", &gate{name: "gate", shadow: true}, policy.Timeouts{})
	require.NoError(t, err)
	assert.Equal(t, []policy.Control{{Name: "gate", Kind: "gate", Shadow: true, Gate: true}}, p.Controls())
	var none *policy.Pipeline
	assert.Empty(t, none.Controls())
	none.Watch(&watcher{})()
}
