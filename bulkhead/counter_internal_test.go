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
		admits bool
	}{
		{name: "empty", word: word(0).withLimit(1), limit: 1, admits: true},
		{name: "last permit free", word: word(0).withLimit(2) + 1, flight: 1, limit: 2, admits: true},
		{name: "full", word: word(0).withLimit(2) + 2, flight: 2, limit: 2},
		{name: "over after shrinking", word: (word(0).withLimit(9) + 9).withLimit(3), flight: 9, limit: 3},
		{name: "full with waiters", word: (word(0).withLimit(2) + 2) | queued, flight: 2, limit: 2, wait: true},
		{name: "waiters go first", word: (word(0).withLimit(2) + 1) | queued, flight: 1, limit: 2, wait: true},
		{name: "largest", word: (word(0).withLimit(maxLimit) + maxLimit) | queued, flight: maxLimit, limit: maxLimit, wait: true},
		{name: "new limit keeps the bit", word: ((word(0).withLimit(2) + 2) | queued).withLimit(5), flight: 2, limit: 5, wait: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.flight, tt.word.inFlight(), "in flight of %#x", uint64(tt.word))
			assert.Equal(t, tt.limit, tt.word.limit(), "limit of %#x", uint64(tt.word))
			assert.Equal(t, tt.wait, tt.word.hasWaiters(), "waiters of %#x", uint64(tt.word))
			assert.Equal(t, tt.admits, tt.word.admits(), "admits of %#x", uint64(tt.word))
		})
	}
}

// modelCounter is the counter as one would write it without a care for speed.
type modelCounter struct {
	flight, limit, high int
	queue               []*waiter
}

func (m *modelCounter) take() { m.flight++; m.high = max(m.high, m.flight) }

func (m *modelCounter) acquire() bool {
	if len(m.queue) > 0 || m.flight >= m.limit {
		return false
	}
	m.take()
	return true
}

// settle hands free permits to waiters, in their order, and returns who got one.
func (m *modelCounter) settle() (granted []*waiter) {
	for len(m.queue) > 0 && m.flight < m.limit {
		m.take()
		granted = append(granted, m.queue[0])
		m.queue = m.queue[1:]
	}
	return granted
}

func TestCounterEqualsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		most := rapid.IntRange(1, 4).Draw(t, "most")
		var c counter
		c.init(limit)
		m := modelCounter{limit: limit}
		var handed []*waiter // granted, and not told yet

		grant := func() {
			for _, w := range m.settle() {
				select {
				case <-w.ready:
				default:
					t.Fatalf("a permit is free and the first waiter was not woken")
				}
				handed = append(handed, w)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(t *rapid.T) {
				if got, want := c.acquire(), m.acquire(); got != want {
					t.Fatalf("acquire = %v, want %v", got, want)
				}
			},
			"enqueue": func(t *rapid.T) {
				want := m.acquire()
				w, ok := c.enqueue(most)
				switch {
				case want:
					if !ok || w != nil {
						t.Fatalf("enqueue = %v, %v with a free permit", w, ok)
					}
				case len(m.queue) >= most:
					if ok || w != nil {
						t.Fatalf("enqueue = %v, %v with a full queue", w, ok)
					}
				default:
					if !ok || w == nil {
						t.Fatalf("enqueue = %v, %v, want a place in the queue", w, ok)
					}
					m.queue = append(m.queue, w)
				}
			},
			"release": func(*rapid.T) {
				c.release()
				m.flight = max(m.flight-1, 0)
				grant()
			},
			"leave": func(t *rapid.T) {
				all := slices.Concat(handed, m.queue)
				if len(all) == 0 {
					t.Skip("nobody to leave")
				}
				w := rapid.SampledFrom(all).Draw(t, "waiter")
				want := slices.Contains(handed, w)
				if got := c.leave(w); got != want {
					t.Fatalf("leave = %v, want %v", got, want)
				}
				same := func(o *waiter) bool { return o == w }
				handed = slices.DeleteFunc(handed, same)
				m.queue = slices.DeleteFunc(m.queue, same)
			},
			"setLimit": func(t *rapid.T) {
				m.limit = rapid.IntRange(1, 5).Draw(t, "limit")
				c.setLimit(m.limit)
				grant()
			},
			"": func(t *rapid.T) {
				w := c.load()
				if int(w.inFlight()) != m.flight || int(w.limit()) != m.limit || w.hasWaiters() != (len(m.queue) > 0) ||
					int(c.waiting.Load()) != len(m.queue) || int(c.high.Load()) != m.high {
					t.Fatalf("flight %d limit %d waiters %v waiting %d high %d, want %d %d %v %d %d",
						w.inFlight(), w.limit(), w.hasWaiters(), c.waiting.Load(), c.high.Load(),
						m.flight, m.limit, len(m.queue) > 0, len(m.queue), m.high)
				}
				for _, w := range m.queue {
					select {
					case <-w.ready:
						t.Fatalf("a waiter was woken out of turn")
					default:
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
		largest = 4
		rounds  = 2000
	)
	var c counter
	c.init(largest)
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
				switch (g + i) % 4 {
				case 0:
					if c.acquire() {
						work()
					}
				case 1: // waits for as long as it takes
					if w, ok := c.enqueue(1000); ok {
						if w != nil {
							<-w.ready
						}
						work()
					}
				case 2: // gives up at once, unless the permit was faster
					if w, ok := c.enqueue(1000); ok && (w == nil || c.leave(w)) {
						work()
					}
				case 3:
					c.setLimit(1 + i%largest)
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, peak.Load(), int64(largest), "calls at the same time")
	assert.Positive(t, peak.Load(), "calls at the same time")
	assert.Zero(t, c.load().inFlight(), "permits in flight at the end")
	assert.False(t, c.load().hasWaiters(), "somebody waits at the end")
	assert.Zero(t, c.waiting.Load(), "waiters at the end")
	require.True(t, c.queue.empty(), "queue at the end")
}

// A return of a permit and a caller that queues for it meet: the permit must reach
// the caller whichever is first. A lost wake-up shows as a test that never ends.
func TestCounterLosesNoWakeUpConcurrentSafe(t *testing.T) {
	t.Parallel()
	var c counter
	c.init(1)
	var wg sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for range 5000 {
				if !c.acquire() {
					w, ok := c.enqueue(maxLimit)
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
		c.init(100)
		b.ReportAllocs()
		for b.Loop() {
			if c.acquire() {
				c.release()
			}
		}
	})
}
