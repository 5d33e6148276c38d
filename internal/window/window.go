// Package window counts calls over a sliding stretch of time.
//
// A [Window] is a ring of equal buckets, the sliding-window counter of Hystrix and
// many since. It forgets one whole bucket at a time, so it covers between its
// length less one bucket and its full length: with n buckets the edge is off by at
// most 1/n of the length. In return its size is O(n) whatever the traffic, and the
// cost of a call does not depend on n.
//
// It is pure: every method takes the time, and none reads a clock.
package window

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Counts are the figures of a window. A call that failed slowly is in all three.
type Counts struct {
	Calls, Failures, Slow uint64
}

func (c *Counts) add(d Counts) {
	c.Calls += d.Calls
	c.Failures += d.Failures
	c.Slow += d.Slow
}

func (c *Counts) sub(d Counts) {
	c.Calls -= d.Calls
	c.Failures -= d.Failures
	c.Slow -= d.Slow
}

// Window is a sliding window over [Counts]. Use [New]. It is safe for concurrent
// use.
//
// Buckets are aligned to the base given to New, never to the last write, so an
// event at an edge is in exactly one bucket: the one that begins there. A time
// before the newest bucket, because the clock went back or because the goroutine
// that read it was slow, counts as a time in the newest bucket. Idle gaps may have
// any length.
//
// Figures are exact whenever no call is in flight, and otherwise off by calls in
// flight only.
type Window struct {
	base  time.Time
	width int64 // of a bucket, in nanoseconds

	// The words of the fast path. They share a cache line on purpose: whoever adds
	// to live has to own that line anyway.
	//
	// edge is the end of the newest bucket, in nanoseconds since base, or
	// rotating. live counts the plain calls of the newest bucket. rest counts all
	// other calls of the window; it mirrors sum.Calls and changes under mu only.
	edge atomic.Int64
	live atomic.Uint64
	rest atomic.Uint64

	mu    sync.Mutex
	epoch int64    // number of the newest bucket: it begins at epoch*width
	ring  []Counts // bucket e is at e mod len(ring); live is not in it
	sum   Counts   // over ring
}

// rotating is the value of edge while buckets move: no time is before it, so
// whoever comes then takes the lock.
const rotating = math.MinInt64

// New returns an empty window of the given length in so many buckets, aligned to
// base. The length is rounded down to whole nanoseconds per bucket. A length below
// one nanosecond counts as one; the number of buckets is kept between 1 and the
// length in nanoseconds.
func New(base time.Time, length time.Duration, buckets int) *Window {
	length = max(length, 1)
	n := min(max(int64(buckets), 1), int64(length))
	w := &Window{base: base, width: int64(length) / n, ring: make([]Counts, n)}
	w.edge.Store(w.width)
	return w
}

// Add counts a plain call, one that neither failed nor was slow. It takes no lock
// unless it is the first in its bucket.
//
// It reports whether this is the call with which the window reaches mark calls.
// Among calls that reach it together at least one is told so, and more than one may
// be, unless what reached it was a call of [Window.Record] or another method that
// returns the figures itself. A mark of zero is never reached.
func (w *Window) Add(now time.Time, mark uint64) bool {
	ns := w.nanos(now)
	edge := w.edge.Load()
	if ns >= edge {
		return w.addLocking(ns, mark)
	}
	// Buckets may move between the check and the addition. The call then counts in
	// a newer bucket than its own, as any call does whose clock is behind.
	n := w.live.Add(1)
	if n > mark {
		return false // the bucket alone has reached it before: the common case
	}
	// live was written before rest is read, and Record writes rest before it reads
	// live, so of two calls that reach the mark together one sees the other.
	reached := n+w.rest.Load() == mark
	if w.edge.Load() == edge {
		return reached
	}
	// Buckets moved meanwhile: n and rest may be of different moments, and others
	// may be in the same position. Whoever is asks again, and settles for "at
	// least".
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.totalLocked().Calls >= mark
}

func (w *Window) addLocking(ns int64, mark uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(ns)
	n := w.live.Add(1)
	return n+w.sum.Calls == mark
}

// Record adds d to the newest bucket and returns the figures with it.
func (w *Window) Record(now time.Time, d Counts) Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	w.recordLocked(w.slot(w.epoch), d)
	return w.totalLocked()
}

// Amend makes a plain call that was counted before a failed one, and returns the
// figures with it. It takes the newest call that has not failed; when there is none
// left in the window, the call has been forgotten and is counted once more, as
// failed. Failures therefore never exceed calls.
func (w *Window) Amend(now time.Time) Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	live := w.live.Load()
	for i := range w.usedLocked() {
		s := w.slot(w.epoch - i)
		if w.ring[s].Calls+live > w.ring[s].Failures {
			w.recordLocked(s, Counts{Failures: 1})
			return w.totalLocked()
		}
		live = 0 // all of it is in the newest bucket
	}
	w.recordLocked(w.slot(w.epoch), Counts{Calls: 1, Failures: 1})
	return w.totalLocked()
}

// TryAddFailure counts a failure, without a call, if allow agrees with the figures
// before it, and reports whether it did. Deciding and counting are one step: no two
// calls are allowed by the same figures. Plain calls go on meanwhile. allow runs
// under the window's lock and must not use the window.
func (w *Window) TryAddFailure(now time.Time, allow func(Counts) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	if !allow(w.totalLocked()) {
		return false
	}
	w.recordLocked(w.slot(w.epoch), Counts{Failures: 1})
	return true
}

// UndoFailure takes back one failure of [Window.TryAddFailure], the newest in the
// window. It does nothing when all of them have been forgotten.
func (w *Window) UndoFailure(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	for i := range w.usedLocked() {
		if s := w.slot(w.epoch - i); w.ring[s].Failures > 0 {
			w.ring[s].Failures--
			w.sum.Failures--
			return
		}
	}
}

// Counts returns the figures at the given time. It changes nothing, so that it may
// be asked about the future.
func (w *Window) Counts(now time.Time) Counts {
	ns := w.nanos(now)
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := ns/w.width - w.epoch // buckets that are new by then, each in place of an old one
	if gone >= int64(len(w.ring)) {
		return Counts{}
	}
	c := w.totalLocked()
	for i := int64(1); i <= gone; i++ {
		c.sub(w.ring[w.slot(w.epoch+i)])
	}
	return c
}

// Reset forgets all calls. Calls in flight count on either side of it.
func (w *Window) Reset(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	edge := w.edge.Load()
	w.edge.Store(rotating)
	w.live.Store(0)
	clear(w.ring)
	w.sum = Counts{}
	w.rest.Store(0)
	w.edge.Store(edge)
}

// nanos returns the time since base, never negative.
func (w *Window) nanos(now time.Time) int64 {
	return max(int64(now.Sub(w.base)), 0)
}

func (w *Window) slot(epoch int64) int { return int(epoch % int64(len(w.ring))) }

// usedLocked returns the number of buckets that have begun, the newest included. It
// requires that w.mu is held.
func (w *Window) usedLocked() int64 { return min(int64(len(w.ring))-1, w.epoch) + 1 }

// recordLocked requires that w.mu is held.
func (w *Window) recordLocked(slot int, d Counts) {
	w.ring[slot].add(d)
	w.sum.add(d)
	w.rest.Store(w.sum.Calls)
}

// totalLocked requires that w.mu is held.
func (w *Window) totalLocked() Counts {
	c := w.sum
	c.Calls += w.live.Load()
	return c
}

// advanceLocked makes the bucket of ns the newest one, if it is not older. It
// requires that w.mu is held.
func (w *Window) advanceLocked(ns int64) {
	e := ns / w.width
	if e <= w.epoch {
		return
	}
	w.edge.Store(rotating)
	// From here on nobody new adds to live without the lock. Those who had looked
	// at edge before may still: before the swap they count in the old bucket,
	// after it in the new one.
	w.recordLocked(w.slot(w.epoch), Counts{Calls: w.live.Swap(0)})
	for i := range min(e-w.epoch, int64(len(w.ring))) {
		s := w.slot(e - i)
		w.sum.sub(w.ring[s])
		w.ring[s] = Counts{}
	}
	w.epoch = e
	w.rest.Store(w.sum.Calls)

	end := int64(math.MaxInt64)
	if e < end/w.width {
		end = (e + 1) * w.width
	}
	w.edge.Store(end)
}
