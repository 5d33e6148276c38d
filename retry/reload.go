package retry

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Reload implements [policy.Reloader]: the retrier goes on under another Config, with
// what its budget has counted. Everything can be changed but the kind of the budget
// and which live budget it is: with those a new retrier starts afresh.
// Calls that are under way are decided about by the new settings from their next attempt
// on.
//
// A live budget that is shared keeps its own settings; a budget that this policy alone
// has takes them over.
func (r *Retrier) Reload(next policy.Policy) (apply func(), err error) {
	var cfg Config
	switch n := next.(type) {
	case Config:
		cfg = n
	case *Config:
		cfg = *n
	default:
		return nil, errOtherPolicy
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	now := r.set.Load()
	cfg = cfg.withDefaults()
	cfg.Name = now.cfg.Name
	source, turn, err := reloadBudget(now.source, r.budget, cfg.Budget)
	if err != nil {
		return nil, err
	}
	cfg.Budget = now.cfg.Budget
	set := newSettings(cfg, source)
	return func() {
		turn()
		r.set.Store(set)
	}, nil
}

// reloadBudget returns what next is, the default where it is nil, and how a budget that
// was made of old takes it over.
func reloadBudget(old BudgetSource, live LiveBudget, next BudgetSource) (source BudgetSource, turn func(), err error) {
	source = direct(next)
	if source == nil {
		source = BudgetConfig{}
	}
	turn = func() {}
	switch _, own := old.(interface{ Validate() error }); {
	case own:
		turn, err = live.reload(source)
	case source != old: // none, or a live one
		err = errOtherBudget
	}
	return source, turn, err
}

// ReloadBudget looks at a config in place of the one that a live budget was made of, and
// changes nothing yet: apply does, and what the budget has counted stays. The error says what
// is wrong with the config, or that it is one of a budget of another kind.
func ReloadBudget(b LiveBudget, next BudgetSource) (apply func(), err error) {
	source := direct(next)
	if v, ok := source.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	return b.reload(source)
}

// Reload implements [policy.Reloader]: the hedger goes on under another Hedge, with what
// its budget has counted and, unless Window has changed, the durations it knows. Its
// budget can be changed as that of a [Retrier] can.
func (h *Hedger) Reload(next policy.Policy) (apply func(), err error) {
	var cfg Hedge
	switch n := next.(type) {
	case Hedge:
		cfg = n
	case *Hedge:
		cfg = *n
	default:
		return nil, errOtherPolicy
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	now := h.set.Load()
	cfg = cfg.withDefaults()
	cfg.Name = now.cfg.Name
	source, turn, err := reloadBudget(now.source, h.budget, cfg.Budget)
	if err != nil {
		return nil, err
	}
	cfg.Budget = now.cfg.Budget
	set := &hedgeSettings{cfg: cfg, source: source, durations: now.durations}
	switch {
	case cfg.fixed():
		set.durations = nil
	case now.durations == nil, cfg.Window != now.cfg.Window:
		set.durations = newDurations(time.Now(), cfg.Window)
	}
	return func() {
		turn()
		h.set.Store(set)
		if set.durations != nil {
			set.durations.until.Store(0) // the delay is another now
		}
	}, nil
}
