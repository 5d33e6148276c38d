package grafana_test

import (
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	plugins.RegisterDefaultPlugins() // without them panels are read as anything at all
	goleak.VerifyTestMain(m)
}
