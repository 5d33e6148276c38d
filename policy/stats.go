package policy

import (
	"runtime"
	"sync/atomic"

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
	// firstSuccess counts calls whose first attempt was a success. It stands for
	// one call and one attempt, so the path of nearly every call writes once.
	firstSuccess atomic.Uint64

	calls     [NumKinds]atomic.Uint64 // other calls
	attempts  [NumKinds]atomic.Uint64 // attempts of other calls
	retries   atomic.Uint64
	panics    atomic.Uint64
	discarded atomic.Uint64
	latency   hist.Histogram

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

// first returns a stripe for what belongs to no attempt.
func (s *stats) first() *stripe { return &s.stripes[0] }

// addTo adds the counters to a snapshot.
func (s *stats) addTo(snap *Snapshot) {
	snap.Latency.Counts = make([]uint64, hist.Buckets)
	for i := range s.stripes {
		st := &s.stripes[i]
		first := st.firstSuccess.Load()
		snap.Calls[Success] += first
		snap.Attempts[Success] += first
		for k := range NumKinds {
			snap.Calls[k] += st.calls[k].Load()
			snap.Attempts[k] += st.attempts[k].Load()
		}
		snap.Retries += st.retries.Load()
		snap.Panics += st.panics.Load()
		snap.Discarded += st.discarded.Load()
		snap.Latency.Sum += st.latency.AddTo(snap.Latency.Counts)
	}
	snap.Abandoned = s.abandoned.Load()
}
