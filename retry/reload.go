package retry

import (
	"github.com/breakwater-go/breakwater/policy"
)

// Reload implements [policy.Reloader]: the retrier goes on under another Config, with
// what its budget has counted. Everything can be changed but the kind of the budget, the
// Window of a ratio, and which live budget it is: with those a new retrier starts afresh.
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
	source := direct(cfg.Budget)
	if source == nil {
		source = BudgetConfig{}
	}
	turn := func() {}
	switch _, own := now.source.(interface{ Validate() error }); {
	case own:
		if turn, err = r.budget.reload(source); err != nil {
			return nil, err
		}
	case source != now.source: // none, or a live one
		return nil, errOtherBudget
	}
	cfg.Budget = now.cfg.Budget
	set := newSettings(cfg, source)
	return func() {
		turn()
		r.set.Store(set)
	}, nil
}
