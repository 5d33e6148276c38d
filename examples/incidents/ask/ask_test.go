package ask_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/examples/incidents/ask"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay/replaytest"
)

func TestIncidentAsk(t *testing.T) {
	t.Parallel()
	replaytest.Run(t, ask.Replay)
}
