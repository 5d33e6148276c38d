package window_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/internal/window"
)

func TestLastForgetsCallByCall(t *testing.T) {
	t.Parallel()
	l := window.NewLast(4)
	assert.Equal(t, counts{}, l.Counts(base))
	assert.Equal(t, counts{1, 1, 0}, l.Record(base, failed))
	assert.Equal(t, counts{2, 1, 1}, l.Record(base, slow))
	assert.Equal(t, counts{3, 2, 2}, l.Record(base, counts{1, 1, 1}))
	l.Add(base, 0)
	assert.Equal(t, counts{4, 2, 2}, l.Counts(base))
	l.Add(base, 1)
	assert.Equal(t, counts{4, 1, 2}, l.Counts(base), "the first of five")
	l.Add(base, 2)
	assert.Equal(t, counts{4, 1, 1}, l.Counts(base))
	l.Add(base, 3)
	assert.Equal(t, counts{4, 0, 0}, l.Counts(base))
	assert.Equal(t, counts{4, 1, 0}, l.Record(base, failed))
	l.Reset(base)
	assert.Equal(t, counts{}, l.Counts(base))
	l.Add(base, 0)
	assert.Equal(t, counts{2, 1, 0}, l.Record(base, failed), "places begin anew")

	for _, n := range []int{-1, 0, 1} {
		l := window.NewLast(n)
		l.Record(base, failed)
		assert.Equal(t, failed, l.Counts(base))
		l.Add(base, 0)
		assert.Equal(t, counts{Calls: 1}, l.Counts(base), "%d is a window of one call", n)
	}
}

func TestLastReportsTheMark(t *testing.T) {
	t.Parallel()
	l := window.NewLast(5).Watch(3)
	l.Record(base, failed)
	assert.False(t, l.Add(base, 0))
	assert.True(t, l.Add(base, 1))
	assert.False(t, l.Add(base, 2))

	l = window.NewLast(5).Watch(3)
	for range 9 {
		assert.False(t, l.Add(base, 0), "nothing has failed or was slow")
	}
	l.Record(base, slow)
	assert.False(t, l.Add(base, 0), "it was reached before")
	l.Reset(base)
	l.Record(base, slow)
	assert.False(t, l.Add(base, 0))
	assert.True(t, l.Add(base, 0), "it is reached again")

	l = window.NewLast(5).Watch(3)
	l.Record(base, failed)
	l.Reset(base)
	for range 5 {
		assert.False(t, l.Add(base, 0), "the failure is forgotten")
	}

	l = window.NewLast(1).Watch(2)
	for range 5 {
		l.Record(base, failed)
		assert.False(t, l.Add(base, 0), "it never holds two calls")
	}
}

func TestAmendSlowTakesTheNewestThatWasNot(t *testing.T) {
	t.Parallel()
	l := window.NewLast(3)
	assert.Equal(t, counts{1, 0, 1}, l.AmendSlow(base), "there is none: counted, as slow")
	l.Record(base, counts{1, 1, 0})
	assert.Equal(t, counts{2, 1, 2}, l.AmendSlow(base), "a failed call may turn out slow")
	l.Add(base, 0)
	assert.Equal(t, counts{3, 1, 3}, l.AmendSlow(base))
	assert.Equal(t, counts{3, 1, 3}, l.AmendSlow(base), "none is left: counted, as slow, in place of the oldest")

	w := window.New(base, 10*time.Second, 10)
	assert.Equal(t, counts{1, 0, 1}, w.AmendSlow(base))
	w.Add(base.Add(time.Second), 0)
	w.Record(base.Add(time.Second), counts{1, 1, 0})
	assert.Equal(t, counts{3, 1, 2}, w.AmendSlow(base.Add(2*time.Second)))
	assert.Equal(t, counts{3, 1, 3}, w.AmendSlow(base.Add(2*time.Second)))
	assert.Equal(t, counts{4, 1, 4}, w.AmendSlow(base.Add(2*time.Second)), "all were slow: counted again")
	assert.Equal(t, counts{1, 0, 1}, w.Counts(base.Add(11500*time.Millisecond)))
}

func TestLastAmendTakesTheNewestPlainCall(t *testing.T) {
	t.Parallel()
	l := window.NewLast(4)
	assert.Equal(t, counts{1, 1, 0}, l.Amend(base), "there is none: counted, as failed")
	l.Add(base, 0)
	l.Record(base, slow)
	l.Record(base, failed)
	assert.Equal(t, counts{4, 3, 1}, l.Amend(base), "the slow one")
	assert.Equal(t, counts{4, 4, 1}, l.Amend(base), "the plain one")
	assert.Equal(t, counts{4, 4, 1}, l.Amend(base), "none is left: counted, as failed, in place of the oldest")
	for i := range uint64(4) {
		l.Add(base, 0)
		assert.Equal(t, 3-i, l.Counts(base).Failures, "the amended calls leave in order")
	}
}

// The window equals the last calls of a list of all of them, after every operation.
func TestLastEqualsRecount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(1, 40).Draw(rt, "size")
		mark := rapid.Uint64Range(0, uint64(size)).Draw(rt, "mark")
		l := window.NewLast(size).Watch(mark)
		var calls []counts
		sum := func() (c counts) {
			for _, d := range calls[max(len(calls)-size, 0):] {
				c.Calls++
				c.Failures += d.Failures
				c.Slow += d.Slow
			}
			return c
		}
		bit := rapid.Uint64Range(0, 1)
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			op := rapid.SampledFrom([]string{"add", "add", "add", "record", "record", "amend", "reset"}).Draw(rt, "op")
			switch op {
			case "add":
				calls = append(calls, counts{Calls: 1})
				c := sum()
				// Calls are never forgotten faster than they come, so the mark is
				// reached once.
				want := mark > 0 && uint64(len(calls)) == mark && c.Failures+c.Slow > 0
				if got := l.Add(base, rapid.Uint32().Draw(rt, "stripe")); got != want {
					rt.Fatalf("Add: %v, want %v with %+v", got, want, c)
				}
			case "record":
				c := counts{Calls: 1, Failures: bit.Draw(rt, "failed"), Slow: bit.Draw(rt, "slow")}
				calls = append(calls, c)
				if got, want := l.Record(base, c), sum(); got != want {
					rt.Fatalf("Record: %+v, want %+v", got, want)
				}
			case "amend":
				i := len(calls) - 1
				for i >= 0 && i >= len(calls)-size && calls[i].Failures > 0 {
					i--
				}
				if i >= 0 && i >= len(calls)-size {
					calls[i].Failures = 1
				} else {
					calls = append(calls, failed)
				}
				if got, want := l.Amend(base), sum(); got != want {
					rt.Fatalf("Amend: %+v, want %+v", got, want)
				}
			case "reset":
				l.Reset(base)
				calls = nil
			}
			if got, want := l.Counts(base), sum(); got != want {
				rt.Fatalf("after %s: %+v, want %+v", op, got, want)
			}
		}
	})
}

// None of the calls that come together may be lost or counted twice.
func TestLastConcurrentSafe(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 3000
	l := window.NewLast(goroutines * each).Watch(100)
	small := window.NewLast(10).Watch(5)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				if i%10 == 0 {
					l.Record(base, counts{1, 1, 1})
					c := small.Record(base, failed)
					assert.LessOrEqual(t, c.Failures, c.Calls)
				} else {
					l.Add(base, uint32(g))
					small.Add(base, uint32(g))
				}
			}
		})
	}
	wg.Wait()
	const all = goroutines * each
	assert.Equal(t, counts{all, all / 10, all / 10}, l.Counts(base))
	for range 10 {
		small.Add(base, 0)
	}
	assert.Equal(t, counts{Calls: 10}, small.Counts(base))
}

func TestLastMarkIsNeverMissedConcurrentSafe(t *testing.T) {
	t.Parallel()
	const mark = 6
	for round := range 1000 {
		l := window.NewLast(10).Watch(mark)
		var told sync.Map
		var wg sync.WaitGroup
		start := make(chan struct{})
		for g := range mark {
			wg.Go(func() {
				<-start
				if g%4 == 0 {
					if l.Record(base, failed).Calls >= mark {
						told.Store(g, true)
					}
				} else if l.Add(base, uint32(g)) {
					told.Store(g, true)
				}
			})
		}
		close(start)
		wg.Wait()
		require.Equal(t, counts{mark, 2, 0}, l.Counts(base))
		n := 0
		told.Range(func(_, _ any) bool { n++; return true })
		require.NotZero(t, n, "round %d: nobody was told", round)
	}
}
