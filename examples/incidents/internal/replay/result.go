package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Result is what a replay came to.
type Result struct {
	Incident string  `json:"incident"`
	Headline Row     `json:"headline"` // the one of the rows that says most
	Rows     []Row   `json:"rows"`
	Charts   []Chart `json:"charts,omitempty"`
}

// OK reports whether every figure is as it should be.
func (r *Result) OK() bool { return len(r.Out()) == 0 }

// Loosen gives figures that were measured on real time a tolerance: a tenth, and 2, or 0.3 of
// what is a ratio or a percentage, or 100 ms; but not those that are exact.
func (r *Result) Loosen() {
	for i, row := range r.Rows {
		r.Rows[i].Before, r.Rows[i].After = row.Before.loosen(), row.After.loosen()
	}
}

// Out lists the rows with a figure that is not as it should be.
func (r *Result) Out() []Row {
	var out []Row
	for _, row := range r.Rows {
		if !row.OK() {
			out = append(out, row)
		}
	}
	return out
}

// Row is a figure before and after.
type Row struct {
	Name          string
	Before, After Figure
}

// OK reports whether the figures are as they should be.
func (r Row) OK() bool { return !r.Before.out && !r.After.out }

// Expected says what the figures should be.
func (r Row) Expected() string {
	var parts []string
	if r.Before.want != "" {
		parts = append(parts, "before "+r.Before.want)
	}
	switch {
	case r.After.want == "":
	case r.Before.want == "":
		parts = append(parts, r.After.want)
	default:
		parts = append(parts, "after "+r.After.want)
	}
	return strings.Join(parts, ", ")
}

// MarshalJSON implements [json.Marshaler].
func (r Row) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Figure   string   `json:"figure"`
		Expected string   `json:"expected"`
		Before   string   `json:"before,omitempty"`
		After    string   `json:"after,omitempty"`
		Values   [2]value `json:"values"`
		OK       bool     `json:"ok"`
	}{r.Name, r.Expected(), r.Before.text, r.After.text, [2]value{r.Before.value, r.After.value}, r.OK()})
}

// Chart shows a quantity second by second, in both runs.
type Chart struct {
	Title  string `json:"title"`
	Unit   string `json:"unit"`
	Before []Line `json:"before"`
	After  []Line `json:"after"`
}

// Line is one of the lines of a chart: a value for each second.
type Line struct {
	Name string    `json:"name"`
	Y    []float64 `json:"y"`
}

// Row adds a row to the result.
func (r *Result) Row(name string, before, after Figure) {
	r.Rows = append(r.Rows, Row{Name: name, Before: before, After: after})
}

// Head makes the row that was added last the headline, under a name that says what it is
// without the others.
func (r *Result) Head(name string) {
	r.Headline = r.Rows[len(r.Rows)-1]
	r.Headline.Name = name
}

// WriteText writes the rows as a table for people.
func (r *Result) WriteText(w io.Writer) error {
	lines := [][]string{{"figure", "expected", "before", "after"}}
	for _, row := range r.Rows {
		name := row.Name
		if !row.OK() {
			name = "OUT: " + name
		}
		lines = append(lines, []string{name, row.Expected(), row.Before.String(), row.After.String()})
	}
	return WriteTable(w, lines)
}

// WriteTable writes lines of cells, the first one a heading, in columns.
func WriteTable(w io.Writer, lines [][]string) error {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	rule := make([]string, len(widths))
	for i, n := range widths {
		rule[i] = strings.Repeat("-", n)
	}
	var b strings.Builder
	for i, line := range lines {
		writeLine(&b, line, widths)
		if i == 0 {
			writeLine(&b, rule, widths)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeLine(b *strings.Builder, cells []string, widths []int) {
	var line strings.Builder
	for i, cell := range cells {
		fmt.Fprintf(&line, "%-*s  ", widths[i], cell)
	}
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}
