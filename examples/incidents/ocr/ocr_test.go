package ocr_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay/replaytest"
	"github.com/breakwater-go/breakwater/examples/incidents/ocr"
)

func TestIncidentOCR(t *testing.T) {
	t.Parallel()
	replaytest.Run(t, ocr.Replay)
}
