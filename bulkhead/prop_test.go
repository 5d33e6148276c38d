package bulkhead_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

// caller asks for a permit at arrive, holds it for hold, and gives up cancel after it
// came (0: never).
type caller struct {
	arrive, hold, cancel time.Duration
	prio                 policy.Priority
}

// resize sets the limit at a time.
type resize struct {
	at    time.Duration
	limit int
}

// scenario is a random run. No two events of it are at one instant (see
// drawScenario), so what must happen is certain.
type scenario struct {
	cfg     bulkhead.Semaphore
	callers []caller
	resizes []resize
}

// result is what a caller was told, and when.
type result struct {
	what string // "admitted", "waiters", "wait", "concurrency" or "canceled"
	at   time.Duration
}

// drawScenario draws times in whole seconds and adds to each one a bit of its own,
// in nanoseconds. Every later time is a sum of different ones of these, and sums of
// different sets of bits differ.
func drawScenario(t *rapid.T) scenario {
	seconds := func(label string, least, most, bit int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, label))*time.Second + 1<<bit
	}
	reserve := rapid.IntRange(0, 2).Draw(t, "reserve")
	s := scenario{cfg: bulkhead.Semaphore{Limit: reserve + rapid.IntRange(1, 3).Draw(t, "limit"), Reserve: reserve}}
	if rapid.Bool().Draw(t, "waits") {
		s.cfg.MaxWait = seconds("maxWait", 0, 6, 28)
		s.cfg.MaxWaiters = rapid.IntRange(1, 4).Draw(t, "maxWaiters")
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "callers") {
		c := caller{arrive: seconds("arrive", 0, 6, i), hold: seconds("hold", 0, 5, 8+i)}
		if rapid.IntRange(0, 3).Draw(t, "cancels") == 0 {
			c.cancel = seconds("cancel", 0, 5, 16+i)
		}
		if rapid.Bool().Draw(t, "matters") {
			c.prio = policy.Priority(rapid.IntRange(-1, 2).Draw(t, "priority"))
		}
		s.callers = append(s.callers, c)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "resizes") {
		s.resizes = append(s.resizes, resize{at: seconds("resize", 0, 10, 24+i), limit: reserve + rapid.IntRange(1, 4).Draw(t, "newLimit")})
	}
	return s
}

// simulate says what must happen: a list of events, the earliest first, with a plain
// slice for a queue.
func (s scenario) simulate() (results []result, high int) {
	type event struct {
		at time.Duration
		do func(at time.Duration)
	}
	var events []event
	var waiting []int
	results = make([]result, len(s.callers))
	limit, flight := s.cfg.Limit, 0

	add := func(at time.Duration, do func(at time.Duration)) { events = append(events, event{at: at, do: do}) }
	var settle func(at time.Duration)
	admit := func(i int, at time.Duration) {
		flight++
		high = max(high, flight)
		results[i] = result{what: "admitted", at: at}
		add(at+s.callers[i].hold, func(at time.Duration) { flight--; settle(at) })
	}
	room := func(i int) bool {
		if s.callers[i].prio >= policy.PriorityHigh {
			return flight < limit
		}
		return flight < limit-s.cfg.Reserve
	}
	// The first in the queue is the oldest of the highest priority; the last of the
	// lowest makes room for others.
	first := func() int {
		return slices.MaxFunc(waiting, func(a, b int) int { return cmp.Compare(s.callers[a].prio, s.callers[b].prio) })
	}
	last := func() int {
		back := slices.Clone(waiting)
		slices.Reverse(back)
		return slices.MinFunc(back, func(a, b int) int { return cmp.Compare(s.callers[a].prio, s.callers[b].prio) })
	}
	drop := func(i int) { k := slices.Index(waiting, i); waiting = slices.Delete(waiting, k, k+1) }
	settle = func(at time.Duration) {
		for len(waiting) > 0 && room(first()) {
			i := first()
			drop(i)
			admit(i, at)
		}
	}
	leave := func(i int, what string) func(at time.Duration) {
		return func(at time.Duration) {
			if slices.Contains(waiting, i) {
				drop(i)
				results[i] = result{what: what, at: at}
			}
		}
	}
	for i, c := range s.callers {
		add(c.arrive, func(at time.Duration) {
			switch {
			case room(i): // then nobody waits whom it could overtake
				admit(i, at)
			case s.cfg.MaxWait == 0:
				results[i] = result{what: "concurrency", at: at}
			case len(waiting) >= s.cfg.MaxWaiters && s.callers[last()].prio >= c.prio:
				results[i] = result{what: "waiters", at: at}
			default:
				if len(waiting) >= s.cfg.MaxWaiters {
					leave(last(), "waiters")(at)
				}
				waiting = append(waiting, i)
				add(at+s.cfg.MaxWait, leave(i, "wait"))
				if c.cancel > 0 {
					add(at+c.cancel, leave(i, "canceled"))
				}
			}
		})
	}
	for _, r := range s.resizes {
		add(r.at, func(at time.Duration) { limit = r.limit; settle(at) })
	}
	for len(events) > 0 {
		slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		e := events[0]
		events = events[1:]
		e.do(e.at)
	}
	return results, high
}

// run lets it happen, in a bubble, with a goroutine for each caller.
func (s scenario) run(t *testing.T, label string) (results []result, end policy.BulkheadSnapshot, err error) {
	t.Helper()
	results = make([]result, len(s.callers))
	synctest.Test(t, func(t *testing.T) {
		var p *bulkhead.Permits
		if p, err = bulkhead.New("", s.cfg); err != nil {
			return
		}
		start := time.Now()
		var wg sync.WaitGroup
		for i, c := range s.callers {
			wg.Go(func() {
				time.Sleep(c.arrive)
				ctx := policy.WithPriority(t.Context(), c.prio)
				if c.cancel > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					defer time.AfterFunc(c.cancel, cancel).Stop()
				}
				e := p.Acquire(ctx)
				results[i] = result{what: told(e), at: time.Since(start)}
				if e == nil {
					time.Sleep(c.hold)
					p.Release()
				}
			})
		}
		for _, r := range s.resizes {
			wg.Go(func() {
				time.Sleep(r.at)
				if e := p.SetLimit(r.limit); e != nil {
					t.Errorf("%s: SetLimit(%d): %v", label, r.limit, e)
				}
			})
		}
		wg.Wait()
		end = *p.Snapshot(time.Now()).Bulkhead
	})
	return results, end, err
}

func told(err error) string {
	if err == nil {
		return "admitted"
	}
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		return re.Reason.String()
	}
	if errors.Is(err, context.Canceled) {
		return "canceled"
	}
	return err.Error()
}

// Callers that come, hold, wait, give up and meet a limit that moves are told what an
// obvious simulation says, at exactly the time that it says: no permit is lost or
// invented, nobody overtakes an equal, and nobody waits longer than allowed.
func TestPermitsEqualSimulation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		want, high := s.simulate()
		got, end, err := s.run(t, fmt.Sprintf("%+v", s))
		if err != nil {
			rt.Fatalf("%+v: %v", s.cfg, err)
		}
		for i := range want {
			if got[i] != want[i] {
				rt.Fatalf("caller %d was told %q at %s, want %q at %s\n%+v", i, got[i].what, got[i].at, want[i].what, want[i].at, s)
			}
		}
		if end.InFlight != 0 || end.Waiting != 0 || end.HighWater != high {
			rt.Fatalf("at the end %+v, want nothing taken and a high-water mark of %d\n%+v", end, high, s)
		}
	})
}
