package policy_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/failsafex"
	"github.com/breakwater-go/breakwater/policy"
)

// What an attempt of the property test does.
const (
	doSucceed   = iota
	doFail      // an error
	doBusy      // a value, classified as busy
	doPanic     //
	doGoexit    //
	doHang      // until its context ends
	doDawdle    // past every timeout, then a value
	doHold      // a value that holds its attempt
	doHoldBusy  // the same, classified as busy
	doGiveUp    // its caller cancels
	doNested    // a refusal further down
	doPermanent //
	doHoldPanic //
	numDo
)

// item is a value that must end up with the caller, or be discarded.
type item struct {
	id     int
	handle policy.Handle
}

// counting is a gate that counts what it let in, and refuses now and then.
type counting struct {
	name                             string
	place                            int
	shadow, holds, refundsOnly, slow bool
	refuse                           []bool // by attempt, in turn
	mu                               sync.Mutex
	n, entered, left, refunded       int
}

func (g *counting) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind: "counting", Name: g.name, Place: g.place, Gate: g,
		Shadow: g.shadow, Holds: g.holds, RefundsOnly: g.refundsOnly, Waits: g.slow,
	}, nil
}
func (g *counting) Peek(*policy.Attempt) error { return nil }

func (g *counting) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	if g.slow && !a.NoWait() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		a.Waited()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
	if len(g.refuse) > 0 && g.refuse[g.n%len(g.refuse)] {
		return &policy.RejectedError{Reason: policy.ReasonConcurrency}
	}
	g.entered++
	a.Slot(slot).Word = uint64(g.n)
	a.Slot(slot).Ref = g
	return nil
}

func (g *counting) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.Slot(slot).Ref != any(g) {
		panic("another gate's slot")
	}
	g.left++
	if o.Kind == policy.NotRun {
		g.refunded++
	}
}

// ledger is a retry policy that counts what it gave and got back.
type ledger struct {
	max           int
	delay         time.Duration
	mu            sync.Mutex
	grants, undos int
	spent         int
	began         int
	ended         [policy.NumKinds]uint64
}

func (l *ledger) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "retry", Retry: l, Calls: l}, nil
}

func (l *ledger) Begin(ctx context.Context) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began++
	return context.WithValue(ctx, ledgerKey{}, l)
}

func (l *ledger) End(ctx context.Context, k policy.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Value(ledgerKey{}) == l {
		l.ended[k]++
	}
}
func (l *ledger) Spent() { l.mu.Lock(); l.spent++; l.mu.Unlock() }

type ledgerKey struct{}

func (l *ledger) First(*policy.Attempt) {}
func (l *ledger) Undo(time.Time)        { l.mu.Lock(); l.undos++; l.mu.Unlock() }

func (l *ledger) Decide(s policy.RetryState) policy.Decision {
	if s.Outcome.Kind == policy.Canceled || s.Outcome.Kind == policy.Permanent {
		return policy.Decision{Stop: policy.StopOutcome}
	}
	if s.Attempt >= l.max {
		return policy.Decision{Stop: policy.StopAttempts}
	}
	l.mu.Lock()
	l.grants++
	l.mu.Unlock()
	return policy.Decision{Delay: l.delay}
}

// world is what one run of the property test counts.
type world struct {
	mu                           sync.Mutex
	made, returned, dropped      map[int]int
	nextID, retriesRan, attempts int
	handles                      []policy.Handle
	faults                       []string
}

func (w *world) faultf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *world) attempt(ctx context.Context, cancel context.CancelFunc, what int, a *policy.Attempt) (*item, error) {
	w.mu.Lock()
	w.attempts++
	if a.Number() > 1 {
		w.retriesRan++
	}
	w.mu.Unlock()
	value := func() *item {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.nextID++
		w.made[w.nextID]++
		return &item{id: w.nextID}
	}
	switch what {
	case doFail:
		return nil, errBoom
	case doBusy:
		a.SetOutcome(policy.Busy, 0)
	case doPanic:
		panic("x")
	case doGoexit:
		runtime.Goexit()
	case doHang:
		<-ctx.Done()
		return nil, ctx.Err()
	case doDawdle:
		time.Sleep(10 * time.Second)
	case doHold, doHoldBusy, doHoldPanic:
		h := a.Hold()
		if what == doHoldPanic {
			panic("x")
		}
		if what == doHoldBusy {
			a.SetOutcome(policy.Busy, 0)
		}
		v := value()
		v.handle = h
		w.mu.Lock()
		w.handles = append(w.handles, h)
		w.mu.Unlock()
		return v, nil
	case doGiveUp:
		cancel()
		<-ctx.Done() // a context in between may follow on a goroutine
		return nil, ctx.Err()
	case doNested:
		w.mu.Lock()
		if a.Number() > 1 {
			w.retriesRan-- // it did not reach the dependency
		}
		w.mu.Unlock()
		return nil, &policy.RejectedError{Dependency: "further down", Policy: "gate"}
	case doPermanent:
		return nil, policy.AsPermanent(errBoom)
	}
	return value(), nil
}

func (w *world) discard(v *item) {
	w.mu.Lock()
	w.dropped[v.id]++
	w.mu.Unlock()
	v.handle.Release()
}

// call makes one call and keeps what it returned.
func (w *world) call(ctx context.Context, p *policy.Pipeline, script []int, total time.Duration) {
	start := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = recover() }()
	v, err := policy.DoAttempt(ctx, p, nil, script, func(ctx context.Context, script []int, a *policy.Attempt) (*item, error) {
		return w.attempt(ctx, cancel, script[(a.Number()-1)%len(script)], a)
	}, w.discard)
	if v == nil && err == nil {
		w.faultf("neither a value nor an error for %v", script)
	}
	if v == nil || v.id < 0 {
		return
	}
	w.mu.Lock()
	w.returned[v.id]++
	w.mu.Unlock()
	if total > 0 && time.Since(start) >= total {
		return // it may have ended while the function ran
	}
	if actx := v.handle.Context(); ctx.Err() == nil && actx.Err() != nil {
		w.faultf("the context of a held attempt has ended: %v", actx.Err())
	}
}

// Whatever happens, nothing is lost and nothing is counted twice: permits, tokens,
// retries, values, calls and attempts.
func TestPropertyNothingIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		flag := rapid.Bool()
		refusals := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 3), func(n int) bool { return n == 0 }), 0, 7)
		gates := make([]*counting, rapid.IntRange(0, 4).Draw(rt, "gates"))
		var policies []policy.Policy
		for i := range gates {
			gates[i] = &counting{
				name: fmt.Sprintf("g%d", i), place: i,
				shadow: flag.Draw(rt, "shadow"), holds: flag.Draw(rt, "holds"),
				refundsOnly: flag.Draw(rt, "refunds only"), slow: flag.Draw(rt, "slow"), refuse: refusals.Draw(rt, "refuse"),
			}
			policies = append(policies, gates[i])
		}
		var l *ledger
		if flag.Draw(rt, "retry") {
			l = &ledger{max: rapid.IntRange(1, 4).Draw(rt, "max"), delay: time.Duration(rapid.IntRange(0, 2).Draw(rt, "delay")) * time.Second}
			policies = append(policies, l)
		}
		var total time.Duration
		if flag.Draw(rt, "timeouts") {
			total = time.Duration(rapid.IntRange(0, 5).Draw(rt, "total")) * time.Second
			policies = append(policies, policy.Timeouts{
				Total:   total,
				Attempt: time.Duration(rapid.IntRange(0, 3).Draw(rt, "attempt")) * time.Second,
			})
		}
		switch rapid.IntRange(0, 3).Draw(rt, "fallback") {
		case 1:
			policies = append(policies, &fallbackFunc[*item]{answer: func(context.Context, policy.FailedCall) (*item, error) { return &item{id: -1}, nil }})
		case 2:
			policies = append(policies, &fallbackFunc[*item]{answer: func(context.Context, policy.FailedCall) (*item, error) { return nil, errLimit }})
		case 3:
			policies = append(policies, &fallbackFunc[*item]{answer: func(context.Context, policy.FailedCall) (*item, error) { panic("fallback") }})
		}
		if flag.Draw(rt, "traced") {
			policies = append(policies, policy.Trace(faultyTracer{}))
		}
		if flag.Draw(rt, "watched") {
			policies = append(policies, policy.Observe(&recorder{}))
		}
		foreign := rapid.IntRange(0, 4).Draw(rt, "foreign")
		switch foreign {
		case 1:
			policies = append(policies, failsafex.Policy("to", timeout.New[any](2*time.Second)))
		case 2:
			policies = append(policies, failsafex.Policy("cb", circuitbreaker.NewBuilder[any]().WithFailureThreshold(2).WithDelay(3*time.Second).Build()))
		case 3:
			again := retrypolicy.NewBuilder[any]().WithMaxAttempts(2).ReturnLastFailure().
				HandleIf(func(v any, err error) bool { return err != nil || v.(*item).id%2 == 0 }).Build()
			policies = append(policies, failsafex.Policy("again", again))
		}
		pooled := flag.Draw(rt, "pooled")
		scripts := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, numDo-1), 1, 4), 1, 8).Draw(rt, "calls")
		giveUp := time.Duration(rapid.IntRange(1, 20).Draw(rt, "deadline")) * time.Second
		together := flag.Draw(rt, "together")

		w := &world{made: map[int]int{}, returned: map[int]int{}, dropped: map[int]int{}}
		var snap policy.Snapshot
		synctest.Test(t, func(t *testing.T) {
			pool := newWorker()
			if pooled {
				policies = append(policies, pool)
			}
			p := build(t, policies...)
			ctx, cancel := context.WithTimeout(t.Context(), giveUp)
			var wg sync.WaitGroup
			for _, script := range scripts {
				wg.Go(func() { w.call(ctx, p, script, total) })
				if !together {
					wg.Wait()
				}
			}
			wg.Wait()
			cancel()
			time.Sleep(time.Minute) // of functions that outlived their callers
			pool.wg.Wait()
			for _, h := range w.handles {
				h.Release()
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
		ran := int(sum(snap.Attempts) - snap.Attempts[policy.NotRun])
		for _, g := range gates {
			if g.refundsOnly {
				require.Equal(rt, g.left, g.refunded)
				// A gate behind its shadow is not entered by all that ran.
				require.LessOrEqual(rt, g.entered-g.refunded, ran, g.name)
				if !g.shadow {
					require.Equal(rt, ran, g.entered-g.refunded, g.name)
				}
				continue
			}
			require.Equal(rt, g.entered, g.left, g.name)
			if !g.shadow {
				require.Equal(rt, ran, g.entered-g.refunded, g.name)
			}
		}
		if l != nil {
			require.Equal(rt, len(scripts), l.began, "calls begun")
			require.Equal(rt, uint64(len(scripts)), sum(l.ended), "calls ended")
			require.Equal(rt, l.grants, l.undos+l.spent, "retries given back or spent")
		}
		if l != nil && foreign != 3 { // whose retries cost no budget
			require.Equal(rt, w.retriesRan, l.grants-l.undos, "retries paid for")
		}
	})
}
