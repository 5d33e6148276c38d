package config_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
)

func TestReports(t *testing.T) {
	t.Parallel()
	s, err := config.Load(t.Context(), file(`
dependencies:
  a:
    policies:
      - retry: {Budget: none} # lint:allow BW009 two calls a day
      - breaker: {MinCalls: 1}
`))
	require.NoError(t, err)
	findings := config.Lint(s)

	var text bytes.Buffer
	require.NoError(t, config.WriteText(&text, findings, false))
	assert.Equal(t, `b.yaml:6:29: warning: a.breaker.MinCalls: one call fills the window [BW024]
    Raise MinCalls, the count, or the number of consecutive failures.
    docs/reference/lint.md#bw024
0 errors, 1 warning, 0 notes, 1 waived
`, text.String())
	text.Reset()
	require.NoError(t, config.WriteText(&text, findings, true))
	assert.Contains(t, text.String(), "(waived: two calls a day)")

	var data bytes.Buffer
	require.NoError(t, config.WriteJSON(&data, findings))
	var list []map[string]any
	require.NoError(t, json.Unmarshal(data.Bytes(), &list))
	require.Len(t, list, 2)
	assert.Equal(t, "two calls a day", list[0]["reason"])
	data.Reset()
	require.NoError(t, config.WriteJSON(&data, nil))
	assert.JSONEq(t, "[]", data.String())

	data.Reset()
	require.NoError(t, config.WriteSARIF(&data, findings))
	var sarif struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID       string
				RuleIndex    int
				Level        string
				Suppressions []any
				Locations    []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           map[string]int
					}
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(data.Bytes(), &sarif))
	assert.Equal(t, "2.1.0", sarif.Version)
	run := sarif.Runs[0]
	require.Len(t, run.Results, 2)
	for _, r := range run.Results {
		assert.Equal(t, r.RuleID, run.Tool.Driver.Rules[r.RuleIndex].ID)
	}
	assert.Len(t, run.Results[0].Suppressions, 1)
	assert.Empty(t, run.Results[1].Suppressions)
	assert.Equal(t, "warning", run.Results[1].Level)
	at := run.Results[1].Locations[0].PhysicalLocation
	assert.Equal(t, "b.yaml", at.ArtifactLocation.URI)
	assert.Equal(t, map[string]int{"startLine": 6, "startColumn": 29}, at.Region)

	// A setting that comes from no file still has a location that is valid.
	s, err = config.Load(t.Context(), file("dependencies: {a: {policies: [breaker: {}]}}"), config.Flags("a.breaker.MinCalls=1"))
	require.NoError(t, err)
	data.Reset()
	require.NoError(t, config.WriteSARIF(&data, config.Lint(s)))
	require.NoError(t, json.Unmarshal(data.Bytes(), &sarif))
	require.Len(t, sarif.Runs[0].Results, 1)
	at = sarif.Runs[0].Results[0].Locations[0].PhysicalLocation
	assert.Equal(t, "flag%20a.breaker.MinCalls", at.ArtifactLocation.URI)
}
