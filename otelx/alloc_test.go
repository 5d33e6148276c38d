//go:build !race

package otelx_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// A call that nobody records allocates nothing, whatever is in its context.
func TestAllocTracerNotRecording(t *testing.T) {
	tr, err := otelx.NewTracer(otelx.TracerConfig{})
	require.NoError(t, err)
	p := pipeline(t, "dep", tr)
	for name, ctx := range map[string]context.Context{
		"no span":          t.Context(),
		"span not sampled": unsampled(t.Context()),
		"deep context":     policy.WithPriority(unsampled(t.Context()), policy.PriorityHigh),
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			_, span := tr.StartCall(ctx, "dep")
			if span != nil {
				t.Error("the call is followed")
			}
		}), "StartCall, %s", name)
		n := 0
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			_, _ = policy.DoWith(ctx, p, &n, count)
		}), "DoWith, %s", name)
		assert.NotZero(t, n)
	}
}

// With everything switched on, a call that succeeds at once still allocates nothing.
func TestAllocCallWithTelemetry(t *testing.T) {
	var reg policy.Registry
	scrape, collect := watch(t, &reg)
	p := guarded(t, &reg, "dep")
	ctx, n := t.Context(), 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		_, _ = policy.DoWith(ctx, p, &n, count)
	}))
	scrape()
	collect()
}
