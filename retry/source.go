package retry

import (
	"context"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// BudgetSource is what [Config] takes as its budget: a [BudgetConfig], a
// [TokenBudgetConfig] or an [InFlightBudgetConfig] (each policy then has a budget of its
// own), a live [*Budget], [*TokenBudget] or [*InFlightBudget] that several policies
// share, or [NoBudget].
type BudgetSource interface {
	// budget returns nil for none.
	budget() (LiveBudget, error)
}

// LiveBudget is what retries, and attempts that are made beside another, are paid from:
// a [*Budget], a [*TokenBudget] or an [*InFlightBudget]. A retry policy does all of this
// by itself. All methods are safe for concurrent use.
type LiveBudget interface {
	BudgetSource

	// First is told of the first attempt of each call, once its gates have let it in.
	First(a *policy.Attempt)

	// Take asks for one more attempt and reports whether it may be made. If it may,
	// either Undo or Done follows, once.
	Take(now time.Time) bool

	// Undo gives back what Take took: the attempt never reached the dependency.
	Undo(now time.Time)

	// Done says that the attempt has ended.
	Done()

	// failed is told of each attempt that failed in a way that is retried, before
	// Take.
	failed()

	// calls is called once for each policy that uses the budget. It returns what has
	// to be told of that policy's calls, or nil. shared says that others may use it.
	calls(shared bool) policy.CallWatcher

	// reload looks at a config, in place of the one that the budget was made of, and
	// changes nothing yet: apply does. The error says what cannot be changed.
	reload(next BudgetSource) (apply func(), err error)

	// describe fills in what a snapshot says about the budget.
	describe(s *policy.RetrySnapshot, now time.Time)
}

var (
	_ LiveBudget = (*Budget)(nil)
	_ LiveBudget = (*TokenBudget)(nil)
	_ LiveBudget = (*InFlightBudget)(nil)
)

// NoBudget is the budget of a policy that has none: every call may be tried
// MaxAttempts times, also when all of them fail.
type NoBudget struct{}

func (NoBudget) budget() (LiveBudget, error) { return nil, nil }

// direct returns what b is where it is a pointer to a config or a [NoBudget], and a nil
// *Budget where that pointer is nil.
func direct(b BudgetSource) BudgetSource {
	switch p := b.(type) {
	case *BudgetConfig:
		if p != nil {
			return *p
		}
	case *TokenBudgetConfig:
		if p != nil {
			return *p
		}
	case *InFlightBudgetConfig:
		if p != nil {
			return *p
		}
	case *NoBudget:
		if p != nil {
			return *p
		}
	default:
		return b
	}
	return (*Budget)(nil)
}

// checkBudget returns what is wrong with a budget; nil means the default one.
func checkBudget(b BudgetSource) []error {
	switch b := direct(b).(type) {
	case nil:
		return nil
	case interface{ Validate() error }:
		return flatten(b.Validate())
	default:
		_, err := b.budget()
		return flatten(err)
	}
}

// liveBudget returns what b is, the default where it is nil, and the budget that it
// stands for, nil for none.
func liveBudget(b BudgetSource) (BudgetSource, LiveBudget, error) {
	source := direct(b)
	if source == nil {
		source = BudgetConfig{}
	}
	live, err := source.budget()
	return source, live, err
}

// live makes a result of a constructor's.
func live[B LiveBudget](b B, err error) (LiveBudget, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Why a policy cannot go on under other settings.
var (
	errOtherBudget = errors.New("the budget is another one")
	errOtherPolicy = errors.New("it is not made of a retry.Config")
)

func nilBudget(what string) error {
	return &policy.ConfigError{Policy: kind, Field: "Budget", Want: "want a budget, not a nil " + what + "; NoBudget means none"}
}

// share returns the share of most that left is, from 0 to 1.
func share(left, most float64) float64 {
	if !(most > 0) {
		return 0
	}
	return min(max(left/most, 0), 1)
}

// mark is the context of a call that pays into a budget. Its key is the budget, so that
// calls of other budgets around it and inside it do not matter.
type mark struct {
	context.Context //nolint:containedctx // this is a context

	budget LiveBudget
	nested bool // inside another call that pays into the same budget
}

func (m *mark) Value(key any) any {
	if key == any(m.budget) {
		return m
	}
	return m.Context.Value(key)
}

// marked returns the context of a call that pays into b, if none around it does.
func marked(ctx context.Context, b LiveBudget) context.Context {
	outer, ok := ctx.Value(b).(*mark)
	if ok && outer.nested {
		return ctx
	}
	return &mark{Context: ctx, budget: b, nested: ok}
}

// nested reports whether ctx is that of a call inside another one that pays into b.
func nested(ctx context.Context, b LiveBudget) bool {
	m, ok := ctx.Value(b).(*mark)
	return ok && m.nested
}
