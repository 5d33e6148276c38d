//go:build !race

package dashboard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/dashboard"
	"github.com/breakwater-go/breakwater/policy"
)

func nothing(context.Context, int) (int, error) { return 0, nil }

// TestAllocCallsDoNotNoticeIt: a call that succeeds allocates nothing under a dashboard
// either.
func TestAllocCallsDoNotNoticeIt(t *testing.T) { //nolint:paralleltest // it counts allocations
	_, _, p := newDashboard(t, dashboard.Config{}, breaker.Config{}, bulkhead.Semaphore{Limit: 8})
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(2000, func() { _, _ = policy.DoWith(ctx, p, 0, nothing) }))
}

// BenchmarkCall is a call that succeeds, and one that is refused, with and without a
// dashboard.
func BenchmarkCall(b *testing.B) {
	for _, watched := range []bool{false, true} {
		name := map[bool]string{false: "alone", true: "watched"}[watched]
		reg := new(policy.Registry)
		p, err := reg.New("inventory", breaker.Config{}, bulkhead.Semaphore{Limit: 8})
		require.NoError(b, err)
		full, err := reg.New("full", bulkhead.Semaphore{Limit: 1})
		require.NoError(b, err)
		h, err := full.Enter(b.Context())
		require.NoError(b, err)
		if watched {
			d, err := dashboard.New(reg, dashboard.Config{})
			require.NoError(b, err)
			b.Cleanup(d.Close)
		}
		for what, of := range map[string]*policy.Pipeline{"success": p, "refused": full} {
			b.Run(name+"/"+what, func(b *testing.B) {
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					_, _ = policy.DoWith(ctx, of, 0, nothing)
				}
			})
		}
		b.Cleanup(h.Release)
	}
}
