package retry

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// The defaults of a budget are those of Finagle and Linkerd: a fifth of the calls,
// and enough for a service with little traffic to retry at all.
const (
	defaultRatio        = 0.2
	defaultMinPerSecond = 10
	defaultWindow       = 10 * time.Second

	maxPerSecond = 1e6
	minWindow    = 100 * time.Millisecond
	maxWindow    = time.Hour

	budgetBuckets = 10
)

// BudgetConfig configures a [Budget]. The zero value is valid: every field documents
// what zero means. [NewBudget] copies it; later changes have no effect.
type BudgetConfig struct {
	// Ratio is the number of retries that each first attempt in the window pays
	// for, in (0, 1]: with 0.2, five calls pay for one retry. Zero means 0.2. [Off]
	// means that calls pay for none, so MinPerSecond alone decides.
	Ratio float64

	// MinPerSecond is the number of retries per second, up to 1,000,000, that are
	// allowed without being paid for, so that a service with little traffic can
	// retry. It is counted over the whole Window, so MinPerSecond × Window of them
	// may come at once. Zero means 10. [Off] means none.
	MinPerSecond float64

	// Window is the time over which first attempts and retries are counted, from
	// 100ms to 1h. It slides in steps of a tenth of its length. Zero means 10s.
	Window time.Duration
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c BudgetConfig) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Budget." + field, Value: value, Want: want})
	}
	if !(c.Ratio >= 0 && c.Ratio <= 1) && c.Ratio != Off {
		fault("Ratio", c.Ratio, "want above 0, at most 1, or 0 (0.2), or Off")
	}
	if !(c.MinPerSecond >= 0 && c.MinPerSecond <= maxPerSecond) && c.MinPerSecond != Off {
		fault("MinPerSecond", c.MinPerSecond, "want above 0, at most 1000000, or 0 (10), or Off")
	}
	if c.Ratio == Off && c.MinPerSecond == Off {
		fault("Ratio", nil, "Ratio and MinPerSecond are both Off, which never allows a retry; set MaxAttempts to 1 instead")
	}
	if c.Window != 0 && (c.Window < minWindow || c.Window > maxWindow) {
		fault("Window", c.Window, "want 100ms to 1h, or 0 (10s)")
	}
	return errors.Join(errs...)
}

func (c BudgetConfig) withDefaults() BudgetConfig {
	if c.Ratio == 0 {
		c.Ratio = defaultRatio
	}
	if c.MinPerSecond == 0 {
		c.MinPerSecond = defaultMinPerSecond
	}
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	return c
}

func (c BudgetConfig) budget() (LiveBudget, error) { return live(NewBudget(c)) }

// Budget bounds the retries of all calls together: a retry is allowed while the
// retries in the window, with this one, are at most Ratio × first attempts in the
// window + MinPerSecond × Window. So retries add a known share to the load of a
// dependency that fails for everybody, instead of multiplying it.
//
// It counts what happened and not what is in flight, so it also bounds retries of
// calls that fail fast. The count is exact under concurrency: no two retries are
// allowed by the same figures.
//
// One budget may be shared by the policies of several pipelines that call the same
// dependency. A call through two of them, one inside the other, pays once; to see that,
// each call of pipelines that share a budget costs an allocation. It is safe for
// concurrent use. Telling it of a call takes no lock.
type Budget struct {
	set   atomic.Pointer[ratioSettings]
	users atomic.Int32 // policies that were given this budget
}

// ratioSettings are the settings of a Budget, and what follows from them.
type ratioSettings struct {
	cfg     BudgetConfig // effective values
	ratio   float64
	reserve float64 // retries in a window that need not be paid for
	counts  *window.Window
}

func newRatioSettings(cfg BudgetConfig, counts *window.Window) *ratioSettings {
	return &ratioSettings{cfg: cfg, counts: counts, ratio: max(cfg.Ratio, 0), reserve: max(cfg.MinPerSecond, 0) * cfg.Window.Seconds()}
}

// NewBudget returns a live budget. The error, if any, is that of
// [BudgetConfig.Validate].
func NewBudget(cfg BudgetConfig) (*Budget, error) { return newBudget(cfg, time.Now()) }

// newBudget returns a budget whose window is aligned to base.
func newBudget(cfg BudgetConfig, base time.Time) (*Budget, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	b := new(Budget)
	b.set.Store(newRatioSettings(cfg, window.New(base, cfg.Window, budgetBuckets)))
	return b, nil
}

// Config returns the effective configuration.
func (b *Budget) Config() BudgetConfig { return b.set.Load().cfg }

func (b *Budget) budget() (LiveBudget, error) {
	if b == nil {
		return nil, nilBudget("*Budget")
	}
	return b, nil
}

// First pays for a first attempt, unless it is part of a call that has paid: one of a
// pipeline around it, with the same budget.
func (b *Budget) First(a *policy.Attempt) {
	if b.users.Load() > 1 && nested(a.Context(), b) {
		return
	}
	counts := b.set.Load().counts
	counts.AddAt(a.Since(counts.Base()), a.Stripe())
}

// Take counts a retry if the budget allows one.
func (b *Budget) Take(now time.Time) bool {
	set := b.set.Load()
	return set.counts.TryAddFailure(now, func(c window.Counts) bool {
		return float64(c.Failures+1) <= set.allowance(c)
	})
}

// Undo takes a retry out of the count that did not happen.
func (b *Budget) Undo(now time.Time) { b.set.Load().counts.UndoFailure(now) }

// Done does nothing: a retry counts until the window has forgotten it.
func (*Budget) Done() {}

func (*Budget) failed() {}

// calls returns what has to be told of calls: only a budget that several policies use
// must know which call is part of another.
func (b *Budget) calls(shared bool) policy.CallWatcher {
	b.users.Add(1)
	if !shared {
		return nil
	}
	return ratioCalls{b}
}

// allowance returns how many retries the window may hold.
func (s *ratioSettings) allowance(c window.Counts) float64 {
	return exactly(s.ratio*float64(c.Calls) + s.reserve)
}

// reload takes over other settings. What the window has counted stays, also in a longer or
// shorter one.
func (b *Budget) reload(next BudgetSource) (apply func(), err error) {
	cfg, ok := next.(BudgetConfig)
	if !ok {
		return nil, errOtherBudget
	}
	cfg = cfg.withDefaults()
	return func() {
		old := b.set.Load()
		counts := old.counts
		if cfg.Window != old.cfg.Window {
			counts = counts.Refit(time.Now(), cfg.Window, budgetBuckets, 0)
		}
		b.set.Store(newRatioSettings(cfg, counts))
	}, nil
}

// exactly makes up for what the product of a ratio and a whole number, and its sum with
// another, lose by rounding. A ratio such as 0.7 or 0.29 has no exact binary form, and
// 0.29 × 100 comes out below 29. What ratio, reserve, product and sum can be off by
// together is less than 2^-50 of the result: that much is added, so that no retry is
// lost. It allows one too many only where the figures are beyond a million million.
func exactly(a float64) float64 { return a + a*0x1p-50 }

// describe fills in what a snapshot says about the budget.
func (b *Budget) describe(s *policy.RetrySnapshot, now time.Time) {
	set := b.set.Load()
	c := set.counts.Counts(now)
	most := math.Floor(set.allowance(c))
	s.BudgetKind = "ratio"
	s.BudgetRatio = set.ratio
	s.BudgetFirsts = c.Calls
	s.BudgetRetries = c.Failures
	s.BudgetRemaining = max(most-float64(c.Failures), 0)
	s.BudgetLevel = share(s.BudgetRemaining, most)
}

// ratioCalls marks the calls of a budget that is shared.
type ratioCalls struct{ b *Budget }

func (c ratioCalls) Begin(ctx context.Context) context.Context {
	if c.b.users.Load() < 2 {
		return ctx
	}
	return marked(ctx, c.b)
}

func (ratioCalls) End(context.Context, policy.Kind) {}
func (ratioCalls) Spent()                           {}
