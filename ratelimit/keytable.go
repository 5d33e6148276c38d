package ratelimit

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// keyEntry is the bucket of one key. Of all buckets with one limit the meter, its
// origin and the burst are the same, so what is left of a bucket is one figure.
//
// The key follows in the same piece of memory, which holds no pointer: with a million
// keys that spares the collector two million objects to look into, and a search a miss
// of the cache. Use newKeyEntry.
type keyEntry struct {
	// used is what it is in a [state]; or locked, when the entry is no longer in
	// use, and who holds it must look for the key again.
	used atomic.Int64

	tag    uint32
	pos    int32 // place in the heap, under keyShard.mu
	length uint8 // of the key
	text   [7]byte
}

// newKeyEntry returns an entry with a copy of the key.
func newKeyEntry(key string, tag uint32, used int64) *keyEntry {
	// Whole words, so that the entry is aligned as its atomic figure must be.
	const word = 8
	size := max(unsafe.Sizeof(keyEntry{}), unsafe.Offsetof(keyEntry{}.text)+uintptr(len(key)))
	words := make([]uint64, (size+word-1)/word)
	e := (*keyEntry)(unsafe.Pointer(&words[0]))
	e.tag = tag
	e.length = uint8(len(key)) //nolint:gosec // at most maxKeyLen
	copy(unsafe.Slice(&e.text[0], len(key)), key)
	e.used.Store(used)
	return e
}

// key returns the key. It keeps the entry alive.
func (e *keyEntry) key() string {
	return unsafe.String(&e.text[0], int(e.length))
}

// keyID is a key as a table knows it.
type keyID struct {
	key string

	// hash spreads the keys: its upper bits choose a shard, its lower ones are the
	// tag. The lowest bit of the tag says that key is the digest of a longer key,
	// which is not the key that reads the same.
	hash uint64
}

func (id keyID) tag() uint32 { return uint32(id.hash) } //nolint:gosec // the lower half is meant

// keyTable is a hash table. It is read without a lock, and written under keyShard.mu.
// Entries never move within it, and none is used for a second key, so a reader that
// follows a table which has been replaced finds an entry that is still in use, or one
// that says it is not, or none; it takes the lock before it believes in none.
//
// It is laid out as in Abseil's Swiss tables, so that a search looks at one cache line
// and at one entry, nearly always.
type keyTable struct {
	s *state // the limit, and the origin of all figures; its own used is not in use

	// fresh is the figure of a key that is not in the table, at the origin: -full,
	// or less far below zero after a change of the limit that raised the burst. So
	// a key that has been forgotten gains no more by it than one that has not.
	fresh int64

	groups []keyGroup // a power of two
}

// keyGroup is a cache line of entries.
type keyGroup struct {
	// marks has a byte for each slot: empty, removed, or seven bits of the tag of
	// the entry that is there. The eighth byte belongs to no slot. A search goes on
	// to the next group if none of the bytes is empty.
	marks atomic.Uint64
	slots [groupSlots]atomic.Pointer[keyEntry]
}

const (
	groupSlots = 7
	groupLoad  = 6 // slots that are in use, in the mean and at most

	markEmpty   = 0
	markRemoved = 1
	markUsed    = 0x80 // or more

	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// longKey is the bit of a tag that says that the key is a digest.
const longKey = 1

// newKeyTable returns a table with room for n entries.
func newKeyTable(s *state, fresh int64, n int) *keyTable {
	groups := 1
	for groups*groupLoad < n {
		groups <<= 1
	}
	t := &keyTable{s: s, fresh: fresh, groups: make([]keyGroup, groups)}
	for i := range t.groups {
		t.groups[i].marks.Store(markRemoved << 56)
	}
	return t
}

// room returns the number of slots that may be in use.
func (t *keyTable) room() int { return len(t.groups) * groupLoad }

// group returns the i-th group to look into for a tag.
func (t *keyTable) group(tag, i uint32) *keyGroup {
	return &t.groups[(tag>>1+i)&uint32(len(t.groups)-1)] //nolint:gosec // at most maxMaxKeys
}

// mark returns the mark of a tag. Its bits are not those that choose the group.
func mark(tag uint32) uint64 { return markUsed | uint64(tag>>25) }

// matching returns marks with the highest bit set of each byte that is x, and perhaps
// of others; none if there is none.
func matching(marks, x uint64) uint64 {
	marks ^= x * lowBits
	return (marks - lowBits) &^ marks & highBits
}

// find returns the entry of a key, or nil.
func (t *keyTable) find(id keyID) *keyEntry {
	tag := id.tag()
	m := mark(tag)
	for i := uint32(0); ; i++ {
		g := t.group(tag, i)
		marks := g.marks.Load()
		for found := matching(marks, m); found != 0; found &= found - 1 {
			slot := bits.TrailingZeros64(found) / 8
			if slot >= groupSlots {
				break
			}
			// Nil if it has just been removed.
			if e := g.slots[slot].Load(); e != nil && e.tag == tag && e.key() == id.key {
				return e
			}
		}
		if matching(marks, markEmpty) != 0 {
			return nil
		}
	}
}

// absent returns the figure at the given time of a key that is not in the table.
func (t *keyTable) absent(at int64) int64 { return max(t.fresh, t.s.arrived(at)-t.s.full) }

// put adds an entry, whose key must not be there, and returns how many slots that
// took from those that are empty. There must be room. It requires that the shard's mu
// is held.
func (t *keyTable) put(e *keyEntry) (took int) {
	for i := uint32(0); ; i++ {
		g := t.group(e.tag, i)
		marks := g.marks.Load()
		for slot := range groupSlots {
			was := marks >> (8 * slot) & 0xff
			if was >= markUsed {
				continue
			}
			// The entry comes first: who sees its mark must see it.
			g.slots[slot].Store(e)
			g.marks.Store(marks&^(0xff<<(8*slot)) | mark(e.tag)<<(8*slot))
			if was == markEmpty {
				took = 1
			}
			return took
		}
	}
}

// drop removes an entry and returns how many slots that makes empty. It requires that
// the shard's mu is held.
func (t *keyTable) drop(e *keyEntry) (freed int) {
	for i := uint32(0); ; i++ {
		g := t.group(e.tag, i)
		for slot := range groupSlots {
			if g.slots[slot].Load() != e {
				continue
			}
			marks := g.marks.Load()
			left := uint64(markRemoved)
			if matching(marks, markEmpty) != 0 {
				// No search has ever gone on from here.
				left, freed = markEmpty, 1
			}
			g.marks.Store(marks&^(0xff<<(8*slot)) | left<<(8*slot))
			g.slots[slot].Store(nil)
			return freed
		}
	}
}

// keyHeap has the entries by the time at which their buckets will be full, the
// earliest first. An item's order may be too low, as taking tokens does not move it;
// it is never too high.
type keyHeap []keyItem

type keyItem struct {
	order int64 // the entry's used, or an earlier and lower one
	e     *keyEntry
}

func (h keyHeap) set(i int, it keyItem) {
	h[i] = it
	it.e.pos = int32(i) //nolint:gosec // at most maxMaxKeys
}

// up moves the item at i to where it belongs, if that is nearer to the top.
func (h keyHeap) up(i int) {
	it := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].order <= it.order {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	h.set(i, it)
}

// down moves the item at i to where it belongs, if that is further from the top.
func (h keyHeap) down(i int) {
	it := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].order < h[child].order {
			child++
		}
		if it.order <= h[child].order {
			break
		}
		h.set(i, h[child])
		i = child
	}
	h.set(i, it)
}

func (h keyHeap) push(it keyItem) keyHeap {
	h = append(h, it)
	h.up(len(h) - 1)
	return h
}

// remove takes out the item at i.
func (h keyHeap) remove(i int) keyHeap {
	last := len(h) - 1
	it := h[last]
	h[last] = keyItem{}
	h = h[:last]
	if i < last {
		h.set(i, it)
		h.up(i)
		h.down(int(it.e.pos))
	}
	return h
}

// lowered is told that an entry's used has fallen to order.
func (h keyHeap) lowered(e *keyEntry, order int64) {
	i := int(e.pos)
	if order < h[i].order {
		h[i].order = order
		h.up(i)
	}
}

// init makes a heap of items in any order.
func (h keyHeap) init() {
	for i := range h {
		h.set(i, h[i])
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}
