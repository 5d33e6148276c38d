package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The dashboards know each other by these.
const (
	fleetUID      = "breakwater-fleet"
	dependencyUID = "breakwater-dependency"
)

const tag = "breakwater"

// Files returns the dashboards as JSON, by the names of their files.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, build := range []func() *dashboard.DashboardBuilder{fleet, dependency} {
		d, err := build().Build()
		if err != nil {
			return nil, fmt.Errorf("grafana: build a dashboard: %w", err)
		}
		number(d.Panels)
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false) // expressions and links are to be read
		enc.SetIndent("", "  ")
		if err := enc.Encode(d); err != nil {
			return nil, fmt.Errorf("grafana: %s: %w", *d.Uid, err)
		}
		files[*d.Uid+".json"] = text.Bytes()
	}
	return files, nil
}

// number gives each panel an id, by which links find it.
func number(panels []dashboard.PanelOrRowPanel) {
	for i, p := range panels {
		if id := uint32(i) + 1; p.Panel != nil {
			p.Panel.Id = &id
		} else {
			p.RowPanel.Id = id
		}
	}
}

// newDashboard returns a dashboard with what all of them have.
func newDashboard(uid, title, description string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).
		Uid(uid).
		Description(description).
		Tags([]string{tag}).
		Time("now-1h", "now").
		Timezone("browser").
		Refresh("30s").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").
			Label("Data source").
			Type("prometheus"))
}

// labelValues is a variable: the values of a label in the calls that match.
func labelValues(label, title, matchers string) *dashboard.QueryVariableBuilder {
	metric := "breakwater_calls_total"
	if matchers != "" {
		metric += "{" + matchers + "}"
	}
	return dashboard.NewQueryVariableBuilder(label).
		Label(title).
		Datasource(source()).
		Query(dashboard.StringOrMap{String: new("label_values(" + metric + ", " + label + ")")}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc)
}

// allOf makes a variable one of which several values may be chosen, all at first.
func allOf(v *dashboard.QueryVariableBuilder) *dashboard.QueryVariableBuilder {
	return v.Multi(true).IncludeAll(true).AllValue(".+").Current(dashboard.VariableOption{
		Selected: new(true),
		Text:     dashboard.StringOrArrayOfString{String: new("All")},
		Value:    dashboard.StringOrArrayOfString{String: new("$__all")},
	})
}

// dependencyURL is where one dependency is shown, at the time range of the reader.
func dependencyURL(job, name string) string {
	return "/d/" + dependencyUID + "?var-datasource=${datasource}&var-job=" + job + "&var-dependency=" + name + "&${__url_time_range}"
}

// row adds panels under a heading.
func row(d *dashboard.DashboardBuilder, title string, panels ...cog.Builder[dashboard.Panel]) {
	d.WithRow(dashboard.NewRowBuilder(title))
	for _, p := range panels {
		d.WithPanel(p)
	}
}

// link leads to another dashboard.
func link(title, tooltip, uid string) *dashboard.DashboardLinkBuilder {
	return dashboard.NewDashboardLinkBuilder(title).
		Type(dashboard.DashboardLinkTypeLink).
		Icon("dashboard").
		Tooltip(tooltip).
		Url("/d/" + uid + "?var-datasource=${datasource}").
		KeepTime(true)
}

// marks adds the annotations: what changed, and when.
func marks(d *dashboard.DashboardBuilder, b board) {
	// A state that is new since a minute ago; at the start of a process none is.
	d.Annotation(b.mark("State changes", "blue",
		`(breakwater_breaker_state{@} > 0) and (breakwater_breaker_state{@} offset 1m == 0)`,
		"{{dependency}}: {{policy}} is {{state}}", "{{job}} {{instance}}"))
	// One that came and went within the minute shows in the counter only.
	d.Annotation(b.mark("Openings", "red",
		`increase(breakwater_breaker_opened_total{@}[1m]) > 0`,
		"{{dependency}}: {{policy}} opened", "{{job}} {{instance}}"))
	d.Annotation(b.mark("Observing by command", "purple",
		`breakwater_gate_info{@,mode="observe"} unless breakwater_gate_info{@,mode="observe"} offset 1m`,
		"{{dependency}}: {{policy}} was told to observe", "{{job}} {{instance}}"))
	firing := `ALERTS{` + b.alerts + `,alertname=~"Breakwater.+",alertstate="firing"}`
	d.Annotation(b.mark("Alerts", "orange", firing+" unless "+firing+" offset 1m",
		"{{alertname}}", "{{job}} {{dependency}} {{policy}}"))
}
