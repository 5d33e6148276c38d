package otelx_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// connections is a pool of connections, as adapters attach one to a pipeline.
type connections int

func (waiters connections) Snapshot(time.Time) policy.PolicySnapshot {
	s := policy.PolicySnapshot{
		Name: "connections", Kind: "connections", Waits: waiters > 0,
		Bulkhead: &policy.BulkheadSnapshot{InFlight: 3, Limit: 10, Run: policy.Latency{Counts: []uint64{1}, Sum: 20 * time.Millisecond}},
	}
	if waiters > 0 {
		s.Bulkhead.MaxWaiters, s.Bulkhead.Waiting = int(waiters), 4
		s.Bulkhead.Wait = policy.Latency{Counts: []uint64{0, 2}, Sum: 400 * time.Millisecond}
		s.Rejected[policy.ReasonWait] = 2
	}
	return s
}

// What is attached to a pipeline is seen like its policies: the wait for a connection, and
// beside it the time of the statements.
func TestCollectorShowsAPoolOfConnections(t *testing.T) {
	t.Parallel()
	for waiters, want := range map[connections]int{0: 8, 20: 8 + 7} {
		var bare, reg policy.Registry
		add(t, &bare, "dep")
		without := series(t, collector(t, &bare, otelx.CollectorConfig{}))
		_, err := add(t, &reg, "dep").Attach(waiters)
		require.NoError(t, err)
		c := collector(t, &reg, otelx.CollectorConfig{})
		assert.Equal(t, want, series(t, c)-without)
		got := text(t, c)
		const labels = `{dependency="dep",policy="connections"} `
		assert.Contains(t, got, "breakwater_bulkhead_in_flight"+labels+"3\n")
		assert.Contains(t, got, "breakwater_bulkhead_limit"+labels+"10\n")
		assert.Contains(t, got, "breakwater_bulkhead_run_seconds_count"+labels+"1\n")
		assert.Contains(t, got, `breakwater_gate_info{dependency="dep",kind="connections",mode="enforce",policy="connections"} 1`)
		if waiters > 0 {
			assert.Contains(t, got, "breakwater_bulkhead_waiting"+labels+"4\n")
			assert.Contains(t, got, "breakwater_bulkhead_wait_seconds_count"+labels+"2\n")
			assert.Contains(t, got, `breakwater_rejections_total{dependency="dep",policy="connections",reason="wait"} 2`)
		}
	}
}
