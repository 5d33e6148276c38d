package window_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/internal/window"
)

// model keeps every event and counts again each time.
type model struct {
	width  int64
	n      int64
	newest int64
	events []event
}

type event struct {
	bucket int64
	counts counts
}

func (m *model) bucket(ns int64) int64 { return max(m.newest, max(ns, 0)/m.width) }

func (m *model) put(ns int64, c counts) {
	m.newest = m.bucket(ns)
	m.events = append(m.events, event{bucket: m.newest, counts: c})
}

func (m *model) counts(ns int64) counts {
	var sum counts
	oldest := m.bucket(ns) - m.n + 1
	for _, e := range m.events {
		if e.bucket >= oldest {
			sum.Calls += e.counts.Calls
			sum.Failures += e.counts.Failures
			sum.Slow += e.counts.Slow
		}
	}
	return sum
}

// find returns the newest event that still counts and that ok accepts.
func (m *model) find(ns int64, ok func(counts) bool) *event {
	m.newest = m.bucket(ns)
	var found *event
	for i := range m.events {
		e := &m.events[i]
		if e.bucket > m.newest-m.n && ok(e.counts) && (found == nil || e.bucket >= found.bucket) {
			found = e
		}
	}
	return found
}

// The window equals a recount of all events, after every operation and at every
// time it is asked about.
func TestWindowEqualsRecount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		buckets := rapid.IntRange(1, 12).Draw(rt, "buckets")
		length := rapid.Int64Range(int64(buckets), 10_000).Draw(rt, "length")
		mark := rapid.Uint64Range(0, 8).Draw(rt, "mark")
		w := window.New(base, time.Duration(length), buckets).Watch(mark)
		m := &model{width: length / int64(buckets), n: int64(buckets)}
		budget := rapid.Bool().Draw(rt, "budget") // failures are not calls, as in a retry budget

		var ns int64
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "time") {
			case 0:
				ns += rapid.Int64Range(0, 3*length).Draw(rt, "leap")
			case 1:
				ns -= rapid.Int64Range(0, length).Draw(rt, "back")
			case 2:
				ns = (ns/m.width + 1) * m.width // to an edge
			case 3, 4, 5, 6:
				ns += rapid.Int64Range(0, m.width).Draw(rt, "step")
			}
			now := base.Add(time.Duration(ns))
			op := rapid.SampledFrom([]string{"add", "add", "record", "fail", "undo", "read", "reset"}).Draw(rt, "op")
			switch op {
			case "add":
				m.put(ns, counts{Calls: 1})
				c := m.counts(ns)
				want := mark > 0 && c.Calls == mark && c.Failures+c.Slow > 0
				if got := w.Add(now, rapid.Uint32().Draw(rt, "stripe")); got != want {
					rt.Fatalf("Add at %d: %v, want %v with %+v", ns, got, want, m.counts(ns))
				}
			case "record":
				c := counts{
					Calls:    1,
					Failures: rapid.Uint64Range(0, 1).Draw(rt, "failed"),
					Slow:     rapid.Uint64Range(0, 1).Draw(rt, "slow"),
				}
				m.put(ns, c)
				if got, want := w.Record(now, c), m.counts(ns); got != want {
					rt.Fatalf("Record at %d: %+v, want %+v", ns, got, want)
				}
			case "fail":
				if budget {
					limit := rapid.Uint64Range(0, 5).Draw(rt, "limit")
					before := m.counts(ns)
					got := w.TryAddFailure(now, func(c counts) bool { return c == before && c.Failures < limit })
					if want := before.Failures < limit; got != want {
						rt.Fatalf("TryAddFailure at %d: %v, want %v with %+v", ns, got, want, before)
					}
					m.newest = m.bucket(ns)
					if got {
						m.put(ns, counts{Failures: 1})
					}
					continue
				}
				if e := m.find(ns, func(c counts) bool { return c.Calls > c.Failures }); e != nil {
					e.counts.Failures++
				} else {
					m.put(ns, counts{Calls: 1, Failures: 1})
				}
				if got, want := w.Amend(now), m.counts(ns); got != want {
					rt.Fatalf("Amend at %d: %+v, want %+v", ns, got, want)
				}
			case "undo":
				w.UndoFailure(now)
				if e := m.find(ns, func(c counts) bool { return c.Failures > 0 }); e != nil {
					e.counts.Failures--
				}
			case "read":
				then := rapid.Int64Range(-length, 3*length).Draw(rt, "then")
				if got, want := w.Counts(now.Add(time.Duration(then))), m.counts(ns+then); got != want {
					rt.Fatalf("Counts %d ahead of %d: %+v, want %+v", then, ns, got, want)
				}
			case "reset":
				w.Reset(now)
				m.newest = m.bucket(ns)
				m.events = nil
			}
			if got, want := w.Counts(now), m.counts(ns); got != want {
				rt.Fatalf("after %s at %d: %+v, want %+v", op, ns, got, want)
			}
		}
	})
}

// No length, number of buckets or time makes the window panic, and an event is
// seen at the time of its own call.
func FuzzWindow(f *testing.F) {
	f.Add(int64(time.Second), 10, int64(0), int64(1))
	f.Add(int64(math.MaxInt64), 1, int64(math.MaxInt64), int64(math.MinInt64))
	f.Add(int64(-5), -7, int64(-1), int64(3))
	f.Fuzz(func(t *testing.T, length int64, buckets int, a, b int64) {
		buckets = min(buckets, 1000)
		w := window.New(base, time.Duration(length), buckets)
		w.Record(base.Add(time.Duration(a)), failed)
		if c := w.Counts(base.Add(time.Duration(a))); c != failed {
			t.Fatalf("%+v right after one failure", c)
		}
		w.Add(base.Add(time.Duration(b)), uint32(a))
		c := w.Counts(base.Add(time.Duration(b)))
		if c.Calls < 1 || c.Calls > 2 || c.Failures != c.Calls-1 {
			t.Fatalf("%+v after one failure at %d and one call at %d", c, a, b)
		}
		w.Amend(base)
		w.UndoFailure(base)
		w.Reset(base)
		if c := w.Counts(base); c != (counts{}) {
			t.Fatalf("%+v after a reset", c)
		}
	})
}
