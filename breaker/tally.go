package breaker

import (
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

	row       atomic.Uint64 // failed calls since the last one that succeeded
	notBefore atomic.Int64  // the latest time until which a failed call asked to be left alone
}

// newTally takes an effective Config.
func newTally(base time.Time, c *Config, minCalls uint64) *tally {
	if c.LastCalls > 0 {
		return &tally{last: window.NewLast(c.LastCalls).Watch(minCalls)}
	}
	return &tally{time: window.New(base, c.Window, c.Buckets).Watch(minCalls)}
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
	t.row.Store(0)
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
