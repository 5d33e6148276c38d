package sharedlimit

import (
	"hash/maphash"
	"sync"
)

// hold is tokens that this process may use without asking, until some time.
type hold struct {
	n     int
	until int64
}

// drop empties a hold whose time has passed, and returns what was in it.
func (h *hold) drop(now int64) (n int) {
	if h.until <= now {
		n, h.n = h.n, 0
	}
	return n
}

// entry is what is remembered of the calls with one key, or with one key for each limit.
// Times are nanoseconds since Limiter.start.
type entry struct {
	id   string
	keys []string // never changed

	mu sync.Mutex

	// credit is what calls that did not run gave back. lease is what was taken ahead,
	// and next what was so before lease was used up.
	credit, lease, next hold

	// until is when the tokens that were taken last will not matter any more, and from
	// since when some have mattered without a pause.
	from, until int64

	// blocked is the time before which a lease of that size need not be asked for.
	blocked     int64
	blockedFor  int
	blockedBy   int   // the limit
	blockedNext int64 // when the tokens were said to be there

	begin         int64         // of the stretch in which spent is counted
	spent, before int           // tokens used in this and in the last stretch
	refill        chan struct{} // closed when the question that is under way is answered
	line          chan struct{} // holds one value while a call that waits is the one to ask
	lapsed        int           // leased tokens whose time has passed, to be given back
}

// spend takes n tokens that are held.
func (e *entry) spend(now int64, n int) bool {
	e.expire(now)
	if e.credit.n+e.lease.n+e.next.n < n {
		return false
	}
	e.spent += n
	for _, h := range []*hold{&e.credit, &e.lease, &e.next} {
		used := min(h.n, n)
		h.n -= used
		n -= used
	}
	if e.lease.n == 0 {
		e.lease, e.next = e.next, hold{}
	}
	return true
}

func (e *entry) expire(now int64) {
	e.credit.drop(now)
	e.lapsed += e.lease.drop(now) + e.next.drop(now)
	if e.lease.n == 0 {
		e.lease, e.next = e.next, hold{}
	}
}

// add keeps leased tokens.
func (e *entry) add(n int, until int64) {
	switch {
	case e.lease.n == 0:
		e.lease = hold{n, until}
	case e.next.n == 0:
		e.next = hold{n, until}
	default:
		e.next.n += n // not later than the earlier of the two
		e.next.until = min(e.next.until, until)
	}
}

// granted notes that tokens were taken which matter until some time.
func (e *entry) granted(now, until int64) {
	if now > e.until {
		e.from = now
		e.until = until
		return
	}
	e.until = max(e.until, until)
}

// idle reports whether nothing would be lost with the entry.
func (e *entry) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.credit.n+e.lease.n+e.next.n+e.lapsed == 0 && e.refill == nil
}

// table has the entries, a bounded number of them.
type table struct {
	seed   maphash.Seed
	shards []tableShard
	most   int // of each shard
}

type tableShard struct {
	mu sync.Mutex
	m  map[string]*entry
	_  [40]byte // shards are not to share a cache line
}

func newTable(most int) *table {
	n := 16
	if most < 64 {
		n = 1
	}
	t := &table{seed: maphash.MakeSeed(), shards: make([]tableShard, n), most: max(most/n, 1)}
	for i := range t.shards {
		t.shards[i].m = make(map[string]*entry)
	}
	return t
}

func (t *table) shard(id string) *tableShard {
	if len(t.shards) == 1 {
		return &t.shards[0]
	}
	return &t.shards[maphash.String(t.seed, id)%uint64(len(t.shards))]
}

// find returns the entry of an id, nil if there is none.
func (t *table) find(id string) *entry {
	sh := t.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.m[id]
}

// add returns the entry of an id, with the given keys if it is new.
func (t *table) add(id string, keys []string) *entry {
	sh := t.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.m[id]; e != nil {
		return e
	}
	if len(sh.m) >= t.most {
		sh.makeRoom()
	}
	e := &entry{id: id, keys: keys}
	sh.m[id] = e
	return e
}

// makeRoom forgets an entry: of a few, one with which nothing is lost, if there is one.
func (sh *tableShard) makeRoom() {
	const few = 8
	victim, tried := "", 0
	for id, e := range sh.m { // in random order
		victim = id
		if tried++; tried == few || e.idle() {
			break
		}
	}
	delete(sh.m, victim)
}

// all calls f for every entry, without a lock.
func (t *table) all(f func(e *entry)) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		entries := make([]*entry, 0, len(sh.m))
		for _, e := range sh.m {
			entries = append(entries, e)
		}
		sh.mu.Unlock()
		for _, e := range entries {
			f(e)
		}
	}
}
