package replay

import (
	"slices"
	"sync"
	"time"
)

// Outcome is what became of a request.
type Outcome uint8

// The outcomes of requests.
const (
	Served   Outcome = iota // answered as it should be
	Degraded                // answered by a fallback
	Refused                 // by a policy
	Failed                  // by the dependency, or by a timeout
)

// event is the end of a request.
type event struct {
	at, took time.Duration // since the beginning, and since it arrived
	what     Outcome
}

// Log holds what became of requests, and when.
type Log struct {
	start time.Time

	mu     sync.Mutex
	events []event
	sorted bool
}

// NewLog returns a log that begins now.
func NewLog() *Log { return &Log{start: time.Now()} }

// Since returns the time since the log began.
func (l *Log) Since() time.Duration { return time.Since(l.start) }

// Add records that a request that arrived at a time has ended now.
func (l *Log) Add(what Outcome, arrived time.Time) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{now.Sub(l.start), now.Sub(arrived), what})
	l.sorted = false
}

// of returns the events with the given outcomes, or all, in their order.
func (l *Log) of(what []Outcome) []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.sorted {
		slices.SortFunc(l.events, func(a, b event) int { return int(a.at - b.at) })
		l.sorted = true
	}
	if len(what) == 0 {
		return l.events
	}
	var events []event
	for _, e := range l.events {
		if slices.Contains(what, e.what) {
			events = append(events, e)
		}
	}
	return events
}

// Total counts requests with the given outcomes, or all.
func (l *Log) Total(what ...Outcome) int { return len(l.of(what)) }

// From returns a log of the requests that ended in a stretch of time.
func (l *Log) From(from, to time.Duration) *Log {
	part := &Log{start: l.start}
	for _, e := range l.of(nil) {
		if e.at >= from && e.at < to {
			part.events = append(part.events, e)
		}
	}
	return part
}

// Arrived returns a log of the requests that arrived in a stretch of time.
func (l *Log) Arrived(from, to time.Duration) *Log {
	part := &Log{start: l.start}
	for _, e := range l.of(nil) {
		if a := e.at - e.took; a >= from && a < to {
			part.events = append(part.events, e)
		}
	}
	return part
}

// First returns when the first of the requests ended; ok is false when there is none.
func (l *Log) First(what ...Outcome) (at time.Duration, ok bool) {
	events := l.of(what)
	if len(events) == 0 {
		return 0, false
	}
	return events[0].at, true
}

// Last returns when the last of the requests ended.
func (l *Log) Last(what ...Outcome) time.Duration {
	events := l.of(what)
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].at
}

// PerSecond counts requests in each of so many seconds.
func (l *Log) PerSecond(seconds int, what ...Outcome) []int {
	counts := make([]int, seconds)
	for _, e := range l.of(what) {
		if s := int(e.at / time.Second); s < seconds {
			counts[s]++
		}
	}
	return counts
}

// Within returns the share of the requests that took no longer than a time, of all.
func (l *Log) Within(limit time.Duration, what ...Outcome) float64 {
	n := 0
	for _, e := range l.of(what) {
		if e.took <= limit {
			n++
		}
	}
	return float64(n) / float64(max(l.Total(), 1))
}

// Quantile returns a quantile of the times that requests took.
func (l *Log) Quantile(q float64, what ...Outcome) time.Duration {
	return quantile(l.of(what), q)
}

func quantile(events []event, q float64) time.Duration {
	if len(events) == 0 {
		return 0
	}
	took := make([]time.Duration, len(events))
	for i, e := range events {
		took[i] = e.took
	}
	slices.Sort(took)
	return took[int(q*float64(len(took)-1))]
}

// Most returns the largest number of requests that ended in any stretch of a second,
// wherever it begins.
func (l *Log) Most(what ...Outcome) int {
	events := l.of(what)
	most, from := 0, 0
	for i, e := range events {
		for e.at-events[from].at >= time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// Counts is a line of the requests per second.
func (l *Log) Counts(name string, seconds int, what ...Outcome) Line {
	line := Line{Name: name, Y: make([]float64, seconds)}
	for s, n := range l.PerSecond(seconds, what...) {
		line.Y[s] = float64(n)
	}
	return line
}

// Latency is a line of a quantile of the times, in milliseconds, in each second.
func (l *Log) Latency(name string, seconds int, q float64, what ...Outcome) Line {
	line := Line{Name: name, Y: make([]float64, seconds)}
	events, from := l.of(what), 0
	for s := range seconds {
		to := from
		for to < len(events) && events[to].at < time.Duration(s+1)*time.Second {
			to++
		}
		line.Y[s] = float64(quantile(events[from:to], q)) / float64(time.Millisecond)
		from = to
	}
	return line
}
