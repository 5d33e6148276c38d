package breaker_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

var errBroken = errors.New("broken")

func reloaded(t *testing.T, p *policy.Pipeline, specs ...policy.Policy) []string {
	t.Helper()
	u, err := p.Prepare(specs...)
	require.NoError(t, err)
	require.NoError(t, u.Apply())
	var list []string
	for _, r := range u.Replacements {
		list = append(list, r.String())
	}
	return list
}

func stateOf(p *policy.Pipeline) policy.BreakerSnapshot { return *p.Snapshot().Policies[0].Breaker }

// An open breaker stays open until the time that was set when it opened; the next time it
// opens for as long as the new settings say.
func TestReloadKeepsTheState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", breaker.Config{MinCalls: 2, OpenFor: 10 * time.Second})
		require.NoError(t, err)
		fail := func() { _ = policy.Run(t.Context(), p, func(context.Context) error { return errBroken }) }
		fail()
		assert.Equal(t, []string{"breaker: resized"}, reloaded(t, p, breaker.Config{MinCalls: 2, OpenFor: 10 * time.Second, SlowAfter: time.Second}))
		assert.Equal(t, uint64(1), stateOf(p).Failures, "the window stays")
		fail()
		assert.Equal(t, "open", stateOf(p).State)
		since := stateOf(p).Since
		time.Sleep(4 * time.Second)
		assert.Equal(t, []string{"breaker: resized"}, reloaded(t, p, breaker.Config{MinCalls: 3, OpenFor: time.Minute, Probes: 1}))
		s := stateOf(p)
		assert.Equal(t, "open", s.State)
		assert.Equal(t, since, s.Since)
		assert.Equal(t, 6*time.Second, s.RetryAfter)
		assert.Equal(t, []string{"breaker: kept"}, reloaded(t, p, breaker.Config{MinCalls: 3, OpenFor: time.Minute, Probes: 1}))
		time.Sleep(6 * time.Second)
		assert.Equal(t, "half_open", stateOf(p).State)
		fail()
		assert.Equal(t, time.Minute, stateOf(p).RetryAfter, "one probe decides, and the new time holds")
	})
}

// A probe that runs while the settings change is told as ever.
func TestReloadKeepsProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", breaker.Config{MinCalls: 1, OpenFor: time.Second, Probes: 1})
		require.NoError(t, err)
		_ = policy.Run(t.Context(), p, func(context.Context) error { return errBroken })
		time.Sleep(time.Second)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		reloaded(t, p, breaker.Config{MinCalls: 1, OpenFor: 2 * time.Second, Probes: 1})
		_, err = p.Enter(t.Context())
		require.ErrorIs(t, err, breaker.ErrOpen, "the place of the probe is taken")
		assert.True(t, h.Leave(nil))
		h.Release()
		assert.Equal(t, "closed", stateOf(p).State)
	})
}

// The calls that count stay those that count, whatever shape the window has.
func TestReloadOfAnotherWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", breaker.Config{MinCalls: 4, Window: 30 * time.Second})
		require.NoError(t, err)
		fail := func() { _ = policy.Run(t.Context(), p, func(context.Context) error { return errBroken }) }
		fail()
		time.Sleep(10 * time.Second)
		fail()
		assert.Equal(t, []string{"breaker: resized"}, reloaded(t, p, breaker.Config{MinCalls: 4, Window: time.Minute}))
		assert.Equal(t, uint64(2), stateOf(p).Failures)
		time.Sleep(20 * time.Second)
		assert.Equal(t, uint64(2), stateOf(p).Failures, "nothing is forgotten before the new time")
		reloaded(t, p, breaker.Config{MinCalls: 4, Window: 22 * time.Second, Buckets: 22})
		assert.Equal(t, uint64(1), stateOf(p).Failures, "a shorter one forgets at once")
		reloaded(t, p, breaker.Config{MinCalls: 2, Window: 22 * time.Second})
		fail()
		assert.Equal(t, "open", stateOf(p).State, "the rule counts what was before")
	})
}

func TestReloadOfAWindowOfCalls(t *testing.T) {
	t.Parallel()
	p, err := policy.New("dep", breaker.Config{LastCalls: 10, MinCalls: 10})
	require.NoError(t, err)
	for range 3 {
		_ = policy.Run(t.Context(), p, func(context.Context) error { return errBroken })
	}
	reloaded(t, p, breaker.Config{LastCalls: 20, MinCalls: 10})
	assert.Equal(t, uint64(3), stateOf(p).Failures)
	reloaded(t, p, breaker.Config{LastCalls: 2, MinCalls: 2})
	assert.Equal(t, uint64(2), stateOf(p).Failures)
	reloaded(t, p, breaker.Config{MinCalls: 2})
	assert.Equal(t, uint64(0), stateOf(p).Calls, "it is not known when they were")
}

func TestReloadOfSomethingElse(t *testing.T) {
	t.Parallel()
	b, err := breaker.New("", breaker.Config{})
	require.NoError(t, err)
	k, err := breaker.NewKeyed("", breaker.Keyed{})
	require.NoError(t, err)
	th, err := breaker.NewThrottle("", breaker.Throttle{})
	require.NoError(t, err)
	for _, bad := range []policy.Policy{
		policy.Timeouts{}, breaker.Config{FailureRatio: 2}, breaker.Keyed{MaxKeys: -1}, breaker.Throttle{K: -1},
	} {
		for _, r := range []policy.Reloader{b, k, th} {
			_, err := r.Reload(bad)
			require.Error(t, err)
		}
	}
}

// Each key keeps its state; new keys, and the next decisions, have the new settings.
func TestReloadOfKeyedKeepsTheStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := breaker.Keyed{Config: breaker.Config{MinCalls: 2, OpenFor: 10 * time.Second}, MaxKeys: 3}
		p, err := policy.New("dep", cfg)
		require.NoError(t, err)
		call := func(key string, err error) error {
			return policy.Run(policy.WithCall(t.Context(), policy.Call{Key: key}), p, func(context.Context) error { return err })
		}
		_, _ = call("a", errBroken), call("a", errBroken)
		_, _ = call("b", errBroken), call("c", nil)
		require.ErrorIs(t, call("a", nil), breaker.ErrOpen)

		cfg.MaxKeys, cfg.OpenFor = 100, time.Minute
		assert.Equal(t, []string{"keyed_breaker: resized"}, reloaded(t, p, cfg))
		require.ErrorIs(t, call("a", nil), breaker.ErrOpen)
		assert.Equal(t, 3, stateOf(p).Keys)
		assert.Equal(t, 10*time.Second, stateOf(p).RetryAfter, "it ends when it was to end")
		_ = call("b", errBroken)
		require.ErrorIs(t, call("b", nil), breaker.ErrOpen, "its window was kept")
		_, _ = call("d", errBroken), call("d", errBroken)
		time.Sleep(30 * time.Second)
		require.NoError(t, call("a", nil))
		require.ErrorIs(t, call("d", nil), breaker.ErrOpen, "a new key has the new settings")
		assert.Equal(t, 4, stateOf(p).Keys)

		cfg.MaxKeys = 2
		assert.Equal(t, []string{"keyed_breaker: resized"}, reloaded(t, p, cfg))
		assert.Equal(t, 2, stateOf(p).Keys)
		require.ErrorIs(t, call("d", nil), breaker.ErrOpen, "closed keys are the first to go")
	})
}

// A throttle goes on refusing what it refused.
func TestReloadOfThrottleKeepsItsCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := breaker.Throttle{MinCalls: 10}
		p, err := policy.New("dep", cfg)
		require.NoError(t, err)
		for range 40 {
			_ = policy.Run(t.Context(), p, func(context.Context) error { return errBroken })
		}
		before := stateOf(p)
		assert.Equal(t, "throttling", before.State)
		assert.Equal(t, uint64(40), before.Calls)
		cfg.K, cfg.Window, cfg.Buckets, cfg.MaxRejection = 3, 20*time.Second, 5, 0.5
		assert.Equal(t, []string{"throttle: resized"}, reloaded(t, p, cfg))
		after := stateOf(p)
		assert.Equal(t, uint64(40), after.Calls)
		assert.Equal(t, before.Since, after.Since)
		assert.InDelta(t, 0.5, after.Share, 1e-9)
		assert.InDelta(t, 1-1.0/3, after.FailureThreshold, 1e-9)
		cfg.MinCalls = 100
		reloaded(t, p, cfg)
		assert.Equal(t, "closed", stateOf(p).State, "too few are known now")
		time.Sleep(25 * time.Second)
		assert.Zero(t, stateOf(p).Calls)
	})
}

// Reloads under way while calls come and go lose no call and no probe, and open nothing.
func TestReloadConcurrentSafe(t *testing.T) {
	t.Parallel()
	p, err := policy.New("dep", breaker.Keyed{MaxKeys: 20}, breaker.Throttle{})
	require.NoError(t, err)
	const goroutines, calls = 4, 2000
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range calls {
				ctx := policy.WithCall(t.Context(), policy.Call{Key: strconv.Itoa((g + i) % 30)})
				assert.NoError(t, policy.Run(ctx, p, func(context.Context) error { return nil }))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for i := 0; ; i++ {
		u, err := p.Prepare(
			breaker.Keyed{MaxKeys: 10 + i%50, Config: breaker.Config{Window: time.Duration(1+i%5) * time.Second}},
			breaker.Throttle{K: 2 + float64(i%3), Window: time.Duration(1+i%7) * time.Second},
		)
		require.NoError(t, err)
		require.NoError(t, u.Apply())
		for _, r := range u.Replacements {
			require.NotEqual(t, policy.ChangeReset, r.Change)
		}
		select {
		case <-done:
			for _, ps := range p.Snapshot().Policies {
				assert.Equal(t, "closed", ps.Breaker.State)
				assert.Zero(t, ps.Breaker.Failures)
			}
			return
		default:
		}
	}
}
