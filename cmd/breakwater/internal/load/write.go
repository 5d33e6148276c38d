package load

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// maxLines bounds the lines of the timeline as text, and bars of the plot are bound by
// maxBars: longer runs are shown by so many seconds at a time.
const (
	maxLines = 60
	maxBars  = 300
)

// WriteJSON writes a report as JSON.
func WriteJSON(w io.Writer, r *Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteCSV writes the steps of a report in the form that breakwater size --csv reads.
func WriteCSV(w io.Writer, r *Report) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"concurrency", "throughput", "latency_ms", "p99_ms", "errors", "step"})
	for _, s := range r.Steps {
		_ = out.Write([]string{
			strconv.Itoa(int(math.Ceil(s.Concurrency))), figure(s.Throughput),
			figure(s.Latency), figure(s.P99), figure(s.Errors), s.Name,
		})
	}
	out.Flush()
	return out.Error()
}

func figure(v float64) string { return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64) }

// WriteText writes a report for a reader.
func WriteText(w io.Writer, r *Report) error {
	fmt.Fprintf(w, "%s %s: %s: %d of %d requests sent", r.Method, r.Target, r.Load, r.Sent, r.Planned)
	if r.Interrupted {
		fmt.Fprintf(w, ", interrupted after %ss", decimal(r.Seconds, 1))
	}
	fmt.Fprint(w, "\n\n")

	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "second\toffered\tpassed\t429\tother\terrors\tp50\tp99\tmax\t\n")
	for _, b := range bins(r.Timeline, maxLines) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t\n", b.name(), b.Offered, b.Passed, b.Refused, b.Other, b.Errors,
			ms(b.Latency, b.Latency.P50), ms(b.Latency, b.Latency.P99), ms(b.Latency, b.Latency.Max))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprint(w, "\n")
	t = tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "outcome\trequests\tshare\tper second\tp50\tp90\tp95\tp99\tmax\t\n")
	for _, o := range r.outcomes() {
		fmt.Fprintf(t, "%s\t%d\t%s %%\t%s\t%s\t%s\t%s\t%s\t%s\t\n", o.name, o.n, decimal(100*float64(o.n)/float64(max(r.Sent, 1)), 1),
			decimal(float64(o.n)/r.Seconds, 1), ms(o.latency, o.latency.P50), ms(o.latency, o.latency.P90),
			ms(o.latency, o.latency.P95), ms(o.latency, o.latency.P99), ms(o.latency, o.latency.Max))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprint(w, "\n")
	for _, line := range r.remarks() {
		fmt.Fprintln(w, line)
	}
	return nil
}

type outcome struct {
	name    string
	n       int
	latency Latency
}

// outcomes are the classes of the report that are there, and their sum.
func (r *Report) outcomes() []outcome {
	list := []outcome{{"passed", r.Passed, r.Latency.Passed}, {"429", r.Refused, r.Latency.Refused}}
	if r.Other > 0 {
		list = append(list, outcome{"other", r.Other, r.Latency.Other})
	}
	if r.Errors > 0 {
		list = append(list, outcome{"errors", r.Errors, r.Latency.Errors})
	}
	if r.Cut > 0 {
		list = append(list, outcome{"cut off", r.Cut, Latency{}})
	}
	return append(list, outcome{"all", r.Sent, r.Latency.All})
}

// remarks say the rest in sentences.
func (r *Report) remarks() []string {
	lines := []string{fmt.Sprintf("admitted: %s per second of %s offered, over %ss", decimal(r.AdmittedPerSecond, 1), decimal(r.OfferedPerSecond, 1), decimal(r.Seconds, 1))}
	if len(r.Statuses) > 0 {
		texts := []string{}
		for _, status := range slices.Sorted(maps.Keys(r.Statuses)) {
			texts = append(texts, fmt.Sprintf("%d x %s", r.Statuses[status], status))
		}
		lines = append(lines, "status: "+strings.Join(texts, ", "))
	}
	for _, e := range r.ErrorKinds {
		lines = append(lines, fmt.Sprintf("error: %d x %s", e.Count, e.Text))
	}
	ra := r.RetryAfter
	if ra.Seen > 0 {
		span := decimal(ra.Min, 3) + "s"
		if ra.Max > ra.Min {
			span += " to " + decimal(ra.Max, 3) + "s"
		}
		lines = append(lines, fmt.Sprintf("Retry-After: %s, on %d answers, %d of them 429", span, ra.Seen, ra.On429))
	}
	if ra.Missing > 0 {
		lines = append(lines, fmt.Sprintf("Retry-After: missing on %d of %d answers of 429: clients do not know when to come again", ra.Missing, r.Refused))
	}
	if ra.Unreadable > 0 {
		lines = append(lines, fmt.Sprintf("Retry-After: %d answers say something that is neither seconds nor a date", ra.Unreadable))
	}
	if r.Empty > 0 {
		lines = append(lines, fmt.Sprintf("empty: %d answers of 200 have no body: is that a refusal that looks like a success?", r.Empty))
	}
	if r.Late > 0 {
		line := fmt.Sprintf("late: %d requests were sent more than %v after they were due, the worst one by %s ms; their latencies count from then", r.Late, lateAfter, decimal(r.WorstLate, 1))
		if r.PeakInFlight >= r.Concurrency {
			line += fmt.Sprintf(" (--concurrency %d was reached)", r.Concurrency)
		}
		lines = append(lines, line)
	}
	return append(lines, fmt.Sprintf("in flight: at most %d", r.PeakInFlight))
}

// bin is some seconds of the timeline.
type bin struct {
	Second

	last int // second
}

func (b bin) name() string {
	if b.last == b.Second.Second {
		return strconv.Itoa(b.last)
	}
	return fmt.Sprintf("%d-%d", b.Second.Second, b.last)
}

// bins puts seconds together so that there are at most so many. Counts add up; of the
// latencies the worst second's is shown.
func bins(seconds []Second, most int) []bin {
	width := 1
	for _, w := range []int{1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600} {
		if width = w; len(seconds) <= w*most {
			break
		}
	}
	var list []bin
	for i := 0; i < len(seconds); i += width {
		b := bin{Second: Second{Second: i}, last: min(i+width, len(seconds)) - 1}
		for _, s := range seconds[i : b.last+1] {
			b.Offered += s.Offered
			b.Passed += s.Passed
			b.Refused += s.Refused
			b.Other += s.Other
			b.Errors += s.Errors
			b.Cut += s.Cut
			b.Latency.Count += s.Latency.Count
			b.Latency.P50 = max(b.Latency.P50, s.Latency.P50)
			b.Latency.P99 = max(b.Latency.P99, s.Latency.P99)
			b.Latency.Max = max(b.Latency.Max, s.Latency.Max)
		}
		list = append(list, b)
	}
	return list
}

// ms writes milliseconds, or a dash where there was nothing to measure.
func ms(of Latency, v float64) string {
	switch {
	case of.Count == 0:
		return "-"
	case v < 10:
		return decimal(v, 2) + " ms"
	case v < 1000:
		return decimal(v, 0) + " ms"
	default:
		return decimal(v/1000, 2) + " s"
	}
}

func decimal(v float64, digits int) string {
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if digits == 3 { // of a span of seconds, mostly whole ones
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
