// Package incidents holds the replays of incidents: each with the code as it was, and
// behind a pipeline, on virtual time.
package incidents

import (
	"fmt"
	"io"

	"github.com/breakwater-go/breakwater/examples/incidents/aggregator"
	"github.com/breakwater-go/breakwater/examples/incidents/ask"
	"github.com/breakwater-go/breakwater/examples/incidents/captcha"
	"github.com/breakwater-go/breakwater/examples/incidents/internal/replay"
	"github.com/breakwater-go/breakwater/examples/incidents/ocr"
	"github.com/breakwater-go/breakwater/examples/incidents/orders"
)

// Result is what a replay came to.
type Result = replay.Result

// Live is what a replay on real time has in place of stand-ins.
type Live = replay.Live

// Incident is one that can be replayed.
type Incident struct {
	Name  string
	Story string // in a sentence
	Play  func() (*Result, error)
}

// All lists the incidents.
func All() []Incident {
	return []Incident{
		{"aggregator", "Ten times the traffic, and all of it waited for the connections of the database.", aggregator.Replay},
		{"ask", "Each instance counted for itself, and nothing was behind the count.", ask.Replay},
		{"captcha", "A limiter whose callers waited took all workers of the process.", captcha.Replay},
		{"orders", "One slow dependency took the whole service, and retries trebled its load.", orders.Replay},
		{"ocr", "People and batches shared a quota and a line without an end, and retries went past it.", ocr.Replay},
	}
}

// Find returns the incident of a name.
func Find(name string) (Incident, error) {
	var names []string
	for _, i := range All() {
		if i.Name == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	return Incident{}, fmt.Errorf("there is no incident %q: there are %q", name, names)
}

// WriteTable writes lines of cells, the first one a heading, in columns.
func WriteTable(w io.Writer, lines [][]string) error { return replay.WriteTable(w, lines) }

// WriteSummary writes a line for each result: its figure that says most, and how many are
// as they should be.
func WriteSummary(w io.Writer, results []*Result) error {
	lines := [][]string{{"incident", "", "before", "after", "figures"}}
	for _, r := range results {
		n := fmt.Sprintf("%d, all inside", len(r.Rows))
		if out := len(r.Out()); out > 0 {
			n = fmt.Sprintf("%d, %d OUT", len(r.Rows), out)
		}
		h := r.Headline
		lines = append(lines, []string{r.Incident, h.Name, h.Before.String(), h.After.String(), n})
	}
	return replay.WriteTable(w, lines)
}
