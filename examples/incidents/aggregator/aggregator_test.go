package aggregator_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/examples/incidents/aggregator"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay/replaytest"
)

func TestIncidentAggregator(t *testing.T) {
	t.Parallel()
	replaytest.Run(t, aggregator.Replay)
}
