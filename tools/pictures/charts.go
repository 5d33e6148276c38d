package main

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// Chart is a quantity before and after something, in two diagrams with the same axes.
type Chart struct {
	Title  string `json:"title"`
	Unit   string `json:"unit"` // of the values
	Before []Line `json:"before"`
	After  []Line `json:"after"`
}

// chartColumns is how many charts stand side by side.
const chartColumns = 2

// charts returns the diagrams of a picture in rows and columns: of each chart the one
// before above the one after.
func charts(p Picture) ([][]*plot.Plot, error) {
	var rows [][]*plot.Plot
	for i, c := range p.Charts {
		if i%chartColumns == 0 {
			rows = append(rows, make([]*plot.Plot, chartColumns), make([]*plot.Plot, chartColumns))
		}
		last, most, err := extent(c)
		if err != nil {
			return nil, err
		}
		for j, lines := range [][]Line{c.Before, c.After} {
			d, err := diagram(Panel{Title: c.Title + [2]string{", before", ", after"}[j], Unit: c.Unit, Lines: nil})
			if err != nil {
				return nil, err
			}
			d.X.Tick.Marker = ticks{[]float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600}, 8}
			d.Y.Tick.Marker = ticks{nice(most), 5}
			// Room for the names of the lines.
			d.X.Min, d.X.Max, d.Y.Min, d.Y.Max = 0, last, 0, 1.35*max(most, 1e-9)
			if err := named(d, lines); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Title, err)
			}
			if j == 1 {
				d.X.Label.Text = "seconds"
			}
			rows[len(rows)-2+j][i%chartColumns] = d
		}
	}
	return rows, nil
}

// extent returns the last second and the largest value of a chart.
func extent(c Chart) (last, most float64, err error) {
	last = 1
	for _, lines := range [][]Line{c.Before, c.After} {
		for _, l := range lines {
			last = max(last, float64(len(l.Y)-1))
			for _, y := range l.Y {
				if math.IsNaN(y) || math.IsInf(y, 0) {
					return 0, 0, fmt.Errorf("%s: %s: a value is %v", c.Title, l.Name, y)
				}
				most = max(most, y)
			}
		}
	}
	return last, most, nil
}

// named draws lines, and their names into the diagram: charts have lines of their own.
func named(d *plot.Plot, lines []Line) error {
	d.Legend.Top, d.Legend.Left = true, true
	d.Legend.TextStyle.Font = d.X.Tick.Label.Font
	d.Legend.TextStyle.Font.Size = vg.Points(9)
	d.Legend.ThumbnailWidth = vg.Points(16)
	d.Legend.Padding = vg.Points(1)
	d.Legend.XOffs = vg.Points(4)
	for i, l := range lines {
		points := make(plotter.XYs, len(l.Y))
		for x, y := range l.Y {
			points[x].X, points[x].Y = float64(x), y
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		line.LineStyle = styles[(i+1)%len(styles)] // the first is for what the others are compared with
		d.Add(line)
		d.Legend.Add(l.Name, line)
	}
	return nil
}

// tilesOf says how the diagrams of charts lie on a picture.
func tilesOf(rows [][]*plot.Plot) vgdraw.Tiles {
	return vgdraw.Tiles{
		Rows: len(rows), Cols: chartColumns,
		PadX: 2 * space, PadY: space, PadTop: head / 2, PadBottom: space, PadLeft: space, PadRight: 2 * space,
	}
}
