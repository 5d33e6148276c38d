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
func (w word) admits() bool     { return w < queued && w.inFlight() < w.limit() }
func (w word) withLimit(n int) word {
	return w&queued | word(n)<<limitShift | word(w.inFlight()) //nolint:gosec // n was checked: 1 to maxLimit
}

// counter counts permits and queues those who wait for one.
//
// Two rules make it right, and every method keeps them:
//
//  1. The bit queued is set exactly while the queue holds somebody, and both change
//     only under mu. Whoever returns a permit and sees the bit goes through mu.
//  2. While the bit is set, no permit is free: in flight ≥ limit. A permit that is
//     given back goes straight to the first waiter, and never becomes free.
//
// No wake-up is lost: to queue, a waiter swaps the bit into a word that it has seen
// full. A return before that swap changes the word, so the swap fails and the waiter
// looks again; a return after it sees the bit and waits on mu until the waiter stands
// in the queue. Nobody overtakes: with the bit set, acquire never succeeds. And with
// the bit set and mu held nobody else can change the word: acquire fails without
// writing, release comes to mu first.
type counter struct {
	word atomic.Uint64

	// Every call writes word and only reads high: on a cache line of its own, high
	// stays in every processor's cache.
	_    [56]byte
	high atomic.Uint32 // most permits in flight so far

	waiting atomic.Int64 // length of the queue; written under mu

	mu    sync.Mutex
	queue queue
}

func (c *counter) init(limit int) {
	c.word.Store(uint64(word(0).withLimit(limit)))
}

func (c *counter) load() word { return word(c.word.Load()) }

func (c *counter) swap(from, to word) bool {
	return c.word.CompareAndSwap(uint64(from), uint64(to))
}

// acquire takes a permit if one is free and nobody waits for it.
func (c *counter) acquire() bool {
	for {
		w := c.load()
		if !w.admits() {
			return false
		}
		if c.swap(w, w+1) {
			c.observe(w.inFlight() + 1)
			return true
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

// release gives a permit back: to the first waiter, if there is one. With no permit
// in flight it does nothing.
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
	if w.inFlight() > w.limit() { // the limit was lowered: this permit is withdrawn
		c.word.Store(uint64(w - 1))
		return true
	}
	c.grantLocked()
	return true
}

// grantLocked hands a permit that is counted in flight already to the first waiter.
// It requires that c.mu is held and that the queue is not empty.
func (c *counter) grantLocked() {
	first := c.queue.pop()
	first.granted = true
	close(first.ready)
	c.shrunkLocked()
}

// shrunkLocked accounts for a waiter that has left the queue. It requires that c.mu
// is held.
func (c *counter) shrunkLocked() {
	c.waiting.Add(-1)
	if c.queue.empty() {
		c.word.Store(uint64(c.load() &^ queued)) // the bit is set and mu held: nobody else writes
	}
}

// enqueue takes a permit if one is free after all (nil, true), or else a place in
// the queue (a waiter, true) unless most others wait already (nil, false).
func (c *counter) enqueue(most int) (*waiter, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		w := c.load()
		if w.admits() {
			if c.swap(w, w+1) {
				c.observe(w.inFlight() + 1)
				return nil, true
			}
			continue
		}
		if c.waiting.Load() >= int64(most) {
			return nil, false
		}
		if !c.swap(w, w|queued) {
			continue
		}
		n := &waiter{ready: make(chan struct{})}
		c.queue.push(n)
		c.waiting.Add(1)
		return n, true
	}
}

// leave takes a waiter out of the queue. It reports true when a permit was handed to
// it before, which is then the caller's to use or to release.
func (c *counter) leave(n *waiter) (granted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.granted {
		return true
	}
	c.queue.remove(n)
	c.shrunkLocked()
	return false
}

// setLimit changes the number of permits. Raised, it lets waiters in; lowered, it
// takes no permit away, so that more than the limit stay in flight until enough of
// them are given back.
func (c *counter) setLimit(limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		w := c.load()
		if c.swap(w, w.withLimit(limit)) {
			break
		}
	}
	for {
		w := c.load()
		if !w.hasWaiters() || w.inFlight() >= w.limit() {
			return
		}
		c.word.Store(uint64(w + 1)) // the bit is set and mu held: nobody else writes
		c.observe(w.inFlight() + 1)
		c.grantLocked()
	}
}
