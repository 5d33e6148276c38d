package bulkhead

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWordHoldsLimitAndFlight(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		word   word
		flight uint32
		limit  uint32
		wait   bool
		room   bool
	}{
		{name: "empty", word: word(0).withLimit(1), limit: 1, room: true},
		{name: "last permit free", word: word(0).withLimit(2) + 1, flight: 1, limit: 2, room: true},
		{name: "full", word: word(0).withLimit(2) + 2, flight: 2, limit: 2},
		{name: "over after shrinking", word: (word(0).withLimit(9) + 9).withLimit(3), flight: 9, limit: 3},
		{name: "full with waiters", word: (word(0).withLimit(2) + 2) | queued, flight: 2, limit: 2, wait: true},
		{name: "room past waiters", word: (word(0).withLimit(2) + 1) | queued, flight: 1, limit: 2, wait: true, room: true},
		{name: "largest", word: (word(0).withLimit(maxLimit) + maxLimit) | queued, flight: maxLimit, limit: maxLimit, wait: true},
		{name: "new limit keeps the bit", word: ((word(0).withLimit(2) + 2) | queued).withLimit(5), flight: 2, limit: 5, wait: true, room: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.flight, tt.word.inFlight(), "in flight of %#x", uint64(tt.word))
			assert.Equal(t, tt.limit, tt.word.limit(), "limit of %#x", uint64(tt.word))
			assert.Equal(t, tt.wait, tt.word.hasWaiters(), "waiters of %#x", uint64(tt.word))
			assert.Equal(t, tt.room, tt.word.room(0), "room of %#x", uint64(tt.word))
			assert.Equal(t, tt.flight+1 < tt.limit, tt.word.room(1), "room but for one of %#x", uint64(tt.word))
		})
	}
}

// modelCounter is the counter as one would write it without a care for speed.
type modelCounter struct {
	flight, limit, reserve, high int
	queue                        []modelWaiter // in the order of arrival
}

type modelWaiter struct {
	w    *waiter
	band band
}

func (m *modelCounter) take() { m.flight++; m.high = max(m.high, m.flight) }

func (m *modelCounter) room(b band) bool {
	if b <= 1 {
		return m.flight < m.limit
	}
	return m.flight < m.limit-m.reserve
}

// acquire lets a call in if nobody waits whom it must not overtake.
func (m *modelCounter) acquire(b band) bool {
	for _, o := range m.queue {
		if o.band <= b || b > 1 {
			return false
		}
	}
	if !m.room(b) {
		return false
	}
	m.take()
	return true
}

// first returns the place in the queue of the waiter that is next.
func (m *modelCounter) first() int {
	best := 0
	for i, o := range m.queue {
		if o.band < m.queue[best].band {
			best = i
		}
	}
	return best
}

// least returns the place of the last of lowest priority.
func (m *modelCounter) least() int {
	worst := 0
	for i, o := range m.queue {
		if o.band >= m.queue[worst].band {
			worst = i
		}
	}
	return worst
}

// settle hands free permits to waiters, in their order, and returns who got one.
func (m *modelCounter) settle() (given []*waiter) {
	for len(m.queue) > 0 {
		i := m.first()
		if !m.room(m.queue[i].band) {
			break
		}
		m.take()
		given = append(given, m.queue[i].w)
		m.queue = slices.Delete(m.queue, i, i+1)
	}
	return given
}

func drawBand(t *rapid.T) band { return band(rapid.IntRange(0, bands-1).Draw(t, "band")) }

func TestCounterEqualsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reserve := rapid.IntRange(0, 2).Draw(t, "reserve")
		drawLimit := func(t *rapid.T) int { return rapid.IntRange(reserve+1, reserve+4).Draw(t, "limit") }
		limit := drawLimit(t)
		most := rapid.IntRange(1, 4).Draw(t, "most")
		var c counter
		c.init(limit, reserve)
		m := modelCounter{limit: limit, reserve: reserve}
		var over []*waiter // whose wait is over, and who were not told yet

		ready := func(w *waiter) bool {
			select {
			case <-w.ready:
				return true
			default:
				return false
			}
		}
		grant := func() {
			for _, w := range m.settle() {
				if !ready(w) || w.state != granted {
					t.Fatalf("a permit is free and the first waiter was not woken")
				}
				over = append(over, w)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				b := drawBand(t)
				if got, want := c.acquire(b), m.acquire(b); got != want {
					t.Fatalf("acquire(%d) = %v, want %v", b, got, want)
				}
			},
			"enqueue": func(t *rapid.T) {
				b := drawBand(t)
				want := m.acquire(b)
				w, ok := c.enqueue(b, most)
				switch {
				case want:
					if !ok || w != nil {
						t.Fatalf("enqueue(%d) = %v, %v with a free permit", b, w, ok)
					}
					return
				case len(m.queue) >= most && m.queue[m.least()].band <= b:
					if ok || w != nil {
						t.Fatalf("enqueue(%d) = %v, %v with a full queue", b, w, ok)
					}
					return
				case !ok || w == nil:
					t.Fatalf("enqueue(%d) = %v, %v, want a place in the queue", b, w, ok)
				case len(m.queue) >= most:
					i := m.least()
					out := m.queue[i].w
					if !ready(out) || out.state != ousted {
						t.Fatalf("the last of lowest priority did not make room")
					}
					over = append(over, out)
					m.queue = slices.Delete(m.queue, i, i+1)
				}
				m.queue = append(m.queue, modelWaiter{w: w, band: b})
			},
			"release": func(*rapid.T) {
				c.release()
				m.flight = max(m.flight-1, 0)
				grant()
			},
			"leave": func(t *rapid.T) {
				all := slices.Clone(over)
				for _, o := range m.queue {
					all = append(all, o.w)
				}
				if len(all) == 0 {
					return // nobody to leave
				}
				w := rapid.SampledFrom(all).Draw(t, "waiter")
				want := waits
				if slices.Contains(over, w) {
					want = w.state
				}
				if got := c.leave(w); got != want {
					t.Fatalf("leave = %v, want %v", got, want)
				}
				over = slices.DeleteFunc(over, func(o *waiter) bool { return o == w })
				m.queue = slices.DeleteFunc(m.queue, func(o modelWaiter) bool { return o.w == w })
			},
			"setLimit": func(t *rapid.T) {
				m.limit = drawLimit(t)
				c.setLimit(m.limit)
				grant()
			},
			"": func(t *rapid.T) {
				w := c.load()
				if int(w.inFlight()) != m.flight || int(w.limit()) != m.limit || w.hasWaiters() != (len(m.queue) > 0) ||
					c.queue.len() != len(m.queue) || int(c.high.Load()) != m.high {
					t.Fatalf("flight %d limit %d waiters %v waiting %d high %d, want %d %d %v %d %d",
						w.inFlight(), w.limit(), w.hasWaiters(), c.queue.len(), c.high.Load(),
						m.flight, m.limit, len(m.queue) > 0, len(m.queue), m.high)
				}
				for _, o := range m.queue {
					if ready(o.w) {
						t.Fatalf("a waiter was woken out of turn")
					}
				}
			},
		})
	})
}

// Every way in and out at once, with a limit that moves: never more in flight than
// the largest limit, nothing lost, nobody left in the queue.
func TestCounterConcurrentSafe(t *testing.T) {
	t.Parallel()
	const (
		largest = 5
		reserve = 1
		rounds  = 2000
	)
	var c counter
	c.init(largest, reserve)
	var inside, peak atomic.Int64
	work := func() {
		n := inside.Add(1)
		for {
			p := peak.Load()
			if n <= p || peak.CompareAndSwap(p, n) {
				break
			}
		}
		runtime.Gosched()
		inside.Add(-1)
		c.release()
	}
	var wg sync.WaitGroup
	for g := range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range rounds {
				b := band((g + i/4) % bands)
				switch (g + i) % 4 {
				case 0:
					if c.acquire(b) {
						work()
					}
				case 1: // waits for as long as it takes
					if w, ok := c.enqueue(b, 1000); ok {
						if w != nil {
							<-w.ready
						}
						work()
					}
				case 2: // gives up at once, unless the permit was faster
					if w, ok := c.enqueue(b, 1000); ok && (w == nil || c.leave(w) == granted) {
						work()
					}
				case 3:
					c.setLimit(1 + reserve + i%(largest-reserve))
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, peak.Load(), int64(largest), "calls at the same time")
	assert.Positive(t, peak.Load(), "calls at the same time")
	assert.Zero(t, c.load().inFlight(), "permits in flight at the end")
	assert.False(t, c.load().hasWaiters(), "somebody waits at the end")
	require.Zero(t, c.queue.len(), "waiters at the end")
	require.Nil(t, c.queue.first(), "queue at the end")
}

// A return of a permit and a caller that queues for it meet: the permit must reach
// the caller whichever is first. A lost wake-up shows as a test that never ends.
func TestCounterLosesNoWakeUpConcurrentSafe(t *testing.T) {
	t.Parallel()
	var c counter
	c.init(1, 0)
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for range 5000 {
				if !c.acquire(2) {
					w, ok := c.enqueue(2, maxLimit)
					if !ok {
						t.Error("queue without a bound is full")
						return
					}
					if w != nil {
						<-w.ready
					}
				}
				c.release()
			}
		})
	}
	wg.Wait()
	assert.Zero(t, c.load().inFlight(), "permits in flight at the end")
}

func BenchmarkCounter(b *testing.B) {
	b.Run("acquire-release", func(b *testing.B) {
		var c counter
		c.init(100, 0)
		b.ReportAllocs()
		for b.Loop() {
			if c.acquire(2) {
				c.release()
			}
		}
	})
}
