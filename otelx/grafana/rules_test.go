package grafana_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	runbooks   = "../../docs/howto/runbooks"
	runbookURL = "https://github.com/breakwater-go/breakwater/blob/main/docs/howto/runbooks/"
)

// tool returns the path of a program of the Debian package prometheus.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: make deps", name)
	}
	return path
}

func promtool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), tool(t, "promtool"), args...).CombinedOutput()
	require.NoError(t, err, "promtool %s: %s", strings.Join(args, " "), out)
	return string(out)
}

func TestDebianRulesAreClean(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", recordingFile, alertsFile)
}

func TestDebianRulesPassTheirTests(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", "rules/alerts_test.yml", "rules/recording_test.yml")
}

// Every alert has a test of its own that has it fire, and one in which it does not.
func TestAlertsAreTested(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("rules/alerts_test.yml")
	require.NoError(t, err)
	for _, r := range loadRules(t, alertsFile).rules() {
		fires, quiet := 0, 0
		for part := range strings.SplitSeq(string(text), "alertname: ") {
			if name, rest, _ := strings.Cut(part, "\n"); strings.TrimSpace(name) == r.Alert {
				if strings.HasPrefix(strings.TrimSpace(rest), "exp_alerts: []") {
					quiet++
				} else {
					fires++
				}
			}
		}
		assert.Positive(t, fires, "%s never fires in a test", r.Alert)
		assert.Positive(t, quiet, "%s is never quiet in a test", r.Alert)
	}
}

func TestAlertsExplainThemselves(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(runbooks + "/Breakwater*.md")
	require.NoError(t, err)
	var want []string
	for _, r := range loadRules(t, alertsFile).rules() {
		assert.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		assert.Equal(t, runbookURL+r.Alert+".md", r.Annotations["runbook_url"])
		want = append(want, filepath.Join(runbooks, r.Alert+".md"))
	}
	assert.ElementsMatch(t, want, pages, "a page for each alert")
	for _, name := range pages {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, heading := range []string{"# " + strings.TrimSuffix(filepath.Base(name), ".md"), "## What it means", "## What to look at", "## What to do"} {
			assert.Contains(t, string(text), heading+"\n", name)
		}
	}
}

// Rules ask for metrics that there are, and alerts for records that there are.
func TestRulesKnowTheirMetrics(t *testing.T) {
	t.Parallel()
	known := described(t)
	recorded := loadRules(t, recordingFile).rules()
	for _, r := range recorded {
		known[r.Record] = true
	}
	used := map[string]bool{}
	for _, r := range append(recorded, loadRules(t, alertsFile).rules()...) {
		for _, n := range names(t, r.Expr) {
			assert.True(t, known[n], "%s%s: there is no %s", r.Record, r.Alert, n)
			used[n] = true
		}
	}
}
