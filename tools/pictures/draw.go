package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The sizes of a picture.
const (
	width  = 9 * vg.Inch
	height = 2.1 * vg.Inch // of a panel
	head   = 0.62 * vg.Inch
	space  = 0.12 * vg.Inch

	chartWidth  = 11 * vg.Inch
	chartHeight = 1.9 * vg.Inch // of a diagram
)

// styles of lines by their place in a panel. The colours are told apart by most people who
// see some alike (Okabe and Ito), and the dashes by all.
var styles = []vgdraw.LineStyle{
	{Color: color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff}, Width: vg.Points(1.5)},
	{Color: color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}, Width: vg.Points(1.5)},
	{Color: color.RGBA{G: 0x72, B: 0xb2, A: 0xff}, Width: vg.Points(2)},
	{Color: color.RGBA{A: 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}},
	{Color: color.RGBA{G: 0x9e, B: 0x73, A: 0xff}, Width: vg.Points(1.5), Dashes: []vg.Length{vg.Points(2), vg.Points(2)}},
	{Color: color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, Width: vg.Points(1.5), Dashes: []vg.Length{vg.Points(6), vg.Points(2)}},
}

// draw returns a picture as SVG, on white, since it is shown on light and on dark pages.
func draw(p Picture) ([]byte, error) {
	if len(p.Charts) > 0 {
		return drawCharts(p)
	}
	if len(p.Panels) == 0 {
		return nil, errors.New("there are no panels")
	}
	// The same axes for all, so that panels can be compared.
	last, most := 1.0, 0.0
	for _, panel := range p.Panels {
		for _, l := range panel.Lines {
			last = max(last, float64(len(l.Y)-1))
			for _, y := range l.Y {
				if math.IsNaN(y) || math.IsInf(y, 0) {
					return nil, fmt.Errorf("%s: %s: a value is %v", panel.Title, l.Name, y)
				}
				most = max(most, y)
			}
		}
	}
	plots := make([][]*plot.Plot, len(p.Panels))
	for i, panel := range p.Panels {
		d, err := diagram(panel)
		if err != nil {
			return nil, err
		}
		d.X.Tick.Marker = ticks{[]float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600}, 12}
		d.Y.Tick.Marker = ticks{nice(most), 6}
		d.X.Min, d.X.Max, d.Y.Min, d.Y.Max = 0, last, 0, 1.05*max(most, 1e-9)
		if i == len(p.Panels)-1 {
			d.X.Label.Text = "seconds"
		}
		plots[i] = []*plot.Plot{d}
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, head+height*vg.Length(len(p.Panels))))
	all := vgdraw.New(canvas)
	title := headline(all, p.Title, plots[0][0].Title.TextStyle)
	legend(all, title, p.Panels[0].Lines)
	tiles := vgdraw.Tiles{Rows: len(p.Panels), Cols: 1, PadY: space, PadTop: head, PadBottom: space, PadLeft: space, PadRight: space * 2}
	for i, c := range plot.Align(plots, tiles, all) {
		plots[i][0].Draw(c[0])
	}
	return written(canvas)
}

// drawCharts returns a picture with charts.
func drawCharts(p Picture) ([]byte, error) {
	rows, err := charts(p)
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(chartWidth, head/2+chartHeight*vg.Length(len(rows))))
	all := vgdraw.New(canvas)
	headline(all, p.Title, rows[0][0].Title.TextStyle)
	for i, cells := range plot.Align(rows, tilesOf(rows), all) {
		for j, c := range cells {
			if rows[i][j] != nil {
				rows[i][j].Draw(c)
			}
		}
	}
	return written(canvas)
}

// headline fills the ground and writes the title, in a style that it returns.
func headline(all vgdraw.Canvas, text string, style vgdraw.TextStyle) vgdraw.TextStyle {
	all.SetColor(color.White)
	all.Fill(all.Path())
	style.Font.Size = vg.Points(13)
	style.YAlign = vgdraw.YTop
	all.FillText(style, vg.Point{X: all.Center().X, Y: all.Max.Y - vg.Points(6)}, text)
	return style
}

// written returns what was drawn.
func written(canvas *vgsvg.Canvas) ([]byte, error) {
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	// Fonts of the same widths, for whoever does not have the first one.
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")), nil
}

// legend writes the names of the lines, which are the same in all panels, below the title.
func legend(c vgdraw.Canvas, text vgdraw.TextStyle, lines []Line) {
	const thumb, gap = 26, 22 // points
	text.Font.Size = vg.Points(10)
	text.XAlign, text.YAlign = vgdraw.XLeft, vgdraw.YCenter
	total := vg.Length(0)
	for _, l := range lines {
		total += vg.Points(thumb+gap) + text.Width(l.Name)
	}
	x, y := c.Center().X-total/2, c.Max.Y-vg.Points(34)
	for i, l := range lines {
		c.StrokeLine2(styles[i%len(styles)], x, y, x+vg.Points(thumb-6), y)
		c.FillText(text, vg.Point{X: x + vg.Points(thumb), Y: y}, l.Name)
		x += vg.Points(thumb+gap) + text.Width(l.Name)
	}
}

// diagram draws the lines of a panel.
func diagram(panel Panel) (*plot.Plot, error) {
	d := plot.New()
	for _, f := range []*font.Font{&d.Title.TextStyle.Font, &d.X.Label.TextStyle.Font, &d.Y.Label.TextStyle.Font, &d.X.Tick.Label.Font, &d.Y.Tick.Label.Font} {
		f.Variant = "Sans"
	}
	d.Title.Text = panel.Title
	d.Title.TextStyle.Font.Size = vg.Points(11)
	d.Y.Label.Text = panel.Unit
	d.Add(grid())
	for i, l := range panel.Lines {
		points := make(plotter.XYs, len(l.Y))
		for x, y := range l.Y {
			points[x].X, points[x].Y = float64(x), y
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", panel.Title, l.Name, err)
		}
		line.LineStyle = styles[i%len(styles)]
		d.Add(line)
	}
	return d, nil
}

// ticks puts marks at multiples of the first step that makes no more than so many.
type ticks struct {
	steps []float64
	most  float64
}

func (t ticks) Ticks(low, high float64) []plot.Tick {
	step := t.steps[len(t.steps)-1]
	for _, s := range t.steps {
		if (high-low)/s <= t.most {
			step = s
			break
		}
	}
	var list []plot.Tick
	for n := math.Ceil(low / step); n*step <= high; n++ {
		list = append(list, plot.Tick{Value: n * step, Label: strconv.FormatFloat(n*step, 'g', 6, 64)})
	}
	return list
}

// nice returns round steps for values up to most.
func nice(most float64) []float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(most, 1e-9)))-1)
	return []float64{unit, 2 * unit, 5 * unit, 10 * unit, 20 * unit, 50 * unit, 100 * unit}
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	pale := color.RGBA{R: 0xe4, G: 0xe4, B: 0xe4, A: 0xff}
	g.Vertical.Color, g.Horizontal.Color = pale, pale
	return g
}
