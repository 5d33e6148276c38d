package ratelimit

import (
	"cmp"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	// sampled is how many calls that are let in stand for each one that is noted, so
	// that the other ones need not write to anything but their bucket.
	sampledLog = 5
	sampled    = 1 << sampledLog

	// busyNotes is how many notes a shard takes down in a minute before it samples
	// refusals too.
	busyNotes = 1024

	topPerShard = 16
	topPeriod   = int64(time.Minute)
	topShown    = 10
)

// keyTop finds the keys that are used most in a shard, with the Space-Saving
// algorithm: whoever is not among those noted takes the place of the least, and for
// the order its count too, so that nobody who comes often stays out for long. It keeps
// two counts, of the current minute and of the one before.
type keyTop struct {
	busy atomic.Bool // refusals are sampled

	mu    sync.Mutex
	began int64
	notes int // since then
	now   []topItem
	last  []topItem
}

type topItem struct {
	e       *keyEntry // for its key
	tag     uint32    // of e
	weight  uint64    // decides who stays
	calls   uint64
	refused uint64
}

// refused notes a call that was refused. Should somebody else be noting something
// just now, it is left out: refusals must not queue up here.
func (k *keyTop) refused(at int64, e *keyEntry) {
	if !k.busy.Load() {
		k.note(at, e, 1, 1)
	} else if rand.Uint32()%sampled == 0 { //nolint:gosec // statistics
		k.note(at, e, sampled, sampled)
	}
}

// admitted notes a call that was let in, and so changed the figure of its
// bucket: that makes a random choice that costs next to nothing.
func (k *keyTop) admitted(at int64, e *keyEntry, figure int64) {
	const golden = 0x9e3779b97f4a7c15
	if uint64(figure)*golden>>(64-sampledLog) == 0 { //nolint:gosec // any bits will do
		k.note(at, e, sampled, 0)
	}
}

func (k *keyTop) note(at int64, e *keyEntry, calls, refused uint64) {
	if !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	k.turnLocked(at)
	if k.notes++; k.notes == busyNotes {
		k.busy.Store(true)
	}
	i := slices.IndexFunc(k.now, func(it topItem) bool { return it.tag == e.tag && it.e.key() == e.key() })
	if i < 0 {
		if len(k.now) < topPerShard {
			k.now = append(k.now, topItem{})
			i = len(k.now) - 1
		} else {
			i = 0
			for j := range k.now {
				if k.now[j].weight < k.now[i].weight {
					i = j
				}
			}
		}
		k.now[i] = topItem{weight: k.now[i].weight}
	}
	it := &k.now[i]
	it.e, it.tag = e, e.tag
	it.weight += calls
	it.calls += calls
	it.refused += refused
}

// turnLocked begins a new minute when it is time.
func (k *keyTop) turnLocked(at int64) {
	switch age := at - k.began; {
	case age < topPeriod:
		return
	case age < 2*topPeriod:
		k.now, k.last = k.last[:0], k.now
	default:
		clear(k.now)
		clear(k.last)
		k.now, k.last = k.now[:0], k.last[:0]
	}
	k.began, k.notes = at, 0
	k.busy.Store(false)
}

// add adds the keys of this and the last minute to a list.
func (k *keyTop) add(at int64, list []policy.KeySnapshot) []policy.KeySnapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turnLocked(at)
	begin := len(list)
	for _, items := range [][]topItem{k.now, k.last} {
		for _, it := range items {
			name := it.e.name()
			i := slices.IndexFunc(list[begin:], func(s policy.KeySnapshot) bool { return s.Key == name })
			if i < 0 {
				list = append(list, policy.KeySnapshot{Key: name})
				i = len(list) - 1 - begin
			}
			list[begin+i].Calls += it.calls
			list[begin+i].Refused += it.refused
		}
	}
	return list
}

// name returns the key as it is shown.
func (e *keyEntry) name() string {
	if e.tag&longKey != 0 {
		return "sha256:" + hex.EncodeToString([]byte(e.key()))
	}
	return e.key()
}

// Top returns the keys with the most calls in the last one to two minutes, at most n,
// those with the most refusals first, then those with the most calls. Keys of more
// than 128 bytes are shown as "sha256:" and the digest in hexadecimal. Keys with a
// limit of their own are not among them.
//
// The counts are estimates: of the calls that are let in one in 32 is noted, at random,
// and of refusals all, until there are many.
// It takes the same time whatever the number of keys.
func (b *Buckets) Top(now time.Time, n int) []policy.KeySnapshot {
	at := b.at(now)
	var list []policy.KeySnapshot
	for i := range b.shards {
		list = b.shards[i].top.add(at, list)
	}
	slices.SortFunc(list, func(a, b policy.KeySnapshot) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Key, b.Key))
	})
	return slices.Clip(list[:min(max(n, 0), len(list))])
}
