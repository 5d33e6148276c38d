package retry

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// The defaults are those of Envoy's retry budget.
const (
	defaultShare      = 0.2
	defaultMinRetries = 3

	mostRetries = 1_000_000
)

// InFlightBudgetConfig configures an [InFlightBudget]. The zero value is valid: every
// field documents what zero means. [NewInFlightBudget] copies it; later changes have no
// effect.
type InFlightBudgetConfig struct {
	// Share is how many retries may be in flight for each call in flight, in (0, 1].
	// Zero means 0.2. [Off] means none, so MinRetries alone decides.
	Share float64

	// MinRetries is the number of retries that may be in flight however few calls
	// are, up to 1,000,000. Zero means 3. [Off] means none.
	MinRetries int
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c InFlightBudgetConfig) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: kind, Field: "Budget." + field, Value: value, Want: want})
	}
	if !(c.Share >= 0 && c.Share <= 1) && c.Share != Off {
		fault("Share", c.Share, "want above 0, at most 1, or 0 (0.2), or Off")
	}
	if (c.MinRetries < 0 || c.MinRetries > mostRetries) && c.MinRetries != Off {
		fault("MinRetries", c.MinRetries, "want 1 to 1000000, or 0 (3), or Off")
	}
	if c.Share == Off && c.MinRetries == Off {
		fault("Share", nil, "Share and MinRetries are both Off, which never allows a retry; set MaxAttempts to 1 instead")
	}
	return errors.Join(errs...)
}

func (c InFlightBudgetConfig) withDefaults() InFlightBudgetConfig {
	if c.Share == 0 {
		c.Share = defaultShare
	}
	if c.MinRetries == 0 {
		c.MinRetries = defaultMinRetries
	}
	return c
}

func (c InFlightBudgetConfig) budget() (LiveBudget, error) { return live(NewInFlightBudget(c)) }

// InFlightBudget allows a retry while the retries in flight, with this one, are at most
// Share of the calls in flight, or at most MinRetries. It is the retry budget of Envoy.
//
// A call is in flight from its beginning to its end, also while it waits for a gate or
// between two attempts; a retry from the moment it is allowed, so its wait counts. Calls
// that end while retries go on lower the limit for the next ones only.
//
// It bounds how many retries a dependency has to work on together, which protects one
// that is slow. It does not bound retries of calls that fail fast, which are hardly ever
// in flight together: see [Budget].
//
// It may be shared by several policies. A call through two of them, one inside the
// other, is one call in flight; to see that, each call of pipelines that share a budget
// costs an allocation. It is safe for concurrent use and takes no lock, but all calls
// write to one counter.
type InFlightBudget struct {
	set   atomic.Pointer[inFlightSettings]
	users atomic.Int32 // policies that were given this budget

	_       [64]byte // what every call writes to is apart
	active  atomic.Int64
	retries atomic.Int64
	_       [48]byte
}

// inFlightSettings are the settings of an InFlightBudget, and what follows from them.
type inFlightSettings struct {
	cfg   InFlightBudgetConfig // effective values
	share float64
	least int64
}

func newInFlightSettings(cfg InFlightBudgetConfig) *inFlightSettings {
	return &inFlightSettings{cfg: cfg, share: max(cfg.Share, 0), least: max(int64(cfg.MinRetries), 0)}
}

// NewInFlightBudget returns a live budget. The error, if any, is that of
// [InFlightBudgetConfig.Validate].
func NewInFlightBudget(cfg InFlightBudgetConfig) (*InFlightBudget, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	b := &InFlightBudget{}
	b.set.Store(newInFlightSettings(cfg.withDefaults()))
	return b, nil
}

// Config returns the effective configuration.
func (b *InFlightBudget) Config() InFlightBudgetConfig { return b.set.Load().cfg }

func (b *InFlightBudget) budget() (LiveBudget, error) {
	if b == nil {
		return nil, nilBudget("*InFlightBudget")
	}
	return b, nil
}

// First does nothing: a call counts from its beginning.
func (*InFlightBudget) First(*policy.Attempt) {}

// Take counts a retry in flight if the budget allows one.
func (b *InFlightBudget) Take(time.Time) bool {
	for {
		n := b.retries.Load()
		if n+1 > b.limit(b.active.Load()) {
			return false
		}
		if b.retries.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// limit returns how many retries may be in flight beside so many calls.
func (b *InFlightBudget) limit(active int64) int64 {
	set := b.set.Load()
	return max(int64(math.Floor(exactly(set.share*float64(active)))), set.least)
}

// reload takes over other settings. What is in flight stays.
func (b *InFlightBudget) reload(next BudgetSource) (apply func(), err error) {
	cfg, ok := next.(InFlightBudgetConfig)
	if !ok {
		return nil, errOtherBudget
	}
	return func() { b.set.Store(newInFlightSettings(cfg.withDefaults())) }, nil
}

// Undo ends a retry that did not happen.
func (b *InFlightBudget) Undo(time.Time) { b.Done() }

// Done ends a retry. Without one it does nothing.
func (b *InFlightBudget) Done() {
	for {
		n := b.retries.Load()
		if n <= 0 || b.retries.CompareAndSwap(n, n-1) {
			return
		}
	}
}

func (*InFlightBudget) failed() {}

func (b *InFlightBudget) calls(bool) policy.CallWatcher {
	b.users.Add(1)
	return inFlightCalls{b}
}

func (b *InFlightBudget) describe(s *policy.RetrySnapshot, _ time.Time) {
	active, retries := b.active.Load(), b.retries.Load()
	most := b.limit(active)
	s.BudgetKind = "in_flight"
	s.BudgetRatio = b.set.Load().share
	s.BudgetRetries = uint64(max(retries, 0))
	s.BudgetInFlight = uint64(max(active, 0))
	s.BudgetRemaining = float64(max(most-retries, 0))
	s.BudgetLevel = share(s.BudgetRemaining, float64(most))
}

// inFlightCalls counts the calls in flight.
type inFlightCalls struct{ b *InFlightBudget }

func (c inFlightCalls) Begin(ctx context.Context) context.Context {
	if c.b.users.Load() > 1 {
		ctx = marked(ctx, c.b)
		if nested(ctx, c.b) {
			return ctx
		}
	}
	c.b.active.Add(1)
	return ctx
}

func (c inFlightCalls) End(ctx context.Context, _ policy.Kind) {
	// What was marked when it began says so for good, also if a second policy has
	// come since.
	if !nested(ctx, c.b) {
		c.b.active.Add(-1)
	}
}

func (c inFlightCalls) Spent() { c.b.Done() }
