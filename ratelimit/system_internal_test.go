package ratelimit

import (
	"math"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

const milli = int64(time.Millisecond)

// overloaded returns a shedder that sheds from the beginning on, with a limit of its own
// that is known.
func overloaded(t require.TestingT, limit int) *Shedder {
	s, err := NewSystem("", System{CPU: func() (float64, error) { return 1, nil }, MaxDelay: NoDelay, MinInFlight: limit})
	require.NoError(t, err)
	s.shedUntil.Store(math.MaxInt64)
	s.nextSample.Store(math.MaxInt64)
	return s
}

func TestRank(t *testing.T) {
	t.Parallel()
	for p, want := range map[policy.Priority]int{-100: 0, policy.PriorityLow: 0, policy.PriorityNormal: 1, policy.PriorityHigh: 2, policy.PriorityCritical: 3, 100: 3} {
		assert.Equal(t, want, rank(p), p)
	}
}

func TestWorkload(t *testing.T) {
	t.Parallel()
	var w workload
	w.init(10 * time.Second) // stretches of 200 ms
	end := func(at, calls int64, took time.Duration) {
		for range calls {
			w.end(at, took)
		}
	}
	look := func(at int64) (limit int64, throughput float64, shortest time.Duration) {
		w.turn(at)
		return w.limit.Load(), w.throughput, time.Duration(math.Round(w.shortest * 1e9))
	}
	limit, _, _ := look(0)
	assert.Zero(t, limit, "nothing is known")
	end(100*milli, 20, 50*time.Millisecond) // 100 a second
	limit, _, _ = look(199 * milli)
	assert.Zero(t, limit, "the stretch is not over")
	limit, throughput, shortest := look(200 * milli)
	assert.InDelta(t, 100, throughput, 1e-9)
	assert.Equal(t, 50*time.Millisecond, shortest)
	assert.Equal(t, int64(5), limit)

	end(250*milli, 40, 300*time.Millisecond) // 200 a second, but overloaded
	limit, throughput, shortest = look(400 * milli)
	assert.InDelta(t, 200, throughput, 1e-9)
	assert.Equal(t, 50*time.Millisecond, shortest)
	assert.Equal(t, int64(10), limit)
	end(450*milli, 1, 30*time.Millisecond)
	end(450*milli, 1, 50*time.Millisecond) // 40 ms in the mean
	limit, _, shortest = look(5 * second)
	assert.Equal(t, 40*time.Millisecond, shortest)
	assert.Equal(t, int64(8), limit)

	// The first two are forgotten after 10 s, one after the other.
	limit, throughput, _ = look(10*second + 199*milli)
	assert.InDelta(t, 200, throughput, 1e-9)
	assert.Equal(t, int64(8), limit)
	_, throughput, _ = look(10*second + 400*milli)
	assert.InDelta(t, 10, throughput, 1e-9)
	limit, _, _ = look(3600 * second)
	assert.Zero(t, limit)
	end(3600*second, 5, 0)
	limit, _, _ = look(3601 * second)
	assert.Zero(t, limit, "without any latency")
	end(3602*second, 5, math.MaxInt64/8)
	limit, _, _ = look(3603 * second)
	assert.Equal(t, int64(maxInFlight), limit)
}

func TestWorkloadConcurrentSafe(t *testing.T) {
	t.Parallel()
	var w workload
	w.init(time.Second)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				w.came[g].Add(1)
				w.end(int64(i)*milli/10, time.Millisecond)
				w.reserve(g)
				w.gone[g].Add(1)
			}
		})
	}
	wg.Wait()
	w.turn(500 * milli)
	calls, came := int64(0), int64(0)
	for _, st := range w.ring {
		calls += st.calls
		for _, n := range st.came {
			came += n
		}
	}
	assert.Equal(t, int64(20_000), calls, "all of them, in one stretch or another")
	assert.Equal(t, int64(20_000), came)
	assert.Zero(t, w.total())
}

// What is wanted follows from who came in the last five stretches, refused or not, and
// from how long calls take.
func TestWorkloadWanted(t *testing.T) {
	t.Parallel()
	var w workload
	w.init(10 * time.Second)
	wanted := func(at int64) (n [priorities]float64) {
		w.turn(at)
		for rank := range n {
			n[rank] = float64(w.wanted[rank].Load()) / 1000
		}
		return n
	}
	w.came[1].Add(100)
	w.gone[1].Add(90)
	w.came[2].Add(400)
	for range 50 {
		w.end(0, 20*time.Millisecond)
	}
	assert.Equal(t, [priorities]float64{}, wanted(199*milli))
	// 100 and 400 a second, at 20 ms each: 2 and 8, and a margin of their roots.
	got := wanted(200 * milli)
	assert.InDelta(t, 2+math.Sqrt2, got[1], 0.001)
	assert.InDelta(t, 8+math.Sqrt(8), got[2], 0.001)
	assert.Zero(t, got[0]+got[3])
	assert.Equal(t, int64(10), w.inFlight(1))
	assert.Equal(t, int64(410), w.total())

	w.gone[2].Add(400)
	assert.Equal(t, int64(11), w.reserve(0), "8 + 2.83; of the others 10 are there, more than 2 + 1.41")
	w.gone[1].Add(9)
	assert.Equal(t, int64(14), w.reserve(0))
	assert.Equal(t, int64(11), w.reserve(1))
	assert.Zero(t, w.reserve(2), "critical ones have room beyond the limit")
	assert.Zero(t, w.reserve(3))
	w.came[3].Add(1000)
	wanted(400 * milli)
	assert.Zero(t, w.reserve(2))

	assert.Positive(t, wanted(1100 * milli)[2])
	assert.Zero(t, wanted(1200 * milli)[2], "that was a second ago")
}

func TestAverage(t *testing.T) {
	t.Parallel()
	var a average
	for range 4 {
		a.add(1, 250*time.Millisecond)
	}
	assert.InDelta(t, 1-math.Exp(-2), a.value, 1e-12)
	var b average
	b.add(1, time.Second)
	assert.InDelta(t, a.value, b.value, 1e-12, "the steps do not matter")
	b.add(0.5, time.Hour)
	assert.InDelta(t, 0.5, b.value, 1e-9)
	b.add(1, 0)
	assert.InDelta(t, 0.5, b.value, 1e-9)
}

func TestTenth(t *testing.T) {
	t.Parallel()
	h := &metrics.Float64Histogram{Counts: []uint64{10, 80, 9, 1}, Buckets: []float64{math.Inf(-1), 0.001, 0.01, 0.1, math.Inf(1)}}
	none := make([]uint64, 4)
	assert.Equal(t, 10*time.Millisecond, tenth(h, none))
	assert.Zero(t, tenth(h, h.Counts), "nothing came")
	assert.Equal(t, 100*time.Millisecond, tenth(h, []uint64{10, 80, 0, 1}))
	assert.Equal(t, 100*time.Millisecond, tenth(h, []uint64{10, 80, 9, 0}), "the last bucket has no end")
	assert.Equal(t, time.Millisecond, tenth(h, []uint64{0, 80, 9, 1}))
	h.Buckets[1] = -1
	assert.Zero(t, tenth(h, []uint64{0, 80, 9, 1}))
}

func TestSchedulerDelay(t *testing.T) {
	t.Parallel()
	var d schedulerDelay
	_, err := d.read()
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {})
	}
	wg.Wait()
	delay, err := d.read()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, delay, time.Duration(0))
	assert.Less(t, delay, time.Minute)
}

// The places that come free go to those of the highest priority.
func TestShedderPriorities(t *testing.T) {
	t.Parallel()
	s := overloaded(t, 10)
	low, normal, high, critical := rank(policy.PriorityLow), rank(policy.PriorityNormal), rank(policy.PriorityHigh), rank(policy.PriorityCritical)
	for range 10 {
		require.Nil(t, s.acquire(0, low), "nothing is kept free for calls that do not come")
	}
	require.NotNil(t, s.acquire(0, low))
	require.NotNil(t, s.acquire(0, high), "all places are taken")
	s.load.wanted[high].Store(2500)
	s.release(0, low, 0)
	require.NotNil(t, s.acquire(0, low), "three are kept")
	require.NotNil(t, s.acquire(0, normal))
	require.Nil(t, s.acquire(0, high))
	s.release(0, low, 0)
	require.NotNil(t, s.acquire(0, normal), "two more are")
	s.release(0, low, 0)
	s.release(0, low, 0)
	require.Nil(t, s.acquire(0, normal))
	require.Nil(t, s.acquire(0, high))
	require.Nil(t, s.acquire(0, high))
	require.NotNil(t, s.acquire(0, high))
	for range 10 {
		require.Nil(t, s.acquire(0, critical), "up to twice the limit")
	}
	require.NotNil(t, s.acquire(0, critical))
	assert.Equal(t, int64(20), s.load.total())
	assert.Equal(t, [priorities]uint64{2, 2, 2, 1}, [priorities]uint64{s.shed[0].Load(), s.shed[1].Load(), s.shed[2].Load(), s.shed[3].Load()})
}

// Without a sign of overload the limit rises, to twice as much in a second; with one it is
// what it was.
func TestShedderGain(t *testing.T) {
	t.Parallel()
	share := 1.0
	s, err := NewSystem("", System{CPU: func() (float64, error) { return share, nil }, MaxDelay: NoDelay, MinInFlight: 10})
	require.NoError(t, err)
	s.sample(10 * second)
	assert.Equal(t, 11*second, s.shedUntil.Load())
	share = 0
	s.sample(10*second + second/2)
	assert.Equal(t, int64(14), s.limit())
	s.sample(10*second + second*3/4)
	s.sample(10*second + second*3/4) // too early: no reading
	assert.Equal(t, int64(16), s.limit())
	_ = s.refusal(10*second+second*9/10, 0)
	assert.Equal(t, 11*second+second*9/10, s.shedUntil.Load(), "as long as calls are refused it is not over")
	_ = s.refusal(10*second+second*95/100, 0)
	assert.Equal(t, 11*second+second*9/10, s.shedUntil.Load(), "it was noted a moment ago")
	s.sample(11 * second)
	assert.Equal(t, int64(19), s.limit())
	share = 5
	s.sample(11*second + second/2)
	assert.Equal(t, int64(10), s.limit())
	share = 0
	for i := range int64(100) { // it ends by itself
		s.shedUntil.Store(math.MaxInt64)
		s.sample((12 + i) * second)
	}
	assert.Equal(t, int64(10<<20), s.limit())
}

// However calls come and go: no more than the limit are in flight, twice as many with
// critical ones, and of two calls at the same moment that of the higher priority is never
// refused when the other would be let in.
func TestPropShedder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		s := overloaded(t, limit)
		var in [priorities]int
		at := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			at += rapid.Int64Range(0, second/4).Draw(t, "step")
			r := rapid.IntRange(0, priorities-1).Draw(t, "rank")
			if rapid.Bool().Draw(t, "comes") {
				would := [priorities]bool{}
				for i := range would {
					would[i] = s.load.total()+1 <= s.room(i)
				}
				for i := range priorities - 1 {
					require.True(t, would[i+1] || !would[i], "%d would be let in and %d not", i, i+1)
				}
				if s.acquire(at, r) == nil {
					in[r]++
				}
			} else if in[r] > 0 {
				in[r]--
				s.release(at, r, time.Duration(rapid.IntRange(-1, 5).Draw(t, "took"))*time.Millisecond)
			}
			sum := 0
			for i, n := range in {
				require.Equal(t, int64(n), s.load.inFlight(i))
				sum += n
			}
			require.LessOrEqual(t, int64(sum), 2*max(int64(limit), s.load.limit.Load()))
		}
	})
}

func FuzzShedder(f *testing.F) {
	for seed := range 8 {
		f.Add(slices.Repeat([]byte{byte(seed), 3, 120, 17, byte(31 * seed), 5, 6}, 30))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := &byteOps{data}
		s := overloaded(t, 1+o.intn("limit", 10))
		var in [priorities]int
		at := int64(0)
		for range min(len(data), 300) {
			at += o.int64n("step", second)
			r := o.intn("rank", priorities)
			if o.intn("op", 2) == 0 {
				if s.acquire(at, r) == nil {
					in[r]++
				}
			} else if in[r] > 0 {
				in[r]--
				s.release(at, r, time.Duration(o.int64n("took", second)))
			}
		}
		for i, n := range in {
			require.Equal(t, int64(n), s.load.inFlight(i))
		}
	})
}

// From all sides at once there are never more in flight than the limit, and every count
// returns to zero.
func TestShedderConcurrentSafe(t *testing.T) {
	t.Parallel()
	const limit = 3
	s := overloaded(t, limit)
	var mu sync.Mutex
	running, most := 0, 0
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := g % (priorities - 1)
			for i := range 2000 {
				if s.acquire(int64(i)*milli, r) != nil {
					continue
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				s.Snapshot(s.start)
				mu.Lock()
				running--
				mu.Unlock()
				s.release(int64(i)*milli, r, 0)
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most, limit)
	assert.Positive(t, most)
	assert.Zero(t, s.load.total())
}
