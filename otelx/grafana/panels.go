package grafana

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// Units of panels.
const (
	share     = units.PercentUnit // 0 to 1
	perSecond = units.CountsPerSecond
	seconds   = units.Seconds
	count     = units.Short
)

// Sizes of panels. A row is 24 wide.
const (
	sixth = 4
	third = 8
	half  = 12
	full  = 24

	low  = 4 // heights
	high = 8
)

// source is the data source that the reader of a dashboard has chosen.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// A query is one expression of a panel. In expr, @ stands for the matchers of the
// dashboard; legend names its series.
type query struct{ expr, legend string }

// quantile is an expression for a quantile of a histogram, by labels. A Prometheus that
// stores native histograms has no buckets, and the other way about: one of the two is there.
func quantile(q, histogram, by string) string {
	return fmt.Sprintf(`histogram_quantile(%s, sum by (%s) (rate(%s_bucket{@}[$__rate_interval]))) or histogram_quantile(%s, sum by (%s) (rate(%s{@}[$__rate_interval])))`,
		q, strings.TrimPrefix(by+", le", ", "), histogram, q, by, histogram)
}

// mean is an expression for the mean of a histogram, by labels; of both kinds, too.
func mean(histogram, by string) string {
	sum := func(of string) string { return fmt.Sprintf("sum by (%s) (%s)", by, of) }
	return sum("rate("+histogram+"_sum{@}[$__rate_interval])") + " / " + sum("rate("+histogram+"_count{@}[$__rate_interval])") + " or " +
		sum("histogram_sum(rate("+histogram+"{@}[$__rate_interval]))") + " / " + sum("histogram_count(rate("+histogram+"{@}[$__rate_interval]))")
}

// A board builds the panels of one dashboard.
type board struct {
	matchers string // what @ stands for
	alerts   string // the same for alerts, which know of no instance
}

func (b board) expr(s string) string { return strings.ReplaceAll(s, "@", b.matchers) }

func (b board) target(i int, q query) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().
		RefId("ABCDEFGH"[i : i+1]).
		Datasource(source()).
		EditorMode(prometheus.QueryEditorModeCode).
		Expr(b.expr(q.expr)).
		LegendFormat(q.legend)
}

// graph shows figures over time.
func (b board) graph(title, description, unit string, queries ...query) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(source()).
		Unit(unit).
		AxisSoftMin(0).
		Height(high).Span(third).
		LineWidth(1).FillOpacity(10).
		ShowPoints(common.VisibilityModeAuto).
		Legend(common.NewVizLegendOptionsBuilder().
			ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, q := range queries {
		p.WithTarget(b.target(i, q).Range())
	}
	return p
}

// stacked is a graph of rates that add up.
func (b board) stacked(title, description string, queries ...query) *timeseries.PanelBuilder {
	return b.graph(title, description, perSecond, queries...).
		FillOpacity(60).LineWidth(0).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// number shows one figure of now, in colours from warn and from bad on. A warn of 0
// leaves it without.
func (b board) number(title, description, unit, expr string, warn, bad float64) *stat.PanelBuilder {
	steps := []dashboard.Threshold{{Color: "green"}}
	if warn > 0 {
		steps = append(steps, dashboard.Threshold{Value: new(warn), Color: "orange"}, dashboard.Threshold{Value: new(bad), Color: "red"})
	}
	return stat.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(source()).
		Unit(unit).
		NoValue("none").
		Height(low).Span(sixth).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		WithTarget(b.target(0, query{expr: expr}).Instant())
}

// list shows a table of the series that expr returns now. The names of columns are
// those of labels; value names the last one.
func (b board) list(title, description, unit, expr string, columns []string, value string) *table.PanelBuilder {
	index := map[string]int{"Value": len(columns)}
	for i, c := range columns {
		index[c] = i
	}
	p := table.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(source()).
		NoValue("nothing").
		Height(high).Span(half).
		WithTarget(b.target(0, query{expr: expr}).Instant().Format(prometheus.PromQueryFormatTable)).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true, "__name__": true},
			"indexByName":   index,
			"renameByName":  map[string]string{"Value": value},
		}}).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{})).
		SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName(value).Desc(true)}).
		OverrideByName(value, []dashboard.DynamicConfigValue{{Id: "unit", Value: unit}})
	if !slices.Contains(columns, "dependency") {
		return p
	}
	return p.OverrideByName("dependency", []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]any{{
		"title": "Open the dependency",
		"url":   dependencyURL("${__data.fields.job:percentencode}", "${__data.fields.dependency:percentencode}"),
	}}}})
}

// The states of a breaker as numbers, which is what a state timeline takes; the higher,
// the more it keeps away.
var states = []struct {
	name, text, color string
}{
	{"closed", "closed", "green"},
	{"forced_closed", "forced closed", "purple"},
	{"recovering", "recovering", "yellow"},
	{"throttling", "throttling", "orange"},
	{"half_open", "half-open", "blue"},
	{"open", "open", "red"},
	{"forced_open", "forced open", "dark-red"},
}

// stateCode is an expression for the number of the state that each breaker is in; of
// many that are shown as one dependency, the highest.
func stateCode() string {
	var terms []string
	for i, s := range states {
		terms = append(terms, fmt.Sprintf(`%d * (breakwater_breaker_state{@,state="%s"} > bool 0)`, i, s.name))
	}
	return "max without (state) (" + strings.Join(terms, " or ") + ")"
}

func stateMappings() []dashboard.ValueMapping {
	options := map[string]dashboard.ValueMappingResult{}
	for i, s := range states {
		options[strconv.Itoa(i)] = dashboard.ValueMappingResult{Text: new(s.text), Color: new(s.color), Index: new(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}
}

// timeline shows states over time, given an expression for their numbers.
func (b board) timeline(title, description string, q query) *statetimeline.PanelBuilder {
	return statetimeline.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(source()).
		Unit(units.NoUnit).
		Height(high).Span(full).
		Mappings(stateMappings()).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
		ShowValue(common.VisibilityModeNever).
		RowHeight(0.9).MergeValues(true).FillOpacity(80).LineWidth(0).
		Legend(common.NewVizLegendOptionsBuilder().
			ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom)).
		WithTarget(b.target(0, q).Range())
}

// buckets shows a histogram over time.
func (b board) buckets(title, description, expr string) *heatmap.PanelBuilder {
	return heatmap.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(source()).
		Unit(perSecond).
		Height(high).Span(third).
		Calculate(false).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(seconds)).
		WithTarget(b.target(0, query{expr, "{{le}}"}).Range().Format(prometheus.PromQueryFormatHeatmap))
}

// mark is an annotation at every sample of expr, which is evaluated once a minute.
func (b board) mark(name, color, expr, title, text string) *dashboard.AnnotationQueryBuilder {
	return dashboard.NewAnnotationQueryBuilder().
		Name(name).
		Datasource(source()).
		Enable(true).
		IconColor(color).
		Expr(b.expr(expr)).
		Step("60s").
		TitleFormat(title).
		TextFormat(text).
		TagKeys("dependency,policy,state")
}
