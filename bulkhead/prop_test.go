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

// caller arrives, wants to be inside for hold, and gives up cancel after it came (0:
// never).
type caller struct {
	arrive, hold, cancel time.Duration
	prio                 policy.Priority
}

// resize sets the limit at a time.
type resize struct {
	at    time.Duration
	limit int
}

// scenario is a random run of a semaphore or of a pool. No two events of it are at
// one instant (see drawScenario), so what must happen is certain.
type scenario struct {
	pool           bool
	limit, reserve int
	maxWait        time.Duration // 0: nobody waits
	maxWaiters     int
	timeout        time.Duration // of an attempt, in a pool; 0 is none
	callers        []caller
	resizes        []resize
}

// result is what a caller was told, and when.
type result struct {
	what string // "done", "deadline", "canceled" or the reason of a refusal
	at   time.Duration
}

// drawScenario draws times in whole seconds and adds to each one a bit of its own,
// in nanoseconds. Every later time is a sum of different ones of these, and sums of
// different sets of bits differ.
func drawScenario(t *rapid.T, pool bool) scenario {
	seconds := func(label string, least, most, bit int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, label))*time.Second + 1<<bit
	}
	s := scenario{pool: pool, limit: rapid.IntRange(1, 3).Draw(t, "limit")}
	if !pool {
		s.reserve = rapid.IntRange(0, 2).Draw(t, "reserve")
		s.limit += s.reserve
	} else if rapid.Bool().Draw(t, "bounded") {
		s.timeout = seconds("timeout", 0, 4, 27)
	}
	if rapid.Bool().Draw(t, "waits") {
		s.maxWait = seconds("maxWait", 0, 6, 28)
		s.maxWaiters = rapid.IntRange(1, 4).Draw(t, "maxWaiters")
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
		s.resizes = append(s.resizes, resize{at: seconds("resize", 0, 10, 24+i), limit: s.reserve + rapid.IntRange(1, 4).Draw(t, "newLimit")})
	}
	return s
}

// world is the simulation: a list of events and a plain slice for a queue.
type world struct {
	scenario
	events  []event
	waiting []int // callers, in the order in which they came
	flight  int
	high    int
	results []result
}

type event struct {
	at time.Duration
	do func(at time.Duration)
}

func (w *world) add(at time.Duration, do func(at time.Duration)) {
	w.events = append(w.events, event{at: at, do: do})
}

func (w *world) room(i int) bool {
	if w.callers[i].prio >= policy.PriorityHigh {
		return w.flight < w.limit
	}
	return w.flight < w.limit-w.reserve
}

func (w *world) byPriority(a, b int) int { return cmp.Compare(w.callers[a].prio, w.callers[b].prio) }

// first returns the oldest waiter of the highest priority.
func (w *world) first() int { return slices.MaxFunc(w.waiting, w.byPriority) }

// last returns the youngest waiter of the lowest priority.
func (w *world) last() int {
	back := slices.Clone(w.waiting)
	slices.Reverse(back)
	return slices.MinFunc(back, w.byPriority)
}

func (w *world) drop(i int) {
	k := slices.Index(w.waiting, i)
	w.waiting = slices.Delete(w.waiting, k, k+1)
}

// tell notes what a caller is told; what it is told first counts.
func (w *world) tell(i int, what string, at time.Duration) {
	if w.results[i].what == "" {
		w.results[i] = result{what: what, at: at}
	}
}

func (w *world) admit(i int, at time.Duration) {
	w.flight++
	w.high = max(w.high, w.flight)
	c := w.callers[i]
	if !w.pool { // by hand: the permit is held, whatever happens
		w.tell(i, "done", at)
	} else if w.timeout > 0 {
		w.add(at+w.timeout, func(at time.Duration) { w.tell(i, "deadline", at) })
	}
	w.add(at+c.hold, func(at time.Duration) {
		w.tell(i, "done", at)
		w.flight--
		w.settle(at)
	})
}

func (w *world) settle(at time.Duration) {
	for len(w.waiting) > 0 && w.room(w.first()) {
		i := w.first()
		w.drop(i)
		w.admit(i, at)
	}
}

func (w *world) leave(i int, what string, at time.Duration) {
	if slices.Contains(w.waiting, i) {
		w.drop(i)
		w.tell(i, what, at)
	}
}

func (w *world) arrive(i int, at time.Duration) {
	c := w.callers[i]
	switch {
	case w.room(i): // then nobody waits whom it could overtake
		w.admit(i, at)
		return
	case w.maxWait == 0:
		w.tell(i, "concurrency", at)
		return
	case len(w.waiting) >= w.maxWaiters && w.callers[w.last()].prio >= c.prio:
		w.tell(i, "waiters", at)
		return
	case len(w.waiting) >= w.maxWaiters:
		w.leave(w.last(), "waiters", at)
	}
	w.waiting = append(w.waiting, i)
	w.add(at+w.maxWait, func(at time.Duration) { w.leave(i, "wait", at) })
}

// simulate says what must happen.
func (s scenario) simulate() (results []result, high int) {
	w := &world{scenario: s, results: make([]result, len(s.callers))}
	for i, c := range s.callers {
		w.add(c.arrive, func(at time.Duration) { w.arrive(i, at) })
		if c.cancel > 0 {
			w.add(c.arrive+c.cancel, func(at time.Duration) {
				w.leave(i, "canceled", at)
				w.tell(i, "canceled", at) // in a pool, its function runs on
			})
		}
	}
	for _, r := range s.resizes {
		w.add(r.at, func(at time.Duration) { w.limit = r.limit; w.settle(at) })
	}
	for len(w.events) > 0 {
		slices.SortStableFunc(w.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		e := w.events[0]
		w.events = w.events[1:]
		e.do(e.at)
	}
	return w.results, w.high
}

// subject is what a scenario is played with.
type subject struct {
	call     func(ctx context.Context, hold time.Duration) error // tells "done"
	after    func(hold time.Duration)                            // what the caller does then
	setLimit func(int) error
	end      func() (policy.BulkheadSnapshot, error) // when all is over
}

func (s scenario) semaphore() (subject, error) {
	p, err := bulkhead.New("", bulkhead.Semaphore{Limit: s.limit, Reserve: s.reserve, MaxWait: s.maxWait, MaxWaiters: s.maxWaiters})
	if err != nil {
		return subject{}, err
	}
	return subject{
		call:     func(ctx context.Context, _ time.Duration) error { return p.Acquire(ctx) },
		after:    func(hold time.Duration) { time.Sleep(hold); p.Release() },
		setLimit: p.SetLimit,
		end:      func() (policy.BulkheadSnapshot, error) { return *p.Snapshot(time.Now()).Bulkhead, nil },
	}, nil
}

func (s scenario) workers(ctx context.Context) (subject, error) {
	cfg := bulkhead.Pool{Workers: s.limit, Queue: s.maxWaiters, MaxWait: s.maxWait}
	if s.maxWait == 0 {
		cfg.Queue = bulkhead.NoQueue
	}
	w, err := bulkhead.NewPool("", cfg)
	if err != nil {
		return subject{}, err
	}
	p, err := policy.New("dependency", w, policy.Timeouts{Attempt: s.timeout})
	if err != nil {
		return subject{}, err
	}
	return subject{
		call: func(ctx context.Context, hold time.Duration) error {
			_, err := policy.DoWith(ctx, p, hold, func(_ context.Context, hold time.Duration) (int, error) {
				time.Sleep(hold)
				return 0, nil
			})
			return err
		},
		after:    func(time.Duration) {},
		setLimit: w.SetLimit,
		end: func() (policy.BulkheadSnapshot, error) {
			err := w.Close(ctx) // orphans are waited for
			return *w.Snapshot(time.Now()).Bulkhead, err
		},
	}, nil
}

// run lets it happen, in a bubble, with a goroutine for each caller.
func (s scenario) run(t *testing.T) (results []result, end policy.BulkheadSnapshot, err error) {
	t.Helper()
	results = make([]result, len(s.callers))
	synctest.Test(t, func(t *testing.T) {
		var sub subject
		if s.pool {
			sub, err = s.workers(t.Context())
		} else {
			sub, err = s.semaphore()
		}
		if err != nil {
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
				e := sub.call(ctx, c.hold)
				results[i] = result{what: told(e), at: time.Since(start)}
				if e == nil {
					sub.after(c.hold)
				}
			})
		}
		for _, r := range s.resizes {
			wg.Go(func() {
				time.Sleep(r.at)
				if e := sub.setLimit(r.limit); e != nil {
					t.Errorf("SetLimit(%d): %v\n%+v", r.limit, e, s)
				}
			})
		}
		wg.Wait()
		end, err = sub.end()
	})
	return results, end, err
}

func told(err error) string {
	if err == nil {
		return "done"
	}
	if re, ok := errors.AsType[*policy.RejectedError](err); ok {
		return re.Reason.String()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return err.Error()
}

// compare plays a scenario and holds it against its simulation.
func (s scenario) compare(t *testing.T) error {
	t.Helper()
	want, high := s.simulate()
	got, end, err := s.run(t)
	if err != nil {
		return fmt.Errorf("%+v: %w", s, err)
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("caller %d was told %q at %s, want %q at %s\n%+v", i, got[i].what, got[i].at, want[i].what, want[i].at, s)
		}
	}
	if end.InFlight != 0 || end.Waiting != 0 || end.Orphans != 0 || end.HighWater != high {
		return fmt.Errorf("at the end %+v, want nothing taken and a high-water mark of %d\n%+v", end, high, s)
	}
	return nil
}

// equalsSimulation is the property: callers that come, hold, wait, give up and meet a
// limit that moves are told what an obvious simulation says, at exactly the time that
// it says. No permit is lost or invented, nobody overtakes an equal, and nobody waits
// longer than allowed.
func equalsSimulation(t *testing.T, pool bool) func(*rapid.T) {
	t.Helper()
	return func(rt *rapid.T) {
		if err := drawScenario(rt, pool).compare(t); err != nil {
			rt.Fatal(err)
		}
	}
}

func TestPermitsEqualSimulation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, equalsSimulation(t, false))
}

func TestWorkersEqualSimulation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, equalsSimulation(t, true))
}

// The same from bytes: what a fuzzer finds out is which bytes make which run.
func FuzzScenario(f *testing.F) {
	f.Add(true, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	f.Add(false, []byte{255, 0, 255, 0, 255, 0, 255, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 9, 9, 9})
	f.Fuzz(func(t *testing.T, pool bool, data []byte) {
		if err := scenarioOf(pool, data).compare(t); err != nil {
			t.Fatal(err)
		}
	})
}

// scenarioOf reads a scenario out of bytes; what they do not say is zero.
func scenarioOf(pool bool, data []byte) scenario {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := int(data[0])
		data = data[1:]
		return b % n
	}
	seconds := func(n, bit int) time.Duration { return time.Duration(next(n))*time.Second + 1<<bit }
	s := scenario{pool: pool, limit: 1 + next(3)}
	if !pool {
		s.reserve = next(3)
		s.limit += s.reserve
	} else if next(2) == 1 {
		s.timeout = seconds(5, 27)
	}
	if next(2) == 1 {
		s.maxWait, s.maxWaiters = seconds(7, 28), 1+next(4)
	}
	for i := range next(3) {
		s.resizes = append(s.resizes, resize{at: seconds(11, 24+i), limit: s.reserve + 1 + next(4)})
	}
	for i := range 1 + next(8) {
		c := caller{arrive: seconds(7, i), hold: seconds(6, 8+i), prio: policy.Priority(next(4) - 1)}
		if next(4) == 0 {
			c.cancel = seconds(6, 16+i)
		}
		s.callers = append(s.callers, c)
	}
	return s
}
