package retry

import (
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// hedgeKind is the kind of policy, and the default of every instance name.
const hedgeKind = "hedge"

const (
	defaultQuantile    = 0.95
	defaultMinSamples  = 100
	defaultHedgeWindow = time.Minute
	defaultMinDelay    = time.Millisecond
	defaultMaxHedges   = 1

	mostSamples    = 1_000_000
	minHedgeWindow = time.Second
	maxHedgeWindow = time.Hour
	leastDelay     = time.Microsecond
	mostDelay      = time.Hour
	mostHedges     = 10

	// manyHedges is the quantile below which hedges are not for the few slow calls any
	// more.
	manyHedges = 0.8
)

// Hedge configures a [Hedger]. The zero value is valid: every field documents what zero
// means. [NewHedge] copies it; later changes have no effect.
//
// A hedge is another attempt beside one that is slow: the first to answer is the call's,
// and the others are canceled. It trades some load for the slowest calls (Dean and
// Barroso, "The Tail at Scale", 2013). Only calls that are marked as idempotent are
// hedged (policy.Call.Idempotent), and none that asks for NoRetry.
type Hedge struct {
	// Name is the instance name: the policy label of metrics and events, unique
	// within a pipeline. Empty means "hedge".
	Name string

	// Delay is how long an attempt may run, from the moment its gates have let it in,
	// before the first hedge is started beside it, and each hedge before the next;
	// from 1µs to 1h. With Quantile it holds until there are MinSamples durations.
	// Zero means that Quantile decides, and that nothing is hedged until then.
	Delay time.Duration

	// Quantile makes the delay that quantile of the time in which attempts were
	// answered of late, in (0, 1): with 0.95, one call in twenty is hedged. Zero means
	// 0.95, or none where Delay is set.
	Quantile float64

	// MinSamples is the number of durations, up to 1,000,000, that Window must hold
	// for Quantile to decide. Zero means 100.
	MinSamples int

	// Window is the time over which durations are remembered, from 1s to 1h. It
	// slides in steps of a sixth of its length. Zero means 1m.
	Window time.Duration

	// MinDelay and MaxDelay are the bounds of a delay that follows from Quantile, up
	// to 1h. Zero means 1ms, or MaxDelay if that is shorter, and no bound.
	MinDelay, MaxDelay time.Duration

	// MaxHedges is the largest number of hedges beside one attempt, up to 10. Zero
	// means 1.
	MaxHedges int

	// Budget bounds the hedges of all calls together: a hedge takes from it what a
	// retry does. One that is shared with a [Config] bounds both. Nil means a budget
	// of this policy's own with the defaults of [BudgetConfig]: 20 % of the calls and
	// 10 per second. [NoBudget] means none.
	Budget BudgetSource
}

// Validate reports every invalid field as a [*policy.ConfigError], joined with
// [errors.Join].
func (c Hedge) Validate() error {
	var errs []error
	fault := func(field string, value any, want string) {
		errs = append(errs, &policy.ConfigError{Policy: hedgeKind, Field: field, Value: value, Want: want})
	}
	duration := func(field string, d, least, most time.Duration, zero string) {
		if d != 0 && (d < least || d > most) {
			fault(field, d, fmt.Sprintf("want %s to %s, or 0 (%s); a number alone is nanoseconds", least, most, zero))
		}
	}
	duration("Delay", c.Delay, leastDelay, mostDelay, "Quantile decides")
	if !(c.Quantile >= 0 && c.Quantile < 1) {
		fault("Quantile", c.Quantile, "want above 0 and below 1, or 0 (0.95, or none where Delay is set)")
	}
	if c.MinSamples < 0 || c.MinSamples > mostSamples {
		fault("MinSamples", c.MinSamples, "want 1 to 1000000, or 0 (100)")
	}
	duration("Window", c.Window, minHedgeWindow, maxHedgeWindow, "1m")
	duration("MinDelay", c.MinDelay, leastDelay, mostDelay, "1ms")
	duration("MaxDelay", c.MaxDelay, leastDelay, mostDelay, "no bound")
	if c.MaxDelay > 0 && c.MaxDelay < c.MinDelay {
		fault("MaxDelay", c.MaxDelay, "want at least MinDelay, which is "+c.MinDelay.String())
	}
	if c.fixed() {
		for _, f := range []struct {
			name  string
			value any
			set   bool
		}{
			{"MinSamples", c.MinSamples, c.MinSamples > 0},
			{"Window", c.Window, c.Window > 0},
			{"MinDelay", c.MinDelay, c.MinDelay > 0},
			{"MaxDelay", c.MaxDelay, c.MaxDelay > 0},
		} {
			if f.set {
				fault(f.name, f.value, "a fixed Delay does not need it; set Quantile too, or leave it out")
			}
		}
	}
	if c.MaxHedges < 0 || c.MaxHedges > mostHedges {
		fault("MaxHedges", c.MaxHedges, "want 1 to 10, or 0 (1)")
	}
	for _, err := range checkBudget(c.Budget) {
		if ce, ok := err.(*policy.ConfigError); ok { //nolint:errorlint // a budget makes no other
			ce.Policy = hedgeKind
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fixed reports whether the delay follows from nothing.
func (c Hedge) fixed() bool { return c.Delay > 0 && c.Quantile == 0 }

// BuildPolicy returns a part with a hedger of its own, and with a budget of its own
// unless Budget is a live one. To share them, hand over a [Hedger].
func (c Hedge) BuildPolicy() (policy.Part, error) {
	h, err := NewHedge(c.Name, c)
	if err != nil {
		return policy.Part{Kind: hedgeKind, Name: c.Name}, err
	}
	_, own := h.set.Load().source.(interface{ Validate() error })
	return h.part(!own), nil
}

// withDefaults returns what a valid c means, with every field but Budget filled in, as
// far as it has a say.
func (c Hedge) withDefaults() Hedge {
	if c.Name == "" {
		c.Name = hedgeKind
	}
	if c.MaxHedges == 0 {
		c.MaxHedges = defaultMaxHedges
	}
	if c.fixed() {
		return c
	}
	if c.Quantile == 0 {
		c.Quantile = defaultQuantile
	}
	if c.MinSamples == 0 {
		c.MinSamples = defaultMinSamples
	}
	if c.Window == 0 {
		c.Window = defaultHedgeWindow
	}
	if c.MinDelay == 0 {
		c.MinDelay = defaultMinDelay
		if c.MaxDelay > 0 {
			c.MinDelay = min(c.MinDelay, c.MaxDelay)
		}
	}
	return c
}

// warnings returns what a valid, effective c is likely to surprise with.
func (c Hedge) warnings() []string {
	var list []string
	if _, none := c.Budget.(NoBudget); none {
		list = append(list, fmt.Sprintf(
			"there is no budget: when every call is slow, the dependency gets its load times %d", 1+c.MaxHedges))
	}
	if c.Quantile > 0 && c.Quantile < manyHedges {
		list = append(list, fmt.Sprintf(
			"Quantile %v hedges %.0f calls in a hundred: hedges are for the few that are slow", c.Quantile, 100*(1-c.Quantile)))
	}
	return list
}
