package grafana_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	prom "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// load reads every dashboard that is committed, strictly.
func load(tb testing.TB) map[string]dashboard.Dashboard {
	tb.Helper()
	names, err := filepath.Glob("dashboards/*.json")
	require.NoError(tb, err)
	require.Len(tb, names, 2)
	boards := map[string]dashboard.Dashboard{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(tb, err)
		// The SDK returns its list of faults even when there are none, and stops over it
		// itself: the strict reading only judges, the plain one is used.
		err = new(dashboard.Dashboard).UnmarshalJSONStrict(text)
		if faults, ok := errors.AsType[cog.BuildErrors](err); !ok || len(faults) > 0 {
			require.NoError(tb, err, name)
		}
		var d dashboard.Dashboard
		require.NoError(tb, json.Unmarshal(text, &d), name)
		require.NoError(tb, d.Validate(), name)
		boards[*d.Uid] = d
	}
	return boards
}

// A query is an expression and where it stands.
type query struct {
	where, expr string
	instant     bool
}

// queries returns every query of a dashboard, annotations included.
func queries(tb testing.TB, d dashboard.Dashboard) (all []query) {
	tb.Helper()
	for _, p := range panels(d) {
		for _, t := range p.Targets {
			q, ok := t.(prom.Dataquery)
			if !ok {
				ptr, ok := t.(*prom.Dataquery)
				require.True(tb, ok, "%s: a target that is none of Prometheus: %T", *p.Title, t)
				q = *ptr
			}
			all = append(all, query{
				where:   fmt.Sprintf("%s: %s: %s", *d.Uid, *p.Title, *q.RefId),
				expr:    q.Expr,
				instant: q.Instant != nil && *q.Instant,
			})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, query{where: *d.Uid + ": annotation " + a.Name, expr: *a.Expr})
	}
	return all
}

// panels returns the panels of a dashboard, without the headings of rows.
func panels(d dashboard.Dashboard) (all []dashboard.Panel) {
	for _, p := range d.Panels {
		if p.Panel != nil {
			all = append(all, *p.Panel)
		}
	}
	return all
}

// fill puts values in place of variables, as Grafana does.
func fill(expr, job, dependency string) string {
	return strings.NewReplacer(
		"$__rate_interval", "4m",
		"$job", job,
		"$dependency", dependency,
		"$instance", ".+",
	).Replace(expr)
}

// hurry is how much faster time passes in the run against a real Prometheus: a minute of
// a rule is half a second.
const hurry = 120

// faster divides every duration in an expression, but no range becomes so short that it
// holds fewer than a few scrapes.
func faster(tb testing.TB, expr string) string {
	tb.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(tb, err, expr)
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.MatrixSelector:
			n.Range = max(n.Range/hurry, 2*time.Second)
		case *parser.VectorSelector:
			n.OriginalOffset /= hurry
		case *parser.SubqueryExpr:
			n.Range /= hurry
			n.Step /= hurry
		}
		return nil
	})
	return e.String()
}

// The files of rules, in the form of Prometheus.
type (
	ruleFile struct {
		Groups []ruleGroup `yaml:"groups"`
	}
	ruleGroup struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	}
	rule struct {
		Record      string            `yaml:"record,omitempty"`
		Alert       string            `yaml:"alert,omitempty"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for,omitempty"`
		Labels      map[string]string `yaml:"labels,omitempty"`
		Annotations map[string]string `yaml:"annotations,omitempty"`
	}
)

func (r rule) wait(tb testing.TB) time.Duration {
	tb.Helper()
	if r.For == "" {
		return 0
	}
	d, err := time.ParseDuration(r.For)
	require.NoError(tb, err, r.Alert)
	return d
}

const (
	recordingFile = "rules/breakwater-recording.yml"
	alertsFile    = "rules/breakwater-alerts.yml"
)

func loadRules(tb testing.TB, name string) ruleFile {
	tb.Helper()
	text, err := os.ReadFile(name)
	require.NoError(tb, err)
	var f ruleFile
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	dec.KnownFields(true)
	require.NoError(tb, dec.Decode(&f), name)
	return f
}

func (f ruleFile) rules() (all []rule) {
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// names returns the names of the metrics in an expression.
func names(tb testing.TB, expr string) (all []string) {
	tb.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(tb, err, expr)
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			all = append(all, v.Name)
		}
		return nil
	})
	return all
}
