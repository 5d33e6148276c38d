package load

import (
	"context"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// The classes of outcomes.
const (
	classPassed  = iota // 2xx and 3xx
	classRefused        // 429
	classOther          // other answers
	classError          // no answer
	classes
)

// class returns the class of an answer, status 0 of none.
func class(status int) int {
	switch {
	case status == 0:
		return classError
	case status == http.StatusTooManyRequests:
		return classRefused
	case status >= 200 && status < 400:
		return classPassed
	default:
		return classOther
	}
}

// Latencies are kept in microseconds up to an hour; those of a second with an error of at
// most 1 %, since there may be many of them, those of the run with 0.1 %.
const (
	maxLatency   = time.Hour
	secondDigits = 2
	runDigits    = 3
)

// lateAfter is how late a request may be sent before it is told.
const lateAfter = 10 * time.Millisecond

// maxErrorKinds bounds the texts of errors that are told apart.
const maxErrorKinds = 20

func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), digits)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d, time.Microsecond), maxLatency).Microseconds()) // within the bounds
}

// tally collects results. It is not safe for concurrent use.
type tally struct {
	schedule *Schedule
	config   Config
	began    time.Time

	sent, cut, empty int
	counts           [classes]int
	latency          [classes]*hdrhistogram.Histogram
	all              *hdrhistogram.Histogram
	statuses         map[int]int
	errors           map[string]int
	retryAfter       RetryAfter
	late             int
	worstLate        time.Duration

	seconds []*second
	spare   []*hdrhistogram.Histogram // of seconds that are complete
	steps   []*step
}

// second counts the requests that were due in one second.
type second struct {
	Second

	due, ended int
	latency    *hdrhistogram.Histogram // nil before the first result and after the last
}

// step is a part of the load in which the rate is about constant.
type step struct {
	name        string
	from, to    time.Duration
	due, passed int                     // of the requests that were due in it
	answered    int                     // that passed while it lasted
	busy        time.Duration           // of all requests on their way, added up
	latency     *hdrhistogram.Histogram // of those that passed, from the sending
}

// rampSteps is the number of steps that a ramp is cut into.
const rampSteps = 10

func newTally(c Config, began time.Time) *tally {
	t := &tally{
		schedule: c.Schedule, config: c, began: began,
		all: newHistogram(runDigits), statuses: map[int]int{}, errors: map[string]int{},
	}
	for i := range t.latency {
		t.latency[i] = newHistogram(runDigits)
	}
	for _, st := range c.Schedule.stages {
		if st.Burst > 0 || st.n == 0 {
			continue
		}
		parts := 1
		if st.From != st.To {
			parts = rampSteps
		}
		for i := range parts {
			t.steps = append(t.steps, &step{
				name:    st.String(),
				from:    st.start + st.For*time.Duration(i)/time.Duration(parts),
				to:      st.start + st.For*time.Duration(i+1)/time.Duration(parts),
				latency: newHistogram(secondDigits),
			})
		}
	}
	return t
}

// add counts a result.
func (t *tally) add(r *vegeta.Result) {
	sent := r.Timestamp.Sub(t.began)
	due := t.schedule.due(int(r.Seq))
	late := max(sent-due, 0)
	latency := late + r.Latency // what a user has seen who wanted it at the due time

	t.sent++
	if late > lateAfter {
		t.late++
	}
	t.worstLate = max(t.worstLate, late)
	c := class(int(r.Code))
	t.step(due, sent, sent+r.Latency, c)
	s := t.second(due)
	s.Offered++
	if c == classError && strings.Contains(r.Error, errCut.Error()) {
		t.cut++
		s.Cut++
		t.finish(s)
		return
	}
	t.counts[c]++
	*[classes]*int{&s.Passed, &s.Refused, &s.Other, &s.Errors}[c]++
	record(t.all, latency)
	record(t.latency[c], latency)
	record(s.latency, latency)
	t.finish(s)
	if c == classError {
		t.addError(r.Error)
		return
	}
	t.statuses[int(r.Code)]++
	if r.Code == http.StatusOK && r.BytesIn == 0 && t.config.Method != http.MethodHead {
		t.empty++
	}
	t.retryAfter.add(r.Headers.Get("Retry-After"), int(r.Code), r.Timestamp.Add(r.Latency))
}

// second returns the second in which a request was due.
func (t *tally) second(due time.Duration) *second {
	at := int(due / time.Second)
	for len(t.seconds) <= at {
		t.seconds = append(t.seconds, &second{Second: Second{Second: len(t.seconds)}})
	}
	s := t.seconds[at]
	if s.ended == 0 {
		from := time.Duration(at) * time.Second
		s.due = t.schedule.dueBefore(from+time.Second) - t.schedule.dueBefore(from)
		if n := len(t.spare); n > 0 {
			s.latency, t.spare = t.spare[n-1], t.spare[:n-1]
		} else {
			s.latency = newHistogram(secondDigits)
		}
	}
	s.ended++
	return s
}

// finish gives a second its percentiles once all its requests have ended.
func (t *tally) finish(s *second) {
	if s.ended == s.due {
		t.close(s)
	}
}

func (t *tally) close(s *second) {
	if s.latency == nil {
		return
	}
	s.Latency = percentiles(s.latency)
	s.latency.Reset()
	t.spare = append(t.spare, s.latency)
	s.latency = nil
}

// step counts a request in the steps that it belongs to.
func (t *tally) step(due, sent, end time.Duration, c int) {
	first := sort.Search(len(t.steps), func(i int) bool { return t.steps[i].to > min(due, sent) })
	for _, s := range t.steps[first:] {
		if s.from > end {
			break
		}
		s.busy += max(min(end, s.to)-max(sent, s.from), 0)
		if due >= s.from && due < s.to {
			s.due++
			if c == classPassed {
				s.passed++
				record(s.latency, end-sent)
			}
		}
		if c == classPassed && end >= s.from && end < s.to {
			s.answered++
		}
	}
}

// addError counts the text of an error, without what differs from one to the next.
func (t *tally) addError(text string) {
	switch {
	case strings.Contains(text, "Client.Timeout"), strings.Contains(text, context.DeadlineExceeded.Error()):
		text = "no answer within " + t.config.Timeout.String()
	case strings.Contains(text, "is not the target"), strings.Contains(text, "redirect"), strings.Contains(text, "tls:"), strings.Contains(text, "x509:"):
		_, text, _ = strings.Cut(text, "\": ")
	default:
		if i := strings.LastIndex(text, ": "); i >= 0 {
			text = text[i+2:]
		}
	}
	if _, ok := t.errors[text]; !ok && len(t.errors) >= maxErrorKinds {
		text = "others"
	}
	t.errors[text]++
}

func (t *tally) progress() Progress {
	return Progress{
		Length: t.schedule.length, Requests: t.schedule.total,
		Passed: t.counts[classPassed], Refused: t.counts[classRefused],
		Other: t.counts[classOther], Errors: t.counts[classError],
	}
}

// RetryAfter is what answers said about when to come again.
type RetryAfter struct {
	Seen       int `json:"seen"`           // answers with a header that can be read
	On429      int `json:"on_429"`         // of them, those with status 429
	Missing    int `json:"missing_on_429"` // answers of 429 without the header
	Unreadable int `json:"unreadable"`     // answers with something else in it
	// The least and the most seconds.
	Min float64 `json:"min_seconds"`
	Max float64 `json:"max_seconds"`
}

func (ra *RetryAfter) add(value string, status int, now time.Time) {
	if value = strings.TrimSpace(value); value == "" {
		if status == http.StatusTooManyRequests {
			ra.Missing++
		}
		return
	}
	seconds, err := strconv.ParseUint(value, 10, 31)
	s := float64(seconds)
	if err != nil {
		date, err := http.ParseTime(value)
		if err != nil {
			ra.Unreadable++
			return
		}
		s = max(date.Sub(now), 0).Round(time.Millisecond).Seconds()
	}
	if ra.Seen == 0 || s < ra.Min {
		ra.Min = s
	}
	ra.Max = max(ra.Max, s)
	ra.Seen++
	if status == http.StatusTooManyRequests {
		ra.On429++
	}
}
