package breaker

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// check compares a table with itself: what is in its chains, in its lists and in its
// figures.
func (t *keyTable) check(tb fataler) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, open := 0, 0
	for _, l := range []*keyList{&t.well, &t.sick} {
		var prev *keyEntry
		for e := l.first; e != nil; prev, e = e, e.succ {
			n++
			state := e.b.phase.Load().state
			isOpen := state == Open || state == HalfOpen || state == ForcedOpen
			if isOpen {
				open++
			}
			switch {
			case e.prev != prev || e.list != l || e.gone:
				tb.Fatalf("%q is linked badly", e.key)
			case t.find(e.key) != e:
				tb.Fatalf("%q is not found", e.key)
			case isOpen != e.isOpen || e.pinned != (state.forced() || e.b.m.observing):
				tb.Fatalf("%q is %v: open %v, pinned %v", e.key, state, e.isOpen, e.pinned)
			case (l == &t.well) != (state == Closed && !e.pinned):
				tb.Fatalf("%q is %v and in the wrong list", e.key, state)
			}
		}
		if l.last != prev {
			tb.Fatalf("a list ends at %p, want %p", l.last, prev)
		}
	}
	chained := 0
	shape := t.shape.Load()
	for i := range shape.chains {
		for e := shape.chains[i].Load(); e != nil; e = e.next.Load() {
			chained++
		}
	}
	if n != t.n || chained != n || n > shape.max || open != t.open {
		tb.Fatalf("%d entries in lists, %d in chains, want %d, at most %d; %d open, want %d", n, chained, t.n, shape.max, open, t.open)
	}
}

// Whatever is done with it, a table is bounded and sound, no breaker opens beyond the
// share that is allowed, and a key that is not closed outlives every closed one.
func TestKeyTableIsSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Now()
		cfg := Keyed{
			Config: Config{
				FailureRatio: Off, ConsecutiveFailures: 2, Probes: 1, Window: time.Second,
				OpenFor: time.Duration(rapid.IntRange(1, 5).Draw(rt, "open for")) * time.Second,
			},
			MaxKeys:      rapid.IntRange(1, 12).Draw(rt, "max keys"),
			TTL:          time.Duration(rapid.IntRange(1, 20).Draw(rt, "ttl")) * time.Second,
			MaxOpenShare: rapid.SampledFrom([]float64{0, 0.1, 0.5, 2.0 / 3, 1}).Draw(rt, "share"),
		}
		if rapid.Bool().Draw(rt, "ramp") {
			cfg.RampFor = 2 * time.Second
		}
		k, err := newKeyedAt(base, "", cfg)
		if err != nil {
			rt.Fatalf("%v", err)
		}
		var ns int64
		last := make(map[string]int64) // use of each key
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "time") {
			case 0:
				ns += rapid.Int64Range(0, int64(30*time.Second)).Draw(rt, "leap")
			case 1, 2, 3:
				ns += rapid.Int64Range(0, int64(time.Second)).Draw(rt, "step")
			}
			now := base.Add(time.Duration(ns))
			key := strconv.Itoa(rapid.IntRange(0, 20).Draw(rt, "key"))
			open, before := k.table.open, k.table.all()
			sick := slices.DeleteFunc(slices.Clone(before), func(e *keyEntry) bool { return e.list == &k.table.well })
			full := len(before) == cfg.MaxKeys
			command := false
			switch rapid.IntRange(0, 13).Draw(rt, "op") {
			case 0:
				k.Remove(key)
				sick = nil
			case 1:
				s := rapid.SampledFrom([]State{ForcedOpen, ForcedClosed}).Draw(rt, "state")
				k.get(key, now).force(now, s, "", time.Duration(rapid.IntRange(0, 3).Draw(rt, "for"))*time.Second)
				command = true
			case 2:
				b := k.get(key, now)
				if rapid.Bool().Draw(rt, "observe") {
					b.observe(now, "", time.Second)
				} else {
					b.release(now, "")
				}
				command = true
			case 3:
				cfg.MaxKeys = rapid.IntRange(1, 12).Draw(rt, "max keys")
				cfg.MaxOpenShare = rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(rt, "share")
				k.reload(cfg.effective())
				sick = nil
			default:
				b := k.get(key, now)
				if word, refused := b.enter(now); refused == nil {
					kind := rapid.SampledFrom([]policy.Kind{policy.Failure, policy.Failure, policy.Success}).Draw(rt, "kind")
					b.leave(word, 0, now, policy.Outcome{Kind: kind})
				}
			}
			k.table.check(rt)
			last[key] = ns
			limit := k.table.maxOpenLocked()
			if k.table.open > open && k.table.open > limit && !command {
				rt.Fatalf("at %d: %d are open, %d before, at most %d may be", ns, k.table.open, open, limit)
			}
			if full && k.table.well.last != nil && k.table.well.last.key != key {
				for _, e := range sick { // of which none had to go
					if e.gone && ns-last[e.key] < int64(cfg.TTL) {
						rt.Fatalf("at %d: %q is gone, and %q still there", ns, e.key, k.table.well.last.key)
					}
				}
			}
		}
	})
}

// Many goroutines use, open, force and remove keys at once.
func TestKeyedBreakerConcurrentSafe(t *testing.T) {
	t.Parallel()
	base := time.Now()
	k, err := newKeyedAt(base, "", Keyed{
		Config:  Config{FailureRatio: Off, ConsecutiveFailures: 3, Probes: 1, OpenFor: 5 * time.Millisecond},
		MaxKeys: 50, TTL: 10 * time.Second, MaxOpenShare: 0.5,
	})
	require.NoError(t, err)
	const goroutines, each = 8, 5000
	var clock, admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				n := clock.Add(1)
				now := base.Add(time.Duration(n) * 10 * time.Microsecond)
				key := strconv.FormatInt(n*n%70, 10)
				b := k.get(key, now)
				word, re := b.enter(now)
				if re != nil {
					refused.Add(1)
				} else {
					admitted.Add(1)
					o := policy.Outcome{Kind: policy.Success}
					if n*n%70 < 30 {
						o.Kind = policy.Failure
					}
					b.leave(word, uint32(g), now, o)
				}
				switch i % 500 {
				case 100:
					k.Remove(key)
				case 200:
					b.force(now, ForcedOpen, "", time.Millisecond)
				case 300:
					s := k.Snapshot(now).Breaker
					assert.LessOrEqual(t, s.Keys, 50)
				}
			}
		})
	}
	stop := make(chan struct{})
	reloads := 0
	var reloading sync.WaitGroup
	reloading.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				cfg := k.Config()
				cfg.MaxKeys = []int{10, 50, 20, 40}[reloads%4]
				k.reload(cfg)
				reloads++
			}
		}
	})
	wg.Wait()
	close(stop)
	reloading.Wait()
	assert.NotZero(t, reloads)
	assert.Equal(t, int64(goroutines*each), admitted.Load()+refused.Load())
	assert.NotZero(t, refused.Load())
	k.table.check(t)
	s := k.Snapshot(base).Breaker
	assert.NotZero(t, s.Opened)
	assert.NotZero(t, s.Evicted)
}

// A key lives for its TTL and no longer than a grain more, and is moved in its list no
// more often than that takes.
func TestKeyTableKeepsTime(t *testing.T) {
	t.Parallel()
	base := time.Now()
	const ttl, grain = 64 * time.Second, time.Second
	k, err := newKeyedAt(base, "", Keyed{Config: Config{FailureRatio: Off, ConsecutiveFailures: 1, OpenFor: time.Second}, MaxKeys: 40, TTL: ttl})
	require.NoError(t, err)
	at := func(d time.Duration) time.Time { return base.Add(d) }
	keys := func() (keys []string) {
		for _, e := range k.table.all() {
			keys = append(keys, e.key)
		}
		slices.Sort(keys)
		return keys
	}
	k.get("idle", at(0))
	open := k.get("open", at(0))
	word, refused := open.enter(at(0))
	require.Nil(t, refused)
	open.leave(word, 0, at(0), policy.Outcome{Kind: policy.Failure})
	require.Equal(t, Open, open.m.state)

	k.get("used", at(0))
	used := k.table.find("used")
	k.get("used", at(grain-1))
	assert.Zero(t, used.touched.Load(), "not before a grain has passed")
	k.get("used", at(grain))
	assert.Equal(t, int64(grain), used.touched.Load())
	k.get("used", at(0))
	assert.Equal(t, int64(grain), used.touched.Load(), "a clock that is behind")

	k.get("used", at(ttl+grain-1))
	assert.Equal(t, []string{"idle", "open", "used"}, keys())
	k.get("used", at(ttl+2*grain-1)) // which looks at the others again
	assert.Equal(t, []string{"open", "used"}, keys(), "the open one: a second for which it was open, and TTL")
	k.get("used", at(ttl+3*grain-1))
	assert.Equal(t, []string{"used"}, keys())
	assert.Zero(t, k.table.open)

	// New keys count as time: after a quarter of MaxKeys the used one is moved again.
	now := at(ttl + 3*grain)
	seq := used.seq.Load()
	for i := range 9 {
		k.get(strconv.Itoa(i), now)
		k.get("used", now)
		require.Equal(t, seq, used.seq.Load(), "after %d", i+1)
	}
	k.get("9", now)
	k.get("used", now)
	assert.Equal(t, seq+10, used.seq.Load())
}
