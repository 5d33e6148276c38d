package retry

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// The defaults are the example of gRPC's proposal A6.
const (
	defaultMaxTokens  = 10
	defaultTokenRatio = 0.1

	mostTokens = 1000

	// tokenUnit is one token in the unit that is counted in. A6 counts ratios to three
	// decimals; whole numbers add up without rounding.
	tokenUnit = 1000
)

// TokenBudgetConfig configures a [TokenBudget]. The zero value is valid: every field
// documents what zero means. [NewTokenBudget] copies it; later changes have no effect.
type TokenBudgetConfig struct {
	// MaxTokens is how many tokens there are at most, and at the start, up to 1000.
	// Retries are allowed while there are more than half. Zero means 10.
	MaxTokens int

	// TokenRatio is the number of tokens that a call which succeeds gives, from 0.001
	// to 1000; more than three decimals do not count. A failed attempt takes 1. Zero
	// means 0.1.
	TokenRatio float64
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c TokenBudgetConfig) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Budget." + field, Value: value, Want: want})
	}
	if c.MaxTokens < 0 || c.MaxTokens > mostTokens {
		fault("MaxTokens", c.MaxTokens, "want 1 to 1000, or 0 (10)")
	}
	if c.TokenRatio != 0 && !(c.TokenRatio >= 1.0/tokenUnit && c.TokenRatio <= mostTokens) {
		fault("TokenRatio", c.TokenRatio, "want 0.001 to 1000, or 0 (0.1)")
	}
	return errors.Join(errs...)
}

func (c TokenBudgetConfig) withDefaults() TokenBudgetConfig {
	if c.MaxTokens == 0 {
		c.MaxTokens = defaultMaxTokens
	}
	if c.TokenRatio == 0 {
		c.TokenRatio = defaultTokenRatio
	}
	return c
}

func (c TokenBudgetConfig) budget() (LiveBudget, error) { return live(NewTokenBudget(c)) }

// TokenBudget allows retries while its dependency mostly succeeds: each attempt that
// fails takes a token, each call that succeeds gives TokenRatio of one, and retries are
// allowed while there are more than half of MaxTokens. It is the retry throttling of
// gRPC (proposal A6).
//
// It knows no time: after an outage it takes MaxTokens/2 ÷ TokenRatio successes until it
// allows retries again, and it allows none in between. It bounds how many retries an
// outage sees, and not their share of the load.
//
// It may be shared by several policies. Of a call through two of them, one inside the
// other, each attempt that fails takes a token, and a success gives one share. It is
// safe for concurrent use and takes no lock.
type TokenBudget struct {
	set    atomic.Pointer[tokenSettings]
	tokens atomic.Int64 // in units
	users  atomic.Int32 // policies that were given this budget
}

// tokenSettings are the settings of a TokenBudget, and what follows from them.
type tokenSettings struct {
	cfg        TokenBudgetConfig // effective values
	most, gain int64             // in units
}

func newTokenSettings(cfg TokenBudgetConfig) *tokenSettings {
	return &tokenSettings{
		cfg:  cfg,
		most: int64(cfg.MaxTokens) * tokenUnit,
		gain: int64(math.Floor(exactly(cfg.TokenRatio * tokenUnit))),
	}
}

// NewTokenBudget returns a live budget, full. The error, if any, is that of
// [TokenBudgetConfig.Validate].
func NewTokenBudget(cfg TokenBudgetConfig) (*TokenBudget, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &TokenBudget{}
	set := newTokenSettings(cfg.withDefaults())
	b.set.Store(set)
	b.tokens.Store(set.most)
	return b, nil
}

// Config returns the effective configuration.
func (b *TokenBudget) Config() TokenBudgetConfig { return b.set.Load().cfg }

func (b *TokenBudget) budget() (LiveBudget, error) {
	if b == nil {
		return nil, nilBudget("*TokenBudget")
	}
	return b, nil
}

// First does nothing: only how calls end matters.
func (*TokenBudget) First(*policy.Attempt) {}

// Take reports whether more than half of the tokens are there. It takes none: a failed
// attempt does.
func (b *TokenBudget) Take(time.Time) bool { return b.tokens.Load() > b.set.Load().most/2 }

// Undo does nothing, as Take does not.
func (*TokenBudget) Undo(time.Time) {}

// Done does nothing, as Take does not.
func (*TokenBudget) Done() {}

// failed takes a token. It comes before Take, so that a call never goes by tokens
// which its own failure has used up.
func (b *TokenBudget) failed() { b.add(-tokenUnit) }

// add changes the number of tokens within its bounds. It does not write where nothing
// changes, as of a budget that is full, which is nearly always.
func (b *TokenBudget) add(n int64) {
	most := b.set.Load().most
	for {
		old := b.tokens.Load()
		next := min(max(old+n, 0), most)
		if next == old || b.tokens.CompareAndSwap(old, next) {
			return
		}
	}
}

// reload takes over other settings. The tokens stay, as many as there is room for.
func (b *TokenBudget) reload(next BudgetSource) (apply func(), err error) {
	cfg, ok := next.(TokenBudgetConfig)
	if !ok {
		return nil, errOtherBudget
	}
	return func() {
		b.set.Store(newTokenSettings(cfg.withDefaults()))
		b.add(0)
	}, nil
}

func (b *TokenBudget) calls(bool) policy.CallWatcher {
	b.users.Add(1)
	return tokenCalls{b}
}

func (b *TokenBudget) describe(s *policy.RetrySnapshot, _ time.Time) {
	tokens, set := b.tokens.Load(), b.set.Load()
	s.BudgetKind = "tokens"
	s.BudgetRatio = set.cfg.TokenRatio
	s.BudgetTokens = float64(tokens) / tokenUnit
	s.BudgetMaxTokens = float64(set.cfg.MaxTokens)
	s.BudgetLevel = share(float64(tokens), float64(set.most))
	if spare := tokens - set.most/2; spare > 0 {
		s.BudgetRemaining = float64((spare - 1) / tokenUnit) // the failure that asks takes one
	}
}

// tokenCalls tells the budget of calls that succeed.
type tokenCalls struct{ b *TokenBudget }

func (c tokenCalls) Begin(ctx context.Context) context.Context {
	if c.b.users.Load() < 2 {
		return ctx
	}
	return marked(ctx, c.b)
}

func (c tokenCalls) End(ctx context.Context, k policy.Kind) {
	if k != policy.Success || (c.b.users.Load() > 1 && nested(ctx, c.b)) {
		return
	}
	c.b.add(c.b.set.Load().gain)
}

func (tokenCalls) Spent() {}
