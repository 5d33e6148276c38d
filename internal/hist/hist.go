// Package hist is a concurrent log-linear histogram of durations: a fixed number of
// buckets, one atomic add to record, and a bounded relative error.
//
// Below 8 µs a bucket is 1 µs wide; above, each doubling is cut into 8 equal
// buckets, so a bucket is at most 1/8 of its lower edge wide (the layout of
// HdrHistogram with three significant bits). The last bucket also takes everything
// longer than about 268 s.
package hist

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	subBits = 3
	sub     = 1 << subBits
	maxExp  = 27 // 2^28 µs is about 268 s

	// Buckets is the number of buckets of a histogram.
	Buckets = (maxExp - subBits + 2) * sub
)

// Index returns the bucket that holds d. A negative d counts as 0.
func Index(d time.Duration) int {
	if d < 0 {
		return 0
	}
	v := uint64(d) / 1000
	if v < sub {
		return int(v)
	}
	e := bits.Len64(v) - 1
	if e > maxExp {
		return Buckets - 1
	}
	return (e-subBits+1)*sub + int(v>>(e-subBits))&(sub-1) //nolint:gosec // at most 15 before the mask
}

// Upper returns the exclusive upper edge of bucket i. The last bucket has none;
// its edge is the largest it would have.
func Upper(i int) time.Duration {
	if i < sub {
		return time.Duration(i+1) * time.Microsecond
	}
	e, m := i/sub-1+subBits, i%sub
	return time.Duration((sub+m+1)<<(e-subBits)) * time.Microsecond
}

// Histogram counts durations. The zero value is empty and ready to use. All methods
// are safe for concurrent use.
type Histogram struct {
	sum    atomic.Int64
	counts [Buckets]atomic.Uint64
}

// Record counts d.
func (h *Histogram) Record(d time.Duration) {
	h.counts[Index(d)].Add(1)
	h.sum.Add(int64(d))
}

// AddTo adds the counts to dst, which must have Buckets elements, and returns the
// sum of the recorded durations.
func (h *Histogram) AddTo(dst []uint64) time.Duration {
	for i := range h.counts {
		dst[i] += h.counts[i].Load()
	}
	return time.Duration(h.sum.Load())
}
