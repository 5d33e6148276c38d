package window

import (
	"math"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// go-zero#340: buckets that begin at the last write put later events into the
// wrong one.
func TestCaseB37BucketsAreAlignedToTheBase(t *testing.T) {
	t.Parallel()
	base := time.Now()
	w := New(base, 150*time.Millisecond, 3)
	put := func(ms int, n uint64) {
		for range n {
			w.Add(base.Add(time.Duration(ms)*time.Millisecond), 0)
		}
	}
	put(40, 1)
	put(60, 2)
	put(60, 3)
	put(105, 4)
	put(105, 5)
	put(105, 6)
	sums := make([]uint64, 0, 3)
	for i, c := range w.ring {
		if i == w.slot(w.epoch) {
			c.Calls += w.live.load()
		}
		sums = append(sums, c.Calls)
	}
	assert.Equal(t, []uint64{1, 5, 15}, sums)
	assert.Equal(t, Counts{Calls: 21}, w.Counts(base.Add(149*time.Millisecond)))
	assert.Equal(t, Counts{Calls: 20}, w.Counts(base.Add(150*time.Millisecond)), "an edge belongs to the bucket that begins")
}

// An edge is in one bucket only, whatever the arithmetic rounds to.
func TestEdgesAreExact(t *testing.T) {
	t.Parallel()
	base := time.Now()
	for _, length := range []time.Duration{7, 1000, 999_999_937, time.Hour} {
		w := New(base, length, 7)
		for e := range int64(50) {
			edge := base.Add(time.Duration(e * w.width))
			w.Add(edge.Add(-1), 0)
			w.Add(edge, 0)
			assert.Equal(t, e, w.epoch, "length %d", length)
			assert.Equal(t, edge.Add(time.Duration(w.width)), base.Add(time.Duration(w.edge.Load())))
		}
	}
}

// The last bucket ends with time itself, not before it begins.
func TestTheLastBucketHasAnEnd(t *testing.T) {
	t.Parallel()
	base := time.Now()
	for _, length := range []time.Duration{1, 7, time.Second, math.MaxInt64} {
		w := New(base, length, 7)
		w.Add(base.Add(math.MaxInt64), 0)
		assert.Equal(t, int64(math.MaxInt64), w.edge.Load(), "length %d", length)
		w = New(base, length, 1)
		w.Add(base.Add(math.MaxInt64-length), 0)
		assert.Positive(t, w.edge.Load(), "length %d", length)
	}
}

// Calls are counted whatever stripe they come with, and however many there are.
func TestStripes(t *testing.T) {
	t.Parallel()
	base := time.Now()
	for _, n := range []uint32{1, 8} {
		w, l := New(base, time.Second, 10).Watch(100), NewLast(1000).Watch(100)
		w.live = stripes{cells: make([]cell, n), mask: n - 1}
		l.live = stripes{cells: make([]cell, n), mask: n - 1}
		w.Record(base, Counts{Calls: 1, Slow: 1})
		l.Record(base, Counts{Calls: 1, Slow: 1})
		for i := range uint32(98) {
			assert.False(t, w.Add(base, i-1))
			assert.False(t, l.Add(base, i-1))
		}
		assert.True(t, w.Add(base, 99), "%d stripes", n)
		assert.True(t, l.Add(base, 99), "%d stripes", n)
		assert.Equal(t, Counts{Calls: 100, Slow: 1}, w.Counts(base))
		assert.Equal(t, Counts{Calls: 100, Slow: 1}, l.Counts(base))
	}
	assert.Equal(t, uintptr(cacheLine), unsafe.Sizeof(cell{}), "no two on one line")
	used := newStripes()
	assert.Len(t, used.cells, int(used.mask)+1)
	assert.GreaterOrEqual(t, len(used.cells), runtime.GOMAXPROCS(0))
}

// A call keeps the number that its processor has.
func TestStripeStaysWithItsProcessor(t *testing.T) {
	t.Parallel()
	changes, last := 0, Stripe()
	for range 100_000 {
		if n := Stripe(); n != last {
			changes, last = changes+1, n
		}
	}
	assert.Less(t, changes, 50_000)
}
