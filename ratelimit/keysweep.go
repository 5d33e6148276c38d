package ratelimit

import (
	"math"
	"slices"
	"time"
	"weak"
)

// This file has what gives keys up.

const (
	// unknown as Buckets.nextFull means that a bucket may be full.
	unknown = math.MinInt64

	// A sweep comes eight times per TTL, within these bounds, and gives a lock back
	// after so many keys.
	sweepsPerTTL = 8
	minSweep     = 10 * time.Millisecond
	maxSweep     = time.Minute
	sweepChunk   = 256
)

// place takes a place in the table, if need be that of a key whose bucket is full at
// the given time, and reports whether there was one.
func (b *Buckets) place(at int64) bool {
	for {
		n := b.keys.Load()
		if n >= b.max.Load() {
			return b.evict(at)
		}
		if b.keys.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// full reports whether place is sure to find none.
func (b *Buckets) full(at int64) bool {
	return b.keys.Load() >= b.max.Load() && at < b.nextFull.Load()
}

// fullAt is told of a bucket that will be full at the given time, where that may be
// earlier than it was known to be. The bucket must be in its heap by then.
func (b *Buckets) fullAt(when int64) {
	// The order matters: evict looks at sooner after it has set nextFull.
	b.sooner.Add(1)
	for {
		next := b.nextFull.Load()
		if when >= next || b.nextFull.CompareAndSwap(next, when) {
			return
		}
	}
}

// evict removes a key whose bucket is full at the given time, and reports whether
// there was one. Its place is the caller's.
func (b *Buckets) evict(at int64) bool {
	if at < b.nextFull.Load() {
		return false
	}
	b.evictMu.Lock()
	defer b.evictMu.Unlock()
	if at < b.nextFull.Load() {
		return false // somebody else has looked meanwhile
	}
	before, earliest := b.sooner.Load(), int64(never)
	for i := range keyShards {
		shard := (b.hand + i) % keyShards
		ok, when := b.shards[shard].evict(at)
		if ok {
			b.hand = shard
			return true
		}
		earliest = min(earliest, when)
	}
	b.nextFull.Store(earliest)
	if b.sooner.Load() != before {
		b.nextFull.Store(unknown)
	}
	return false
}

// evict removes a key whose bucket is full at the given time. Without one it returns a
// time before which there will be none.
func (sh *keyShard) evict(at int64) (ok bool, when int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table.Load()
	if sh.popLocked(t, t.absent(at)) {
		return true, 0
	}
	if len(sh.heap) == 0 {
		return false, never
	}
	return false, t.s.crossingAt(sh.heap[0].order + t.s.full)
}

// popLocked removes an entry whose figure is at most bound, and reports whether there
// was one.
//
// An item whose order is too low is put right on the way. For each of them tokens were
// taken since that was last done, so over time it costs no more than these calls.
func (sh *keyShard) popLocked(t *keyTable, bound int64) bool {
	for len(sh.heap) > 0 && sh.heap[0].order <= bound {
		e := sh.heap[0].e
		used := e.used.Load()
		if used > bound {
			sh.heap[0].order = used
			sh.heap.down(0)
			continue
		}
		// From here on whoever holds the entry comes to wait for the lock.
		if e.used.CompareAndSwap(used, locked) {
			sh.removeLocked(t, e)
			return true
		}
	}
	return false
}

func (sh *keyShard) removeLocked(t *keyTable, e *keyEntry) {
	sh.heap = sh.heap.remove(int(e.pos))
	sh.used -= t.drop(e)
}

// growLocked makes room for one more entry.
func (sh *keyShard) growLocked() {
	if t := sh.table.Load(); sh.used >= t.room() {
		sh.rebuildLocked(t)
	}
}

// rebuildLocked makes a table of the right size for the entries there are, and some
// more, so that it is a while until the next time.
func (sh *keyShard) rebuildLocked(t *keyTable) {
	n := len(sh.heap)
	next := newKeyTable(t.s, t.fresh, n+n/4+1)
	for i := range sh.heap {
		next.put(sh.heap[i].e)
	}
	sh.used = n
	sh.table.Store(next)
}

// sweep forgets the keys whose buckets have been full for the TTL.
func (b *Buckets) sweep(at int64) {
	for i := range b.shards {
		sh := &b.shards[i]
		for {
			n, more := sh.sweep(at - b.ttl.Load())
			b.keys.Add(int64(-n))
			if !more {
				break
			}
		}
	}
}

// sweep removes some of the keys whose buckets were full at the given time, and
// reports whether there may be more.
func (sh *keyShard) sweep(at int64) (n int, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table.Load()
	if at < t.s.origin {
		return 0, false
	}
	bound := t.absent(at)
	for n < sweepChunk {
		if !sh.popLocked(t, bound) {
			sh.shrinkLocked(t)
			return n, false
		}
		n++
	}
	return n, true
}

// shrinkLocked gives memory back when most of it is not in use.
func (sh *keyShard) shrinkLocked(t *keyTable) {
	n := len(sh.heap)
	if len(t.groups) > 1 && t.room() >= 8*n {
		sh.rebuildLocked(t)
	}
	if cap(sh.heap) > groupLoad && cap(sh.heap) >= 8*n {
		sh.heap = slices.Clone(sh.heap)
	}
}

// startSweeping makes sure that a timer runs, as there is something to be swept.
func (b *Buckets) startSweeping() {
	if b.sweeping.Load() || !b.sweeping.CompareAndSwap(false, true) {
		return
	}
	period := min(max(time.Duration(b.ttl.Load()/sweepsPerTTL), minSweep), maxSweep)
	// The timer must not keep alive buckets that nobody uses any more.
	p := weak.Make(b)
	time.AfterFunc(period, func() {
		b := p.Value()
		if b == nil {
			return
		}
		b.sweep(b.now())
		b.sweeping.Store(false)
		// Whoever adds a key after that starts the timer; if one came before, it
		// is counted.
		if b.keys.Load() > 0 {
			b.startSweeping()
		}
	})
}
