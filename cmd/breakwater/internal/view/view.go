// Package view shows a demo: while it runs, a table that is redrawn every second on
// a terminal, or a line a second elsewhere; and at its end the worlds side by side.
package view

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo"
	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

// MinWidth is the number of columns that the live table needs.
const MinWidth = 76

// Live shows a demo while it runs. It is not safe for concurrent use.
type Live struct {
	w        io.Writer
	terminal bool
	lines    int  // of the table that is on the screen
	begun    bool // the heading of the lines is out
}

// NewLive returns a view that writes to w. On a terminal, which must be [MinWidth]
// columns wide and understand ANSI control sequences, it draws over what it drew
// before.
func NewLive(w io.Writer, terminal bool) *Live {
	return &Live{w: w, terminal: terminal}
}

// Show shows what happened in the last second.
func (l *Live) Show(f demo.Frame) {
	if !l.terminal {
		if !l.begun {
			fmt.Fprintln(l.w, heading)
			l.begun = true
		}
		fmt.Fprintln(l.w, line(f))
		return
	}
	drawing := frame(f)
	if l.lines > 0 {
		// Up to where the last one began, and away with all that is below.
		fmt.Fprintf(l.w, "\x1b[%dA\x1b[J", l.lines)
	}
	fmt.Fprintln(l.w, drawing)
	l.lines = strings.Count(drawing, "\n") + 1
}

// heading stands above the lines: neighb is the p99 of the neighbour's route.
const heading = "                  unprotected                               protected\n" +
	"time phase        real fallback failed      p99   neighb   real fallback failed      p99   neighb  breaker"

// line tells the most important figures of a frame in one line.
func line(f demo.Frame) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%3.0fs %-10s", f.At.Seconds(), phase(f))
	for _, w := range f.Worlds {
		fmt.Fprintf(&b, "  %5d %8d %6d %8s %8s", w.Real, w.Fallbacks, w.Failed, millis(w.P99), millis(w.NeighbourP99))
	}
	return b.String() + "  " + f.Breaker.State
}

// phase names the phase of a frame. After the load the last answers are waited for.
func phase(f demo.Frame) string {
	if f.At >= f.For {
		return "load over"
	}
	return f.Phase
}

// frame draws a frame as a table.
func frame(f demo.Frame) string {
	of := ""
	if f.At < f.For {
		of = " of " + f.For.String()
	}
	t := newTable(fmt.Sprintf("%.0f s%s: %s", f.At.Seconds(), of, phase(f)), "in the last second")
	u, p := f.Worlds[demo.Unprotected], f.Worlds[demo.Protected]
	for _, r := range []struct {
		what string
		of   func(demo.FrameWorld) any
	}{
		{"real answers", func(w demo.FrameWorld) any { return w.Real }},
		{"fallbacks", func(w demo.FrameWorld) any { return w.Fallbacks }},
		{"failed", func(w demo.FrameWorld) any { return w.Failed }},
		{"p99", func(w demo.FrameWorld) any { return millis(w.P99) }},
		{"p99 of the neighbour's route", func(w demo.FrameWorld) any { return millis(w.NeighbourP99) }},
		{"calls that reached the stock dependency", func(w demo.FrameWorld) any { return w.DependencyCalls }},
		{"requests waiting for a slot", func(w demo.FrameWorld) any { return w.Waiting }},
		{"goroutines", func(w demo.FrameWorld) any { return w.Goroutines }},
	} {
		t.AppendRow(table.Row{r.what, r.of(u), r.of(p)})
	}
	t.AppendRow(table.Row{"breaker", "", f.Breaker.State})
	return t.Render()
}

// Result writes the worlds side by side, the breakers' transitions, and whether the
// machine had too much else to do for all that to mean anything.
func Result(w io.Writer, r demo.Report) {
	title := fmt.Sprintf("%.1f s at %d requests per second", r.For, r.Rate)
	if r.Interrupted {
		title += ", interrupted"
	}
	t := newTable(title, "")
	incident := r.Phases[script.SlowPhase].From
	for _, row := range []struct {
		what string
		from float64 // when there begins to be something to tell
		of   func(demo.World) string
	}{
		{"goodput (real answers per second)", 0, func(w demo.World) string { return fmt.Sprintf("%.1f", w.Goodput) }},
		{"real answers", 0, func(w demo.World) string { return share(w.RealShare) }},
		{"  while healthy", 0, func(w demo.World) string { return share(w.HealthyReal) }},
		{"  during the incident", incident, func(w demo.World) string { return share(w.IncidentReal) }},
		{fmt.Sprintf("  once recovered (from %.1f s)", r.RecoveredFrom), r.RecoveredFrom, func(w demo.World) string { return share(w.RecoveredReal) }},
		{"fallbacks", 0, func(w demo.World) string { return share(w.FallbackShare) }},
		{"failed", 0, func(w demo.World) string { return share(w.FailedShare) }},
		{"p50", 0, func(w demo.World) string { return millis(w.P50) }},
		{"p99", 0, func(w demo.World) string { return millis(w.P99) }},
		{"  during the incident", incident, func(w demo.World) string { return millis(w.IncidentP99) }},
		{"calls that reached the stock dependency,", 0, func(demo.World) string { return "" }},
		{"  per call offered during the incident", incident, func(w demo.World) string { return fmt.Sprintf("%.2f", w.DependencyCalls) }},
		{"p99 of the healthy neighbour's route", 0, func(w demo.World) string { return millis(w.NeighbourP99) }},
		{"  before the incident", 0, func(w demo.World) string { return millis(w.NeighbourHealthyP99) }},
		{"  during the incident", incident, func(w demo.World) string { return millis(w.NeighbourIncidentP99) }},
		{"goroutines held, at most", 0, func(w demo.World) string { return strconv.Itoa(w.PeakGoroutines) }},
	} {
		if row.from >= r.For {
			row.of = func(demo.World) string { return "-" }
		}
		t.AppendRow(table.Row{row.what, row.of(r.Unprotected), row.of(r.Protected)})
	}
	fmt.Fprintf(w, "\n%s\n", t.Render())
	transitions(w, r)
	if r.Stalls.Large {
		fmt.Fprintf(w, "\nThe machine was busy: for up to %s at a time, %s in all, the demo did not get a processor. Timeouts and breakers may have answered to that; play it again when the machine is idle.\n",
			millis(r.Stalls.Longest), millis(r.Stalls.Sum))
	}
}

// transitions writes what the breakers did, between the phases of the incident.
func transitions(w io.Writer, r demo.Report) {
	fmt.Fprintln(w, "\nThe stock dependency, and what the breakers made of it:")
	next := r.Transitions
	for _, p := range r.Phases {
		if p.From > r.For {
			break
		}
		fmt.Fprintf(w, "  %6.2f s  %s\n", p.From, p.Phase)
		for len(next) > 0 && (next[0].At < p.To || p.To >= r.For) {
			t := next[0]
			next = next[1:]
			fmt.Fprintf(w, "  %6.2f s    %s: %s -> %s because of %s", t.At, t.Dependency, t.From, t.To, t.Why)
			if t.Calls > 0 {
				fmt.Fprintf(w, " (%.0f %% of %d calls)", 100*t.Ratio, t.Calls)
			}
			fmt.Fprintln(w)
		}
	}
}

// prefix is common to nearly all attributes, and left out of the trees.
const prefix = "breakwater."

// Traces writes example traces as trees, in the order of the phases.
func Traces(w io.Writer, traces []demo.Trace) {
	if len(traces) == 0 {
		return
	}
	fmt.Fprintf(w, "\nSpans of the protected world, a trace of each kind in each phase, attributes without %s\n", prefix)
	phases := []string{script.Healthy, script.Slow, script.Failing, script.Recovering, script.Recovered}
	traces = slices.Clone(traces)
	slices.SortStableFunc(traces, func(a, b demo.Trace) int {
		return slices.Index(phases, a.Phase) - slices.Index(phases, b.Phase)
	})
	phase := ""
	for _, tr := range traces {
		if tr.Phase != phase {
			phase = tr.Phase
			fmt.Fprintf(w, "\n%s\n", phase)
		}
		for _, s := range tr.Spans {
			fmt.Fprintf(w, "  %s%s %s", strings.Repeat("  ", s.Depth), s.Name, s.Duration.Round(10*time.Microsecond))
			if s.Failed {
				fmt.Fprint(w, " ERROR")
			}
			for _, a := range s.Attributes {
				fmt.Fprint(w, " ", strings.TrimPrefix(a, prefix))
			}
			fmt.Fprintln(w)
		}
	}
}

func newTable(title, caption string) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.SetTitle("%s", title)
	t.AppendHeader(table.Row{caption, demo.WorldNames[demo.Unprotected], demo.WorldNames[demo.Protected]})
	right := table.ColumnConfig{Align: text.AlignRight, AlignHeader: text.AlignRight, WidthMin: 12}
	u, p := right, right
	u.Number, p.Number = 2, 3
	t.SetColumnConfigs([]table.ColumnConfig{u, p})
	return t
}

func share(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// millis writes a latency; 0 is that of no answer at all.
func millis(x float64) string {
	switch {
	case x == 0:
		return "-"
	case x >= 1000:
		return fmt.Sprintf("%.2f s", x/1000)
	}
	return fmt.Sprintf("%.0f ms", x)
}
