package policy_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/failsafex"
	"github.com/breakwater-go/breakwater/policy"
)

// hedger is a hedge policy with a fixed delay, which writes down what it is told.
type hedger struct {
	delay  time.Duration
	max    int
	budget int // hedges that are allowed; 0 is all, negative none
	allow  func(policy.HedgeState) bool
	shared any

	mu                   sync.Mutex
	firsts, undos, dones int
	asked                []policy.HedgeState
	granted              int
	observed             []time.Duration
}

func (h *hedger) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "hedge", Hedge: h, MaxHedges: h.max, Budget: h.shared}, nil
}

func (h *hedger) First(*policy.Attempt)         { h.mu.Lock(); h.firsts++; h.mu.Unlock() }
func (h *hedger) Delay(time.Time) time.Duration { return h.delay }
func (h *hedger) Undo(time.Time)                { h.mu.Lock(); h.undos++; h.mu.Unlock() }
func (h *hedger) Done()                         { h.mu.Lock(); h.dones++; h.mu.Unlock() }

func (h *hedger) Observe(_ time.Time, d time.Duration) {
	h.mu.Lock()
	h.observed = append(h.observed, d)
	h.mu.Unlock()
}

func (h *hedger) Allow(s policy.HedgeState) bool {
	h.mu.Lock()
	h.asked = append(h.asked, s)
	ok := h.budget == 0 || h.granted < h.budget
	h.mu.Unlock()
	if h.allow != nil {
		ok = h.allow(s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ok {
		h.granted++
	}
	return ok
}

// settled checks that each grant was either used or given back.
func (h *hedger) settled(tb testing.TB) {
	tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	assert.Equal(tb, h.granted, h.undos+h.dones, "each hedge ends once")
}

func (h *hedger) state(p *policy.Pipeline) *policy.HedgeSnapshot {
	for _, ps := range p.Snapshot().Policies {
		if ps.Hedge != nil {
			return ps.Hedge
		}
	}
	return nil
}

var idempotent = &policy.Call{Idempotent: true}

// lane is what one attempt of a hedged call does: by number of the attempt, and of the
// hedge beside it.
type lane struct {
	takes    time.Duration
	err      error
	what     string // "panic", "late panic", "goexit", "hold", "stubborn", "busy"
	value    int
	canceled error // cause of the end of its context, when it was ended
	started  time.Duration
}

// hedged calls p with the lanes, the attempt itself first, and one of them for each
// further attempt. It returns what became of the values that were given up.
type hedgedCall struct {
	mu      sync.Mutex
	lanes   [][]*lane
	start   time.Time
	dropped []int
	handles []policy.Handle
	ran     int
}

func (c *hedgedCall) fn(ctx context.Context, _ int, a *policy.Attempt) (int, error) {
	c.mu.Lock()
	c.ran++
	l := c.lanes[a.Number()-1][a.Hedge()]
	l.started = time.Since(c.start)
	c.mu.Unlock()
	switch l.what {
	case "stubborn":
		time.Sleep(l.takes)
		return l.value, l.err
	case "late panic":
		time.Sleep(l.takes)
		panic("late")
	}
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		c.mu.Lock()
		l.canceled = context.Cause(ctx)
		c.mu.Unlock()
		return 0, ctx.Err()
	}
	switch l.what {
	case "panic":
		panic("boom")
	case "goexit":
		runtime.Goexit()
	case "busy":
		a.SetOutcome(policy.Busy, 0)
	case "hold":
		h := a.Hold()
		c.mu.Lock()
		c.handles = append(c.handles, h)
		c.mu.Unlock()
	}
	return l.value, l.err
}

func (c *hedgedCall) do(ctx context.Context, p *policy.Pipeline) (int, error) {
	c.start = time.Now()
	return policy.DoAttempt(ctx, p, idempotent, 0, c.fn, func(v int) {
		c.mu.Lock()
		c.dropped = append(c.dropped, v)
		c.mu.Unlock()
	})
}

// race makes a call of one attempt and its hedges. It has lanes of its own: tables are
// shared.
func race(lanes ...*lane) *hedgedCall {
	own := make([]*lane, len(lanes))
	for i, l := range lanes {
		c := *l
		own[i] = &c
	}
	return &hedgedCall{lanes: [][]*lane{own}}
}

const ms = time.Millisecond

func TestHedge(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lanes  []*lane
		budget int
		want   int
		err    error
		after  time.Duration
		ran    int

		started, won, suppressed uint64
		observed                 []time.Duration
		dropped                  []int
		gate                     []policy.Kind // in order of the ends
	}{
		"fast enough": {
			lanes: []*lane{{takes: 99 * ms, value: 1}}, want: 1, after: 99 * ms, ran: 1,
			observed: []time.Duration{99 * ms}, gate: []policy.Kind{policy.Success},
		},
		"the hedge answers first": {
			lanes: []*lane{{takes: 300 * ms, value: 1}, {takes: 20 * ms, value: 2}}, want: 2, after: 120 * ms, ran: 2,
			started: 1, won: 1, observed: []time.Duration{120 * ms}, gate: []policy.Kind{policy.Success, policy.Canceled},
		},
		"the attempt answers first": {
			lanes: []*lane{{takes: 150 * ms, value: 1}, {takes: 120 * ms, value: 2}}, want: 1, after: 150 * ms, ran: 2,
			started: 1, observed: []time.Duration{150 * ms}, gate: []policy.Kind{policy.Success, policy.Canceled},
		},
		"the second hedge": {
			lanes: []*lane{{takes: time.Second}, {takes: time.Second}, {takes: 10 * ms, value: 3}}, want: 3, after: 210 * ms, ran: 3,
			started: 2, won: 1, observed: []time.Duration{210 * ms}, gate: []policy.Kind{policy.Success, policy.Canceled, policy.Canceled},
		},
		"no more than MaxHedges": {
			lanes: []*lane{{takes: time.Second, value: 1}, {takes: 3 * time.Second}, {takes: 3 * time.Second}, {takes: 3 * time.Second}},
			want:  1, after: time.Second, ran: 4, started: 3, observed: []time.Duration{time.Second},
			gate: []policy.Kind{policy.Success, policy.Canceled, policy.Canceled, policy.Canceled},
		},
		"a failure is not hedged": {
			lanes: []*lane{{takes: 50 * ms, err: errBoom}}, err: errBoom, after: 50 * ms, ran: 1, gate: []policy.Kind{policy.Failure},
		},
		"a failure waits for what runs, and nothing more is started": {
			lanes: []*lane{{takes: 150 * ms, err: errBoom}, {takes: 500 * ms, value: 2}}, want: 2, after: 600 * ms, ran: 2,
			started: 1, won: 1, gate: []policy.Kind{policy.Failure, policy.Success},
		},
		"a hedge that fails is waited for by nobody": {
			lanes: []*lane{{takes: 300 * ms, value: 1}, {takes: 50 * ms, err: errBoom}}, want: 1, after: 300 * ms, ran: 2,
			started: 1, observed: []time.Duration{300 * ms}, gate: []policy.Kind{policy.Failure, policy.Success},
		},
		"all fail: the last error counts": {
			lanes: []*lane{{takes: 150 * ms, err: errLimit}, {takes: 100 * ms, err: errBoom}}, err: errBoom, after: 200 * ms, ran: 2,
			started: 1, gate: []policy.Kind{policy.Failure, policy.Failure},
		},
		"an answer that is an error ends it too": {
			lanes: []*lane{{takes: 150 * ms, err: policy.AsPermanent(errBoom)}, {takes: time.Second}}, err: errBoom, after: 150 * ms, ran: 2,
			started: 1, observed: []time.Duration{150 * ms}, gate: []policy.Kind{policy.Permanent, policy.Canceled},
		},
		"a bad answer is given up for a good one": {
			lanes: []*lane{{takes: 150 * ms, value: 1, what: "busy"}, {takes: 100 * ms, value: 2}}, want: 2, after: 200 * ms, ran: 2,
			started: 1, won: 1, dropped: []int{1}, gate: []policy.Kind{policy.Busy, policy.Success},
		},
		"a bad answer is better than none": {
			lanes: []*lane{{takes: 150 * ms, err: errBoom}, {takes: 100 * ms, value: 2, what: "busy"}}, want: 2, after: 200 * ms, ran: 2,
			started: 1, gate: []policy.Kind{policy.Failure, policy.Busy},
		},
		"the wish to be left alone is kept": {
			lanes: []*lane{{takes: 150 * ms, err: policy.AsBusy(errBoom, time.Minute)}, {takes: 100 * ms, value: 2, what: "busy"}}, err: errBoom, after: 200 * ms, ran: 2,
			started: 1, dropped: []int{2}, gate: []policy.Kind{policy.Busy, policy.Busy},
		},
		"a loser that ignores its context holds nobody up": {
			lanes: []*lane{{takes: time.Minute, value: 1, what: "stubborn"}, {takes: 20 * ms, value: 2}}, want: 2, after: 120 * ms, ran: 2,
			started: 1, won: 1, observed: []time.Duration{120 * ms}, dropped: []int{1}, gate: []policy.Kind{policy.Success, policy.Success},
		},
		"a loser that panics": {
			lanes: []*lane{{takes: 150 * ms, value: 1}, {takes: 60 * ms, what: "late panic"}}, want: 1, after: 150 * ms, ran: 2,
			started: 1, observed: []time.Duration{150 * ms}, gate: []policy.Kind{policy.Success, policy.Failure},
		},
		"the budget is empty": {
			lanes: []*lane{{takes: 350 * ms, value: 1}}, budget: -1, want: 1, after: 350 * ms, ran: 1,
			suppressed: 3, observed: []time.Duration{350 * ms}, gate: []policy.Kind{policy.Success},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, h := &gate{holds: true}, &hedger{delay: 100 * ms, max: 3, budget: tt.budget}
				p := build(t, g, h)
				c := race(tt.lanes...)
				v, err := c.do(t.Context(), p)
				assert.Equal(t, tt.after, time.Since(c.start))
				if tt.err != nil {
					require.ErrorIs(t, err, tt.err)
				} else {
					require.NoError(t, err)
					assert.Equal(t, tt.want, v)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				s := h.state(p)
				assert.Equal(t, tt.ran, c.ran, "calls at the dependency")
				assert.Equal(t, tt.started, s.Started)
				assert.Equal(t, tt.won, s.Won)
				assert.Equal(t, tt.suppressed, s.Suppressed)
				assert.Equal(t, tt.observed, h.observed)
				assert.Equal(t, tt.dropped, c.dropped)
				assert.Equal(t, tt.gate, g.kinds())
				assert.Zero(t, g.held())
				assert.Equal(t, 1, h.firsts)
				h.settled(t)
				snap := p.Snapshot()
				assert.Equal(t, uint64(1), sum(snap.Calls))
				assert.Equal(t, uint64(tt.ran), sum(snap.Attempts))
				assert.Zero(t, snap.Retries)
			})
		})
	}
}

// The budget denies the second hedge: it does not come, and nothing else changes.
func TestCaseB67_ADeniedHedgeLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, rec := &hedger{delay: 100 * ms, max: 3, budget: 1}, &recorder{}
		p := build(t, h, policy.Observe(rec))
		c := race(&lane{takes: 300 * ms, value: 1}, &lane{takes: time.Second, value: 2})
		v, err := c.do(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, 1, v)
		assert.Equal(t, 300*ms, time.Since(c.start))
		assert.Equal(t, 100*ms, c.lanes[0][1].started)
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, c.lanes[0][0].canceled)
		require.ErrorIs(t, c.lanes[0][1].canceled, policy.ErrLost)
		s := h.state(p)
		assert.Contains(t, []uint64{1, 2}, s.Suppressed)
		assert.Equal(t, uint64(1), s.Started)
		assert.Equal(t, []string{"hedge", "suppressed"}, rec.kinds()[:2])
		e := rec.events[0]
		assert.Equal(t, "hedge", e.Policy)
		assert.Equal(t, "stock", e.Dependency)
		assert.Equal(t, 1, e.Attempt)
		assert.Equal(t, 100*ms, e.Delay)
		h.settled(t)
	})
}

func TestHedgeOnlyWhatIsIdempotent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hedger{delay: ms, max: 3}
		p := build(t, h)
		for _, c := range []*policy.Call{nil, {}, {Idempotent: true, NoRetry: true}} {
			ran := 0
			_, err := policy.DoAttempt(t.Context(), p, c, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
				ran++
				assert.NotContains(t, string(debug.Stack()), "racer", "on the caller's own goroutine")
				assert.Zero(t, a.Hedge())
				time.Sleep(time.Second)
				return 0, nil
			}, nil)
			require.NoError(t, err)
			assert.Equal(t, 1, ran)
			assert.False(t, c != nil && p.Hedges(*c))
		}
		assert.Empty(t, h.asked)
		assert.Empty(t, h.observed, "another kind of call may take another time")
		assert.Equal(t, 3, h.firsts, "they pay into the budget all the same")

		hd, err := p.Enter(policy.WithCall(t.Context(), *idempotent))
		require.NoError(t, err)
		time.Sleep(time.Second)
		hd.Leave(nil)
		assert.Empty(t, h.asked)
		assert.True(t, p.Hedges(*idempotent))
		assert.False(t, (*policy.Pipeline)(nil).Hedges(*idempotent))

		// The context may say so, too.
		n := atomic.Int32{}
		v, err := policy.Do(policy.WithCall(t.Context(), *idempotent), p, func(ctx context.Context) (int32, error) {
			if n.Add(1) == 1 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return n.Load(), nil
		})
		require.NoError(t, err)
		assert.Equal(t, int32(2), v)
	})
}

// An attempt that could have no hedge in time runs where its caller does.
func TestHedgeThatWouldComeTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deadline, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for name, tt := range map[string]struct {
			h   *hedger
			ctx context.Context //nolint:containedctx // a table
			pol policy.Policy
		}{
			"no delay is known":     {&hedger{delay: -1}, t.Context(), nil},
			"the caller's deadline": {&hedger{delay: time.Second}, deadline, nil},
			"the total timeout":     {&hedger{delay: time.Second}, t.Context(), policy.Timeouts{Total: time.Second}},
			"the attempt timeout":   {&hedger{delay: time.Second}, t.Context(), policy.Timeouts{Attempt: time.Second}},
		} {
			list := []policy.Policy{tt.h}
			if tt.pol != nil {
				list = append(list, tt.pol)
			}
			p := build(t, list...)
			_, err := policy.DoAttempt(tt.ctx, p, idempotent, 0, func(context.Context, int, *policy.Attempt) (int, error) {
				assert.NotContains(t, string(debug.Stack()), "racer", name)
				time.Sleep(50 * ms)
				return 0, nil
			}, nil)
			require.NoError(t, err, name)
			assert.Equal(t, []time.Duration{50 * ms}, tt.h.observed, name)
			assert.Equal(t, 1, tt.h.firsts, name)
		}
	})
}

func TestHedgeInsideRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, r, g := &hedger{delay: 100 * ms, max: 1}, &retrier{max: 3, delay: time.Second}, &gate{}
		p := build(t, h, r, g)
		c := &hedgedCall{lanes: [][]*lane{
			{{takes: 150 * ms, err: errLimit}, {takes: 100 * ms, err: errBoom}},
			{{takes: 150 * ms, value: 1, what: "busy"}, {takes: 500 * ms, err: errBoom}},
			{{takes: 300 * ms, value: 2}, {takes: 10 * ms, value: 3}},
		}}
		v, err := c.do(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, 3, v)
		assert.Equal(t, 200*ms+time.Second+600*ms+time.Second+110*ms, time.Since(c.start))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, 6, c.ran)
		assert.Equal(t, []int{1}, c.dropped, "the value that another one replaced")
		assert.Equal(t, 1, r.firsts)
		assert.Equal(t, 1, h.firsts)
		require.Len(t, r.states, 2)
		assert.Equal(t, 1, r.states[0].Attempt)
		require.ErrorIs(t, r.states[0].Err, errBoom)
		snap := p.Snapshot()
		assert.Equal(t, uint64(2), snap.Retries)
		assert.Equal(t, uint64(1), snap.Calls[policy.Success])
		assert.Equal(t, uint64(6), sum(snap.Attempts))
		assert.Zero(t, g.held())
		h.settled(t)
	})
}

// One budget for both hears of each first attempt once.
func TestHedgeAndRetryFromOneBudget(t *testing.T) {
	t.Parallel()
	budget := new(int)
	h, r := &hedger{delay: time.Hour, shared: budget}, &sharingRetrier{retrier{max: 3}, budget}
	p := build(t, h, r)
	for _, c := range []*policy.Call{idempotent, {}} {
		_, err := policy.DoAttempt(t.Context(), p, c, 0, func(context.Context, int, *policy.Attempt) (int, error) { return 1, nil }, nil)
		require.NoError(t, err)
	}
	assert.Equal(t, 2, r.firsts)
	assert.Zero(t, h.firsts)

	h.shared = new(int)
	p = build(t, h, r)
	_, err := policy.Do(t.Context(), p, succeed)
	require.NoError(t, err)
	assert.Equal(t, 3, r.firsts)
	assert.Equal(t, 1, h.firsts)
}

type sharingRetrier struct {
	retrier

	budget any
}

func (r *sharingRetrier) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: r, Budget: r.budget}, nil
}

func TestHedgePanics(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lanes []*lane
		panic bool
		want  int
		err   error
		kind  policy.Kind // of the call
		ran   uint64
	}{
		"the attempt":            {lanes: []*lane{{takes: 50 * ms, what: "panic"}}, panic: true, kind: policy.Failure, ran: 1},
		"the attempt, hedged":    {lanes: []*lane{{takes: 150 * ms, what: "panic"}, {takes: time.Second}}, panic: true, kind: policy.Failure, ran: 2},
		"the hedge":              {lanes: []*lane{{takes: time.Second}, {takes: 50 * ms, what: "panic"}}, panic: true, kind: policy.Failure, ran: 2},
		"Goexit":                 {lanes: []*lane{{takes: 50 * ms, what: "goexit"}}, err: policy.ErrGoexit, kind: policy.Failure, ran: 1},
		"Goexit of a hedge":      {lanes: []*lane{{takes: 300 * ms, value: 1}, {takes: 50 * ms, what: "goexit"}}, want: 1, kind: policy.Success, ran: 2},
		"Goexit of the attempt":  {lanes: []*lane{{takes: 150 * ms, what: "goexit"}, {takes: 300 * ms, value: 2}}, want: 2, kind: policy.Success, ran: 2},
		"Goexit of all that ran": {lanes: []*lane{{takes: 150 * ms, what: "goexit"}, {takes: 300 * ms, what: "goexit"}}, err: policy.ErrGoexit, kind: policy.Failure, ran: 2},
	} {
		for _, pooled := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g, h := &gate{}, &hedger{delay: 100 * ms, max: 1}
					list := []policy.Policy{g, h}
					w := &worker{busy: make(chan struct{}, 3)}
					if pooled {
						list = append(list, w)
					}
					p := build(t, list...)
					c := race(tt.lanes...)
					var v int
					var err error
					caught := func() (caught any) {
						defer func() { caught = recover() }()
						v, err = c.do(t.Context(), p)
						return nil
					}()
					if tt.panic {
						pe, ok := caught.(*policy.PanicError)
						require.True(t, ok, "got %v", caught)
						assert.Equal(t, "boom", pe.Value)
						assert.Contains(t, string(pe.Stack), "hedgedCall")
					} else {
						require.Nil(t, caught)
						require.ErrorIs(t, err, tt.err)
						assert.Equal(t, tt.want, v)
					}
					time.Sleep(time.Hour)
					synctest.Wait()
					w.wg.Wait()
					assert.Zero(t, g.held())
					snap := p.Snapshot()
					assert.Equal(t, uint64(1), snap.Calls[tt.kind])
					assert.Equal(t, uint64(1), sum(snap.Calls))
					assert.Equal(t, tt.ran, sum(snap.Attempts))
					h.settled(t)
				})
			})
		}
	}
}

// What a hedge policy or a discard function does to its goroutine stays there.
func TestHedgePolicyThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A panic in Allow is the call's.
		h := &hedger{delay: 100 * ms, max: 1, allow: func(policy.HedgeState) bool { panic("allow") }}
		c := race(&lane{takes: time.Second})
		assert.Panics(t, func() { _, _ = c.do(t.Context(), build(t, h)) })
		assert.Equal(t, 100*ms, time.Since(c.start))

		// One that ends its goroutine allows nothing.
		h = &hedger{delay: 100 * ms, max: 1, allow: func(policy.HedgeState) bool { runtime.Goexit(); return true }}
		c = race(&lane{takes: time.Second, value: 1})
		v, err := c.do(t.Context(), build(t, h))
		require.NoError(t, err)
		assert.Equal(t, 1, v)

		// Nobody waits for the discard of a loser.
		p := build(t, &hedger{delay: 100 * ms, max: 1})
		c = race(&lane{takes: 200 * ms, what: "stubborn"}, &lane{takes: ms, value: 1})
		v, err = policy.DoAttempt(t.Context(), p, idempotent, 0, c.fn, func(int) { panic("discard") })
		require.NoError(t, err)
		assert.Equal(t, 1, v)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, uint64(1), p.Snapshot().Panics)
	})
}

func TestHedgeAndContexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("gone home")
	for name, tt := range map[string]struct {
		timeouts policy.Timeouts
		giveUp   time.Duration // the caller cancels
		lanes    []*lane
		after    time.Duration
		err      error
		kind     policy.Kind
	}{
		"the caller gives up": {
			giveUp: 150 * ms, lanes: []*lane{{takes: time.Second}, {takes: time.Second}},
			after: 150 * ms, err: context.Canceled, kind: policy.Canceled,
		},
		"the caller gives up, and one ignores it": {
			giveUp: 150 * ms, lanes: []*lane{{takes: time.Second, what: "stubborn"}, {takes: time.Second}},
			after: 150 * ms, err: context.Canceled, kind: policy.Canceled,
		},
		"the total timeout": {
			timeouts: policy.Timeouts{Total: 150 * ms}, lanes: []*lane{{takes: time.Second}, {takes: time.Second}},
			after: 150 * ms, err: context.DeadlineExceeded, kind: policy.Timeout,
		},
		"each attempt has its own timeout": {
			timeouts: policy.Timeouts{Attempt: 150 * ms}, lanes: []*lane{{takes: time.Second}, {takes: time.Second}},
			after: 250 * ms, err: context.DeadlineExceeded, kind: policy.Timeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, h := &gate{}, &hedger{delay: 100 * ms, max: 1}
				p := build(t, g, h, tt.timeouts)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.giveUp > 0 {
					time.AfterFunc(tt.giveUp, func() { cancel(cause) })
				}
				c := race(tt.lanes...)
				_, err := c.do(ctx, p)
				require.ErrorIs(t, err, tt.err)
				assert.Equal(t, tt.after, time.Since(c.start))
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Equal(t, uint64(1), p.Snapshot().Calls[tt.kind])
				assert.Zero(t, g.held())
				h.settled(t)
			})
		})
	}
}

// What the winner holds lives until it is released, whatever became of the others.
func TestHedgeHolds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lanes    []*lane
		policies []policy.Policy
	}{
		"the attempt":  {lanes: []*lane{{takes: 150 * ms, value: 1, what: "hold"}, {takes: time.Second, what: "hold"}}},
		"the hedge":    {lanes: []*lane{{takes: time.Second, what: "hold"}, {takes: 50 * ms, value: 1, what: "hold"}}},
		"with a total": {lanes: []*lane{{takes: time.Second}, {takes: 50 * ms, value: 1, what: "hold"}}, policies: []policy.Policy{policy.Timeouts{Total: time.Second, Attempt: time.Second}}},
		"below a failsafe-go timeout": {
			lanes:    []*lane{{takes: time.Second}, {takes: 50 * ms, value: 1, what: "hold"}},
			policies: []policy.Policy{failsafex.Policy("to", timeout.New[any](2*time.Second))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, h := &gate{holds: true}, &hedger{delay: 100 * ms, max: 1}
				p := build(t, append(tt.policies, g, h)...)
				c := race(tt.lanes...)
				v, err := c.do(t.Context(), p)
				require.NoError(t, err)
				assert.Equal(t, 1, v)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, 1, g.held(), "that of the loser is back")
				require.Len(t, c.handles, 1)
				require.NoError(t, c.handles[0].Context().Err())
				c.handles[0].Release()
				require.Error(t, c.handles[0].Context().Err())
				assert.Zero(t, g.held())
				h.settled(t)
			})
		})
	}
}

// A loser that holds, and whose value nobody disposes of, holds nothing for ever.
func TestHedgeReleasesWhatNobodyGets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{holds: true}
		p := build(t, g, &hedger{delay: 100 * ms, max: 1})
		c := race(&lane{takes: 200 * ms}, &lane{takes: 50 * ms, value: 1})
		_, err := policy.DoAttempt(t.Context(), p, idempotent, 0, func(ctx context.Context, n int, a *policy.Attempt) (int, error) {
			if a.Hedge() == 0 {
				time.Sleep(time.Second)
				a.Hold()
				return 5, nil
			}
			return c.fn(ctx, n, a)
		}, nil)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, g.held())
	})
}

// What stands in a queue of ours is not slow.
func TestHedgeDelayBeginsWithTheAttempt(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			queue := &gate{waits: true, enter: func(_ context.Context, a *policy.Attempt) error {
				if !a.NoWait() {
					time.Sleep(250 * ms)
					a.Waited()
				}
				return nil
			}}
			h := &hedger{delay: 100 * ms, max: 1}
			list := []policy.Policy{queue, h}
			w := &worker{busy: make(chan struct{}, 3)}
			if pooled {
				list = append(list, w)
			}
			p := build(t, list...)
			c := race(&lane{takes: time.Second}, &lane{takes: 10 * ms, value: 2})
			v, err := c.do(t.Context(), p)
			require.NoError(t, err)
			assert.Equal(t, 2, v)
			assert.Equal(t, 250*ms, c.lanes[0][0].started)
			assert.Equal(t, 350*ms, c.lanes[0][1].started, "and a hedge does not queue")
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, []time.Duration{110 * ms}, h.observed)
			w.wg.Wait()
			h.settled(t)
		})
	}
}

func TestHedgeRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, h := &gate{limit: 1}, &hedger{delay: 100 * ms, max: 3}
		p := build(t, g, h)
		c := race(&lane{takes: time.Second, value: 1})
		v, err := c.do(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, 1, v)
		synctest.Wait()
		s := h.state(p)
		assert.Equal(t, uint64(1), s.Refused, "and no other is tried")
		assert.Zero(t, s.Started)
		assert.Equal(t, 1, h.undos)
		h.settled(t)

		// The attempt itself is refused: there is nothing to hedge.
		hold, err := p.Enter(t.Context())
		require.NoError(t, err)
		c = race(&lane{})
		_, err = c.do(t.Context(), p)
		require.ErrorIs(t, err, policy.ErrRejected)
		assert.Zero(t, time.Since(c.start))
		hold.Leave(nil)

		// It fails after the hedge was refused: its own error counts.
		c = race(&lane{takes: time.Second, err: errBoom})
		_, err = c.do(t.Context(), p)
		assert.Equal(t, errBoom, err) //nolint:testifylint // identity
		assert.Zero(t, g.held())

		// A shadow gate refuses nothing.
		shadow := &gate{limit: 1, shadow: true}
		p = build(t, shadow, h)
		c = race(&lane{takes: time.Second}, &lane{takes: 10 * ms, value: 2})
		v, err = c.do(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, 2, v)
	})
}

func TestHedgeBehindAFailsafeTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, h := &gate{}, &hedger{delay: 100 * ms, max: 1}
		p := build(t, g, h, failsafex.Policy("to", timeout.New[any](150*ms)))
		c := race(&lane{takes: time.Second}, &lane{takes: time.Second})
		_, err := c.do(t.Context(), p)
		require.ErrorIs(t, err, timeout.ErrExceeded)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []policy.Kind{policy.Timeout, policy.Timeout}, g.kinds())
		h.settled(t)
	})
}

func TestHedgeAndFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hedger{delay: 100 * ms, max: 1}
		p := build(t, h, &fallbackFunc[int]{answer: func(_ context.Context, f policy.FailedCall) (int, error) {
			assert.Equal(t, 1, f.Attempts, "hedges are part of their attempt")
			return 7, nil
		}})
		c := race(&lane{takes: 150 * ms, err: errBoom}, &lane{takes: 150 * ms, value: 2, what: "busy"})
		v, err := c.do(t.Context(), p)
		require.NoError(t, err)
		assert.Equal(t, 7, v)
		assert.Equal(t, []int{2}, c.dropped)
	})
}

// The spans of a call hear of one thing at a time, and of nothing after its end.
func TestHedgeTraced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := &hedgeTracer{}
		p := build(t, &hedger{delay: 100 * ms, max: 2}, policy.Trace(tr), &retrier{max: 2})
		c := &hedgedCall{lanes: [][]*lane{
			{{takes: 150 * ms, err: errBoom}, {takes: 150 * ms, err: errBoom}},
			{{takes: time.Minute, what: "stubborn"}, {takes: 150 * ms, value: 3}, {takes: time.Minute, what: "stubborn"}},
		}}
		_, err := c.do(t.Context(), p)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []string{
			"start stock", "attempt 1", "hedge 1/1", "event hedge", "end failure", "end failure", "event retry",
			"attempt 2", "hedge 2/1", "event hedge", "hedge 2/2", "event hedge", "end canceled", "end canceled", "end success", "end call success 2",
		}, tr.log)
	})
}

type hedgeTracer struct{ tracer }

func (tr *hedgeTracer) StartCall(ctx context.Context, dep string) (context.Context, policy.CallSpan) {
	ctx, _ = tr.tracer.StartCall(ctx, dep)
	return ctx, &hedgeSpan{(*callSpan)(&tr.tracer)}
}

type hedgeSpan struct{ *callSpan }

func (s *hedgeSpan) StartHedge(ctx context.Context, n, h int) (context.Context, policy.AttemptSpan) {
	s.log = append(s.log, "hedge "+string(rune('0'+n))+"/"+string(rune('0'+h)))
	return ctx, (*attemptSpan)(s.callSpan)
}

func TestHedgeConcurrentSafe(t *testing.T) {
	t.Parallel()
	g, h := &gate{}, &hedger{delay: 20 * time.Microsecond, max: 2}
	p := build(t, g, h, &retrier{max: 2}, policy.Timeouts{Total: time.Second}, policy.Observe(&recorder{}))
	var wg sync.WaitGroup
	var ran atomic.Int64
	const calls = 200
	for i := range 8 {
		wg.Go(func() {
			for j := range calls {
				_, _ = policy.DoAttempt(t.Context(), p, idempotent, i+j, func(_ context.Context, n int, a *policy.Attempt) (*int, error) {
					ran.Add(1)
					for range n % 7 * 40 {
						runtime.Gosched()
					}
					if n%5 == 0 && a.Hedge() == 0 {
						return nil, errBoom
					}
					return &n, nil
				}, func(*int) {})
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { return g.held() == 0 }, 10*time.Second, time.Millisecond)
	snap := p.Snapshot()
	assert.Equal(t, uint64(8*calls), sum(snap.Calls))
	assert.LessOrEqual(t, ran.Load(), int64(8*calls*2*3))
}

// A call whose classifier panics about an attempt that was left on its worker has ended once.
func TestHedgePanicOfAClassifierOnAPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := build(t, &hedger{delay: 10 * ms, max: 1}, &worker{busy: make(chan struct{}, 3)}, policy.Timeouts{Attempt: 50 * ms},
			policy.ClassifyErrors(func(error) policy.Kind { panic("which kind?") }))
		end := make(chan struct{})
		assert.Panics(t, func() {
			_, _ = policy.Do(policy.WithCall(t.Context(), *idempotent), p, func(context.Context) (int, error) { <-end; return 0, nil })
		})
		close(end)
		synctest.Wait()
		var calls uint64
		for _, n := range p.Snapshot().Calls {
			calls += n
		}
		assert.Equal(t, uint64(1), calls)
	})
}
