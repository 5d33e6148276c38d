// Package window counts calls over a sliding stretch: of time, or of calls.
//
// A [Window] covers a stretch of time. It is a ring of equal buckets, the
// sliding-window counter of Hystrix and many since. It forgets one whole bucket at a
// time, so it covers between its length less one bucket and its full length: with n
// buckets the edge is off by at most 1/n of the length. In return its size is O(n)
// whatever the traffic, and the cost of a call does not depend on n.
//
// A [Last] covers the last calls, exactly.
//
// Both are pure: every method takes the time, and none reads a clock. In both a call
// that neither failed nor was slow, a plain one, is counted without a lock and without
// writing to memory that other processors write to.
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

// plain reports whether no call failed or was slow.
func (c *Counts) plain() bool { return c.Failures|c.Slow == 0 }

// Window is a sliding window of time over [Counts]. Use [New]. It is safe for
// concurrent use.
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
	// What the fast path reads is apart from what is written under the lock.
	base  time.Time
	width int64 // of a bucket, in nanoseconds
	mark  uint64

	// edge is the end of the newest bucket, in nanoseconds since base, or rotating.
	edge atomic.Int64
	live stripes // the plain calls of the newest bucket

	_ [cacheLine]byte

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
	w := &Window{base: base, width: int64(length) / n, live: newStripes(), ring: make([]Counts, n)}
	w.edge.Store(w.width)
	return w
}

// Watch makes [Window.Add] report when the window reaches mark calls, and returns w.
// It must be called before any other method. Without it, or with a mark of zero,
// nothing is reported.
func (w *Window) Watch(mark uint64) *Window {
	w.mark = mark
	return w
}

// Refit returns a window of another length, number of buckets or mark that holds what
// this one does, for use in its place. Calls of a bucket count at its end, or at now, if
// that is earlier: so nothing is forgotten before its time, and what the new window is too
// short for is. Calls that are added to the old one from then on are not in the new one.
func (w *Window) Refit(now time.Time, length time.Duration, buckets int, mark uint64) *Window {
	n := New(w.base, length, buckets).Watch(mark)
	w.mu.Lock()
	defer w.mu.Unlock()
	ns := max(w.nanos(now), w.epoch*w.width)
	w.advanceLocked(ns)
	for i := w.usedLocked() - 1; i >= 0; i-- { // the oldest first
		c := w.ring[w.slot(w.epoch-i)]
		at := ns
		if i > 0 {
			at = min((w.epoch-i+1)*w.width-1, ns)
		} else {
			c.Calls += w.live.load()
		}
		n.advanceLocked(at) // nobody else has it yet
		s := n.slot(n.epoch)
		n.ring[s].add(c)
		n.sum.add(c)
	}
	n.armLocked(n.sum.Calls)
	return n
}

// Add counts a plain call. It takes no lock unless it is the first in its bucket or
// the window is about to reach its mark. Any stripe will do; calls on different
// processors should have different ones, see [Stripe].
//
// It reports whether this is the call with which a window that holds failed or slow
// calls reaches its mark. Among calls that reach it together at least one is told so,
// unless what reached it was a call of [Window.Record] or [Window.Amend], which
// return the figures themselves.
func (w *Window) Add(now time.Time, stripe uint32) (reached bool) {
	return w.AddAt(now.Sub(w.base), stripe)
}

// Base returns the time that the window's buckets are aligned to.
func (w *Window) Base() time.Time { return w.base }

// AddAt is Add at a time since [Window.Base].
func (w *Window) AddAt(since time.Duration, stripe uint32) (reached bool) {
	ns := max(int64(since), 0)
	if ns >= w.edge.Load() {
		return w.addLocking(ns, stripe)
	}
	// Buckets may move between the check and the addition. The call then counts in
	// a newer bucket than its own, as any call does whose clock is behind.
	w.live.add(stripe)
	// The call was counted before armed is read, and whoever arms does so before
	// counting the calls, so one of the two sees the other.
	return w.live.armed.Load() && w.look()
}

func (w *Window) addLocking(ns int64, stripe uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(ns)
	w.live.add(stripe)
	_, reached := w.totalLocked()
	return reached
}

// look reports whether the mark has been reached and nobody knows yet.
func (w *Window) look() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, reached := w.totalLocked()
	return reached
}

// Record adds d to the newest bucket and returns the figures with it.
func (w *Window) Record(now time.Time, d Counts) Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	return w.recordLocked(w.slot(w.epoch), d)
}

// Amend makes a plain call that was counted before a failed one, and returns the
// figures with it. It takes the newest call that has not failed; when there is none
// left in the window, the call has been forgotten and is counted once more, as
// failed. Failures therefore never exceed calls.
func (w *Window) Amend(now time.Time) Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	live := w.live.load()
	for i := range w.usedLocked() {
		s := w.slot(w.epoch - i)
		if w.ring[s].Calls+live > w.ring[s].Failures {
			return w.recordLocked(s, Counts{Failures: 1})
		}
		live = 0 // all of it is in the newest bucket
	}
	return w.recordLocked(w.slot(w.epoch), Counts{Calls: 1, Failures: 1})
}

// AmendSlow makes a call that was counted before a slow one, as Amend does a failed one: the
// newest that was not slow.
func (w *Window) AmendSlow(now time.Time) Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	live := w.live.load()
	for i := range w.usedLocked() {
		s := w.slot(w.epoch - i)
		if w.ring[s].Calls+live > w.ring[s].Slow {
			return w.recordLocked(s, Counts{Slow: 1})
		}
		live = 0 // all of it is in the newest bucket
	}
	return w.recordLocked(w.slot(w.epoch), Counts{Calls: 1, Slow: 1})
}

// TryAddFailure counts a failure, without a call, if allow agrees with the figures
// before it, and reports whether it did. Deciding and counting are one step: no two
// calls are allowed by the same figures. Plain calls go on meanwhile. allow runs
// under the window's lock and must not use the window.
func (w *Window) TryAddFailure(now time.Time, allow func(Counts) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked(w.nanos(now))
	if before, _ := w.totalLocked(); !allow(before) {
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
			w.armLocked(w.sum.Calls + w.live.load())
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
	c := w.sum
	c.Calls += w.live.load()
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
	w.live.take()
	clear(w.ring)
	w.sum = Counts{}
	w.live.arm(false)
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
func (w *Window) recordLocked(slot int, d Counts) Counts {
	w.ring[slot].add(d)
	w.sum.add(d)
	w.armLocked(w.sum.Calls + w.live.load())
	c, _ := w.totalLocked()
	return c
}

// armLocked makes the next plain calls look whether they reach the mark, if there is
// a reason to and a window of so many calls has not reached it. It requires that w.mu
// is held.
func (w *Window) armLocked(calls uint64) {
	w.live.arm(calls < w.mark && !w.sum.plain())
}

// totalLocked returns the figures, and whether the mark has been reached since armed
// was set: that is told once. It requires that w.mu is held.
func (w *Window) totalLocked() (c Counts, reached bool) {
	c = w.sum
	c.Calls += w.live.load()
	if reached = c.Calls >= w.mark && w.live.armed.Load(); reached {
		w.live.armed.Store(false)
	}
	return c, reached
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
	d := Counts{Calls: w.live.take()}
	w.ring[w.slot(w.epoch)].add(d)
	w.sum.add(d)
	for i := range min(e-w.epoch, int64(len(w.ring))) {
		s := w.slot(e - i)
		w.sum.sub(w.ring[s])
		w.ring[s] = Counts{}
	}
	w.epoch = e
	// Those who add to live meanwhile may be the ones who reach the mark, and have
	// looked at armed too early to know. They are seen by whoever reads the figures
	// next, which is the caller, as it has not given the lock back.
	w.armLocked(w.sum.Calls)

	end := int64(math.MaxInt64)
	if e < end/w.width {
		end = (e + 1) * w.width
	}
	w.edge.Store(end)
}
