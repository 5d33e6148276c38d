package window_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/internal/window"
)

type counts = window.Counts

var (
	base   = time.Now()
	failed = counts{Calls: 1, Failures: 1}
	slow   = counts{Calls: 1, Slow: 1}
)

func at(d time.Duration) time.Time { return base.Add(d) }

const ms = time.Millisecond

func TestWindowSlides(t *testing.T) {
	t.Parallel()
	type step struct {
		at   time.Duration
		do   string // add, fail, slow, both, read, reset
		want counts
	}
	tests := []struct {
		name    string
		length  time.Duration
		buckets int
		steps   []step
	}{
		{"empty", time.Second, 10, []step{
			{0, "read", counts{}},
			{time.Hour, "read", counts{}},
		}},
		{"a call stays for the length less what its bucket had begun", time.Second, 10, []step{
			{50 * ms, "fail", failed},
			{999 * ms, "read", failed},
			{1000 * ms, "read", counts{}},
		}},
		{"slow and failed is in both", time.Second, 10, []step{
			{0, "both", counts{1, 1, 1}},
			{100 * ms, "slow", counts{2, 1, 2}},
			{200 * ms, "add", counts{3, 1, 2}},
			{1000 * ms, "read", counts{2, 0, 1}},
			{1100 * ms, "read", counts{1, 0, 0}},
			{1200 * ms, "read", counts{}},
		}},
		{"an event at an edge is in the bucket that begins", 100 * ms, 2, []step{
			{50*ms - 1, "add", counts{Calls: 1}},
			{50 * ms, "add", counts{Calls: 2}},
			{100*ms - 1, "read", counts{Calls: 2}},
			{100 * ms, "read", counts{Calls: 1}},
			{150*ms - 1, "read", counts{Calls: 1}},
			{150 * ms, "read", counts{}},
		}},
		{"reading the future changes nothing", 100 * ms, 2, []step{
			{0, "fail", failed},
			{time.Hour, "read", counts{}},
			{10 * ms, "add", counts{2, 1, 0}},
			{99 * ms, "read", counts{2, 1, 0}},
		}},
		{"a gap of exactly one round, and of many", 100 * ms, 4, []step{
			{0, "fail", failed},
			{100 * ms, "add", counts{Calls: 1}},
			{1000 * ms, "slow", slow},
			{time.Hour, "fail", failed},
			{100 * 365 * 24 * time.Hour, "add", counts{Calls: 1}},
		}},
		{"time going back counts in the newest bucket", 100 * ms, 4, []step{
			{80 * ms, "add", counts{Calls: 1}},
			{10 * ms, "fail", counts{2, 1, 0}},
			{-time.Hour, "add", counts{3, 1, 0}},
			{-time.Hour, "read", counts{3, 1, 0}},
			{149 * ms, "read", counts{3, 1, 0}},
			{175 * ms, "read", counts{}},
		}},
		{"one bucket", 100 * ms, 1, []step{
			{0, "add", counts{Calls: 1}},
			{99 * ms, "fail", counts{2, 1, 0}},
			{100 * ms, "slow", slow},
		}},
		{"reset keeps the alignment", 100 * ms, 2, []step{
			{20 * ms, "both", counts{1, 1, 1}},
			{30 * ms, "reset", counts{}},
			{40 * ms, "add", counts{Calls: 1}},
			{99 * ms, "read", counts{Calls: 1}},
			{100 * ms, "read", counts{}},
		}},
		{"the end of time", math.MaxInt64, 3, []step{
			{0, "add", counts{Calls: 1}},
			{math.MaxInt64, "fail", counts{1, 1, 0}},
			{math.MaxInt64, "add", counts{2, 1, 0}},
		}},
		{"a window of nothing is one of a nanosecond", -1, -1, []step{
			{0, "add", counts{Calls: 1}},
			{0, "fail", counts{2, 1, 0}},
			{1, "add", counts{Calls: 1}},
			{math.MaxInt64, "add", counts{Calls: 1}},
			{math.MaxInt64, "fail", counts{2, 1, 0}},
		}},
		{"more buckets than nanoseconds", 3, 10, []step{
			{0, "add", counts{Calls: 1}},
			{2, "add", counts{Calls: 2}},
			{3, "read", counts{Calls: 1}},
			{5, "read", counts{}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := window.New(base, tt.length, tt.buckets)
			for i, s := range tt.steps {
				now := at(s.at)
				switch s.do {
				case "add":
					w.Add(now, 0)
				case "fail":
					assert.Equal(t, s.want, w.Record(now, failed), "step %d: %+v", i, s)
				case "slow":
					assert.Equal(t, s.want, w.Record(now, slow), "step %d: %+v", i, s)
				case "both":
					assert.Equal(t, s.want, w.Record(now, counts{1, 1, 1}), "step %d: %+v", i, s)
				case "reset":
					w.Reset(now)
				}
				assert.Equal(t, s.want, w.Counts(now), "step %d: %+v", i, s)
			}
		})
	}
}

func TestAddReportsTheMark(t *testing.T) {
	t.Parallel()
	w := window.New(base, time.Second, 10).Watch(5)
	w.Record(at(0), failed)
	var got []bool
	for i := range 6 {
		got = append(got, w.Add(at(0), uint32(i)))
	}
	assert.Equal(t, []bool{false, false, false, true, false, false}, got, "the fifth call, one of them recorded")

	assert.False(t, w.Add(at(100*ms), 0), "seven calls, then an eighth in the next bucket")
	assert.Equal(t, uint64(8), w.Counts(at(100*ms)).Calls)
	w.Record(at(200*ms), slow)
	assert.False(t, w.Add(at(1000*ms), 0), "the first bucket is gone: three calls")
	assert.False(t, w.Add(at(1000*ms), 1))
	assert.True(t, w.Add(at(1000*ms), 2), "it is reached again")
	assert.False(t, w.Add(at(1000*ms), 3))

	w = window.New(base, time.Second, 10).Watch(2)
	w.Record(at(0), failed)
	assert.True(t, w.Add(at(100*ms), 0), "reached by the first call of a bucket")

	w = window.New(base, time.Second, 10).Watch(2)
	assert.Equal(t, uint64(1), w.Record(at(0), slow).Calls)
	assert.Equal(t, uint64(2), w.Record(at(0), slow).Calls)
	assert.False(t, w.Add(at(0), 0), "Record reached it")

	w = window.New(base, time.Second, 10).Watch(3)
	for i := range 5 {
		assert.False(t, w.Add(at(0), uint32(i)), "nothing has failed or was slow")
	}
	w.Record(at(0), failed)
	assert.False(t, w.Add(at(0), 0), "it was above it before")

	w = window.New(base, time.Second, 10).Watch(4)
	w.TryAddFailure(at(0), func(counts) bool { return true })
	w.UndoFailure(at(0))
	for range 5 {
		assert.False(t, w.Add(at(0), 0), "the failure was taken back")
	}

	w = window.New(base, time.Second, 10).Watch(3)
	w.Record(at(0), failed)
	w.Reset(at(0))
	for range 5 {
		assert.False(t, w.Add(at(0), 0), "the failure is forgotten")
	}

	w = window.New(base, time.Second, 10)
	w.Record(at(0), failed)
	assert.False(t, w.Add(at(0), 0), "without a mark nothing is reported")
}

func TestAmendTakesTheNewestPlainCall(t *testing.T) {
	t.Parallel()
	w := window.New(base, 300*ms, 3)
	w.Add(at(0), 0)
	w.Add(at(0), 0)
	w.Add(at(100*ms), 0)
	assert.Equal(t, counts{3, 1, 0}, w.Amend(at(100*ms)))
	assert.Equal(t, counts{3, 2, 0}, w.Amend(at(150*ms)), "the newest bucket has no plain call left")
	assert.Equal(t, counts{1, 1, 0}, w.Counts(at(300*ms)), "the failures went with the calls they belong to")
	assert.Equal(t, counts{2, 2, 0}, w.Amend(at(300*ms)), "no plain call is left at all: counted again, as failed")

	w = window.New(base, 300*ms, 3)
	w.Record(at(0), slow)
	assert.Equal(t, counts{1, 1, 1}, w.Amend(at(0)), "a slow call may turn out failed")
}

func TestTryAddFailureDecidesFromTheFiguresBefore(t *testing.T) {
	t.Parallel()
	w := window.New(base, time.Second, 10)
	for range 20 {
		w.Add(at(0), 0)
	}
	tenth := func(c counts) bool { return (c.Failures+1)*10 <= c.Calls }
	assert.True(t, w.TryAddFailure(at(0), tenth))
	assert.True(t, w.TryAddFailure(at(100*ms), tenth))
	assert.False(t, w.TryAddFailure(at(100*ms), tenth), "a third would be more than a tenth of 20")
	assert.Equal(t, counts{20, 2, 0}, w.Counts(at(100*ms)))

	w.UndoFailure(at(200 * ms))
	assert.Equal(t, counts{20, 1, 0}, w.Counts(at(200*ms)))
	assert.True(t, w.TryAddFailure(at(200*ms), tenth))
	w.UndoFailure(at(200 * ms))
	w.UndoFailure(at(200 * ms))
	w.UndoFailure(at(200 * ms))
	assert.Equal(t, counts{20, 0, 0}, w.Counts(at(200*ms)), "there is nothing left to take back")

	assert.False(t, w.TryAddFailure(at(2*time.Second), tenth), "the calls are forgotten")
	w.TryAddFailure(at(2*time.Second), func(c counts) bool {
		assert.Equal(t, counts{}, c)
		return true
	})
	w.UndoFailure(at(4 * time.Second))
	assert.Equal(t, counts{}, w.Counts(at(4*time.Second)), "so is the failure: undoing it does nothing")
}

// Plain calls cross bucket edges while others fail. None may be lost or counted
// twice, and every one that leaves must leave.
func TestWindowConcurrentSafe(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 3000
	w := window.New(base, 5*time.Second, 500).Watch(100) // 240 edges are crossed; nothing expires
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				now := at(time.Duration(i*goroutines+g) * 100 * time.Microsecond)
				switch {
				case i%10 == 0:
					w.Record(now, counts{1, 1, 1})
				case i%501 == 0:
					c := w.Counts(now)
					assert.LessOrEqual(t, c.Failures, c.Calls)
					w.Add(now, uint32(g))
				default:
					w.Add(now, uint32(g))
				}
			}
		})
	}
	wg.Wait()
	const all = goroutines * each
	assert.Equal(t, counts{all, all / 10, all / 10}, w.Counts(at(0)))
	assert.Equal(t, counts{}, w.Counts(at(2*time.Hour)))
}

func TestTryAddFailureConcurrentSafe(t *testing.T) {
	t.Parallel()
	w := window.New(base, time.Second, 10)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				w.Add(at(0), 0)
			}
		})
	}
	wg.Wait()
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				w.TryAddFailure(at(0), func(c counts) bool { return (c.Failures+1)*10 <= c.Calls })
			}
		})
	}
	wg.Wait()
	assert.Equal(t, counts{8000, 800, 0}, w.Counts(at(0)), "exactly a tenth, however many ask at once")
}

// Whoever reaches the mark together, one of them learns of it: by the answer of Add
// or by the figures of Record. Without that, a breaker could miss its trip.
func TestMarkIsNeverMissedConcurrentSafe(t *testing.T) {
	t.Parallel()
	const mark = 6
	for round := range 1000 {
		w := window.New(base, time.Second, 10).Watch(mark)
		var told sync.Map
		var wg sync.WaitGroup
		start := make(chan struct{})
		for g := range mark {
			wg.Go(func() {
				<-start
				now := at(time.Duration(g%3) * 100 * ms) // buckets move meanwhile
				if g%4 == 0 {
					if w.Record(now, failed).Calls >= mark {
						told.Store(g, true)
					}
				} else if w.Add(now, uint32(g)) {
					told.Store(g, true)
				}
			})
		}
		close(start)
		wg.Wait()
		require.Equal(t, uint64(mark), w.Counts(at(200*ms)).Calls)
		n := 0
		told.Range(func(_, _ any) bool { n++; return true })
		require.NotZero(t, n, "round %d: nobody was told", round)
	}
}
