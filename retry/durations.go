package retry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
)

const (
	// slices is the number of parts that the window is forgotten by.
	slices = 6

	// refresh is how often a delay that is known is computed anew, as a share of the
	// window: it takes a microsecond.
	refresh = 64
)

// durations is a histogram of the durations in a sliding window, and a delay that was
// computed from it. To note a duration takes no lock, but for the first of a slice.
type durations struct {
	base   time.Time
	window time.Duration

	epoch atomic.Int64 // number of the newest slice
	ring  [slices]atomic.Pointer[hist.Histogram]

	mu    sync.Mutex   // held by who moves on
	known atomic.Int64 // the delay; negative for none
	until atomic.Int64 // when it is to be computed anew, since base
}

func newDurations(base time.Time, window time.Duration) *durations {
	d := &durations{base: base, window: window}
	for i := range d.ring {
		d.ring[i].Store(new(hist.Histogram))
	}
	d.known.Store(-1)
	return d
}

// observe notes a duration that ended at the given time.
func (d *durations) observe(now time.Time, took time.Duration) {
	d.ring[d.advance(now)%slices].Load().Record(took)
}

// advance returns the number of the slice for the given time, or of the newest one if
// that is newer.
func (d *durations) advance(now time.Time) int64 {
	e := int64(max(now.Sub(d.base), 0) / (d.window / slices))
	if old := d.epoch.Load(); e <= old {
		return old
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advanceLocked(e)
	return d.epoch.Load()
}

// advanceLocked forgets what is too old at slice e. It requires that d.mu is held.
func (d *durations) advanceLocked(e int64) {
	old := d.epoch.Load()
	if e <= old {
		return
	}
	for i := max(old+1, e-slices+1); i <= e; i++ {
		d.ring[i%slices].Store(new(hist.Histogram))
	}
	d.epoch.Store(e)
}

// latency returns what the window holds.
func (d *durations) latency(now time.Time) policy.Latency {
	d.advance(now)
	l := policy.Latency{Counts: make([]uint64, hist.Buckets)}
	for i := range d.ring {
		l.Sum += d.ring[i].Load().AddTo(l.Counts)
	}
	return l
}

// delay returns what compute makes of the window. A delay that is known is computed anew
// now and then only, and by one caller; while none is known, by each.
func (d *durations) delay(now time.Time, compute func(policy.Latency) time.Duration) time.Duration {
	at := int64(now.Sub(d.base))
	if known := time.Duration(d.known.Load()); known >= 0 {
		until := d.until.Load()
		if at < until || !d.until.CompareAndSwap(until, at+int64(d.window/refresh)) {
			return known
		}
	}
	known := compute(d.latency(now))
	d.known.Store(int64(known))
	return known
}
