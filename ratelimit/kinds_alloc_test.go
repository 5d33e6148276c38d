//go:build !race

package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// Letting a call in allocates nothing, and neither does refusing it; in a pipeline a
// refusal costs its error.
func TestAllocKinds(t *testing.T) {
	for _, k := range kinds {
		ample := func() byHand {
			l, err := k.make(limit{tokens: 1 << 20, per: time.Millisecond})
			require.NoError(t, err)
			return l
		}
		scarce, err := k.make(limit{tokens: 1, per: 1000 * time.Hour})
		require.NoError(t, err)
		require.True(t, scarce.Allow())
		ahead, back, l := ample(), ample(), ample()
		p, full := newPipeline(t, l), newPipeline(t, scarce)
		refund := back.(interface{ Refund(time.Time, int) }).Refund
		ctx, now := t.Context(), time.Now()
		next := func() time.Time {
			now = now.Add(time.Microsecond)
			return now
		}
		for name, op := range map[string]func(){
			"Allow":          func() { l.Allow() },
			"Take":           func() { ahead.Take(next(), 1) },
			"Allow, refused": func() { scarce.Allow() },
			"Take, refused":  func() { scarce.Take(now, 1) },
			"Take, too big":  func() { scarce.Take(now, 1<<30) },
			"Refund": func() {
				back.Take(next(), 1)
				refund(now, 1)
			},
			"Wait, no wait":    func() { _ = l.Wait(ctx, 1) },
			"Reserve, no wait": func() { ahead.Reserve(next(), 1) },
			"pipeline":         func() { _, _ = policy.Do(ctx, p, succeed) },
		} {
			for range 100 { // what grows does so before
				op()
			}
			assert.Zero(t, testing.AllocsPerRun(1000, op), "%s: %s", k.name, name)
		}
		assert.InDelta(t, 1, testing.AllocsPerRun(1000, func() { _, _ = policy.Do(ctx, full, succeed) }), 0, k.name)
	}
}

func TestAllocLanes(t *testing.T) {
	set, err := ratelimit.NewLaneSet("", ratelimit.Lanes{
		Lanes: []ratelimit.LaneConfig{
			{Name: "a", Rate: ratelimit.PerSecond(1e9), Burst: 1e9, LendAbove: 10},
			{Name: "b", Priority: policy.PriorityLow, Rate: ratelimit.Every(time.Hour), YieldTo: "a", YieldBelow: 5},
		},
		Total: ratelimit.SlidingWindow{Limit: 1 << 20, Window: time.Millisecond},
	})
	require.NoError(t, err)
	p := newPipeline(t, set)
	ctx := policy.WithPriority(t.Context(), policy.PriorityLow)
	named := ratelimit.WithLane(t.Context(), "b")
	for range 10_000 {
		_, _ = policy.Do(ctx, p, succeed)
	}
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = policy.Do(ctx, p, succeed) }), "borrowed")
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = policy.Do(named, p, succeed) }))
}
