package load

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
)

//go:embed report.html.tmpl
var page string

var pageTemplate = template.Must(template.New("report").Parse(page))

// WriteHTML writes a report as a page that needs nothing else: the requests of each second
// as stacked bars, and the latencies as lines below.
func WriteHTML(w io.Writer, r *Report) error {
	p := newPlot(bins(r.Timeline, maxBars))
	return pageTemplate.Execute(w, map[string]any{
		"Report": r, "Plot": p, "Outcomes": rows(r), "Remarks": r.remarks(), "Bins": bins(r.Timeline, maxBars),
	})
}

type row struct {
	Name, Requests, Share, P50, P90, P95, P99, Max string
}

func rows(r *Report) []row {
	var list []row
	for _, o := range r.outcomes() {
		l := o.latency
		list = append(list, row{
			o.name, strconv.Itoa(o.n), decimal(100*float64(o.n)/float64(max(r.Sent, 1)), 1) + " %",
			ms(l, l.P50), ms(l, l.P90), ms(l, l.P95), ms(l, l.P99), ms(l, l.Max),
		})
	}
	return list
}

// The sizes of the plot, in its own units.
const (
	plotWidth   = 900
	plotLeft    = 60
	barsTop     = 12
	barsHeight  = 240
	linesTop    = barsTop + barsHeight + 36
	linesHeight = 160
	plotHeight  = linesTop + linesHeight + 34
)

// plot is where everything stands.
type plot struct {
	Width, Height, Left, Right, BarsBottom, LinesTop, LinesBottom int

	Bars         []bar
	BarTicks     []tick
	LatencyTicks []tick
	SecondTicks  []tick
	P50, P99     string // points of the lines
	PerSecond    string // what a bar stands for
}

type bar struct {
	Class, Title        string
	X, Y, Width, Height float64
}

type tick struct {
	At   float64
	Text string
}

func newPlot(list []bin) plot {
	p := plot{
		Width: plotWidth, Height: plotHeight, Left: plotLeft, Right: plotWidth - 10,
		BarsBottom: barsTop + barsHeight, LinesTop: linesTop, LinesBottom: linesTop + linesHeight,
		PerSecond: "requests due in each second",
	}
	if len(list) == 0 {
		return p
	}
	if n := list[0].last + 1; n > 1 {
		p.PerSecond = fmt.Sprintf("requests due in %d seconds each", n)
	}
	most, low, high := 1, math.Inf(1), 0.0
	for _, b := range list {
		most = max(most, b.Offered)
		if b.Latency.Count > 0 {
			low, high = min(low, b.Latency.P50), max(high, b.Latency.P99)
		}
	}
	step := float64(p.Right-p.Left) / float64(len(list))
	p.bars(list, step, most)
	p.lines(list, step, low, high)
	every := (len(list) + 9) / 10
	for i := 0; i < len(list); i += every {
		p.SecondTicks = append(p.SecondTicks, tick{float64(p.Left) + step*float64(i), fmt.Sprintf("%ds", list[i].Second.Second)})
	}
	return p
}

// bars stacks the outcomes of each bin.
func (p *plot) bars(list []bin, step float64, most int) {
	scale := barsHeight / float64(most)
	for i, b := range list {
		y := float64(p.BarsBottom)
		title := fmt.Sprintf("second %s: %d offered, %d passed, %d x 429, %d other, %d errors, p99 %s", b.name(), b.Offered, b.Passed, b.Refused, b.Other, b.Errors, ms(b.Latency, b.Latency.P99))
		for _, part := range []struct {
			class string
			n     int
		}{{"passed", b.Passed}, {"refused", b.Refused}, {"other", b.Other}, {"errors", b.Errors + b.Cut}} {
			if part.n == 0 {
				continue
			}
			height := float64(part.n) * scale
			y -= height
			p.Bars = append(p.Bars, bar{part.class, title, float64(p.Left) + step*float64(i) + step*0.06, y, step * 0.88, height})
		}
	}
	for _, v := range niceSteps(float64(most)) {
		p.BarTicks = append(p.BarTicks, tick{float64(p.BarsBottom) - v*scale, decimal(v, 3)})
	}
}

// lines draws latencies on a logarithmic scale, since refusals take microseconds and what
// waits takes seconds.
func (p *plot) lines(list []bin, step, low, high float64) {
	if high == 0 {
		return
	}
	from := math.Floor(math.Log10(max(low, 0.001)))
	to := max(math.Ceil(math.Log10(high)), from+1)
	y := func(v float64) float64 {
		return float64(p.LinesBottom) - (math.Log10(max(v, 0.001))-from)/(to-from)*linesHeight
	}
	for e := from; e <= to; e++ {
		v := math.Pow(10, e)
		text := decimal(v, 3) + " ms"
		if v >= 1000 {
			text = decimal(v/1000, 3) + " s"
		}
		p.LatencyTicks = append(p.LatencyTicks, tick{y(v), text})
	}
	var p50, p99 strings.Builder
	for i, b := range list {
		if b.Latency.Count > 0 {
			x := float64(p.Left) + step*(float64(i)+0.5)
			fmt.Fprintf(&p50, "%.1f,%.1f ", x, y(b.Latency.P50))
			fmt.Fprintf(&p99, "%.1f,%.1f ", x, y(b.Latency.P99))
		}
	}
	p.P50, p.P99 = strings.TrimSpace(p50.String()), strings.TrimSpace(p99.String())
}

// niceSteps returns about four round values from 0 to most.
func niceSteps(most float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{0.2, 0.25, 0.5, 1, 2} {
		if s := step * f; s >= 1 && most/s <= 5 {
			step = s
			break
		}
	}
	step = max(math.Round(step), 1)
	var list []float64
	for v := 0.0; v <= most; v += step {
		list = append(list, v)
	}
	return list
}
