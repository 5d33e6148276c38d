package policy

import (
	"math"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
)

// Latency is a histogram of durations: log-linear buckets, each at most 1/8 of its
// lower edge wide, 1 µs at the least, up to about 268 s.
type Latency struct {
	// Counts holds the number of durations in each bucket.
	Counts []uint64

	// Sum is the sum of all durations.
	Sum time.Duration
}

// Upper returns the exclusive upper edge of bucket i.
func (l Latency) Upper(i int) time.Duration { return hist.Upper(i) }

// Count returns the number of durations.
func (l Latency) Count() uint64 {
	var n uint64
	for _, c := range l.Counts {
		n += c
	}
	return n
}

// Below returns the number of durations in buckets that end at or before d.
func (l Latency) Below(d time.Duration) uint64 {
	var n uint64
	for i, c := range l.Counts {
		if hist.Upper(i) > d {
			break
		}
		n += c
	}
	return n
}

// Quantile returns an upper bound of the q-quantile, q in [0, 1]: the upper edge of
// the bucket it falls into, so at most 12.5 % (or 1 µs) above the true value. It
// returns 0 when there are no durations.
func (l Latency) Quantile(q float64) time.Duration {
	n := l.Count()
	if n == 0 {
		return 0
	}
	rank := max(uint64(math.Ceil(q*float64(n))), 1)
	for i, c := range l.Counts {
		if rank <= c {
			return hist.Upper(i)
		}
		rank -= c
	}
	return hist.Upper(len(l.Counts) - 1)
}

// Sub returns what was recorded since the earlier state: every count less its count
// there.
func (l Latency) Sub(earlier Latency) Latency {
	d := Latency{Counts: make([]uint64, len(l.Counts)), Sum: l.Sum - earlier.Sum}
	copy(d.Counts, l.Counts)
	for i := range min(len(earlier.Counts), len(d.Counts)) {
		d.Counts[i] -= earlier.Counts[i]
	}
	return d
}
