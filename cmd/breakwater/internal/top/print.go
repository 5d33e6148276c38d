package top

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/breakwater-go/breakwater/dashboard"
)

// Print writes what there is to see now, once, as plain text.
func Print(w io.Writer, o *dashboard.Overview) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n\n", o.About.Title, time.UnixMilli(o.At).Format(time.TimeOnly), verdict(o))
	if head, faults := faultsOf(o); head != "" {
		fmt.Fprintf(&b, "%s\n   %s\n\n", head, strings.Join(faults, "\n   "))
	}
	rows := [][]string{columns}
	for i := range o.Cards {
		rows = append(rows, cells(&o.Cards[i]))
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < 3 {
				line.WriteString(cell + pad + "  ")
			} else {
				line.WriteString(pad + cell + "  ")
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if n > 0 {
			if tale := story(&o.Cards[n-1], o.At); tale != "" {
				b.WriteString("   " + tale + "\n")
			}
		}
	}
	b.WriteString("\n")
	for _, a := range o.Answers {
		fmt.Fprintf(&b, "%s %s\n", a.Question, a.Short)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("top: %w", err)
	}
	return nil
}
