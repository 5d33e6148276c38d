package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// The model of a line computes everything anew at every step, from lists, and finds
// times by looking at one nanosecond after the other. So its numbers are small.

// modelBooks is an algorithm as a model knows it.
type modelBooks interface {
	clone() modelBooks
	tooBig(n int64) bool
	fits(at, n int64) bool // whether n tokens can be taken, nothing later having been
	take(at, n int64, promised bool)
	refund(at, taken, n int64)
}

// modelPlace is a reservation (no wait) or a waiter.
type modelPlace struct {
	when, n, limit int64
	wait           *modelWait
}

type modelWait struct {
	id     int
	at     int64         // when it ended
	err    error         // errLate
	reason policy.Reason // of errLate
	ended  bool
	cancel func()
}

var errLate = errors.New("late")

type modelLine struct {
	now     int64
	present modelBooks
	queue   []modelPlace
	maxWait int64
	most    int
}

// settle lets in those whose time has come.
func (m *modelLine) settle() {
	for len(m.queue) > 0 && m.queue[0].when <= m.now {
		p := m.queue[0]
		m.queue = m.queue[1:]
		m.present.take(p.when, p.n, true)
		if p.wait != nil {
			p.wait.at, p.wait.ended = p.when, true
		}
	}
}

// after returns the books after part of the queue.
func (m *modelLine) after(queue []modelPlace) modelBooks {
	b := m.present.clone()
	for _, p := range queue {
		b.take(p.when, p.n, true)
	}
	return b
}

// first returns the first time at which n tokens fit behind a part of the queue.
func (m *modelLine) first(queue []modelPlace, n int64) int64 {
	b, at := m.after(queue), m.now
	if len(queue) > 0 {
		at = max(at, queue[len(queue)-1].when)
	}
	for limit := at + 100_000; !b.fits(at, n); at++ {
		if at > limit {
			panic("never fits")
		}
	}
	return at
}

// find returns when a newcomer can have n tokens, and its index in the queue.
func (m *modelLine) find(n int64) (when int64, index int) {
	from := len(m.queue)
	for from > 0 && m.queue[from-1].wait == nil {
		from--
	}
	for i := from; i < len(m.queue); i++ {
		when := m.first(m.queue[:i], n)
		if when >= m.queue[i].when {
			continue
		}
		b, ok := m.after(m.queue[:i]), true
		b.take(when, n, when > m.now)
		for _, p := range m.queue[i:] {
			ok = ok && !b.tooBig(p.n) && b.fits(p.when, p.n)
			b.take(p.when, p.n, true)
		}
		if ok {
			return when, i
		}
	}
	return m.first(m.queue, n), len(m.queue)
}

// rebuild lets waiters find their places again.
func (m *modelLine) rebuild() {
	var waiters []modelPlace
	m.queue = slices.DeleteFunc(slices.Clone(m.queue), func(p modelPlace) bool {
		if p.wait != nil {
			waiters = append(waiters, p)
		}
		return p.wait != nil
	})
	for _, p := range waiters {
		when, i := int64(never), 0
		if !m.present.tooBig(p.n) {
			when, i = m.find(p.n)
		}
		if when > p.limit {
			p.wait.at, p.wait.ended, p.wait.err = m.now, true, errLate
			continue
		}
		p.when = when
		m.queue = slices.Insert(m.queue, i, p)
	}
	m.settle()
}

// take takes n tokens if they are there.
func (m *modelLine) take(n int64) (when int64, index int, ok bool) {
	when, index = m.find(n)
	if when > m.now {
		return when, index, false
	}
	m.present.take(m.now, n, false)
	return when, 0, true
}

func (m *modelLine) waiting() int {
	n := 0
	for _, p := range m.queue {
		if p.wait != nil {
			n++
		}
	}
	return n
}

// lineOp is one step of a script.
type lineOp struct {
	step  int64 // time that passes before
	op    int
	n     int64
	which int
	limit int   // which of the limits, of a change
	left  int64 // time until the deadline, 0 without one
}

// lineKind makes a limiter and its model, in the first of some limits, and changes
// both to another.
type lineKind struct {
	make   func(wait time.Duration, waiters int) (l Limiter, waiting func() int, m modelBooks)
	change func(l Limiter, m modelBooks, at int64, limit int)
}

const lineLimits = 4

// runLine runs a script on a limiter and on its model, and returns what they differ in.
// It has to be called in a bubble.
func runLine(t *testing.T, k lineKind, wait time.Duration, waiters int, script []lineOp) (diff string) {
	t.Helper()
	limiter, waiting, books := k.make(wait, waiters)
	m := &modelLine{present: books, maxWait: int64(wait), most: waiters}
	start := time.Now()
	var waits []*modelWait
	var all []*modelWait
	type taken struct{ at, n int64 }
	var holds []taken
	type reservation struct {
		r       Reservation
		when, n int64
	}
	var reservations []reservation
	report := func(format string, args ...any) {
		if diff == "" {
			diff = fmt.Sprintf("at %d: ", m.now) + fmt.Sprintf(format, args...)
		}
	}
	for i, op := range script {
		if op.step > 0 {
			time.Sleep(time.Duration(op.step))
		}
		synctest.Wait()
		m.now = int64(time.Since(start))
		m.settle()
		switch op.op {
		case 0, 1: // take
			wait, ok := limiter.Take(time.Now(), int(op.n))
			if m.present.tooBig(op.n) {
				if ok || wait != policy.Never {
					report("op %d: take %d: %v, %v, want too big", i, op.n, wait, ok)
				}
				break
			}
			when, _, want := m.take(op.n)
			if ok != want || m.now+int64(wait) != when {
				report("op %d: take %d: %v at %d, want %v at %d", i, op.n, ok, m.now+int64(wait), want, when)
			}
			if want {
				holds = append(holds, taken{m.now, op.n})
			}
		case 2, 3, 4: // wait
			deadline, latest, reason := 1000*time.Hour, m.now+m.maxWait, policy.ReasonWait
			if op.left > 0 {
				deadline = time.Duration(op.left)
				// A token that comes with the deadline comes too late.
				if last := m.now + op.left - 1; last < latest {
					latest, reason = last, policy.ReasonDeadline
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			got := &modelWait{id: i}
			all = append(all, got)
			done := make(chan error, 1)
			go func() {
				err := limiter.Wait(ctx, int(op.n))
				got.at, got.err, got.ended = int64(time.Since(start)), err, true
				done <- err
			}()
			synctest.Wait()
			if m.present.tooBig(op.n) {
				if err := <-done; !errors.Is(err, ErrExceedsBurst) {
					report("op %d: wait %d: %v, want too big", i, op.n, err)
				}
				cancel()
				break
			}
			when, index, now := m.take(op.n)
			switch {
			case now:
				if err := <-done; err != nil {
					report("op %d: wait %d: %v, want it at once", i, op.n, err)
				}
				holds = append(holds, taken{m.now, op.n})
				cancel()
			case m.waiting() >= m.most:
				if re := rejectionOf(<-done); re == nil || re.Reason != policy.ReasonWaiters {
					report("op %d: wait %d: %v, want too many", i, op.n, re)
				}
				cancel()
			case when > latest:
				retryAfter := when - m.now
				if reason == policy.ReasonWait {
					retryAfter -= m.maxWait
				}
				if re := rejectionOf(<-done); re == nil || re.Reason != reason || int64(re.RetryAfter) != retryAfter {
					report("op %d: wait %d: %v, want %s and after %d", i, op.n, re, reason, retryAfter)
				}
				cancel()
			default:
				w := &modelWait{id: i, cancel: cancel, reason: reason}
				waits = append(waits, w)
				m.queue = slices.Insert(m.queue, index, modelPlace{when: when, n: op.n, limit: latest, wait: w})
				select {
				case err := <-done:
					report("op %d: wait %d: ended with %v, want until %d", i, op.n, err, when)
				default:
				}
			}
		case 5: // give up a wait
			open := slices.DeleteFunc(slices.Clone(waits), func(w *modelWait) bool { return w.ended })
			if len(open) == 0 {
				break
			}
			w := open[op.which%len(open)]
			w.cancel()
			synctest.Wait()
			w.ended, w.at, w.err = true, m.now, context.Canceled
			m.queue = slices.DeleteFunc(slices.Clone(m.queue), func(p modelPlace) bool { return p.wait == w })
			m.rebuild()
		case 6: // reserve
			r := limiter.Reserve(time.Now(), int(op.n))
			if m.present.tooBig(op.n) {
				if r.OK() {
					report("op %d: reserve %d: OK, want too big", i, op.n)
				}
				break
			}
			when, index, now := m.take(op.n)
			if !now {
				m.queue = slices.Insert(m.queue, index, modelPlace{when: when, n: op.n})
				reservations = append(reservations, reservation{r, when, op.n})
			}
			if !r.OK() || m.now+int64(r.Delay()) != when {
				report("op %d: reserve %d: %v at %d, want %d", i, op.n, r.OK(), m.now+int64(r.Delay()), when)
			}
		case 7: // cancel a reservation
			if len(reservations) == 0 {
				break
			}
			j := op.which % len(reservations)
			r := reservations[j]
			reservations = slices.Delete(reservations, j, j+1)
			r.r.Cancel(time.Now())
			if k := slices.IndexFunc(m.queue, func(p modelPlace) bool { return p.wait == nil && p.when == r.when && p.n == r.n }); k >= 0 && r.when > m.now {
				m.queue = slices.Delete(slices.Clone(m.queue), k, k+1)
				m.rebuild()
			}
		case 8: // a call did not run
			if len(holds) == 0 {
				break
			}
			j := op.which % len(holds)
			h := holds[j]
			holds = slices.Delete(holds, j, j+1)
			limiter.Refund(start.Add(time.Duration(h.at)), int(h.n))
			m.present.refund(m.now, h.at, h.n)
			m.rebuild()
		case 9: // change the limit
			if op.which%3 > 0 {
				break
			}
			k.change(limiter, m.present, m.now, op.limit)
			m.rebuild()
		}
		synctest.Wait()
		m.settle()
		if got, want := waiting(), m.waiting(); got != want {
			report("op %d: %d wait, want %d", i, got, want)
		}
	}
	time.Sleep(wait + 1)
	synctest.Wait()
	m.now = int64(time.Since(start))
	m.settle()
	for _, want := range waits {
		if !want.ended {
			report("wait of op %d has not ended", want.id)
			continue
		}
		i := slices.IndexFunc(all, func(w *modelWait) bool { return w.id == want.id && w.ended })
		if i < 0 {
			report("wait of op %d has not ended, want at %d with %v", want.id, want.at, want.err)
			continue
		}
		got := all[i]
		same := errors.Is(got.err, want.err)
		if want.err == errLate { //nolint:errorlint // the very one
			re := rejectionOf(got.err)
			same = re != nil && re.Reason == want.reason
		}
		if got.at != want.at || !same {
			report("wait of op %d ended at %d with %v, want at %d with %v", want.id, got.at, got.err, want.at, want.err)
		}
	}
	for _, w := range waits {
		w.cancel()
	}
	return diff
}

func rejectionOf(err error) *policy.RejectedError {
	re, _ := errors.AsType[*policy.RejectedError](err)
	return re
}

func drawScript(t *rapid.T) []lineOp {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) lineOp {
		return lineOp{
			step:  rapid.SampledFrom([]int64{0, 0, 0, 1, 2, 3, 5, 8, 20, 60}).Draw(t, "step"),
			op:    rapid.IntRange(0, 9).Draw(t, "op"),
			n:     int64(rapid.SampledFrom([]int{1, 1, 1, 2, 3, 6}).Draw(t, "n")),
			which: rapid.IntRange(0, 100).Draw(t, "which"),
			limit: rapid.IntRange(0, lineLimits-1).Draw(t, "limit"),
			left:  rapid.SampledFrom([]int64{0, 0, 1, 2, 5, 15, 40}).Draw(t, "left"),
		}
	}), 10, 60).Draw(t, "script")
}

// length returns how many wait.
func (l *line) length() int { return int(l.waiting.Load()) }

// checkLine holds a kind against its model.
func checkLine(t *testing.T, k lineKind) {
	t.Helper()
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		script := drawScript(rt)
		wait := time.Duration(rapid.SampledFrom([]int{10, 30, 100}).Draw(rt, "wait"))
		waiters := rapid.SampledFrom([]int{1, 3, 10}).Draw(rt, "waiters")
		var diff string
		synctest.Test(t, func(t *testing.T) { diff = runLine(t, k, wait, waiters, script) })
		if diff != "" {
			rt.Fatal(diff)
		}
	})
}

// paceModel is a pacer in fractions: a call is let in when one token is there.
type paceModel struct {
	rate, burst *big.Rat
	used        *big.Rat
	origin      int64
	units       func() int64 // of the limiter
	eras        rateEras
}

func (m *paceModel) clone() modelBooks { c := *m; return &c }

func (m *paceModel) tooBig(int64) bool { return false }

func (m *paceModel) arrived(at int64) *big.Rat {
	return new(big.Rat).Mul(m.rate, ratOf(max(at-m.origin, 0)))
}

func (m *paceModel) usedAt(at int64) *big.Rat {
	return maxRat(m.used, new(big.Rat).Sub(m.arrived(at), m.burst))
}

func (m *paceModel) fits(at, _ int64) bool {
	return new(big.Rat).Add(m.usedAt(at), ratOf(1)).Cmp(m.arrived(at)) <= 0
}

func (m *paceModel) take(at, n int64, promised bool) {
	if promised {
		at--
	}
	m.used = new(big.Rat).Add(m.usedAt(at), ratOf(n))
}

func (m *paceModel) refund(at, taken, n int64) {
	back := ratOf(n)
	back.Sub(back, m.eras.arrived(m.rate, at, taken, m.units()))
	if back.Sign() > 0 {
		m.used = maxRat(new(big.Rat).Sub(m.used, back), new(big.Rat).Neg(m.burst))
	}
}

func (m *paceModel) setLimit(at int64, rate Rate, burst int64) {
	stock := minRat(new(big.Rat).Sub(m.arrived(at), m.used), m.burst)
	m.eras.change(at, m.rate, minRat(rate.perNano(), ratOf(burst))) // more is not to be had in a nanosecond
	unit := m.units()
	stock.Mul(stock, ratOf(unit))
	stock.SetFrac(floorOf(stock), big.NewInt(unit))
	m.rate, m.burst, m.origin = rate.perNano(), ratOf(burst), at
	m.used = new(big.Rat).Neg(minRat(stock, m.burst))
}

// paceKind is the pacer, in four limits.
func paceKind() lineKind {
	limits := [lineLimits]struct {
		rate  Rate
		burst int
	}{{Per(1, 7), 1}, {Per(1, 5), 3}, {Per(2, 7), 1}, {Per(3, 20), 2}}
	return lineKind{
		make: func(wait time.Duration, waiters int) (Limiter, func() int, modelBooks) {
			p, err := NewPace("", Pacer{Rate: limits[0].rate, Burst: limits[0].burst, MaxWait: wait, MaxWaiters: waiters})
			if err != nil {
				panic(err)
			}
			burst := ratOf(int64(limits[0].burst))
			return p, p.length, &paceModel{
				rate: limits[0].rate.perNano(), burst: burst, used: new(big.Rat).Neg(burst),
				units: func() int64 { return p.paces.state.Load().unit },
			}
		},
		change: func(l Limiter, m modelBooks, at int64, i int) {
			if err := l.(*Pace).SetLimit(limits[i].rate, limits[i].burst); err != nil {
				panic(err)
			}
			m.(*paceModel).setLimit(at, limits[i].rate, int64(limits[i].burst))
		},
	}
}

func TestPropPaceLine(t *testing.T) { checkLine(t, paceKind()) }
