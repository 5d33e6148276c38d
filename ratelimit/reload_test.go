package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func reload(t *testing.T, p *policy.Pipeline, spec policy.Policy) string {
	t.Helper()
	u, err := p.Prepare(spec)
	require.NoError(t, err)
	require.NoError(t, u.Apply())
	return u.Replacements[0].String()
}

// passes counts how many of n calls at one instant are let in.
func passes(ctx context.Context, p *policy.Pipeline, n int) (let int) {
	for range n {
		if policy.Run(ctx, p, func(context.Context) error { return nil }) == nil {
			let++
		}
	}
	return let
}

// The same settings a hundred times grant nothing, and neither do larger ones; what
// arrives from then on does so at the new rate.
func TestCaseB59ReloadGrantsNothing(t *testing.T) {
	t.Parallel()
	rate := ratelimit.PerSecond
	for name, tt := range map[string]struct{ before, after policy.Policy }{
		"bucket":   {ratelimit.TokenBucket{Rate: rate(10), Burst: 10}, ratelimit.TokenBucket{Rate: rate(20), Burst: 20}},
		"keyed":    {ratelimit.Keyed{Rate: rate(10), Burst: 10}, ratelimit.Keyed{Rate: rate(20), Burst: 20}},
		"feedback": {ratelimit.Feedback{Ceiling: rate(10), Burst: 10}, ratelimit.Feedback{Ceiling: rate(20), Burst: 10}},
		"pacer":    {ratelimit.Pacer{Rate: rate(10), Burst: 10}, ratelimit.Pacer{Rate: rate(20), Burst: 20}},
		"lanes": {
			ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate(10), Burst: 10}}},
			ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate(20), Burst: 20}}},
		},
		"all": {
			ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Rate: rate(10), Burst: 10}, ratelimit.Keyed{Rate: rate(50), Burst: 50}}},
			ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Rate: rate(20), Burst: 20}, ratelimit.Keyed{Rate: rate(60), Burst: 60}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, err := policy.New("dep", tt.before)
				require.NoError(t, err)
				require.Equal(t, 10, passes(t.Context(), p, 20))
				for range 100 {
					require.Contains(t, reload(t, p, tt.before), "kept")
					require.Equal(t, 0, passes(t.Context(), p, 1))
				}
				require.Contains(t, reload(t, p, tt.after), "resized")
				require.Equal(t, 0, passes(t.Context(), p, 20))
				time.Sleep(500 * time.Millisecond)
				assert.InDelta(t, 10, passes(t.Context(), p, 20), 1)
			})
		})
	}
}

func TestReloadOfWindows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, after policy.Policy }{
		"fixed":   {ratelimit.FixedWindow{Limit: 5, Window: time.Minute}, ratelimit.FixedWindow{Limit: 8, Window: time.Minute}},
		"sliding": {ratelimit.SlidingWindow{Limit: 5, Window: time.Minute}, ratelimit.SlidingWindow{Limit: 8, Window: time.Minute}},
		"counter": {ratelimit.SlidingWindow{Limit: 5, Window: time.Minute, Approximate: true}, ratelimit.SlidingWindow{Limit: 8, Window: time.Minute, Approximate: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, err := policy.New("dep", tt.before)
				require.NoError(t, err)
				require.Equal(t, 5, passes(t.Context(), p, 10))
				require.Contains(t, reload(t, p, tt.after), "resized")
				assert.Equal(t, 3, passes(t.Context(), p, 10), "what was let in stays counted")
			})
		})
	}
}

// A smaller burst takes away what does not fit. Waits can be set, too.
func TestReloadShrinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 10, Initial: 8})
		require.NoError(t, err)
		reload(t, p, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 3})
		assert.Equal(t, 3, passes(t.Context(), p, 10))
		w, err := policy.New("dep", ratelimit.WarmUp{Rate: ratelimit.PerSecond(100), Period: time.Minute})
		require.NoError(t, err)
		assert.Contains(t, reload(t, w, ratelimit.WarmUp{Rate: ratelimit.PerSecond(50), Period: time.Minute, MaxWait: time.Second}), "resized")
		assert.Contains(t, reload(t, w, ratelimit.WarmUp{Rate: ratelimit.PerSecond(50), Period: time.Hour}), "reset (Period cannot be changed in place)")
		assert.Contains(t, reload(t, p, ratelimit.Pacer{Name: "ratelimit", Rate: ratelimit.PerSecond(50)}), "reset (it was a ratelimit)")
	})
}

// Whoever looks at a limit while it gets new settings sees the one or the other.
func TestReloadConcurrentSafe(t *testing.T) {
	t.Parallel()
	specs := []policy.Policy{
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), MaxWaiters: 3},
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(20), MaxWaiters: 4},
	}
	p, err := policy.New("dep", specs[0])
	require.NoError(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				assert.Contains(t, []int{3, 4}, p.Snapshot().Policies[0].Limiter.MaxWaiters)
			}
		}
	}()
	for i := range 200 {
		reload(t, p, specs[i%2])
	}
	close(stop)
	<-done
}
