package bulkhead

import (
	"sync"
	"sync/atomic"
)

// word is the whole state that the fast path needs, in one machine word, so that
// every step is one compare-and-swap of all of it:
//
//	bit 63      somebody waits
//	bits 32-62  limit
//	bits 0-31   permits in flight
type word uint64

const (
	queued     word = 1 << 63
	limitShift      = 32
)

func (w word) inFlight() uint32 { return uint32(w) } //nolint:gosec // the low half is meant
func (w word) limit() uint32    { return uint32((w &^ queued) >> limitShift) }
func (w word) hasWaiters() bool { return w&queued != 0 }

// room reports whether a permit is free for a call that must leave keep of them.
func (w word) room(keep uint32) bool { return w.inFlight()+keep < w.limit() }

func (w word) withLimit(n int) word {
	return w&queued | word(n)<<limitShift | word(w.inFlight()) //nolint:gosec // n was checked: 1 to maxLimit
}

// counter counts permits and queues those who wait for one.
//
// The last permits, as many as reserve, are for calls of high priority: an ordinary
// call is let in while more than that are free (trunk reservation, as telephone
// exchanges do it). So there are two classes of calls, and a permit can be free for
// the one and not for the other.
//
// Three rules make it right, and every method keeps them:
//
//  1. The bit queued is set exactly while the queue holds somebody, and both change
//     only under mu. While it is set the word changes only under mu.
//  2. While somebody waits, no permit is free for them: with an ordinary waiter in
//     flight ≥ limit - reserve, with one of high priority in flight ≥ limit. A permit
//     that is given back and that the first waiter may use goes straight to it.
//  3. An ordinary call is not let in while the bit is set. One of high priority is, if
//     there is room; by rule 2 it then overtakes ordinary waiters only.
//
// No wake-up is lost: to queue, a waiter swaps the bit into a word that it has seen
// full. A return before that swap changes the word, so the swap fails and the waiter
// looks again; a return after it sees the bit and waits on mu until the waiter stands
// in the queue.
type counter struct {
	word    atomic.Uint64
	reserve atomic.Uint32 // changes under mu, and hardly ever; next to word, so that reading it costs nothing

	// Every call writes word and only reads high: on a cache line of its own, high
	// stays in every processor's cache.
	_    [52]byte
	high atomic.Uint32 // most permits in flight so far

	mu    sync.Mutex
	queue queue[*waiter]
}

// waiter is one call in the queue. Its channel is made for this wait and never used
// again: a channel out of a pool could carry the wake-up of an earlier wait, and
// could not cross from one synctest bubble into another.
type waiter struct {
	entry[*waiter]

	ready chan struct{} // closed when the wait is over
	state waitState     // under counter.mu until then, fixed afterwards
}

// waitState is what has become of a waiter.
type waitState uint8

const (
	waits   waitState = iota
	granted           // a permit was handed over
	ousted            // its place went to a call of higher priority
)

func (c *counter) init(limit, reserve int) {
	c.reserve.Store(uint32(reserve)) //nolint:gosec // was checked: 0 to limit - 1
	c.word.Store(uint64(word(0).withLimit(limit)))
}

func (c *counter) load() word { return word(c.word.Load()) }

func (c *counter) swap(from, to word) bool {
	return c.word.CompareAndSwap(uint64(from), uint64(to))
}

// keep returns how many permits a call of band b must leave.
func (c *counter) keep(b band) uint32 {
	if b.reserved() {
		return 0
	}
	return c.reserve.Load()
}

// acquire takes a permit if one is free for a call of band b and nobody waits whom
// it would have to queue behind.
func (c *counter) acquire(b band) bool {
	keep := c.keep(b)
	for {
		w := c.load()
		if !w.room(keep) {
			return false
		}
		if w.hasWaiters() {
			return b.reserved() && c.overtake(keep)
		}
		if c.swap(w, w+1) {
			c.observe(w.inFlight() + 1)
			return true
		}
	}
}

// overtake takes a permit of the reserve, past ordinary waiters.
func (c *counter) overtake(keep uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.takeLocked(keep)
	return ok
}

// takeLocked takes a permit if one is free; if not, it returns the word that says so.
// It requires that c.mu is held, and does not ask who waits: by rule 2 nobody does
// whom this permit could go to.
func (c *counter) takeLocked(keep uint32) (full word, ok bool) {
	for {
		w := c.load()
		if !w.room(keep) {
			return w, false
		}
		if c.swap(w, w+1) {
			c.observe(w.inFlight() + 1)
			return w, true
		}
	}
}

// observe raises the high-water mark to n.
func (c *counter) observe(n uint32) {
	for {
		h := c.high.Load()
		if n <= h || c.high.CompareAndSwap(h, n) {
			return
		}
	}
}

// release gives a permit back: to the first waiter, if there is one that may have
// it. With no permit in flight it does nothing.
func (c *counter) release() {
	for {
		w := c.load()
		if w.hasWaiters() {
			if c.releaseQueued() {
				return
			}
			continue // the queue emptied before we came to it
		}
		if w.inFlight() == 0 || c.swap(w, w-1) {
			return
		}
	}
}

// releaseQueued gives a permit back while somebody waits. It reports false, and has
// done nothing, when nobody does any more.
func (c *counter) releaseQueued() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.load()
	if !w.hasWaiters() {
		return false
	}
	if !(w - 1).room(c.keep(c.queue.first().band)) {
		// The limit was lowered and this permit is withdrawn, or it fills up the
		// reserve. The bit is set and mu held: nobody else writes.
		c.word.Store(uint64(w - 1))
		return true
	}
	c.grantLocked()
	return true
}

// grantLocked hands a permit that is counted in flight already to the first waiter.
// It requires that c.mu is held and that the queue is not empty.
func (c *counter) grantLocked() {
	w := c.queue.first().of
	w.state = granted
	c.removeLocked(w)
	close(w.ready)
}

// removeLocked takes a waiter out of the queue. It requires that c.mu is held.
func (c *counter) removeLocked(w *waiter) {
	c.queue.remove(&w.entry)
	if c.queue.len() == 0 {
		c.word.Store(uint64(c.load() &^ queued)) // the bit is set and mu held: nobody else writes
	}
}

// enqueue takes a permit if one is free after all (nil, true), or else a place in
// the queue (a waiter, true). With most others there already it takes the place of
// one of lower priority, and without such a one none (nil, false).
func (c *counter) enqueue(b band, most int) (*waiter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := c.keep(b)
	for {
		full, ok := c.takeLocked(keep)
		if ok {
			return nil, true
		}
		var out *entry[*waiter]
		if c.queue.len() >= most {
			if out = c.queue.least(b); out == nil {
				return nil, false
			}
		}
		if !c.swap(full, full|queued) {
			continue // a permit was given back since
		}
		n := &waiter{ready: make(chan struct{})}
		n.of, n.band = n, b
		c.queue.push(&n.entry)
		if out != nil { // after the push: the queue is never empty in between
			out.of.state = ousted
			c.removeLocked(out.of)
			close(out.of.ready)
		}
		return n, true
	}
}

// leave takes a waiter out of the queue and returns what had become of it before. A
// permit that was handed to it is then the caller's to use or to release.
func (c *counter) leave(n *waiter) waitState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.state == waits {
		c.removeLocked(n)
	}
	return n.state
}

// setLimit changes the number of permits. Raised, it lets waiters in; lowered, it
// takes no permit away, so that more than the limit stay in flight until enough of
// them are given back.
func (c *counter) setLimit(limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(limit)
}

// resize changes the reserve, too, in the same way: a call that has looked at it just now
// keeps to the one before.
func (c *counter) resize(limit, reserve int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserve.Store(uint32(reserve)) //nolint:gosec // was checked: 0 to limit - 1
	c.setLocked(limit)
}

// setLocked requires that c.mu is held.
func (c *counter) setLocked(limit int) {
	for {
		w := c.load()
		if c.swap(w, w.withLimit(limit)) {
			break
		}
	}
	for {
		first := c.queue.first()
		if first == nil {
			return
		}
		if _, ok := c.takeLocked(c.keep(first.band)); !ok {
			return
		}
		c.grantLocked()
	}
}
