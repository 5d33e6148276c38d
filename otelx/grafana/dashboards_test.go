package grafana_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/otelx/grafana"
	"github.com/breakwater-go/breakwater/policy"
)

func TestFilesAreThoseThatAreCommitted(t *testing.T) {
	t.Parallel()
	files, err := grafana.Files()
	require.NoError(t, err)
	there, err := filepath.Glob("dashboards/*")
	require.NoError(t, err)
	assert.Len(t, there, len(files))
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("dashboards", name))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s is out of date: run make dashboards", name)
	}
}

// What Grafana would read is what was written: nothing is lost on the way.
func TestDashboardsSurviveAStrictRoundTrip(t *testing.T) {
	t.Parallel()
	for uid, d := range load(t) {
		again, err := json.MarshalIndent(d, "", "  ")
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join("dashboards", uid+".json"))
		require.NoError(t, err)
		assert.JSONEq(t, string(want), string(again))
	}
}

func TestPanelsExplainThemselves(t *testing.T) {
	t.Parallel()
	for uid, d := range load(t) {
		assert.NotEmpty(t, *d.Description)
		assert.NotEmpty(t, d.Annotations.List)
		ids := map[uint32]bool{}
		var places []dashboard.GridPos
		for _, p := range panels(d) {
			where := uid + ": " + *p.Title
			require.NotNil(t, p.Description, where)
			assert.True(t, strings.HasSuffix(*p.Description, "."), "%s: %s", where, *p.Description)
			assert.NotEmpty(t, p.Targets, where)
			assert.Equal(t, "${datasource}", *p.Datasource.Uid, where)
			unit := p.FieldConfig.Defaults.Unit != nil
			for _, o := range p.FieldConfig.Overrides {
				unit = unit || slices.ContainsFunc(o.Properties, func(v dashboard.DynamicConfigValue) bool { return v.Id == "unit" })
			}
			assert.True(t, unit, "%s has no unit", where)
			assert.False(t, ids[*p.Id], "%s: id %d is taken", where, *p.Id)
			ids[*p.Id] = true
			for _, o := range places {
				g := *p.GridPos
				assert.False(t, g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H, "%s lies on another panel", where)
			}
			assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, uint32(24), where)
			places = append(places, *p.GridPos)
		}
	}
}

// Every link leads to a dashboard that there is, and sets variables that it has.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	boards := load(t)
	target := regexp.MustCompile(`"/d/([a-z-]+)\?([^"]*)"`)
	variable := regexp.MustCompile(`var-([a-z]+)=`)
	for uid := range boards {
		text, err := os.ReadFile(filepath.Join("dashboards", uid+".json"))
		require.NoError(t, err)
		links := target.FindAllStringSubmatch(string(text), -1)
		assert.NotEmpty(t, links, "%s leads nowhere", uid)
		for _, l := range links {
			require.Contains(t, boards, l[1])
			for _, v := range variable.FindAllStringSubmatch(l[2], -1) {
				assert.True(t, slices.ContainsFunc(boards[l[1]].Templating.List, func(m dashboard.VariableModel) bool { return m.Name == v[1] }), "%s has no variable %s", l[1], v[1])
			}
		}
	}
}

// described returns the names of all metrics of the Collector, with those of the series of
// histograms and summaries.
func described(tb testing.TB) map[string]bool {
	tb.Helper()
	c, err := otelx.NewCollector(new(policy.Registry), otelx.CollectorConfig{})
	require.NoError(tb, err)
	ch := make(chan *prometheus.Desc)
	go func() {
		c.Describe(ch)
		close(ch)
	}()
	name := regexp.MustCompile(`fqName: "([a-z_]+)"`)
	known := map[string]bool{}
	for d := range ch {
		m := name.FindStringSubmatch(d.String())
		require.NotNil(tb, m, d.String())
		known[m[1]] = true
		if strings.HasSuffix(m[1], "_seconds") {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[m[1]+suffix] = true
			}
		}
	}
	return known
}

// What is asked for is there, and what there is can be seen somewhere.
func TestDashboardsShowTheMetricsThereAre(t *testing.T) {
	t.Parallel()
	known := described(t)
	seen := map[string]bool{"ALERTS": true}
	for _, d := range load(t) {
		for _, q := range queries(t, d) {
			for _, n := range names(t, fill(q.expr, "j", "d")) {
				assert.True(t, known[n] || n == "ALERTS", "%s: there is no %s", q.where, n)
				seen[n] = true
			}
		}
	}
	for n := range known {
		shown := seen[n] || seen[n+"_sum"] || seen[n+"_bucket"] || strings.HasSuffix(n, "_seconds_bucket") || strings.HasSuffix(n, "_seconds_sum") || strings.HasSuffix(n, "_seconds_count")
		assert.True(t, shown, "no dashboard shows %s", n)
	}
}
