package policy_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/failsafex"
	"github.com/breakwater-go/breakwater/policy"
)

// Whatever the attempts of hedged calls do, nothing is lost and nothing is counted
// twice: permits, values, hedges, calls and attempts; and an attempt has no more hedges
// beside it than it may.
func TestPropertyHedgesLoseNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		flag := rapid.Bool()
		refusals := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 3), func(n int) bool { return n == 0 }), 0, 7)
		gates := make([]*counting, rapid.IntRange(0, 3).Draw(rt, "gates"))
		var policies []policy.Policy
		for i := range gates {
			gates[i] = &counting{
				name: fmt.Sprintf("g%d", i), place: i,
				shadow: flag.Draw(rt, "shadow"), holds: flag.Draw(rt, "holds"),
				slow: flag.Draw(rt, "slow"), refuse: refusals.Draw(rt, "refuse"),
			}
			policies = append(policies, gates[i])
		}
		h := &hedger{
			delay:  time.Duration(rapid.IntRange(-1, 3).Draw(rt, "hedge delay")) * 500 * time.Millisecond,
			max:    rapid.IntRange(1, 3).Draw(rt, "max hedges"),
			budget: rapid.IntRange(-1, 5).Draw(rt, "budget"),
		}
		policies = append(policies, h)
		var l *ledger
		most := 1
		if flag.Draw(rt, "retry") {
			most = rapid.IntRange(1, 3).Draw(rt, "max")
			l = &ledger{max: most, delay: time.Duration(rapid.IntRange(0, 2).Draw(rt, "delay")) * time.Second}
			policies = append(policies, l)
		}
		var total time.Duration
		if flag.Draw(rt, "timeouts") {
			total = time.Duration(rapid.IntRange(0, 5).Draw(rt, "total")) * time.Second
			policies = append(policies, policy.Timeouts{Total: total, Attempt: time.Duration(rapid.IntRange(0, 3).Draw(rt, "attempt")) * time.Second})
		}
		if flag.Draw(rt, "fallback") {
			policies = append(policies, &fallbackFunc[*item]{answer: func(context.Context, policy.FailedCall) (*item, error) { return &item{id: -1}, nil }})
		}
		if flag.Draw(rt, "traced") {
			policies = append(policies, policy.Trace(faultyTracer{}))
		}
		if flag.Draw(rt, "watched") {
			policies = append(policies, policy.Observe(&recorder{}))
		}
		foreign := rapid.IntRange(0, 3).Draw(rt, "foreign")
		switch foreign {
		case 1:
			policies = append(policies, failsafex.Policy("to", timeout.New[any](2*time.Second)))
		case 2:
			again := retrypolicy.NewBuilder[any]().WithMaxAttempts(2).ReturnLastFailure().
				HandleIf(func(v any, err error) bool { return err != nil || v.(*item).id%2 == 0 }).Build()
			policies = append(policies, failsafex.Policy("again", again))
			most *= 2
		}
		pooled := flag.Draw(rt, "pooled")
		// What an attempt does, after which time, by attempt and hedge in turn.
		type act struct{ what, after int }
		acts := rapid.Custom(func(rt *rapid.T) act {
			return act{rapid.IntRange(0, numDo-1).Draw(rt, "do"), rapid.IntRange(0, 4).Draw(rt, "after")}
		})
		scripts := rapid.SliceOfN(rapid.SliceOfN(acts, 1, 6), 1, 6).Draw(rt, "calls")
		giveUp := time.Duration(rapid.IntRange(1, 20).Draw(rt, "deadline")) * time.Second

		w := &world{made: map[int]int{}, returned: map[int]int{}, dropped: map[int]int{}}
		ran := make([]int, len(scripts))
		var snap policy.Snapshot
		synctest.Test(t, func(t *testing.T) {
			pool := &worker{busy: make(chan struct{}, 3)}
			if pooled {
				policies = append(policies, pool)
			}
			p := build(t, policies...)
			ctx, cancel := context.WithTimeout(t.Context(), giveUp)
			var wg sync.WaitGroup
			for i, script := range scripts {
				wg.Go(func() {
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					defer func() { _ = recover() }()
					start, n := time.Now(), 0
					v, err := policy.DoAttempt(ctx, p, idempotent, script, func(ctx context.Context, script []act, a *policy.Attempt) (*item, error) {
						w.mu.Lock()
						do := script[n%len(script)]
						n++
						ran[i]++
						w.mu.Unlock()
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(do.after) * 400 * time.Millisecond):
						}
						if ctx.Err() != nil && (do.what == doHold || do.what == doHoldBusy) {
							do.what = doSucceed // it would hold what has ended
						}
						return w.attempt(ctx, cancel, do.what, a)
					}, w.discard)
					w.took(v, err, ctx, total > 0 && time.Since(start) >= total)
				})
			}
			wg.Wait()
			cancel()
			time.Sleep(time.Minute) // of attempts that outlived their callers
			pool.wg.Wait()
			synctest.Wait()
			for _, h := range w.handles {
				h.Release()
			}
			snap = p.Snapshot()
		})
		if len(w.faults) > 0 {
			rt.Fatalf("%q", w.faults)
		}
		for id := range w.made {
			require.Equal(rt, 1, w.returned[id]+w.dropped[id], "value %d", id)
		}
		require.Equal(rt, uint64(len(scripts)), sum(snap.Calls), "calls")
		for i := range ran {
			require.LessOrEqual(rt, ran[i], most*(1+h.max), "attempts of call %d", i)
		}
		for _, g := range gates {
			require.Equal(rt, g.entered, g.left, g.name)
			if !g.shadow {
				require.Equal(rt, int(sum(snap.Attempts)-snap.Attempts[policy.NotRun]), g.entered-g.refunded, g.name)
			}
		}
		require.Equal(rt, h.granted, h.undos+h.dones, "hedges paid for")
		if l != nil {
			require.LessOrEqual(rt, l.undos, l.grants)
		}
		s := snapHedge(snap)
		require.LessOrEqual(rt, s.Won, s.Started)
		require.LessOrEqual(rt, int(s.Started), h.granted)
	})
}

func snapHedge(snap policy.Snapshot) *policy.HedgeSnapshot {
	for _, ps := range snap.Policies {
		if ps.Hedge != nil {
			return ps.Hedge
		}
	}
	return nil
}

// took notes what a call returned.
func (w *world) took(v *item, err error, ctx context.Context, late bool) { //nolint:revive // the context is the subject
	if v == nil && err == nil {
		w.faultf("neither a value nor an error")
	}
	if v == nil || v.id < 0 {
		return
	}
	w.mu.Lock()
	w.returned[v.id]++
	w.mu.Unlock()
	if late {
		return // the context may have ended while the function ran
	}
	if actx := v.handle.Context(); ctx.Err() == nil && actx.Err() != nil {
		w.faultf("the context of a held attempt has ended: %v", actx.Err())
	}
}
