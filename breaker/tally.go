package breaker

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
)

// tally is what a breaker counts calls in while it lets them through. It outlives a
// change between two states that do so.
type tally struct {
	// One of the two.
	time *window.Window
	last *window.Last

	row       row
	notBefore atomic.Int64 // the latest time until which a failed call asked to be left alone
}

// newTally takes an effective Config.
func newTally(base time.Time, c *Config, minCalls uint64) *tally {
	if c.LastCalls > 0 {
		return &tally{last: window.NewLast(c.LastCalls).Watch(minCalls)}
	}
	return &tally{time: window.New(base, c.Window, c.Buckets).Watch(minCalls)}
}

// refit returns a tally under other settings with what this one has counted. A window of
// time does not know in which order calls ended, and one of calls does not know when: of
// two kinds the new one begins empty.
func (t *tally) refit(now, base time.Time, c *Config, minCalls uint64) *tally {
	n := newTally(base, c, minCalls)
	switch {
	case n.time != nil && t.time != nil:
		n.time = t.time.Refit(now, c.Window, c.Buckets, minCalls)
	case n.last != nil && t.last != nil:
		n.last = t.last.Refit(c.LastCalls, minCalls)
	}
	n.row.word.Store(t.row.word.Load())
	n.notBefore.Store(t.notBefore.Load())
	return n
}

// add counts a plain call, and reports whether the window has reached MinCalls with
// it.
func (t *tally) add(now time.Time, stripe uint32) bool {
	if t.time != nil {
		return t.time.Add(now, stripe)
	}
	return t.last.Add(now, stripe)
}

func (t *tally) record(now time.Time, c window.Counts) window.Counts {
	if t.time != nil {
		return t.time.Record(now, c)
	}
	return t.last.Record(now, c)
}

func (t *tally) amend(now time.Time) window.Counts {
	if t.time != nil {
		return t.time.Amend(now)
	}
	return t.last.Amend(now)
}

func (t *tally) amendSlow(now time.Time) window.Counts {
	if t.time != nil {
		return t.time.AmendSlow(now)
	}
	return t.last.AmendSlow(now)
}

func (t *tally) counts(now time.Time) window.Counts {
	if t.time != nil {
		return t.time.Counts(now)
	}
	return t.last.Counts(now)
}

func (t *tally) reset(now time.Time) {
	if t.time != nil {
		t.time.Reset(now)
	} else {
		t.last.Reset(now)
	}
	t.row.word.Store(0)
	t.notBefore.Store(0)
}

// wish notes that a failed call asked for no others before the given time.
func (t *tally) wish(until int64) {
	for {
		old := t.notBefore.Load()
		if until <= old || t.notBefore.CompareAndSwap(old, until) {
			return
		}
	}
}

// row counts failed calls since the last one that succeeded: in the lower half of a
// word. In the upper half are those that the last success has ended. Should that one
// turn out a failure (a response whose body breaks off is a success until then), the
// row goes on as if it had never ended.
type row struct{ word atomic.Uint64 }

const rowBits = 32

func (r *row) load() uint64 { return r.word.Load() & math.MaxUint32 }

// succeeded ends the row. It writes nothing while there is none, so that calls which
// succeed do not fight for the line.
func (r *row) succeeded() {
	for {
		w := r.word.Load()
		if w == 0 || r.word.CompareAndSwap(w, w<<rowBits) {
			return
		}
	}
}

// failed adds a call to the row and returns its length.
func (r *row) failed() uint64 {
	return r.change(func(now, ended uint64) (uint64, uint64) { return now + 1, ended })
}

// amended makes the last success a failure, and returns the length of the row.
func (r *row) amended() uint64 {
	return r.change(func(now, ended uint64) (uint64, uint64) { return now + ended + 1, 0 })
}

func (r *row) change(f func(now, ended uint64) (uint64, uint64)) uint64 {
	for {
		w := r.word.Load()
		now, ended := f(w&math.MaxUint32, w>>rowBits)
		now = min(now, math.MaxUint32)
		if r.word.CompareAndSwap(w, ended<<rowBits|now) {
			return now
		}
	}
}

// ramp lets a rising share of the calls through.
type ramp struct {
	begin int64
	calls atomic.Uint64
}

// admit decides about a call. Multiples of the golden ratio, modulo 1, spread evenly
// however many there are (Weyl), so that a tenth of the calls is every tenth or so and
// not a tenth on average.
func (r *ramp) admit(rules *rules, ns int64) bool {
	return float64(r.calls.Add(1)*0x9e3779b97f4a7c15) < rules.rampShare(ns-r.begin)*(1<<64)
}
