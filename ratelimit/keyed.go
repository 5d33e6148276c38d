package ratelimit

import (
	"crypto/sha256"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	// maxKeyLen is the length in bytes from which on a digest stands for the key.
	maxKeyLen = 128

	shardLog  = 6
	keyShards = 1 << shardLog
)

// Buckets are live token buckets, one for each key. Use [NewKeyed]. They are at once
// a [policy.Policy], a [policy.Gate] and a limiter to be used by hand. All methods
// are safe for concurrent use.
//
// # How it counts
//
// The bucket of a key is that of [Bucket], exactly. As all keys have one limit, a
// bucket is one integer; a call finds it without a lock and changes it by one
// compare-and-swap. A lock, one of 64, is taken by the first call of a key, which also
// allocates, and by a refund.
//
// # What it remembers
//
// A key whose bucket has refilled is indistinguishable from one that was never seen,
// so only such keys are forgotten: some time after (TTL), or when a new key needs the
// place (MaxKeys). Keys are held by the time at which their buckets will be full, so the
// next to go is found at once, in a flood of new keys too. A timer, which runs only
// while keys are remembered, forgets them without any call. Buckets that nothing
// refers to any more are collected like any value; there is nothing to close.
//
// A key of more than 128 bytes is replaced by its SHA-256 digest.
//
// # Time
//
// Times are as for [Bucket], with one more condition: they must not go back by more
// than clocks that are read at the same time differ. A key that was forgotten because
// its bucket was full counts as full at any earlier time too.
type Buckets struct {
	start  time.Time // times are kept as nanoseconds since then
	name   string
	shadow bool
	ttl    atomic.Int64
	max    atomic.Int64
	seed   maphash.Seed

	// exceptions is never changed in place. Who takes a key out of the table, or puts
	// one into it, looks at it under the lock of the key's shard.
	exceptions atomic.Pointer[map[string]*Bucket]
	overflow   *Bucket
	follows    atomic.Bool // overflow has the limit of one key, also after a change

	lobby lobby

	keys       atomic.Int64 // places taken, at most max
	overflowed atomic.Uint64
	nextFull   atomic.Int64  // no bucket is full before then
	sooner     atomic.Uint64 // how often a bucket may have come to be full earlier
	sweeping   atomic.Bool   // a timer is running

	evictMu sync.Mutex // held by the one who looks for a place
	hand    int        // shard where the last place was found

	limitMu sync.Mutex // held by the one who changes limits
	limit   atomic.Pointer[Limit]

	shards [keyShards]keyShard
}

// keyShard is a part of the keys.
type keyShard struct {
	table atomic.Pointer[keyTable]

	_ [56]byte // what follows is written to, and table is read by every call

	top  keyTop
	mu   sync.Mutex
	heap keyHeap
	used int // slots of the table that are not empty

	_ [64]byte // keeps the next shard off this one's cache lines
}

// NewKeyed returns the live buckets of a configuration. A name that is not empty
// takes the place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewKeyed(name string, cfg Keyed) (*Buckets, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	follows := cfg.Overflow == (Limit{})
	cfg = cfg.withDefaults()
	b := &Buckets{
		start: time.Now(), name: cfg.Name, shadow: cfg.Shadow, seed: maphash.MakeSeed(),
	}
	b.max.Store(int64(cfg.MaxKeys))
	b.ttl.Store(int64(cfg.TTL))
	b.lobby.init(b, cfg.MaxWait, cfg.MaxWaiters)
	b.follows.Store(follows)
	b.overflow = b.newBucket(cfg.Overflow)
	exceptions := make(map[string]*Bucket, len(cfg.Exceptions))
	for key, l := range cfg.Exceptions {
		exceptions[key] = b.newBucket(l)
	}
	b.exceptions.Store(&exceptions)
	limit := cfg.limit()
	b.limit.Store(&limit)
	s := &state{meter: newMeter(limit.Rate, int64(limit.Burst), 0), rate: limit.Rate}
	for i := range b.shards {
		b.shards[i].table.Store(newKeyTable(s, -s.full, 0))
	}
	return b, nil
}

// newBucket returns a full bucket with the same origin of time.
func (b *Buckets) newBucket(l Limit) *Bucket {
	n := &Bucket{start: b.start, name: b.name, initial: l.Burst}
	s := &state{meter: newMeter(l.Rate, int64(l.Burst), 0), rate: l.Rate}
	s.used.Store(-s.full)
	n.state.Store(s)
	return n
}

// at returns t as the buckets keep time.
func (b *Buckets) at(t time.Time) int64 { return int64(t.Sub(b.start)) }

func (b *Buckets) now() int64 { return int64(time.Since(b.start)) }

// digest is a buffer for the digest of a key.
type digest [sha256.Size]byte

// identify returns the key as tables know it. The result refers to key or to sum.
func (b *Buckets) identify(key string, sum *digest) keyID {
	if len(key) <= maxKeyLen {
		return b.identifyShort(key)
	}
	// Neither is written to while the other view of it is in use.
	*sum = sha256.Sum256(unsafe.Slice(unsafe.StringData(key), len(key)))
	key = unsafe.String(&sum[0], len(sum))
	return keyID{key: key, hash: maphash.String(b.seed, key) | longKey}
}

// identifyShort is identify for a key that needs no digest.
func (b *Buckets) identifyShort(key string) keyID {
	return keyID{key: key, hash: maphash.String(b.seed, key) &^ longKey}
}

func (b *Buckets) shardOf(id keyID) *keyShard { return &b.shards[id.hash>>(64-shardLog)] }

// exception returns the bucket of a key with a limit of its own, or nil.
func (b *Buckets) exception(key string) *Bucket {
	if m := *b.exceptions.Load(); len(m) > 0 {
		return m[key]
	}
	return nil
}

// Allow takes one token of the key's bucket if there is one, and reports whether it
// did. It reads the clock and never waits.
func (b *Buckets) Allow(key string) bool { return b.AllowN(key, 1) }

// AllowN takes n tokens of the key's bucket if they are there, and reports whether it
// did; otherwise it takes none. It reads the clock and never waits. An n of zero or
// less takes nothing and is allowed.
func (b *Buckets) AllowN(key string, n int) bool {
	_, v, _ := b.take(b.now(), key, n)
	return v == taken
}

// Take takes n tokens of the key's bucket if they are there at the given time, and
// otherwise none. It then returns the time after which they will be there, like
// [Bucket.Take].
func (b *Buckets) Take(now time.Time, key string, n int) (retryAfter time.Duration, ok bool) {
	retryAfter, v, _ := b.take(b.at(now), key, n)
	return retryAfter, v == taken
}

// take also reports whether it asked the bucket that is shared by those who find no
// room.
func (b *Buckets) take(at int64, key string, n int) (retryAfter time.Duration, v verdict, shared bool) {
	if n <= 0 {
		return 0, taken, false
	}
	if len(key) > maxKeyLen {
		var sum digest
		return b.takeID(at, key, b.identify(key, &sum), n)
	}
	return b.takeID(at, key, b.identifyShort(key), n)
}

func (b *Buckets) takeID(at int64, key string, id keyID, n int) (retryAfter time.Duration, v verdict, shared bool) {
	sh := b.shardOf(id)
	for {
		if own := b.exception(key); own != nil {
			retryAfter, v = own.take(at, n)
			if v == short && b.exception(key) != own {
				continue // it has just ceased to be one
			}
			return retryAfter, v, false
		}
		t := sh.table.Load()
		s := t.s
		if int64(n) > s.burst {
			return policy.Never, tooBig, false
		}
		if s.unlimited {
			return 0, taken, false
		}
		elapsed := s.elapsed(at)
		if elapsed > s.horizon {
			sh.move(s, at)
			continue
		}
		e := t.find(id)
		if e == nil {
			if retryAfter, v, shared, done := b.takeNew(sh, key, id, at, n); done {
				return retryAfter, v, shared
			}
			continue
		}
		arrived := s.granted(elapsed)
		cost := int64(n) * s.unit
		for {
			used := e.used.Load()
			if used == locked {
				sh.await()
				break
			}
			after := max(used, arrived-s.full) + cost
			if after > arrived {
				sh.top.refused(at, e)
				return delayFrom(at, s.crossingAt(after)), short, false
			}
			if e.used.CompareAndSwap(used, after) {
				sh.top.admitted(at, e, after)
				return 0, taken, false
			}
		}
	}
}

// await waits until whoever put an entry out of use has replaced or removed it.
func (sh *keyShard) await() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
}

// takeNew takes the first tokens of a key that was not in the table, and reports
// whether it did. When it did not, the key has come into the table meanwhile, or the
// limit has changed. n is at most the burst.
func (b *Buckets) takeNew(sh *keyShard, key string, id keyID, at int64, n int) (retryAfter time.Duration, v verdict, shared, done bool) {
	if !b.place(at) {
		b.overflowed.Add(1)
		retryAfter, v = b.overflow.take(at, n)
		return retryAfter, v, true, true
	}
	retryAfter, v, added, done := b.insert(sh, key, id, at, n)
	if !added {
		b.keys.Add(-1)
	}
	return retryAfter, v, false, done
}

// insert adds an entry for a key, if it is not there and can have n tokens.
func (b *Buckets) insert(sh *keyShard, key string, id keyID, at int64, n int) (retryAfter time.Duration, v verdict, added, done bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table.Load()
	s := t.s
	if int64(n) > s.burst || s.unlimited || s.elapsed(at) > s.horizon || t.find(id) != nil || b.exception(key) != nil {
		return 0, short, false, false
	}
	after := t.absent(at) + int64(n)*s.unit
	if arrived := s.arrived(at); after > arrived { // the burst has just been raised
		return delayFrom(at, s.crossingAt(after)), short, false, true
	}
	b.addLocked(sh, id, after)
	return 0, taken, true, true
}

// addLocked adds an entry for a key that is not there. It requires that sh.mu is
// held, as do all whose names end so.
func (b *Buckets) addLocked(sh *keyShard, id keyID, used int64) {
	sh.growLocked()
	t := sh.table.Load()
	e := newKeyEntry(id.key, id.tag(), used)
	sh.heap = sh.heap.push(keyItem{order: used, e: e})
	sh.used += t.put(e)
	b.fullAt(t.s.crossingAt(used + t.s.full))
	b.startSweeping()
}

// look is take, taking nothing. n must be above 0.
func (b *Buckets) look(at int64, key string, n int) (time.Duration, verdict) {
	return b.lookAfter(at, key, 0, n)
}

// lookAfter says when n tokens will be there after others were taken by those ahead.
func (b *Buckets) lookAfter(at int64, key string, ahead, n int) (time.Duration, verdict) {
	if own := b.exception(key); own != nil {
		return own.lookAfter(at, ahead, n)
	}
	var sum digest
	id := b.identify(key, &sum)
	sh := b.shardOf(id)
	for {
		t := sh.table.Load()
		s := t.s
		if int64(n) > s.burst {
			return policy.Never, tooBig
		}
		if s.unlimited {
			return 0, taken
		}
		used := t.absent(at)
		if e := t.find(id); e != nil {
			u := e.used.Load()
			if u == locked {
				sh.await()
				continue
			}
			used = max(used, u)
		} else if b.full(at) {
			return b.overflow.lookAfter(at, ahead, n)
		}
		if after := used + s.several(used, ahead, n); after > s.arrived(at) {
			return delayFrom(at, s.crossingAt(after)), short
		}
		return 0, taken
	}
}

// lookAfter says when n tokens will be there after others were taken by those ahead,
// as far as the bucket is not reserved in advance.
func (b *Bucket) lookAfter(at int64, ahead, n int) (time.Duration, verdict) {
	s := b.state.Load()
	used := s.used.Load()
	switch {
	case ahead == 0 || used == locked || int64(n) > s.burst:
		return b.look(at, n)
	case s.unlimited:
		return 0, taken
	}
	arrived := s.arrived(at)
	used = max(used, arrived-s.full)
	if after := used + s.several(used, ahead, n); after > arrived {
		return delayFrom(at, s.crossingAt(after)), short
	}
	return 0, taken
}

// several returns the units of two costs together, or as many as can be added to used.
func (s *state) several(used int64, ahead, n int) int64 {
	return min(s.units(int64(saturated(ahead, n))), maxArrived-max(used, 0))
}

// Refund gives back n tokens of the key's bucket that were taken at the given time for a
// call which did not run: the time that Take was given, or at which Wait returned. What
// has arrived since is lost, see [Bucket.Refund]. It does nothing for a key that is not
// remembered: its bucket is full. An n of zero or less does nothing.
func (b *Buckets) Refund(taken time.Time, key string, n int) {
	b.refund(b.now(), b.at(taken), key, n)
}

func (b *Buckets) refund(at, taken int64, key string, n int) {
	if n <= 0 {
		return
	}
	defer b.lobby.look()
	if own := b.exception(key); own != nil {
		own.giveBack(at, taken, n)
		return
	}
	var sum digest
	id := b.identify(key, &sum)
	b.shardOf(id).refund(b, id, at, taken, n)
}

func (sh *keyShard) refund(b *Buckets, id keyID, at, taken int64, n int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.table.Load()
	e := t.find(id)
	units := t.s.toGiveBack(at, taken, int64(n))
	if e == nil || units <= 0 {
		return
	}
	for {
		used := e.used.Load() // not locked: that takes mu
		after := max(used-units, t.fresh)
		if after >= used {
			return
		}
		if e.used.CompareAndSwap(used, after) {
			sh.heap.lowered(e, after)
			b.fullAt(t.s.crossingAt(after + t.s.full))
			return
		}
	}
}

// Tokens returns the number of tokens of the key's bucket that can be taken at the
// given time, and the burst at an infinite rate. A key that is not remembered has a
// full bucket, also when the table has no room for it.
func (b *Buckets) Tokens(now time.Time, key string) float64 {
	if own := b.exception(key); own != nil {
		return own.Tokens(now)
	}
	var sum digest
	id := b.identify(key, &sum)
	sh, at := b.shardOf(id), b.at(now)
	for {
		t := sh.table.Load()
		s := t.s
		if s.unlimited {
			return float64(s.burst)
		}
		used := t.absent(at)
		if e := t.find(id); e != nil {
			u := e.used.Load()
			if u == locked {
				sh.await()
				continue
			}
			used = max(used, u)
		}
		return float64(s.arrived(at)-used) / float64(s.unit)
	}
}

// Len returns the number of keys that are remembered, at most MaxKeys. Keys with a
// limit of their own are not among them.
func (b *Buckets) Len() int { return int(b.keys.Load()) }
