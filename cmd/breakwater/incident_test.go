package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIncident(t *testing.T) {
	t.Parallel()
	incident := func(t *testing.T, args ...string) (code int, out, errOut string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"incident"}, args...), output{Out: &stdout, Err: &stderr})
		return code, stdout.String(), stderr.String()
	}

	t.Run("one", func(t *testing.T) {
		t.Parallel()
		code, out, errOut := incident(t, "captcha")
		assert.Equal(t, exitOK, code)
		assert.Empty(t, errOut)
		assert.Regexp(t, `(?m)^  most workers held by captcha +before 200, after <= 20 +200 +\d+$`, out)
		assert.Regexp(t, `\n\d+ figures, all inside\n$`, out)
	})
	t.Run("as JSON", func(t *testing.T) {
		t.Parallel()
		code, out, errOut := incident(t, "captcha", "--json")
		assert.Equal(t, exitOK, code)
		assert.Empty(t, errOut)
		var r struct {
			Incident string
			Rows     []struct {
				Figure, Expected, Before, After string
				Values                          [2]*float64
				OK                              bool
			}
		}
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		assert.Equal(t, "captcha", r.Incident)
		require.NotEmpty(t, r.Rows)
		for _, row := range r.Rows {
			assert.True(t, row.OK, row.Figure)
		}
	})
	t.Run("usage", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{}, {"captcha", "--all"}} {
			code, out, errOut := incident(t, args...)
			assert.Equal(t, exitUsage, code)
			assert.Empty(t, out)
			assert.Contains(t, errOut, "want the name of an incident, or --all")
		}
		code, _, errOut := incident(t, "capcha")
		assert.Equal(t, exitError, code)
		assert.Contains(t, errOut, `"captcha"`)
	})
}

// The README shows what this prints: all of it is inside the figures.
func TestAllIncidents(t *testing.T) {
	if raceEnabled {
		t.Skip("takes a minute under the race detector")
	}
	var out, errOut bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"incident", "--all"}, output{Out: &out, Err: &errOut}))
	assert.Empty(t, errOut.String())
	assert.NotContains(t, out.String(), "OUT")
	golden := filepath.Join("..", "..", "examples", "incidents", "summary.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), out.String(), "go test -run TestAllIncidents -update writes it anew, and make docs-write into the README")
}
