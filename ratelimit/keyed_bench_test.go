package ratelimit_test

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/ratelimit"
)

// plainMap is the least that a limit per key can be made of: a map for each of 64
// shards, a lock, and a figure per key. It is what [ratelimit.Buckets] are compared to.
type plainMap struct {
	seed   maphash.Seed
	shards [64]struct {
		sync.Mutex

		m map[string]int64
	}
}

func newPlainMap() *plainMap {
	p := &plainMap{seed: maphash.MakeSeed()}
	for i := range p.shards {
		p.shards[i].m = map[string]int64{}
	}
	return p
}

func (p *plainMap) take(key string) {
	s := &p.shards[maphash.String(p.seed, key)>>58]
	s.Lock()
	s.m[key]++
	s.Unlock()
}

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(10_000_000+i)
	}
	return keys
}

// keysAtRandom returns a power of two of keys, as they come: in any order, each in memory of
// its own. There are about as many as in the table, so that all of them are in use: a
// selection would measure how the caches of the processor hold that.
func keysAtRandom(keys []string) []string {
	order := make([]string, max(1<<bits.Len(uint(len(keys))), 1<<16))
	for i := range order {
		order[i] = strings.Clone(keys[rand.IntN(len(keys))])
	}
	return order
}

func newBuckets(tb testing.TB, cfg ratelimit.Keyed) *ratelimit.Buckets {
	tb.Helper()
	b, err := ratelimit.NewKeyed("", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// heap returns the bytes that are in use.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func BenchmarkKeyed(b *testing.B) {
	for _, n := range []int{1, 1000, 1_000_000} {
		keys := manyKeys(n)
		order := keysAtRandom(keys)
		run := func(name string, take func(string)) {
			b.Run(name+"/keys="+strconv.Itoa(n), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					take(order[i&(len(order)-1)])
					i++
				}
			})
			b.Run(name+"-parallel/keys="+strconv.Itoa(n), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					i := rand.IntN(len(order))
					for pb.Next() {
						take(order[i&(len(order)-1)])
						i++
					}
				})
			})
		}
		admits := newBuckets(b, ratelimit.Keyed{Rate: ratelimit.PerSecond(1e6), Burst: 1e9, MaxKeys: n, TTL: time.Hour})
		refuses := newBuckets(b, ratelimit.Keyed{Rate: ratelimit.Every(time.Hour), Burst: 1, MaxKeys: n})
		plain := newPlainMap()
		for _, key := range keys {
			admits.Allow(key)
			refuses.Allow(key)
			plain.take(strings.Clone(key)) // nobody keeps a piece of a request
		}
		heap() // collects: what is left to be done later would be measured
		// Like the map, they are not asked to read the clock.
		now := time.Now()
		run("admitted", func(key string) { admits.Take(now, key, 1) })
		run("refused", func(key string) { refuses.Take(now, key, 1) })
		run("plain-map", plain.take)
	}
}
