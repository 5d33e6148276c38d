package demo_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo"
)

// TestDemoReportJSON pins the names that scripts rely on.
func TestDemoReportJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(demo.Report{Protected: demo.World{Goodput: 1.5}, Transitions: []demo.Transition{{At: 3, From: "closed", To: "open", Why: "slow_ratio"}}})
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(raw, &got))
	for _, world := range demo.WorldNames {
		fields, ok := got[world].(map[string]any)
		require.True(t, ok, world)
		for _, f := range []string{
			"goodput_rps", "p50_ms", "p99_ms", "dependency_calls_per_offered", "neighbour_p99_ms", "peak_goroutines", "fallback_share",
			"incident_p99_ms", "healthy_real_share", "recovered_real_share", "neighbour_healthy_p99_ms", "neighbour_incident_p99_ms",
		} {
			assert.Contains(t, fields, f, world)
		}
	}
	stalls, ok := got["stalls"].(map[string]any)
	require.True(t, ok)
	for _, f := range []string{"longest_ms", "sum_ms", "large"} {
		assert.Contains(t, stalls, f)
	}
	transition, ok := got["transitions"].([]any)[0].(map[string]any)
	require.True(t, ok)
	for _, f := range []string{"at_s", "from", "to", "why"} {
		assert.Contains(t, transition, f)
	}
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	d, err := demo.New(ctx, demo.Config{For: time.Hour, Rate: 50})
	require.NoError(t, err)
	begin := time.Now()
	r, err := d.Run(ctx, func(demo.Frame) { interrupt() })
	require.NoError(t, err)
	require.NoError(t, d.Close(ctx))
	require.NoError(t, d.Close(ctx), "it may be closed again")
	assert.True(t, r.Interrupted)
	assert.Less(t, time.Since(begin), time.Minute, "it did not wait for the end")
	assert.Positive(t, r.Protected.Real, "what there was is in the report")
	assert.InEpsilon(t, float64(r.Protected.Real)/r.For, r.Protected.Goodput, 0.01)
}

func TestDemoInterruptedBeforeItBegan(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	d, err := demo.New(ctx, demo.Config{For: time.Minute, Rate: 50})
	require.NoError(t, err)
	interrupt()
	r, err := d.Run(ctx, func(demo.Frame) {})
	require.NoError(t, err)
	require.NoError(t, d.Close(ctx))
	assert.True(t, r.Interrupted)
	assert.Zero(t, r.Protected.Offered)
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  demo.Config
		want string
	}{
		{"too short", demo.Config{For: time.Second}, "want at least 6s"},
		{"no such address", demo.Config{For: time.Minute, MetricsAddr: "127.0.0.1:port"}, "unknown port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := demo.New(t.Context(), tt.cfg)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}
