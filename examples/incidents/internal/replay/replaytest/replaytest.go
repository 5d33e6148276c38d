// Package replaytest is the test of a replay.
package replaytest

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
)

var update = flag.Bool("update", false, "write output.txt, which the docs show")

// Run plays an incident twice and asserts every figure, that both runs come to the same,
// and that output.txt beside the test shows them.
func Run(t *testing.T, play func() (*replay.Result, error)) {
	t.Helper()
	first, err := play()
	require.NoError(t, err)
	for _, row := range first.Rows {
		assert.True(t, row.OK(), "%s: want %s, got %s before and %s after", row.Name, row.Expected(), row.Before, row.After)
	}
	second, err := play()
	require.NoError(t, err)
	assert.Equal(t, text(t, first), text(t, second), "two runs")
	for i, chart := range first.Charts {
		assert.True(t, reflect.DeepEqual(chart, second.Charts[i]), "two runs have different pictures of %q", chart.Title)
	}

	if *update {
		require.NoError(t, os.WriteFile("output.txt", []byte(text(t, first)), 0o600))
	}
	golden, err := os.ReadFile("output.txt")
	require.NoError(t, err, "go test -update writes it")
	assert.Equal(t, string(golden), text(t, first), "go test -update writes output.txt anew")
}

func text(t *testing.T, r *replay.Result) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	return b.String()
}
