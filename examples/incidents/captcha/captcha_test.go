package captcha_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/examples/incidents/captcha"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay/replaytest"
)

func TestIncidentCaptcha(t *testing.T) {
	t.Parallel()
	replaytest.Run(t, captcha.Replay)
}
