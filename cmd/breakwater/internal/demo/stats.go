package demo

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

// result is how one request of a user ended.
type result struct {
	at       time.Duration // when it was sent, in the time of the script
	latency  time.Duration
	route    int
	ok       bool
	degraded bool // ok, with a fallback
}

// tally counts results. Its zero value is not ready for use: see newTally.
type tally struct {
	offered, real, fallbacks, failed int64
	latency                          *hdrhistogram.Histogram // in microseconds
}

// Latencies are kept in microseconds with an error of at most 0.1 %, up to a minute.
const (
	maxLatency    = time.Minute
	latencyDigits = 3
)

func newTally() *tally {
	return &tally{latency: hdrhistogram.New(1, maxLatency.Microseconds(), latencyDigits)}
}

func (t *tally) add(r result) {
	t.offered++
	switch {
	case !r.ok:
		t.failed++
	case r.degraded:
		t.fallbacks++
	default:
		t.real++
	}
	us := min(max(r.latency, time.Microsecond), maxLatency).Microseconds()
	_ = t.latency.RecordValue(us) // it is within the bounds
}

// merge returns the sum of tallies.
func merge(tallies ...*tally) *tally {
	sum := newTally()
	for _, t := range tallies {
		sum.offered += t.offered
		sum.real += t.real
		sum.fallbacks += t.fallbacks
		sum.failed += t.failed
		sum.latency.Merge(t.latency)
	}
	return sum
}

// quantile returns the latency in milliseconds below which percent of the results
// stay, failures included; 0 when there are none.
func (t *tally) quantile(percent float64) float64 {
	if t.offered == 0 {
		return 0
	}
	return float64(t.latency.ValueAtPercentile(percent)) / 1000
}

// share returns n as a share of the results, 0 when there are none.
func (t *tally) share(n int64) float64 { return ratio(n, t.offered) }

func ratio(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// second counts the requests that were sent in one second of the run.
type second struct {
	offered, real, fallbacks, failed int64
}

// stats collects the results of one world. It is safe for concurrent use.
type stats struct {
	script script.Script
	settle time.Duration // from here on the dependency has had time to recover

	mu      sync.Mutex
	phases  [script.Phases][routes]*tally
	settled [routes]*tally // sent after settle
	window  [routes]*tally // ended since the last call of tick
	seconds []second
}

func newStats(s script.Script, settle time.Duration) *stats {
	st := &stats{script: s, settle: settle}
	for r := range routes {
		for p := range st.phases {
			st.phases[p][r] = newTally()
		}
		st.settled[r], st.window[r] = newTally(), newTally()
	}
	return st
}

// add counts a result in the phase and the second in which its request was sent.
func (s *stats) add(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases[s.script.At(r.at)][r.route].add(r)
	if r.at >= s.settle {
		s.settled[r.route].add(r)
	}
	s.window[r.route].add(r)
	// The last request may be sent at the very end.
	sec := int(min(max(r.at, 0), s.script.End()-1) / time.Second)
	for len(s.seconds) <= sec {
		s.seconds = append(s.seconds, second{})
	}
	c := &s.seconds[sec]
	c.offered++
	switch {
	case !r.ok:
		c.failed++
	case r.degraded:
		c.fallbacks++
	default:
		c.real++
	}
}

// of returns the results of a route whose requests were sent in the given phases.
func (s *stats) of(route int, phases ...int) *tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := newTally()
	for _, p := range phases {
		sum = merge(sum, s.phases[p][route])
	}
	return sum
}

// all returns the results of all routes in the given phases.
func (s *stats) all(phases ...int) *tally {
	return merge(s.of(routeStock, phases...), s.of(routePrice, phases...))
}

// afterSettle returns the results of a route whose requests were sent after settle.
func (s *stats) afterSettle(route int) *tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return merge(s.settled[route])
}

// timeline returns the counts of each second of the run.
func (s *stats) timeline() []second {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]second(nil), s.seconds...)
}

// tick returns what ended since its last call.
func (s *stats) tick() [routes]*tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.window
	for r := range routes {
		s.window[r] = newTally()
	}
	return ended
}
