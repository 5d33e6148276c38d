package ratelimit

import (
	"cmp"
	"errors"
	"math"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	// stretches is the number of parts of a window, which forgets one at a time.
	stretches = 50

	// lately is over how many of them it is counted who comes.
	lately = 5

	// smoothing is the time constant of the average of readings.
	smoothing = 500 * time.Millisecond

	// priorities is the number of priorities of package policy.
	priorities = int(policy.PriorityCritical-policy.PriorityLow) + 1
)

// rank returns the place of a priority, the lowest first. One outside the known range
// counts as the nearest that is known.
func rank(p policy.Priority) int {
	return int(min(max(p, policy.PriorityLow), policy.PriorityCritical) - policy.PriorityLow)
}

// workload is what is in flight, and what has come and ended of late. It is safe for
// concurrent use. Its first fields are written by every call, so they share two cache
// lines.
//
// In a system of constant capacity what is in flight is throughput times latency
// (Little's law). As long as more in flight means more throughput, latency stays as it
// is; beyond that it rises and throughput does not. So the highest throughput times the
// shortest latency is what the system can have in flight before it is slowed down: the
// bandwidth-delay product that BBR keeps to (Cardwell et al., "BBR: Congestion-Based
// Congestion Control", ACM Queue, 2016).
type workload struct {
	// By priority, those that came, refused ones included, and those that are gone
	// again. What is in flight is the difference.
	came, gone   [priorities]atomic.Int64
	calls, nanos atomic.Int64 // that ended in the current stretch, and what they took

	_ [128 - 8*(2*priorities+2)]byte

	edge  atomic.Int64 // the end of the current stretch
	limit atomic.Int64 // throughput times latency, 0 when nothing is known

	// wanted is, by priority, how many would be in flight if all had been let in that
	// came of late, in thousandths.
	wanted [priorities]atomic.Int64

	mu                   sync.Mutex
	ring                 [stretches]stretch
	next                 int
	width                int64             // of a stretch that begins now
	current              int64             // width of the one that has begun
	before               [priorities]int64 // came, at the end of the last stretch
	throughput, shortest float64           // of the ring; per second, and in seconds
}

// stretch is what came and ended in a stretch of time.
type stretch struct {
	came         [priorities]int64
	calls, nanos int64
	width        int64 // in nanoseconds
}

func (w *workload) init(span time.Duration) {
	w.width = max(int64(span)/stretches, 1)
	w.current = w.width
	w.edge.Store(w.width)
}

// resize changes the span. What is known stays, and leaves as new stretches come.
func (w *workload) resize(span time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.width = max(int64(span)/stretches, 1)
}

// inFlight returns the number of calls of a priority that are in flight. While calls come
// and go it may be too high, never too low: who has come before is counted, and who is
// gone later is not.
func (w *workload) inFlight(rank int) int64 {
	gone := w.gone[rank].Load()
	return w.came[rank].Load() - gone
}

// total returns the number of all calls in flight, likewise.
func (w *workload) total() (n int64) {
	for rank := range priorities {
		n += w.inFlight(rank)
	}
	return n
}

// end counts a call that has ended.
func (w *workload) end(at int64, took time.Duration) {
	w.turn(at)
	w.calls.Add(1)
	w.nanos.Add(int64(took))
}

// turn begins a new stretch when it is time.
func (w *workload) turn(at int64) {
	if at >= w.edge.Load() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.turnLocked(at)
	}
}

// turnLocked requires that w.mu is held, as do all whose names end so.
func (w *workload) turnLocked(at int64) {
	edge := w.edge.Load()
	if at < edge {
		return
	}
	// A call that comes or ends just now may be counted in the next stretch.
	st := stretch{calls: w.calls.Swap(0), nanos: w.nanos.Swap(0), width: w.current}
	for rank := range priorities {
		came := w.came[rank].Load()
		st.came[rank] = came - w.before[rank]
		w.before[rank] = came
	}
	w.pushLocked(st)
	passed := (at - edge) / w.width // further stretches, in which nothing happened
	for range min(passed, stretches) {
		w.pushLocked(stretch{width: w.width})
	}
	w.current = w.width
	w.edge.Store(edge + (passed+1)*w.width)
	w.computeLocked()
}

func (w *workload) pushLocked(st stretch) {
	w.ring[w.next] = st
	w.next = (w.next + 1) % stretches
}

// computeLocked computes what follows from the ring.
func (w *workload) computeLocked() {
	w.throughput, w.shortest = 0, 0
	for _, st := range w.ring {
		if st.calls == 0 {
			continue
		}
		w.throughput = max(w.throughput, float64(st.calls)*float64(time.Second)/float64(st.width))
		mean := float64(st.nanos) / float64(st.calls) / float64(time.Second)
		if w.shortest == 0 || mean < w.shortest {
			w.shortest = mean
		}
	}
	w.limit.Store(int64(math.Ceil(min(w.throughput*w.shortest, maxInFlight))))
	var sum stretch
	for i := range lately {
		st := &w.ring[(w.next+stretches-1-i)%stretches]
		for rank, n := range st.came {
			sum.came[rank] += n
		}
		sum.calls += st.calls
		sum.nanos += st.nanos
		sum.width += cmp.Or(st.width, w.width) // before the first ones, nobody came
	}
	perSecond := float64(time.Second) / float64(sum.width)
	mean := float64(sum.nanos) / float64(max(sum.calls, 1)) / float64(time.Second)
	for rank, n := range sum.came {
		inFlight := float64(n) * perSecond * mean
		// They do not come evenly: the usual margin of a square root.
		w.wanted[rank].Store(int64(min(inFlight+math.Sqrt(inFlight), maxInFlight) * 1000))
	}
}

// reserve returns how many places are kept free for calls of a higher priority, but for
// critical ones, which have room beyond the limit.
func (w *workload) reserve(rank int) int64 {
	n := int64(0)
	for higher := rank + 1; higher < priorities-1; higher++ {
		n += max(w.wanted[higher].Load()-1000*w.inFlight(higher), 0)
	}
	return (n + 999) / 1000
}

// average is an exponentially weighted mean of readings at uneven times.
type average struct {
	value float64
}

// add adds a reading of what happened in the given time.
func (a *average) add(reading float64, over time.Duration) {
	weight := -math.Expm1(-float64(over) / float64(smoothing))
	a.value += (reading - a.value) * weight
}

// schedulerDelay reads how long goroutines waited to run.
type schedulerDelay struct {
	sample [1]metrics.Sample
	last   []uint64
}

const schedulerMetric = "/sched/latencies:seconds"

var errNoMetric = errors.New("ratelimit: the Go runtime has no metric " + schedulerMetric)

// read returns the time that one in ten of the goroutines waited for longer than which
// began to run since the last call.
func (d *schedulerDelay) read() (time.Duration, error) {
	d.sample[0].Name = schedulerMetric
	metrics.Read(d.sample[:])
	if d.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return 0, errNoMetric
	}
	h := d.sample[0].Value.Float64Histogram()
	if d.last == nil {
		d.last = make([]uint64, len(h.Counts))
	}
	delay := tenth(h, d.last)
	copy(d.last, h.Counts)
	return delay, nil
}

// tenth returns the 0.9 quantile of what came into a histogram since the counts were
// those of before: the upper bound of the bucket that it is in, or the lower one of a
// bucket that has no other.
func tenth(h *metrics.Float64Histogram, before []uint64) time.Duration {
	total := uint64(0)
	for i, n := range h.Counts {
		total += n - before[i]
	}
	if total == 0 {
		return 0
	}
	seen := uint64(0)
	for i, n := range h.Counts {
		seen += n - before[i]
		if 10*seen >= 9*total {
			bound := h.Buckets[i+1]
			if math.IsInf(bound, 1) {
				bound = h.Buckets[i]
			}
			return time.Duration(max(bound, 0) * float64(time.Second))
		}
	}
	return 0 // the last bucket has all that is left
}
