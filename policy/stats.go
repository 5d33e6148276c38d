package policy

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
)

// stats counts what happens in a pipeline. Counters are striped, so that calls on
// different processors do not write to the same cache lines: every [Attempt] has a
// stripe for life, and the pool it comes from keeps attempts on their processor.
type stats struct {
	stripes   []stripe
	mask      uint32
	abandoned atomic.Uint64
}

type stripe struct {
	// direct holds the durations of attempts that were a whole call each: the first
	// one, a success, and no gate has waited. Its count is also the number of such
	// calls and of such attempts, and its durations are also those of the calls, so
	// nearly every call writes to it and to nothing else.
	direct hist.Histogram

	calls     [NumKinds]atomic.Uint64 // other calls
	callTime  hist.Histogram          // durations of those of them that returned after an attempt that ran
	attempts  [NumKinds]atomic.Uint64 // attempts of other calls
	latency   hist.Histogram          // durations of those that ran
	retries   atomic.Uint64
	panics    atomic.Uint64
	discarded atomic.Uint64

	_ [64]byte // keeps the next stripe off this one's last cache line
}

func newStats() *stats {
	n := 1
	for n < runtime.GOMAXPROCS(0) {
		n <<= 1
	}
	return &stats{stripes: make([]stripe, n), mask: uint32(n - 1)} //nolint:gosec // a small power of two
}

func (s *stats) at(i uint32) *stripe { return &s.stripes[i&s.mask] }

// attempt counts an attempt that was not a whole call.
func (s *stripe) attempt(o Outcome) {
	s.attempts[o.Kind].Add(1)
	if o.Kind != NotRun {
		s.latency.Record(o.Duration)
	}
}

// call counts a call that was a single attempt, for what is not in direct. took is its
// duration, waits included.
func (s *stripe) call(k Kind, took time.Duration) {
	s.calls[k].Add(1)
	if k != NotRun {
		s.callTime.Record(took)
	}
}

// first returns a stripe for what belongs to no attempt.
func (s *stats) first() *stripe { return &s.stripes[0] }

// addTo adds the counters to a snapshot.
func (s *stats) addTo(snap *Snapshot) {
	snap.CallLatency.Counts = make([]uint64, hist.Buckets)
	for i := range s.stripes {
		snap.CallLatency.Sum += s.stripes[i].direct.AddTo(snap.CallLatency.Counts)
	}
	direct := snap.CallLatency.Count() // each was an attempt, too
	snap.Latency = Latency{Counts: slices.Clone(snap.CallLatency.Counts), Sum: snap.CallLatency.Sum}
	snap.Calls[Success] += direct
	snap.Attempts[Success] += direct
	for i := range s.stripes {
		st := &s.stripes[i]
		for k := range NumKinds {
			snap.Calls[k] += st.calls[k].Load()
			snap.Attempts[k] += st.attempts[k].Load()
		}
		snap.Retries += st.retries.Load()
		snap.Panics += st.panics.Load()
		snap.Discarded += st.discarded.Load()
		snap.Latency.Sum += st.latency.AddTo(snap.Latency.Counts)
		snap.CallLatency.Sum += st.callTime.AddTo(snap.CallLatency.Counts)
	}
	snap.Abandoned = s.abandoned.Load()
}
