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

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// purseModel is a token bucket in fractions.
type purseModel struct {
	rate, burst, used *big.Rat
	origin            int64
}

func newPurseModel(rate Rate, burst int) *purseModel {
	return &purseModel{rate: rate.perNano(), burst: ratOf(int64(burst)), used: ratOf(-int64(burst))}
}

func (m *purseModel) arrived(at int64) *big.Rat {
	return new(big.Rat).Mul(m.rate, ratOf(max(at-m.origin, 0)))
}

func (m *purseModel) usedAt(at int64) *big.Rat {
	return maxRat(m.used, new(big.Rat).Sub(m.arrived(at), m.burst))
}

// has reports whether n tokens are there at a time, seen from an earlier one, since
// which nothing overflows.
func (m *purseModel) has(from, at, n int64) bool {
	return new(big.Rat).Add(m.usedAt(from), ratOf(n)).Cmp(m.arrived(at)) <= 0
}

func (m *purseModel) take(at, n int64) { m.used = new(big.Rat).Add(m.usedAt(at), ratOf(n)) }

func (m *purseModel) drain(at, n int64) {
	if m.usedAt(at).Cmp(m.arrived(at)) < 0 {
		m.used = minRat(new(big.Rat).Add(m.usedAt(at), ratOf(n)), m.arrived(at))
	}
}

func (m *purseModel) give(at, taken, n int64) {
	back := new(big.Rat).Sub(ratOf(n), new(big.Rat).Mul(m.rate, ratOf(at-taken)))
	if back.Sign() > 0 {
		m.used = maxRat(new(big.Rat).Sub(m.used, back), new(big.Rat).Neg(m.burst))
	}
}

// laneModel is a lane, and lanesModel a set of them, played one nanosecond at a time.
type laneModel struct {
	cfg          LaneConfig
	purse, floor *purseModel
	queue        []*laneModelWaiter
}

type laneModelWaiter struct {
	id       int
	n, limit int64
	at       int64
	err      error
	ended    bool
	grant    laneModelGrant
	cancel   func()
}

// laneModelGrant says where tokens came from.
type laneModelGrant struct {
	lane, from *laneModel
	floor      bool
	at, n      int64
}

type lanesModel struct {
	now   int64
	lanes []*laneModel
	total *logModel
}

func (m *lanesModel) lane(name string) *laneModel {
	for _, l := range m.lanes {
		if l.cfg.Name == name {
			return l
		}
	}
	return nil
}

// let reports whether a lane lets a call in at a time if nothing is taken until then,
// and from where; total is set when only the limit over all lanes keeps it out.
func (m *lanesModel) let(l *laneModel, at, n int64) (g laneModelGrant, ok, total bool) {
	g = laneModelGrant{lane: l, at: at, n: n}
	if l.purse.has(m.now, at, n) {
		g.from = l
	} else {
		for _, o := range m.lanes {
			keep := int64(o.cfg.LendAbove)
			if o == l || keep == 0 || len(o.queue) > 0 || keep+n > int64(o.cfg.Burst) {
				continue
			}
			if o.purse.has(m.now, at, keep+n) {
				g.from = o
				break
			}
		}
	}
	if g.from == nil {
		return g, false, false
	}
	if to := m.lane(l.cfg.YieldTo); to != nil && !to.purse.has(m.now, at, int64(l.cfg.YieldBelow)) {
		if l.floor == nil || !l.floor.has(m.now, at, 1) {
			return g, false, false
		}
		g.floor = true
	}
	fits := m.total.fits(at, n)
	return g, fits, !fits
}

func (m *lanesModel) take(g laneModelGrant) {
	g.from.purse.take(g.at, g.n)
	if g.lane.floor != nil {
		if g.floor {
			g.lane.floor.take(g.at, g.n)
		} else {
			g.lane.floor.drain(g.at, g.n)
		}
	}
	m.total.take(g.at, g.n, false)
}

// blocked reports whether the first waiter of a lane waits for nothing but the limit
// over all lanes.
func (m *lanesModel) blocked(l *laneModel) bool {
	if len(l.queue) == 0 {
		return false
	}
	_, _, total := m.let(l, m.now, l.queue[0].n)
	return total
}

// dispatch lets in who can be.
func (m *lanesModel) dispatch() {
	for _, l := range m.lanes {
		for len(l.queue) > 0 {
			w := l.queue[0]
			g, ok, _ := m.let(l, m.now, w.n)
			if !ok {
				break
			}
			m.take(g)
			l.queue = l.queue[1:]
			w.ended, w.at, w.grant = true, m.now, g
		}
		if m.blocked(l) {
			return
		}
	}
}

// advance plays until the given time.
func (m *lanesModel) advance(to int64) {
	for m.now < to {
		m.now++
		m.dispatch()
		for _, l := range m.lanes {
			l.queue = slices.DeleteFunc(l.queue, func(w *laneModelWaiter) bool {
				if w.limit > m.now {
					return false
				}
				w.ended, w.at, w.err = true, m.now, errLate
				return true
			})
		}
		m.dispatch()
	}
}

// takeNow lets a newcomer in, if it may be.
func (m *lanesModel) takeNow(l *laneModel, n int64) (laneModelGrant, bool) {
	g, ok, _ := m.let(l, m.now, n)
	ok = ok && len(l.queue) == 0
	for _, o := range m.lanes {
		if o == l {
			break
		}
		ok = ok && !m.blocked(o)
	}
	if ok {
		m.take(g)
	}
	return g, ok
}

// alone returns when a newcomer is let in at the earliest.
func (m *lanesModel) alone(l *laneModel, n int64) int64 {
	queued, lenders := n, false
	for _, w := range l.queue {
		queued += w.n
	}
	for _, o := range m.lanes {
		lenders = lenders || o != l && o.cfg.LendAbove > 0
	}
	from := m.now
	if len(l.queue) > 0 {
		from++
		for !lenders && !l.purse.has(m.now, from, queued) {
			from++
		}
	}
	for {
		if _, ok, _ := m.let(l, from, n); ok {
			break
		}
		from++
	}
	for _, o := range m.lanes {
		if o == l {
			break
		}
		if m.blocked(o) {
			at := m.now
			for !m.total.fits(at, o.queue[0].n) {
				at++
			}
			from = max(from, at)
		}
	}
	return from
}

func runLanes(t *testing.T, cfg Lanes, script []lineOp) (diff string) {
	t.Helper()
	set, err := NewLaneSet("", cfg)
	require.NoError(t, err)
	m := &lanesModel{total: &logModel{limit: int64(cfg.Total.Limit), window: int64(cfg.Total.Window)}}
	for _, c := range set.cfg.Lanes {
		l := &laneModel{cfg: c, purse: newPurseModel(c.Rate, c.Burst)}
		if c.YieldTo != "" && c.Floor.Tokens > 0 {
			l.floor = newPurseModel(c.Floor, 1)
		}
		m.lanes = append(m.lanes, l)
	}
	start := time.Now()
	var waits []*laneModelWaiter
	var all []*laneModelWaiter
	var holds []laneModelGrant
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
		m.advance(int64(time.Since(start)))
		at := op.limit % len(m.lanes)
		lane, model := set.lanes[at], m.lanes[at]
		tooBig := op.n > int64(model.cfg.Burst) || op.n > m.total.limit
		switch op.op {
		case 0, 1, 2: // take
			wait, ok := lane.Take(time.Now(), int(op.n))
			if tooBig {
				if ok || wait != policy.Never {
					report("op %d: take %d: %v, %v, want too big", i, op.n, wait, ok)
				}
				break
			}
			when := m.alone(model, op.n)
			g, want := m.takeNow(model, op.n)
			if ok != want || !ok && m.now+int64(wait) != when {
				report("op %d: take %d of %s: %v at %d, want %v at %d", i, op.n, model.cfg.Name, ok, m.now+int64(wait), want, when)
			}
			if want {
				holds = append(holds, g)
			}
		case 3, 4, 5, 6: // wait
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			got := &laneModelWaiter{id: i}
			all = append(all, got)
			go func() {
				err := lane.Wait(ctx, int(op.n))
				got.at, got.err, got.ended = int64(time.Since(start)), err, true
				done <- err
			}()
			synctest.Wait()
			if tooBig {
				if err := <-done; !errors.Is(err, ErrExceedsBurst) {
					report("op %d: wait %d: %v, want too big", i, op.n, err)
				}
				cancel()
				break
			}
			when := m.alone(model, op.n)
			var want policy.Reason
			switch g, now := m.takeNow(model, op.n); {
			case now:
				if err := <-done; err != nil {
					report("op %d: wait %d of %s: %v, want it at once", i, op.n, model.cfg.Name, err)
				}
				holds = append(holds, g)
				cancel()
				continue
			case model.cfg.MaxWait == 0:
				want = policy.ReasonRate
			case len(model.queue) >= model.cfg.MaxWaiters:
				want = policy.ReasonWaiters
			case when > m.now+int64(model.cfg.MaxWait):
				want = policy.ReasonWait
			default:
				w := &laneModelWaiter{id: i, n: op.n, limit: m.now + int64(model.cfg.MaxWait), cancel: cancel}
				waits = append(waits, w)
				model.queue = append(model.queue, w)
				select {
				case err := <-done:
					report("op %d: wait %d of %s: ended with %v, want until %d or later", i, op.n, model.cfg.Name, err, when)
				default:
				}
				continue
			}
			if re := rejectionOf(<-done); re == nil || re.Reason != want {
				report("op %d: wait %d of %s: %v, want %v", i, op.n, model.cfg.Name, re, want)
			}
			cancel()
		case 7: // give up a wait
			open := slices.DeleteFunc(slices.Clone(waits), func(w *laneModelWaiter) bool { return w.ended })
			if len(open) == 0 {
				break
			}
			w := open[op.which%len(open)]
			w.cancel()
			synctest.Wait()
			w.ended, w.at, w.err = true, m.now, context.Canceled
			for _, l := range m.lanes {
				l.queue = slices.DeleteFunc(l.queue, func(o *laneModelWaiter) bool { return o == w })
			}
			m.dispatch()
		default: // a call did not run
			if len(holds) == 0 {
				break
			}
			j := op.which % len(holds)
			g := holds[j]
			holds = slices.Delete(holds, j, j+1)
			lane := set.Lane(g.lane.cfg.Name)
			for k := range lane.grants {
				if r := &lane.grants[k]; r.from.cfg.Name == g.from.cfg.Name && r.floor == g.floor {
					lane.refund(m.now, g.at, g.n, r)
				}
			}
			g.from.purse.give(m.now, g.at, g.n)
			if g.floor {
				g.lane.floor.give(m.now, g.at, g.n)
			}
			m.total.refund(m.now, g.at, g.n)
			m.dispatch()
		}
		synctest.Wait()
		for j, l := range m.lanes {
			set.mu.Lock()
			got := set.lanes[j].waiting
			set.mu.Unlock()
			if got != len(l.queue) {
				report("op %d: %d wait in %s, want %d", i, got, l.cfg.Name, len(l.queue))
			}
		}
	}
	time.Sleep(time.Second)
	synctest.Wait()
	m.advance(m.now + 200)
	for _, want := range waits {
		if !want.ended {
			report("wait of op %d has not ended", want.id)
			continue
		}
		i := slices.IndexFunc(all, func(w *laneModelWaiter) bool { return w.id == want.id && w.ended })
		if i < 0 {
			report("wait of op %d has not ended, want at %d with %v", want.id, want.at, want.err)
			continue
		}
		got := all[i]
		same := errors.Is(got.err, want.err)
		if want.err == errLate { //nolint:errorlint // the very one
			re := rejectionOf(got.err)
			same = re != nil && re.Reason == policy.ReasonWait
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

// laneConfigs are those of the models of lanes.
func laneConfigs() []Lanes {
	return []Lanes{
		{
			Lanes: []LaneConfig{
				{Name: "a", Rate: Per(1, 7), Burst: 3, MaxWait: 20, MaxWaiters: 2},
				{Name: "b", Rate: Per(1, 10), Burst: 4, MaxWait: 60, MaxWaiters: 3, YieldTo: "a", YieldBelow: 2, Floor: Per(1, 50)},
				{Name: "c", Rate: Per(1, 5), Burst: 2},
			},
			Total: SlidingWindow{Limit: 4, Window: 25},
		},
		{
			Lanes: []LaneConfig{
				{Name: "a", Rate: Per(1, 9), Burst: 4, MaxWait: 40, MaxWaiters: 3, LendAbove: 2},
				{Name: "b", Rate: Per(1, 30), Burst: 3, MaxWait: 50, MaxWaiters: 3, YieldTo: "a", YieldBelow: 3, Floor: Rate{Tokens: -1}},
			},
			Total: SlidingWindow{Limit: 5, Window: 30},
		},
		{
			Lanes: []LaneConfig{
				{Name: "a", Rate: Per(1, 8), Burst: 6, MaxWait: 30, MaxWaiters: 3},
				{Name: "b", Rate: Per(1, 20), Burst: 2, MaxWait: 80, MaxWaiters: 4, LendAbove: 1},
			},
			Total: SlidingWindow{Limit: 1000, Window: 1},
		},
	}
}

// Everything that lanes do, held against a model that plays it one nanosecond at a
// time.
func TestPropLanes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		script := drawScript(rt)
		cfg := rapid.SampledFrom(laneConfigs()).Draw(rt, "config")
		var diff string
		synctest.Test(t, func(t *testing.T) { diff = runLanes(t, cfg, script) })
		if diff != "" {
			rt.Fatal(diff)
		}
	})
}
