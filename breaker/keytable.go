package breaker

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

// keyTable is a bounded table of breakers by key. Finding one takes no lock: chains are
// read through atomic pointers, and an entry that was removed still leads on to those
// behind it.
type keyTable struct {
	seed  maphash.Seed
	shape atomic.Pointer[tableShape]

	inserts atomic.Uint64
	moved   atomic.Uint64 // odd while entries move to other chains

	mu      sync.Mutex
	n       int
	well    keyList // closed: the first to go
	sick    keyList // all others, and those under a command
	open    int     // open or half-open entries
	opened  uint64  // how often one has opened
	changes uint64  // of state
	evicted uint64
	capped  uint64
	spared  uint64 // of entries that have gone
}

// tableShape is replaced as a whole, under mu.
type tableShape struct {
	chains  []atomic.Pointer[keyEntry]
	max     int
	ttl     int64
	grain   int64  // an entry is moved to the front of its list when it has been there for so long,
	moves   uint64 // or so many entries have come since
	openMax ratio
}

// keyEntry is a breaker in the table.
type keyEntry struct {
	t    *keyTable
	key  string
	b    *Breaker
	next atomic.Pointer[keyEntry] // in its chain

	touched atomic.Int64  // when it was last moved to the front of its list
	seq     atomic.Uint64 // number of inserts at that time

	// Guarded by t.mu.
	prev, succ *keyEntry // in its list
	list       *keyList
	isOpen     bool
	gone       bool
	pinned     bool // under a command
}

func newKeyTable(c Keyed) *keyTable {
	t := &keyTable{seed: maphash.MakeSeed()}
	t.shape.Store(newTableShape(c))
	return t
}

func newTableShape(c Keyed) *tableShape {
	n := 1
	for n < c.MaxKeys {
		n <<= 1
	}
	ttl := int64(c.TTL)
	return &tableShape{
		chains:  make([]atomic.Pointer[keyEntry], n),
		max:     c.MaxKeys,
		ttl:     ttl,
		grain:   ttl / 64,
		moves:   uint64(max(c.MaxKeys/4, 1)),
		openMax: newRatio(c.MaxOpenShare),
	}
}

// resize takes over other bounds. Of more keys than are allowed now those go that are
// missed least.
func (t *keyTable) resize(c Keyed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.n > c.MaxKeys {
		t.removeLocked(t.leastLocked())
		t.evicted++
	}
	old, next := t.shape.Load(), newTableShape(c)
	if len(next.chains) == len(old.chains) {
		next.chains = old.chains
		t.shape.Store(next)
		return
	}
	// Who walks along a chain meanwhile may be led to another one, and so miss an entry,
	// but comes to an end: an entry that has moved leads to such as have moved before.
	t.moved.Add(1)
	for _, l := range []*keyList{&t.well, &t.sick} {
		for e := l.first; e != nil; e = e.succ {
			c := next.chain(t.seed, e.key)
			e.next.Store(c.Load())
			c.Store(e)
		}
	}
	t.shape.Store(next)
	t.moved.Add(1)
}

func (s *tableShape) chain(seed maphash.Seed, key string) *atomic.Pointer[keyEntry] {
	return &s.chains[maphash.String(seed, key)&uint64(len(s.chains)-1)] //nolint:gosec // a power of two
}

// find returns the entry of a key, or nil.
func (t *keyTable) find(key string) *keyEntry {
	moved := t.moved.Load()
	e := t.look(key)
	if e == nil && (moved%2 != 0 || t.moved.Load() != moved) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.look(key)
	}
	return e
}

// look is find while no entry moves, such as under t.mu.
func (t *keyTable) look(key string) *keyEntry {
	e := t.shape.Load().chain(t.seed, key).Load()
	for e != nil && e.key != key {
		e = e.next.Load()
	}
	return e
}

// get returns the entry of a key, which it makes if there is none.
func (t *keyTable) get(key string, ns int64, create func(key string, ns int64) *Breaker) *keyEntry {
	e := t.find(key)
	if e == nil {
		return t.add(key, ns, create)
	}
	// A list in the order of use would have every call take the lock. It is enough
	// that an entry in use never comes near the end.
	if s := t.shape.Load(); ns-e.touched.Load() >= s.grain || t.inserts.Load()-e.seq.Load() >= s.moves {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.touchLocked(e, ns)
		t.expireLocked(ns)
	}
	return e
}

func (t *keyTable) add(key string, ns int64, create func(key string, ns int64) *Breaker) *keyEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.look(key); e != nil {
		return e // another call was faster
	}
	t.expireLocked(ns)
	shape := t.shape.Load()
	for t.n >= shape.max {
		t.removeLocked(t.leastLocked())
		t.evicted++
	}
	key = strings.Clone(key) // it may be part of something large
	e := &keyEntry{t: t, key: key, b: create(key, ns)}
	e.b.owner = e
	t.inserts.Add(1)
	c := shape.chain(t.seed, key)
	e.next.Store(c.Load())
	c.Store(e)
	t.n++
	e.list = &t.well
	t.well.push(e)
	e.touched.Store(ns)
	e.seq.Store(t.inserts.Load())
	return e
}

// touchLocked moves an entry to the front of its list. It requires that t.mu is held.
func (t *keyTable) touchLocked(e *keyEntry, ns int64) {
	e.touched.Store(max(ns, e.touched.Load()))
	e.seq.Store(t.inserts.Load())
	if !e.gone {
		e.list.remove(e)
		e.list.push(e)
	}
}

// expireAtOnce bounds how long one call is held up by entries of others.
const expireAtOnce = 16

// expireLocked removes some entries that have not been used for long. It requires that
// t.mu is held.
func (t *keyTable) expireLocked(ns int64) {
	// touched may be older than the last use by the grain.
	shape := t.shape.Load()
	old := ns - shape.ttl - shape.grain
	for _, l := range []*keyList{&t.well, &t.sick} {
		e := l.last
		for range expireAtOnce {
			if e == nil || e.touched.Load() > old {
				break
			}
			prev := e.prev
			if until := e.b.phase.Load().until; !e.pinned && (until == forever || until <= old) {
				t.removeLocked(e)
				t.evicted++
			}
			e = prev
		}
	}
}

// leastLocked returns the entry that is missed least. It requires that t.mu is held and
// that there is one.
func (t *keyTable) leastLocked() *keyEntry {
	if t.well.last != nil {
		return t.well.last
	}
	for e := t.sick.last; e != nil; e = e.prev {
		if !e.pinned {
			return e
		}
	}
	return t.sick.last
}

// removeLocked takes an entry out of the table. Calls in flight still have it. It
// requires that t.mu is held.
func (t *keyTable) removeLocked(e *keyEntry) {
	link := t.shape.Load().chain(t.seed, e.key)
	for p := link.Load(); p != e; p = link.Load() {
		link = &p.next
	}
	link.Store(e.next.Load())
	e.list.remove(e)
	e.gone = true
	if e.isOpen {
		t.open--
	}
	t.n--
	t.spared += e.b.spared.Load()
}

// remove forgets a key, and reports whether it was there.
func (t *keyTable) remove(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.look(key)
	if e != nil {
		t.removeLocked(e)
		t.evicted++
	}
	return e != nil
}

// all returns the entries, those that were used last first.
func (t *keyTable) all() []*keyEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	es := make([]*keyEntry, 0, t.n)
	for _, l := range []*keyList{&t.sick, &t.well} {
		for e := l.first; e != nil; e = e.succ {
			es = append(es, e)
		}
	}
	return es
}

// maxOpenLocked returns how many entries may be open now. It requires that t.mu is
// held.
func (t *keyTable) maxOpenLocked() int {
	return max(int(t.shape.Load().openMax.of(uint64(t.n))), 1) //nolint:gosec // at most t.n
}

// mayOpen implements [owner]. It looks at the number that will be open afterwards.
func (e *keyEntry) mayOpen() bool {
	t := e.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.gone { // nobody asks it any more
		return false
	}
	if t.open+1 > t.maxOpenLocked() {
		t.capped++
		return false
	}
	e.isOpen = true
	t.open++
	return true
}

// changed implements [owner].
func (e *keyEntry) changed(ch change, command bool) {
	t := e.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if ch.from != ch.to {
		t.changes++
		if ch.to == Open {
			t.opened++
		}
	}
	if e.gone {
		return
	}
	if isOpen := ch.to == Open || ch.to == HalfOpen || ch.to == ForcedOpen; isOpen != e.isOpen {
		e.isOpen = isOpen
		if isOpen {
			t.open++
		} else {
			t.open--
		}
	}
	e.pinned = command
	list := &t.sick
	if ch.to == Closed && !command {
		list = &t.well
	}
	if list != e.list {
		e.list.remove(e)
		e.list = list
		list.push(e)
	}
}

// keyList is a list of entries, by the time at which they were put to its front.
type keyList struct{ first, last *keyEntry }

func (l *keyList) push(e *keyEntry) {
	e.prev, e.succ = nil, l.first
	if l.first == nil {
		l.last = e
	} else {
		l.first.prev = e
	}
	l.first = e
}

func (l *keyList) remove(e *keyEntry) {
	if e.prev == nil {
		l.first = e.succ
	} else {
		e.prev.succ = e.succ
	}
	if e.succ == nil {
		l.last = e.prev
	} else {
		e.succ.prev = e.prev
	}
	e.prev, e.succ = nil, nil
}
