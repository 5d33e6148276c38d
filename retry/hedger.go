package retry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Policy      = Hedge{}
	_ policy.Policy      = (*Hedger)(nil)
	_ policy.Hedger      = (*Hedger)(nil)
	_ policy.Snapshotter = (*Hedger)(nil)
	_ policy.Reloader    = (*Hedger)(nil)
)

// Hedger is a live [Hedge]: it decides when a hedge is due and whether there may be one,
// and holds the budget that they are paid from and the durations that the delay follows
// from. It makes no attempts and never waits; the pipeline does.
//
// All methods are safe for concurrent use.
type Hedger struct {
	set    atomic.Pointer[hedgeSettings] // replaced, never changed in place
	budget LiveBudget                    // nil when there is none
}

// hedgeSettings are what a hedger goes by.
type hedgeSettings struct {
	cfg       Hedge        // effective values
	source    BudgetSource // as it was handed over
	durations *durations   // nil when the delay is fixed
}

// NewHedge returns a live hedger. The name goes into snapshots; empty means cfg.Name, and
// if that is empty too, "hedge". The error, if any, is that of [Hedge.Validate].
func NewHedge(name string, cfg Hedge) (*Hedger, error) {
	if name != "" {
		cfg.Name = name
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	h := &Hedger{}
	source, budget, err := liveBudget(cfg.Budget)
	if err != nil {
		return nil, err
	}
	cfg.Budget = source
	if budget != nil {
		h.budget, cfg.Budget = budget, budget
	}
	set := &hedgeSettings{cfg: cfg, source: source}
	if !cfg.fixed() {
		set.durations = newDurations(time.Now(), cfg.Window)
	}
	h.set.Store(set)
	return h, nil
}

// BuildPolicy returns a part that shares this hedger, its budget and the durations it
// knows with every other pipeline that it is handed to. It never fails.
func (h *Hedger) BuildPolicy() (policy.Part, error) { return h.part(true), nil }

// part returns what the hedger is in a pipeline. shared says that others may use its
// budget.
func (h *Hedger) part(shared bool) policy.Part {
	cfg := h.Config()
	p := policy.Part{
		Kind: hedgeKind, Name: cfg.Name, Hedge: h, MaxHedges: cfg.MaxHedges,
		HedgeDelay: cfg.shortest(), Warnings: cfg.warnings(),
	}
	if h.budget != nil {
		p.Budget = h.budget
		p.Calls = h.budget.calls(shared)
		if b, ok := h.budget.(*TokenBudget); ok {
			p.Calls = failing{p.Calls, b}
		}
	}
	return p
}

// failing tells a budget of tokens which calls have failed, where no retry policy does.
type failing struct {
	policy.CallWatcher

	budget *TokenBudget
}

func (f failing) End(ctx context.Context, k policy.Kind) {
	if k.IsFailure() {
		f.budget.failed()
	}
	f.CallWatcher.End(ctx, k)
}

// shortest returns the least that an attempt runs before it is hedged.
func (c Hedge) shortest() time.Duration {
	switch {
	case c.fixed():
		return c.Delay
	case c.Delay > 0:
		return min(c.Delay, c.MinDelay)
	default:
		return c.MinDelay
	}
}

// Config returns the effective configuration: defaults filled in, and as the Budget the
// live one, or [NoBudget].
func (h *Hedger) Config() Hedge { return h.set.Load().cfg }

// Budget returns the live budget, to be shared with others, or nil if there is none.
func (h *Hedger) Budget() LiveBudget { return h.budget }

// First counts a first attempt, which pays into the budget.
func (h *Hedger) First(a *policy.Attempt) {
	if h.budget != nil {
		h.budget.First(a)
	}
}

// Delay returns how long an attempt that begins now may run before it is hedged;
// negative when none is, since too few durations are known.
func (h *Hedger) Delay(now time.Time) time.Duration {
	s := h.set.Load()
	if s.durations == nil {
		return s.cfg.Delay
	}
	return s.durations.delay(now, s.compute)
}

// compute returns the delay that follows from durations.
func (s *hedgeSettings) compute(l policy.Latency) time.Duration {
	switch {
	case l.Count() >= uint64(s.cfg.MinSamples): //nolint:gosec // not negative
	case s.cfg.Delay > 0:
		return s.cfg.Delay
	default:
		return -1
	}
	d := max(l.Quantile(s.cfg.Quantile), s.cfg.MinDelay)
	if s.cfg.MaxDelay > 0 {
		d = min(d, s.cfg.MaxDelay)
	}
	return d
}

// Allow asks the budget for a hedge.
func (h *Hedger) Allow(s policy.HedgeState) bool {
	return h.budget == nil || h.budget.Take(s.Now)
}

// Undo gives a hedge back to the budget that did not reach the dependency.
func (h *Hedger) Undo(now time.Time) {
	if h.budget != nil {
		h.budget.Undo(now)
	}
}

// Done tells the budget that a hedge has ended.
func (h *Hedger) Done() {
	if h.budget != nil {
		h.budget.Done()
	}
}

// Observe notes how long an attempt took that was no hedge. One that a hedge has
// overtaken took at least as long: without it the delay would creep towards the
// attempts that were not hedged.
func (h *Hedger) Observe(now time.Time, d time.Duration) {
	if s := h.set.Load(); s.durations != nil {
		s.durations.observe(now, d)
	}
}

// Snapshot returns the state as it is at the given time. Counts of hedges are the
// pipeline's.
func (h *Hedger) Snapshot(now time.Time) policy.PolicySnapshot {
	set := h.set.Load()
	s := &policy.HedgeSnapshot{MaxHedges: set.cfg.MaxHedges, Delay: set.cfg.Delay}
	if set.durations != nil {
		l := set.durations.latency(now)
		s.Quantile, s.Samples, s.MinSamples = set.cfg.Quantile, l.Count(), uint64(set.cfg.MinSamples) //nolint:gosec // not negative
		s.Delay = max(set.compute(l), 0)
	}
	if h.budget != nil {
		var b policy.RetrySnapshot
		h.budget.describe(&b, now)
		s.HasBudget, s.BudgetKind = true, b.BudgetKind
		s.BudgetLevel, s.BudgetRemaining = b.BudgetLevel, b.BudgetRemaining
	}
	return policy.PolicySnapshot{Name: set.cfg.Name, Kind: hedgeKind, Hedge: s}
}
