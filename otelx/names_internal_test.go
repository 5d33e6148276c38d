package otelx

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The name of each metric in Prometheus is made of the one in OpenTelemetry as
// OpenTelemetry's own translation makes it.
func TestNamesFollowFromEachOther(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range table.all {
		name := strings.ReplaceAll(f.otel, ".", "_")
		switch f.unit {
		case "s":
			name += "_seconds"
		case "1":
			name += "_ratio"
		}
		if f.kind == counter {
			name += "_total"
		}
		assert.Equal(t, name, f.prom)
		assert.False(t, seen[name], name)
		seen[name] = true
		if f.unit != "s" && f.unit != "1" {
			assert.Regexp(t, `^\{[a-z]+\}(/s)?$`, f.unit, name)
		}
		assert.LessOrEqual(t, len(f.labels), 1+maxLabels, name)
		assert.Regexp(t, `\.$`, f.help)
	}
}

// The reference names every metric, by both of its names.
func TestReferenceNamesEveryMetric(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/telemetry.md")
	require.NoError(t, err)
	for _, f := range table.all {
		assert.Contains(t, string(page), "`breakwater_"+f.prom+"`")
		assert.Contains(t, string(page), "`"+f.otel+"`")
		assert.Contains(t, string(page), f.unit, f.prom)
	}
}
