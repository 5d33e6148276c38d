package load

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what came back. Its JSON names are described in docs/reference/load.md.
type Report struct {
	Target      string    `json:"target"`
	Method      string    `json:"method"`
	Load        string    `json:"load"` // the stages in words
	Began       time.Time `json:"began"`
	Interrupted bool      `json:"interrupted"`
	// Seconds is how long the load lasted, at least 1: until the end of the last stage, or
	// until it was interrupted. Rates are per second of it.
	Seconds float64 `json:"seconds"`

	Planned int `json:"planned"` // requests of the whole load
	Sent    int `json:"sent"`
	Passed  int `json:"passed"`  // 2xx and 3xx
	Refused int `json:"refused"` // 429
	Other   int `json:"other"`   // other answers
	Errors  int `json:"errors"`  // no answer
	Cut     int `json:"cut"`     // on their way when the load was interrupted, and given up
	Empty   int `json:"empty"`   // answers of 200 without a body

	OfferedPerSecond  float64 `json:"offered_per_second"`
	AdmittedPerSecond float64 `json:"admitted_per_second"`

	Statuses   map[string]int `json:"statuses"` // answers by status
	ErrorKinds []ErrorKind    `json:"error_kinds"`
	RetryAfter RetryAfter     `json:"retry_after"`
	// Latency counts from the due time of a request.
	Latency Latencies `json:"latency"`
	// Late is how many requests were sent more than 10 ms after they were due.
	Late         int     `json:"late"`
	WorstLate    float64 `json:"worst_late_ms"`
	PeakInFlight int     `json:"peak_in_flight"`
	Concurrency  int     `json:"concurrency"` // the bound

	Timeline []Second `json:"timeline"`
	Steps    []Step   `json:"steps"`
}

// ErrorKind is why there was no answer, and how often.
type ErrorKind struct {
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// Latencies are percentiles by outcome.
type Latencies struct {
	All     Latency `json:"all"`
	Passed  Latency `json:"passed"`
	Refused Latency `json:"refused"`
	Other   Latency `json:"other"`
	Errors  Latency `json:"errors"`
}

// Latency has percentiles in milliseconds, all 0 when there was nothing.
type Latency struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// Second counts the requests that were due in one second of the load.
type Second struct {
	Second  int     `json:"second"`
	Offered int     `json:"offered"`
	Passed  int     `json:"passed"`
	Refused int     `json:"refused"`
	Other   int     `json:"other"`
	Errors  int     `json:"errors"`
	Cut     int     `json:"cut"`
	Latency Latency `json:"latency"`
}

// Step is a part of the load that takes time: a rate, or a tenth of a ramp.
type Step struct {
	Name        string  `json:"name"`
	Concurrency float64 `json:"concurrency"` // requests on their way, on average
	Throughput  float64 `json:"throughput"`  // passed answers per second
	Latency     float64 `json:"latency_ms"`  // mean of those that passed, from the sending
	P99         float64 `json:"p99_ms"`
	Errors      float64 `json:"errors"` // share of requests that did not pass
}

func percentiles(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	ms := func(v int64) float64 { return float64(v) / 1000 }
	q := func(p float64) float64 { return ms(h.ValueAtPercentile(p)) }
	return Latency{
		Count: int(h.TotalCount()), Mean: math.Round(h.Mean()) / 1000,
		P50: q(50), P90: q(90), P95: q(95), P99: q(99), Max: ms(h.Max()),
	}
}

// report sums up what there is after the run has ended.
func (t *tally) report(interrupted bool, took time.Duration, peak int) *Report {
	// One that was interrupted after its last request was sent and answered is complete.
	interrupted = interrupted && (t.sent < t.schedule.total || t.cut > 0)
	lasted := t.schedule.length
	if interrupted {
		lasted = min(lasted, took)
	}
	r := &Report{
		Target: t.config.Target.String(), Method: t.config.Method, Load: t.schedule.String(),
		Began: t.began.Round(0), Interrupted: interrupted, Seconds: max(lasted.Seconds(), 1),
		Planned: t.schedule.total, Sent: t.sent, Cut: t.cut, Empty: t.empty,
		Passed: t.counts[classPassed], Refused: t.counts[classRefused],
		Other: t.counts[classOther], Errors: t.counts[classError],
		Statuses: map[string]int{}, ErrorKinds: []ErrorKind{}, RetryAfter: t.retryAfter,
		Latency: Latencies{
			All:     percentiles(t.all),
			Passed:  percentiles(t.latency[classPassed]),
			Refused: percentiles(t.latency[classRefused]),
			Other:   percentiles(t.latency[classOther]),
			Errors:  percentiles(t.latency[classError]),
		},
		Late: t.late, WorstLate: float64(t.worstLate.Microseconds()) / 1000,
		PeakInFlight: peak, Concurrency: t.config.Concurrency,
		Timeline: []Second{}, Steps: []Step{},
	}
	r.OfferedPerSecond = float64(r.Sent) / r.Seconds
	r.AdmittedPerSecond = float64(r.Passed) / r.Seconds
	for status, n := range t.statuses {
		r.Statuses[strconv.Itoa(status)] = n
	}
	for text, n := range t.errors {
		r.ErrorKinds = append(r.ErrorKinds, ErrorKind{text, n})
	}
	slices.SortFunc(r.ErrorKinds, func(a, b ErrorKind) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Text, b.Text)
	})
	for _, s := range t.seconds {
		t.close(s)
		r.Timeline = append(r.Timeline, s.Second)
	}
	for _, s := range t.steps {
		length := min(s.to, lasted) - s.from
		if length <= 0 || s.due == 0 {
			continue
		}
		r.Steps = append(r.Steps, Step{
			Name:        s.name,
			Concurrency: s.busy.Seconds() / length.Seconds(),
			Throughput:  float64(s.answered) / length.Seconds(),
			Latency:     percentiles(s.latency).Mean,
			P99:         percentiles(s.latency).P99,
			Errors:      1 - float64(s.passed)/float64(s.due),
		})
	}
	return r
}
