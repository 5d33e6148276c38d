package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
)

// This file has what changes limits.

// move begins to count a shard anew, at the given time, before the figures of s grow
// too large. It does nothing when s is no longer its state.
func (sh *keyShard) move(s *state, at int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.table.Load().s == s {
		sh.reviseLocked(at, s.meter, s.rate)
	}
}

// reviseLocked puts all buckets on another meter, from the given time on, with what
// they hold, as far as it fits. It returns the number of keys that were forgotten,
// as nothing is counted any more.
//
// Entries are replaced, not changed: who had read a figure on the old meter must not
// succeed in swapping one that happens to read the same on the new.
func (sh *keyShard) reviseLocked(at int64, m meter, rate Rate) (forgotten int) {
	t := sh.table.Load()
	s := t.s
	at = max(at, s.origin)
	next := &state{meter: m, rate: rate, origin: at}
	next.succeed(s)
	next.frac = 0
	if m.unit == s.unit && m.mult == s.mult && m.shift == s.shift && !m.unlimited {
		_, next.frac = s.grantedAny(s.elapsed(at)) // otherwise drop it: it is less than a unit
	}
	arrived := s.arrived(at)
	convert := func(used int64) int64 {
		return -min(rescaled(min(arrived-used, s.full), s.unit, next.unit), next.full)
	}
	if m.unlimited {
		for i := range sh.heap {
			sh.heap[i].e.used.Store(locked)
		}
		forgotten = len(sh.heap)
		sh.heap, sh.used = nil, 0
		sh.table.Store(newKeyTable(next, -next.full, 0))
		return forgotten
	}
	nt := newKeyTable(next, convert(t.fresh), len(sh.heap)+1)
	for i := range sh.heap {
		old := sh.heap[i].e
		used := convert(old.used.Swap(locked))
		e := newKeyEntry(old.key(), old.tag, used)
		sh.heap[i] = keyItem{order: used, e: e}
		nt.put(e)
	}
	sh.heap.init()
	sh.used = len(sh.heap)
	sh.table.Store(nt)
	return 0
}

// rescaled is [rescale], fast for what is usual.
func rescaled(stock, from, to int64) int64 {
	if stock < 0 {
		return rescale(stock, from, to)
	}
	if from == to {
		return stock
	}
	hi, lo := bits.Mul64(uint64(stock), uint64(to)) //nolint:gosec // not negative
	if hi >= uint64(from) {                         //nolint:gosec // as above
		return maxAhead
	}
	q, _ := bits.Div64(hi, lo, uint64(from)) //nolint:gosec // as above
	return int64(min(q, maxAhead))
}

// SetLimit changes rate and burst of all keys that have no limit of their own, from
// now on. A burst of zero means what it does in [TokenBucket]. An invalid limit
// changes nothing and is reported as joined [*policy.ConfigError].
//
// The balance of each key stays: a smaller burst caps it, a larger one leaves it as it
// is, so that no change grants a token, neither to keys that are remembered nor to
// others, whose buckets were full. An infinite rate fills all buckets. An Overflow
// that was not set follows.
//
// It takes time for each key that is remembered, about as long as to look it up, and
// holds up calls of one part of them at a time.
func (b *Buckets) SetLimit(rate Rate, burst int) error {
	l := Limit{Rate: rate, Burst: burst}
	if err := errors.Join(l.validate("")...); err != nil {
		return err
	}
	defer b.lobby.look()
	b.limitMu.Lock()
	defer b.limitMu.Unlock()
	b.setLimit(b.now(), l.effective())
	return nil
}

// setLimit requires that b.limitMu is held.
func (b *Buckets) setLimit(at int64, l Limit) {
	m := newMeter(l.Rate, int64(l.Burst), 0)
	for i := range b.shards {
		b.keys.Add(int64(-b.shards[i].setLimit(at, m, l)))
	}
	b.limit.Store(&l)
	if b.follows.Load() {
		b.overflow.setLimit(at, l.Rate, int64(l.Burst))
	}
	b.fullAt(math.MinInt64)
}

func (sh *keyShard) setLimit(at int64, m meter, l Limit) (forgotten int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.table.Load().s
	owed := int64(0) // by who took tokens at a time that is yet to come
	for i := range sh.heap {
		owed = max(owed, sh.heap[i].e.used.Load()-s.arrived(max(at, s.origin)))
	}
	if owed > 0 { // must be representable, or it would be forgiven
		m = newMeter(l.Rate, int64(l.Burst), owed/s.unit+1)
	}
	return sh.reviseLocked(at, m, l.Rate)
}

// SetException gives a key a limit of its own, or changes it, from now on. A burst of
// zero means what it does in [TokenBucket]. An invalid limit changes nothing and is
// reported as joined [*policy.ConfigError]. The balance stays, as with
// [Buckets.SetLimit].
func (b *Buckets) SetException(key string, l Limit) error {
	if err := errors.Join(l.validate(fmt.Sprintf("Exceptions[%q].", shortened(key)))...); err != nil {
		return err
	}
	defer b.lobby.look()
	b.limitMu.Lock()
	defer b.limitMu.Unlock()
	b.setException(b.now(), key, l.effective())
	return nil
}

// setException requires that b.limitMu is held.
func (b *Buckets) setException(at int64, key string, l Limit) {
	if own := b.exception(key); own != nil {
		own.setLimit(at, l.Rate, int64(l.Burst))
		return
	}
	own := b.newBucket(l)
	var sum digest
	id := b.identify(key, &sum)
	sh := b.shardOf(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table.Load()
	at = max(at, t.s.origin)
	if !t.s.unlimited {
		used := t.absent(at)
		if e := t.find(id); e != nil {
			used = max(used, e.used.Swap(locked))
			sh.removeLocked(t, e)
			b.keys.Add(-1)
		}
		if s := own.state.Load(); !s.unlimited {
			s.origin = at
			s.succeed(t.s)
			s.used.Store(-min(rescaled(t.s.arrived(at)-used, t.s.unit, s.unit), s.full))
		}
	}
	m := maps.Clone(*b.exceptions.Load())
	m[key] = own
	// Before the lock is given back, so that nobody adds the key to the table.
	b.exceptions.Store(&m)
}

// RemoveException makes a key one like all others, from now on. Its balance stays,
// unless the table has no room for it: then it is to be treated as any new key.
func (b *Buckets) RemoveException(key string) {
	defer b.lobby.look()
	b.limitMu.Lock()
	defer b.limitMu.Unlock()
	b.removeException(b.now(), key)
}

// removeException requires that b.limitMu is held.
func (b *Buckets) removeException(at int64, key string) {
	own := b.exception(key)
	if own == nil {
		return
	}
	placed := b.place(at)
	var sum digest
	id := b.identify(key, &sum)
	sh := b.shardOf(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m := maps.Clone(*b.exceptions.Load())
	delete(m, key)
	b.exceptions.Store(&m)
	t := sh.table.Load()
	stock, unit, at, ok := own.shutDown(max(at, t.s.origin))
	if ok && !t.s.unlimited && placed {
		used := t.s.arrived(at) - rescaled(stock, unit, t.s.unit)
		if used > t.absent(at) {
			b.addLocked(sh, id, used)
			return
		}
	}
	if placed {
		b.keys.Add(-1)
	}
}

// shutDown takes all there is, for good, and returns it, at the given time or the later
// one that was seen; false if nothing was counted.
func (b *Bucket) shutDown(at int64) (stock, unit, when int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	stock, _ = b.closeLocked(s, at)
	when = b.ledger.settled
	last := &state{meter: newMeter(Every(math.MaxInt64), 1, 0), rate: s.rate}
	last.used.Store(0)
	last.origin = maxElapsed // until then nothing arrives
	b.state.Store(last)
	return stock, s.unit, when, !s.unlimited
}
