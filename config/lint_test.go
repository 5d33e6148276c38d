package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/config"
)

func lint(t *testing.T, path string) []*config.Finding {
	t.Helper()
	s, err := config.Load(t.Context(), config.File(path), program())
	require.NoError(t, err)
	return config.Lint(s)
}

// Every rule has a file that it finds something in, and one like it that is clean.
func TestRules(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range config.Rules() {
		t.Run(r.ID, func(t *testing.T) {
			t.Parallel()
			bad := lint(t, filepath.Join("testdata", "lint", r.ID+"-bad.yaml"))
			found := 0
			for _, f := range bad {
				t.Log(f)
				if f.Rule == r {
					found++
				}
				assert.Positive(t, f.Origin.Line)
				assert.NotEmpty(t, f.Message)
			}
			assert.Positive(t, found, "nothing found")
			for _, f := range lint(t, filepath.Join("testdata", "lint", r.ID+"-good.yaml")) {
				assert.True(t, f.Waived, "%s", f)
			}
		})
		assert.False(t, seen[r.ID], r.ID)
		seen[r.ID] = true
		for _, text := range []string{r.Name, r.Problem, r.Fix} {
			assert.NotEmpty(t, text)
		}
	}
	files, err := filepath.Glob("testdata/lint/*.yaml")
	require.NoError(t, err)
	assert.Len(t, files, 2*len(config.Rules()), "no file without a rule")
}

// The reference page has every rule, with its own words.
func TestRulesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/lint.md")
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, r := range config.Rules() {
		for _, want := range []string{"## " + r.ID, r.Name, r.Problem, r.Fix, r.Incident, r.Severity.String()} {
			assert.Contains(t, text, strings.Join(strings.Fields(want), " "), r.ID)
		}
	}
}

func TestWaivers(t *testing.T) {
	t.Parallel()
	s, err := config.Load(t.Context(), file(`
dependencies:
  a:
    policies:
      # lint:allow BW022 the vendor counts like this
      # and says so
      - ratelimit: {Rate: 1/s, Burst: 1}
      - retry:
          Budget: none # lint:allow BW009 two calls a day
      - breaker: # lint:allow BW024 a switch, not a breaker
          MinCalls: 1
`))
	require.NoError(t, err)
	var waived []string
	for _, f := range config.Lint(s) {
		if f.Waived {
			waived = append(waived, f.Rule.ID+" "+f.Reason)
		} else {
			assert.Equal(t, "BW003", f.Rule.ID, f)
		}
	}
	assert.Equal(t, []string{"BW022 the vendor counts like this", "BW009 two calls a day", "BW024 a switch, not a breaker"}, waived)
}
