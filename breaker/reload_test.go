package breaker_test

import (
	"context"
	"errors"
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

func TestReloadOfAnotherWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", breaker.Config{MinCalls: 3})
		require.NoError(t, err)
		for range 2 {
			_ = policy.Run(t.Context(), p, func(context.Context) error { return errBroken })
		}
		reloaded(t, p, breaker.Config{MinCalls: 3, Window: time.Minute})
		assert.Equal(t, uint64(0), stateOf(p).Calls)
		b, err := breaker.New("", breaker.Config{})
		require.NoError(t, err)
		_, err = b.Reload(breaker.Keyed{})
		require.Error(t, err)
		_, err = b.Reload(breaker.Config{FailureRatio: 2})
		require.Error(t, err)
	})
}
