package config_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// A hundred reloads, each of which changes every limit, let in what one file would have let
// in: no token comes from a reload, and a breaker that is open stays so, also while a call
// that began before them is still in flight.
func TestCaseB59ReloadsGrantNothing(t *testing.T) {
	t.Parallel()
	file := func(policies, breaker string) string {
		return "dependencies: {limited: {policies: [" + policies + "]}, broken: {policies: [" + breaker + "]}}"
	}
	texts := []string{
		file("ratelimit: {Rate: 1/h, Burst: 10}, bulkhead: {Limit: 2}", "breaker: {ConsecutiveFailures: 2, OpenFor: 1h}"),
		file("ratelimit: {Rate: 2/h, Burst: 12}, bulkhead: {Limit: 3}", "breaker: {ConsecutiveFailures: 3, OpenFor: 2h}"),
	}
	m := manage(t, texts[0])
	broken, _ := m.reg.Get("broken")
	fails := errors.New("broken")
	for range 2 {
		require.ErrorIs(t, policy.Run(t.Context(), broken, func(context.Context) error { return fails }), fails)
	}
	limited, _ := m.reg.Get("limited")
	began, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- policy.Run(t.Context(), limited, func(context.Context) error {
			close(began)
			<-end
			return nil
		})
	}()
	<-began
	let := 1
	for i := range 100 {
		m.store.set(texts[(i+1)%2], nil)
		r, err := m.Reload(t.Context())
		require.NoError(t, err)
		require.NotContains(t, r.String(), "reset")
		let += m.passes(t, "limited", 1)
		require.ErrorIs(t, policy.Run(t.Context(), broken, func(context.Context) error { return nil }), policy.ErrRejected)
	}
	assert.Equal(t, 10, let)
	close(end)
	require.NoError(t, <-ended)
	for _, s := range limited.Snapshot().Policies {
		if s.Bulkhead != nil {
			assert.Zero(t, s.Bulkhead.InFlight)
		}
	}
}
