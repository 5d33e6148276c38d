package ratelimit

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// newStillBuckets returns buckets whose timer does not run: a test plays its part.
func newStillBuckets(t require.TestingT, cfg Keyed) *Buckets {
	b, err := NewKeyed("", cfg)
	require.NoError(t, err)
	b.sweeping.Store(true)
	return b
}

// tabled returns the keys in the table, with their figures, and checks that all its
// parts agree.
func (b *Buckets) tabled(t require.TestingT) map[string]int64 {
	found := map[string]int64{}
	check := func(ok bool, what string) { // fast, as it is asked thousands of times
		if !ok {
			require.Fail(t, what)
		}
	}
	for i := range b.shards {
		sh := &b.shards[i]
		tab := sh.table.Load()
		used, entries := 0, 0
		for g := range tab.groups {
			marks := tab.groups[g].marks.Load()
			check(marks>>56 == markRemoved, "the eighth mark")
			for slot := range groupSlots {
				m := marks >> (8 * slot) & 0xff
				e := tab.groups[g].slots[slot].Load()
				if m != markEmpty {
					used++
				}
				check((m >= markUsed) == (e != nil), "a mark without an entry, or the reverse")
				if e == nil {
					continue
				}
				entries++
				check(m == mark(e.tag), "the mark of another tag")
				check(sh.heap[e.pos].e == e, "the place in the heap")
				check(tab.find(keyID{key: e.key(), hash: uint64(e.tag)}) == e, "an entry that is not found")
				check(sh.heap[e.pos].order <= e.used.Load(), "the order in the heap is too high")
				found[e.key()] = e.used.Load()
			}
		}
		check(used == sh.used && used <= tab.room(), "the number of slots in use")
		check(len(sh.heap) == entries, "the number of entries in the heap")
		for i := 1; i < len(sh.heap); i++ {
			check(sh.heap[(i-1)/2].order <= sh.heap[i].order, "no heap")
		}
	}
	require.Len(t, found, b.Len())
	return found
}

// stateOf returns the state that the key is counted by.
func (b *Buckets) stateOf(key string) *state {
	return b.shardOf(b.identify(key, new(digest))).table.Load().s
}

// fullAt reports whether the bucket was full then.
func (m *counterModel) fullAt(at int64) bool {
	return at >= m.origin && m.tokens(at).Cmp(m.burst) >= 0
}

// keyedModel has a bucket of any precision for each key that was ever seen, and so
// never forgets one.
type keyedModel struct {
	b        *Buckets
	limit    Limit
	fresh    map[string]*counterModel // the buckets of the keys if they had never been seen
	keys     map[string]*counterModel
	own      map[string]*counterModel
	overflow *counterModel
}

func (m *counterModel) clone() *counterModel {
	n := *m
	return &n
}

func (m *keyedModel) of(key string) *counterModel {
	if own := m.own[key]; own != nil {
		return own
	}
	if m.keys[key] == nil {
		m.keys[key] = m.fresh[key].clone()
	}
	return m.keys[key]
}

// follow moves the origins of the model to where those of the buckets are.
func (m *keyedModel) follow(at int64) {
	for key, fresh := range m.fresh {
		if s := m.b.stateOf(key); s.elapsed(at) > s.horizon {
			m.b.shardOf(m.b.identify(key, new(digest))).move(s, at)
		}
		if s := m.b.stateOf(key); s.origin != fresh.origin {
			fresh.move(s.origin)
			if c := m.keys[key]; c != nil {
				c.move(s.origin)
			}
		}
	}
	if s := m.b.overflow.state.Load(); s.elapsed(at) > s.horizon {
		m.b.overflow.move(s, at)
		m.overflow.move(at)
	}
	for key, c := range m.own {
		own := m.b.exception(key)
		if s := own.state.Load(); s.elapsed(at) > s.horizon {
			own.move(s, at)
			c.move(at)
		}
	}
}

// inexact reports whether a bucket does not count exactly, as the model does.
func (m *keyedModel) inexact() bool {
	for key := range m.fresh {
		if m.b.stateOf(key).shift != 0 {
			return true
		}
	}
	for key := range m.own {
		if m.b.exception(key).state.Load().shift != 0 {
			return true
		}
	}
	return m.b.overflow.state.Load().shift != 0
}

// runKeyedModel runs the same random operations on buckets and on the model. It
// requires the same answers, that whoever is forgotten was full, and that whoever finds
// no room could not have had any.
func runKeyedModel(t require.TestingT, o ops, steps int) {
	limit := Limit{Rate: chooseRate(o), Burst: int(chooseBurst(o))}
	most := 1 + o.intn("most", 6)
	ttl := int64(1 + o.intn("ttl", 3)*1_000_000_000)
	b := newStillBuckets(t, Keyed{Rate: limit.Rate, Burst: limit.Burst, MaxKeys: most, TTL: time.Duration(ttl)})
	model := func(l Limit) *counterModel {
		return newCounterModel(l.Rate, int64(l.Burst), int64(l.Burst))
	}
	m := &keyedModel{b: b, limit: limit, fresh: map[string]*counterModel{}, keys: map[string]*counterModel{}, own: map[string]*counterModel{}, overflow: model(limit)}
	at := int64(0)
	names := []string{"", "a", "b", "c", "d", "e", "f", "g", "h"}
	for _, key := range names {
		m.fresh[key] = model(limit)
	}
	before := b.tabled(t)
	for range steps {
		// Forward: who has been forgotten counts as full at earlier times too.
		at = min(at+max(0, chooseStep(o)), math.MaxInt64-1<<60)
		key := names[o.intn("key", len(names))]
		m.follow(at)
		c := m.of(key)
		bound := at // those who leave were full then
		switch op := o.intn("op", 16); op {
		case 0, 1:
			n := o.intn("n", 12) - 1
			if _, there := before[key]; there || m.own[key] != nil {
				ago := o.int64n("ago", 1e9)
				b.refund(at, at-ago, key, n)
				s := b.stateOf(key)
				if own := b.exception(key); own != nil {
					s = own.state.Load()
				}
				since := c.eras.arrived(c.rate, at, at-ago, s.unit)
				if back := new(big.Rat).Sub(ratOf(int64(n)), since); n > 0 && back.Sign() > 0 {
					c.used = maxRat(new(big.Rat).Sub(c.used, back), new(big.Rat).Neg(c.burst))
				}
				if m.own[key] == nil { // no better than one that was never seen
					c.used = maxRat(c.used, m.fresh[key].used)
				}
			}
		case 2:
			m.limit = Limit{Rate: chooseRate(o), Burst: int(chooseBurst(o))}
			b.limitMu.Lock()
			b.setLimit(at, m.limit)
			b.limitMu.Unlock()
			for key, fresh := range m.fresh {
				s := b.stateOf(key)
				fresh.setLimit(s.origin, m.limit.Rate, int64(m.limit.Burst), s.unit)
				if c := m.keys[key]; c != nil {
					c.setLimit(s.origin, m.limit.Rate, int64(m.limit.Burst), s.unit)
				}
			}
			m.overflow.setLimit(at, m.limit.Rate, int64(m.limit.Burst), b.overflow.state.Load().unit)
		case 3:
			b.sweep(at)
			bound = at - ttl
		case 4:
			l := Limit{Rate: chooseRate(o), Burst: int(chooseBurst(o))}
			b.limitMu.Lock()
			b.setException(at, key, l)
			b.limitMu.Unlock()
			own := c.clone()
			delete(m.keys, key)
			m.own[key] = own
			own.setLimit(b.exception(key).state.Load().origin, l.Rate, int64(l.Burst), b.exception(key).state.Load().unit)
			delete(before, key)
		case 5:
			if m.own[key] == nil {
				continue
			}
			b.limitMu.Lock()
			b.removeException(at, key)
			b.limitMu.Unlock()
			delete(m.own, key)
			back := m.fresh[key].clone()
			at := max(at, c.origin, back.origin)
			tokens := c.tokens(at)
			tokens.Mul(tokens, ratOf(b.stateOf(key).unit))
			tokens.SetFrac(floorOf(tokens), big.NewInt(b.stateOf(key).unit)) // rounded down to a unit
			back.used = maxRat(back.usedAt(at), new(big.Rat).Sub(back.arrived(at), tokens))
			if _, there := b.tabled(t)[key]; there {
				m.keys[key] = back
			}
			// Without a place it is like new; that is documented.
		default:
			n := o.intn("n", 12) - 1
			if n > 0 {
				wantWait, want := c.clone().take(at, int64(n))
				if wait, v := b.look(at, key, n); !b.full(at) {
					require.Equal(t, want, v == taken, "look(%q, %d) at %d", key, n, at)
					require.Equal(t, wantWait, wait, "look(%q, %d) at %d", key, n, at)
				}
			}
			wait, v, shared := b.take(at, key, n)
			if shared {
				require.Len(t, before, most, "there was room")
				for other := range before {
					require.False(t, m.keys[other].fullAt(at), "%q could have gone", other)
				}
				require.NotContains(t, before, key)
				c = m.overflow
			}
			wantWait, want := c.take(at, int64(n))
			require.Equal(t, want, v == taken, "take(%q, %d) at %d", key, n, at)
			require.Equal(t, wantWait, wait, "take(%q, %d) at %d", key, n, at)
		}
		if m.inexact() {
			return // a slow rate, and so much was owed that its unit is too small
		}
		after := b.tabled(t)
		require.LessOrEqual(t, len(after), most)
		for other := range before {
			if _, there := after[other]; !there {
				require.True(t, m.keys[other].fullAt(bound) || m.keys[other].used.Cmp(m.fresh[other].used) <= 0, "%q was not full", other)
			}
		}
		for other := range after {
			require.Nil(t, m.own[other])
			if op := bound; op < at {
				require.False(t, m.keys[other].fullAt(bound), "%q should have gone", other)
			}
			s := b.stateOf(other)
			have := new(big.Rat).SetFrac64(s.arrived(at)-max(after[other], s.arrived(at)-s.full), s.unit)
			require.Zero(t, m.keys[other].tokens(at).Cmp(have), "%q at %d: %v tokens, want %v", other, at, have, m.keys[other].tokens(at))
		}
		before = after
	}
	assert.Empty(t, slices.DeleteFunc(slices.Collect(maps.Keys(before)), func(key string) bool { return slices.Contains(names, key) }))
}

func TestPropKeyedModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { runKeyedModel(t, rapidOps{t}, 60) })
}

func FuzzKeyedModel(f *testing.F) {
	for seed := range 16 {
		f.Add(slices.Repeat([]byte{byte(seed), 3, 200, 17, byte(31 * seed), 5, 6, 9, 77}, 40))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		runKeyedModel(t, &byteOps{data}, min(len(data), 200))
	})
}

// Whatever the hash does, the table finds what is in it and nothing else.
func TestPropKeyTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &state{meter: newMeter(PerSecond(1), 1, 0)}
		tab := newKeyTable(s, -s.full, rapid.IntRange(0, 40).Draw(t, "room"))
		// A poor hash: many keys share their tags, and many tags their group.
		tag := func(i int) uint32 { return uint32(i%3) << 25 & ^uint32(longKey) }
		in, used := map[int]*keyEntry{}, 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, 50).Draw(t, "key")
			id := keyID{key: strconv.Itoa(i), hash: uint64(tag(i))}
			e := tab.find(id)
			require.Same(t, in[i], e)
			switch {
			case e != nil:
				used -= tab.drop(e)
				delete(in, i)
			case used < tab.room():
				in[i] = newKeyEntry(id.key, id.tag(), 0)
				used += tab.put(in[i])
			}
			require.GreaterOrEqual(t, used, len(in))
		}
		for i := range 51 {
			require.Same(t, in[i], tab.find(keyID{key: strconv.Itoa(i), hash: uint64(tag(i))}))
		}
	})
}

// At one instant nothing arrives, so no key can have more than its burst: whoever
// comes, goes, refunds and changes the limits meanwhile.
func TestKeyedConcurrentSafe(t *testing.T) {
	t.Parallel()
	const burst, keys = 1000, 40
	b := newStillBuckets(t, Keyed{Rate: PerSecond(1000), Burst: burst, MaxKeys: keys / 2})
	limits := []Rate{PerSecond(1000), PerSecond(math.Pi), PerSecond(1e9), Every(time.Hour)}
	var got [keys]atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				k := (i*7 + g) % keys
				key := strings.Repeat("k", k*5) // some of them are long
				switch n := 1 + i%3; {
				case i%500 == 499 && g == 0:
					b.limitMu.Lock()
					b.setLimit(1, Limit{Rate: limits[i/500%len(limits)], Burst: burst})
					b.limitMu.Unlock()
				case i%50 == 49 && k < 4:
					b.limitMu.Lock()
					if i%100 == 99 {
						b.setException(1, key, Limit{Rate: PerSecond(5), Burst: burst})
					} else {
						b.removeException(1, key)
					}
					b.limitMu.Unlock()
				case i%40 == 39:
					b.sweep(1)
				case i%5 == 4:
					if _, v, shared := b.take(1, key, n); v == taken && !shared {
						b.refund(1, 1, key, n)
					} else if v == taken {
						b.overflow.giveBack(1, 1, n)
					}
				default:
					if _, v, shared := b.take(1, key, n); v == taken && !shared {
						got[k].Add(int64(n))
					}
					b.look(1, key, 1)
				}
			}
		})
	}
	wg.Wait()
	b.tabled(t)
	for k := range got {
		key := strings.Repeat("k", k*5)
		for {
			_, v, shared := b.take(1, key, 1)
			if v != taken || shared {
				break
			}
			got[k].Add(1)
		}
		assert.LessOrEqual(t, got[k].Load(), int64(burst), "key %d", k)
	}
}

// New keys push out those that are full, from all sides at once, and no key is let in
// twice.
func TestKeyedEvictConcurrentSafe(t *testing.T) {
	t.Parallel()
	const most = 64
	b := newStillBuckets(t, Keyed{Rate: PerSecond(1000), Burst: 1, MaxKeys: most, Overflow: Limit{Rate: Every(time.Hour), Burst: 1}})
	var clock atomic.Int64
	var wg sync.WaitGroup
	var passed atomic.Int64
	for g := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				at := clock.Add(1000)
				key := strconv.Itoa(i * g % 3000)
				if _, v, _ := b.take(at, key, 1); v == taken {
					passed.Add(1)
				}
				assert.LessOrEqual(t, b.Len(), most)
			}
		})
	}
	wg.Wait()
	b.tabled(t)
	// 20 ms pass: each place can be had 20 times, and the overflow has one token.
	assert.LessOrEqual(t, passed.Load(), int64(most*21+1))
	assert.GreaterOrEqual(t, passed.Load(), int64(most))
}

func FuzzKeyEntry(f *testing.F) {
	f.Add("", uint32(1))
	f.Add(strings.Repeat("k", maxKeyLen), uint32(0))
	f.Fuzz(func(t *testing.T, key string, tag uint32) {
		if len(key) > maxKeyLen {
			return
		}
		e := newKeyEntry(key, tag, 5)
		require.Equal(t, key, e.key())
		require.Equal(t, int64(5), e.used.Load())
		require.Equal(t, tag, e.tag)
	})
}
