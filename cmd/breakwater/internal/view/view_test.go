package view_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo"
	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/view"
	"github.com/breakwater-go/breakwater/policy"
)

func frameAt(at time.Duration) demo.Frame {
	return demo.Frame{
		At: at, For: 12 * time.Second, Phase: script.Slow, Breaker: policy.BreakerSnapshot{State: "half_open"},
		Worlds: [demo.Worlds]demo.FrameWorld{
			demo.Unprotected: {Real: 90, Failed: 7, P99: 2431, NeighbourP99: 943, DependencyCalls: 330, Waiting: 79, Goroutines: 1400},
			demo.Protected:   {Real: 116, Fallbacks: 123, P99: 250, NeighbourP99: 121.4, DependencyCalls: 3, Goroutines: 180},
		},
	}
}

func TestLiveLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	live := view.NewLive(&out, false)
	live.Show(frameAt(5 * time.Second))
	over := frameAt(13 * time.Second)
	over.Worlds[demo.Protected] = demo.FrameWorld{} // all have been answered
	live.Show(over)
	assert.Equal(t, "                  unprotected                               protected\n"+
		"time phase        real fallback failed      p99   neighb   real fallback failed      p99   neighb  breaker\n"+
		"  5s slow           90        0      7   2.43 s   943 ms    116      123      0   250 ms   121 ms  half_open\n"+
		" 13s load over      90        0      7   2.43 s   943 ms      0        0      0        -        -  half_open\n",
		out.String())
}

func TestLiveTableIsDrawnOver(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	live := view.NewLive(&out, true)
	live.Show(frameAt(5 * time.Second))
	first := out.String()
	assert.NotContains(t, first, "\x1b", "there is nothing to draw over")
	lines := strings.Count(first, "\n")
	for line := range strings.Lines(first) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), view.MinWidth, line)
	}
	for _, cells := range [][]string{
		{"5 s of 12s: slow"},
		{"real answers", "90", "116"},
		{"fallbacks", "0", "123"},
		{"p99", "2.43 s", "250 ms"},
		{"p99 of the neighbour's route", "943 ms", "121 ms"},
		{"calls that reached the stock dependency", "330", "3"},
		{"requests waiting for a slot", "79", "0"},
		{"goroutines", "1400", "180"},
		{"breaker", "half_open"},
	} {
		assert.Contains(t, rows(first), strings.Join(cells, "|"))
	}

	out.Reset()
	live.Show(frameAt(6 * time.Second))
	up, table, ok := strings.Cut(out.String(), "\x1b[J")
	require.True(t, ok, "what is below the cursor is erased")
	assert.Equal(t, "\x1b["+strconv.Itoa(lines)+"A", up, "the cursor goes up by the lines of the table")
	assert.Equal(t, lines, strings.Count(table, "\n"))

	out.Reset()
	live.Show(frameAt(13 * time.Second))
	assert.Contains(t, rows(out.String()), "13 s: load over")
}

func report() demo.Report {
	r := demo.Report{
		Unprotected: demo.World{
			Goodput: 150.9, RealShare: 0.629, FailedShare: 0.371, P50: 2404, P99: 5005, DependencyCalls: 3, PeakGoroutines: 2081,
			NeighbourP99: 4399, NeighbourHealthyP99: 123.8, NeighbourIncidentP99: 1880, IncidentP99: 4153,
			HealthyReal: 0.996, IncidentReal: 0.513, RecoveredReal: 0.493,
		},
		Protected: demo.World{
			Goodput: 193.1, RealShare: 0.805, FallbackShare: 0.195, P50: 120.5, P99: 333.3, DependencyCalls: 0.171, PeakGoroutines: 234,
			NeighbourP99: 125.6, NeighbourHealthyP99: 124.2, NeighbourIncidentP99: 126, IncidentP99: 451,
			HealthyReal: 0.996, IncidentReal: 0.513, RecoveredReal: 1,
		},
		Transitions: []demo.Transition{
			{At: 3.62, Dependency: "inventory", From: "closed", To: "open", Why: "failure_ratio", Ratio: 0.526, Calls: 81},
			{At: 4.12, Dependency: "inventory", From: "open", To: "half_open", Why: "open_passed"},
			{At: 12.1, Dependency: "inventory", From: "half_open", To: "closed", Why: "probes_succeeded", Calls: 3},
		},
		For: 12, Rate: 240, RecoveredFrom: 9.9,
	}
	for _, p := range []struct {
		name     string
		from, to float64
	}{
		{script.Healthy, 0, 3}, {script.Slow, 3, 5.64}, {script.Failing, 5.64, 7.8}, {script.Recovering, 7.8, 8.76}, {script.Recovered, 8.76, 12},
	} {
		r.Phases = append(r.Phases, demo.PhaseSpan{Phase: p.name, From: p.from, To: p.to})
	}
	return r
}

func TestResult(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	view.Result(&out, report())
	table, story, ok := strings.Cut(out.String(), "\n\n")
	require.True(t, ok)
	for _, want := range []string{
		"12.0 s at 240 requests per second",
		"unprotected|protected",
		"goodput (real answers per second)|150.9|193.1",
		"real answers|62.9 %|80.5 %",
		"while healthy|99.6 %|99.6 %",
		"once recovered (from 9.9 s)|49.3 %|100.0 %",
		"fallbacks|0.0 %|19.5 %",
		"failed|37.1 %|0.0 %",
		"p50|2.40 s|120 ms",
		"p99|5.00 s|333 ms",
		"during the incident|4.15 s|451 ms",
		"per call offered during the incident|3.00|0.17",
		"p99 of the healthy neighbour's route|4.40 s|126 ms",
		"before the incident|124 ms|124 ms",
		"during the incident|1.88 s|126 ms",
		"goroutines held, at most|2081|234",
	} {
		assert.Contains(t, rows(table), want)
	}
	assert.Equal(t, `The stock dependency, and what the breakers made of it:
    0.00 s  healthy
    3.00 s  slow
    3.62 s    inventory: closed -> open because of failure_ratio (53 % of 81 calls)
    4.12 s    inventory: open -> half_open because of open_passed
    5.64 s  failing
    7.80 s  recovering
    8.76 s  recovered
   12.10 s    inventory: half_open -> closed because of probes_succeeded (0 % of 3 calls)
`, story)
}

func TestResultOnABusyMachine(t *testing.T) {
	t.Parallel()
	r := report()
	r.Stalls = demo.Stalls{Longest: 99, Sum: 240}
	var calm, busy bytes.Buffer
	view.Result(&calm, r)
	r.Stalls = demo.Stalls{Longest: 412.3, Sum: 1870, Large: true}
	view.Result(&busy, r)
	more, ok := strings.CutPrefix(busy.String(), calm.String())
	require.True(t, ok)
	assert.Equal(t, "\nThe machine was busy: for up to 412 ms at a time, 1.87 s in all, the demo did not get a processor. "+
		"Timeouts and breakers may have answered to that; play it again when the machine is idle.\n", more)
	assert.NotContains(t, calm.String(), "busy")
}

func TestResultOfAnInterruptedRun(t *testing.T) {
	t.Parallel()
	r := report()
	r.For, r.Interrupted, r.Transitions = 2.5, true, nil
	var out bytes.Buffer
	view.Result(&out, r)
	got := rows(out.String())
	assert.Contains(t, got, "2.5 s at 240 requests per second, interrupted")
	assert.Contains(t, got, "while healthy|99.6 %|99.6 %")
	assert.Contains(t, got, "during the incident|-|-", "what did not happen has no figures")
	assert.Contains(t, got, "once recovered (from 9.9 s)|-|-")
	assert.Contains(t, out.String(), "0.00 s  healthy\n")
	assert.NotContains(t, out.String(), "s  slow\n")
}

func TestTraces(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	view.Traces(&out, nil)
	assert.Empty(t, out.String())
	view.Traces(&out, []demo.Trace{
		{Phase: script.Slow, Spans: []demo.Span{
			{Name: "GET /stock", Duration: 251234 * time.Microsecond},
			{Depth: 1, Name: "call inventory", Duration: 251 * time.Millisecond, Attributes: []string{"breakwater.outcome=timeout", "error.type=timeout"}, Failed: true},
		}},
		{Phase: script.Healthy, Spans: []demo.Span{{Name: "GET /price", Duration: 120 * time.Millisecond}}},
		{Phase: script.Slow, Spans: []demo.Span{{Name: "GET /price", Duration: 121 * time.Millisecond}}},
	})
	assert.Equal(t, `
Spans of the protected world, a trace of each kind in each phase, attributes without breakwater.

healthy
  GET /price 120ms

slow
  GET /stock 251.23ms
    call inventory 251ms ERROR outcome=timeout error.type=timeout
  GET /price 121ms
`, out.String())
}

// rows returns the cells of a table's rows, separated by bars and without padding.
func rows(table string) []string {
	var list []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "│")
		var row []string
		for _, c := range cells {
			if c = strings.TrimSpace(c); c != "" {
				row = append(row, c)
			}
		}
		list = append(list, strings.Join(row, "|"))
	}
	return list
}
