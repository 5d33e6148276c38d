package retry_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// fields returns the names of the fields that err complains about.
func fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok, "faults are joined: %v", err)
	var names []string
	for _, e := range joined.Unwrap() {
		ce, ok := e.(*policy.ConfigError) //nolint:errorlint // each fault is a bare ConfigError
		require.True(t, ok, "%T is a ConfigError", e)
		assert.Equal(t, "retry", ce.Policy)
		names = append(names, ce.Field)
	}
	return names
}

// text makes errors comparable that hold values which are not, such as NaN.
func text(err error) string { return fmt.Sprint(err) }

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	live, err := retry.NewBudget(retry.BudgetConfig{})
	require.NoError(t, err)
	var missing *retry.Budget
	tests := []struct {
		name string
		cfg  retry.Config
		want []string
	}{
		{name: "zero"},
		{name: "smallest", cfg: retry.Config{
			MaxAttempts: 1, BaseDelay: 1, MaxDelay: 1, Factor: 1, MaxDuration: 1, MaxPushback: 1,
			Budget: retry.BudgetConfig{Ratio: math.SmallestNonzeroFloat64, MinPerSecond: math.SmallestNonzeroFloat64, Window: 100 * time.Millisecond},
		}},
		{name: "largest", cfg: retry.Config{
			MaxAttempts: math.MaxInt, BaseDelay: math.MaxInt64, MaxDelay: math.MaxInt64, Factor: math.MaxFloat64, Jitter: retry.NoJitter,
			MaxDuration: math.MaxInt64, MaxPushback: math.MaxInt64,
			Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: 1e6, Window: time.Hour},
		}},
		{name: "off", cfg: retry.Config{MaxAttempts: retry.Unlimited, BaseDelay: retry.Off, Budget: retry.NoBudget{}}},
		{name: "live budget", cfg: retry.Config{Budget: live}},
		{name: "ratio alone", cfg: retry.Config{Budget: retry.BudgetConfig{MinPerSecond: retry.Off}}},
		{name: "reserve alone", cfg: retry.Config{Budget: retry.BudgetConfig{Ratio: retry.Off}}},
		{name: "base above the default cap", cfg: retry.Config{BaseDelay: time.Hour}},
		{name: "cap below the default base", cfg: retry.Config{MaxDelay: time.Millisecond}},

		{name: "attempts", cfg: retry.Config{MaxAttempts: -2}, want: []string{"MaxAttempts"}},
		{name: "base", cfg: retry.Config{BaseDelay: -time.Second}, want: []string{"BaseDelay"}},
		{name: "cap", cfg: retry.Config{MaxDelay: -1}, want: []string{"MaxDelay"}},
		{name: "cap below base", cfg: retry.Config{BaseDelay: 2, MaxDelay: 1}, want: []string{"MaxDelay"}},
		{name: "factor", cfg: retry.Config{Factor: 0.5}, want: []string{"Factor"}},
		{name: "factor not a number", cfg: retry.Config{Factor: math.NaN()}, want: []string{"Factor"}},
		{name: "factor infinite", cfg: retry.Config{Factor: math.Inf(1)}, want: []string{"Factor"}},
		{name: "jitter", cfg: retry.Config{Jitter: retry.EqualJitter + 1}, want: []string{"Jitter"}},
		{name: "backoff", cfg: retry.Config{Backoff: retry.Decorrelated + 1}, want: []string{"Backoff"}},
		{name: "constant", cfg: retry.Config{Backoff: retry.Constant, Factor: 1, Jitter: retry.EqualJitter}},
		{name: "constant that grows", cfg: retry.Config{Backoff: retry.Constant, Factor: 2}, want: []string{"Factor"}},
		{name: "decorrelated", cfg: retry.Config{Backoff: retry.Decorrelated, Factor: 1.5}},
		{name: "decorrelated with other jitter", cfg: retry.Config{Backoff: retry.Decorrelated, Jitter: retry.NoJitter}, want: []string{"Jitter"}},
		{name: "rules", cfg: retry.Config{
			Failure: retry.Rule{MaxAttempts: 3}, Timeout: retry.Rule{MaxAttempts: 1, Delay: retry.Off},
			Busy: retry.Rule{Retry: retry.AwaitPushback, Delay: time.Hour}, Throttled: retry.Rule{Retry: retry.Never},
		}},
		{name: "rule of an unlimited policy", cfg: retry.Config{MaxAttempts: retry.Unlimited, MaxDuration: 1, Busy: retry.Rule{MaxAttempts: 100}}},
		{name: "rule above the policy", cfg: retry.Config{Busy: retry.Rule{MaxAttempts: 4}}, want: []string{"Busy.MaxAttempts"}},
		{name: "rule negative", cfg: retry.Config{Failure: retry.Rule{MaxAttempts: -1, Delay: -2}}, want: []string{"Failure.MaxAttempts", "Failure.Delay"}},
		{name: "rule unknown", cfg: retry.Config{Timeout: retry.Rule{Retry: 9}}, want: []string{"Timeout.Retry"}},
		{name: "rule against itself", cfg: retry.Config{Throttled: retry.Rule{Retry: retry.Never, Delay: 1}}, want: []string{"Throttled.Retry"}},
		{name: "duration", cfg: retry.Config{MaxDuration: -1}, want: []string{"MaxDuration"}},
		{name: "pushback", cfg: retry.Config{MaxPushback: -1}, want: []string{"MaxPushback"}},
		{name: "nil budget", cfg: retry.Config{Budget: missing}, want: []string{"Budget"}},
		{name: "pointer to a budget's config", cfg: retry.Config{Budget: &retry.BudgetConfig{Ratio: 0.1}}},
		{name: "pointer to no budget", cfg: retry.Config{Budget: &retry.NoBudget{}}},
		{name: "pointer to a bad ratio", cfg: retry.Config{Budget: &retry.BudgetConfig{Ratio: 7}}, want: []string{"Budget.Ratio"}},
		{name: "nil pointer to a budget's config", cfg: retry.Config{Budget: (*retry.BudgetConfig)(nil)}, want: []string{"Budget"}},
		{name: "nil pointer to no budget", cfg: retry.Config{Budget: (*retry.NoBudget)(nil)}, want: []string{"Budget"}},
		{name: "tokens", cfg: retry.Config{Budget: retry.TokenBudgetConfig{MaxTokens: 1000, TokenRatio: 0.001}}},
		{name: "tokens by default", cfg: retry.Config{Budget: &retry.TokenBudgetConfig{}}},
		{name: "tokens without bounds", cfg: retry.Config{Budget: retry.TokenBudgetConfig{MaxTokens: 1001, TokenRatio: 0.0001}}, want: []string{"Budget.MaxTokens", "Budget.TokenRatio"}},
		{name: "tokens negative", cfg: retry.Config{Budget: retry.TokenBudgetConfig{MaxTokens: -1, TokenRatio: -1}}, want: []string{"Budget.MaxTokens", "Budget.TokenRatio"}},
		{name: "tokens not a number", cfg: retry.Config{Budget: retry.TokenBudgetConfig{TokenRatio: math.NaN()}}, want: []string{"Budget.TokenRatio"}},
		{name: "nil tokens", cfg: retry.Config{Budget: (*retry.TokenBudget)(nil)}, want: []string{"Budget"}},
		{name: "nil pointer to tokens", cfg: retry.Config{Budget: (*retry.TokenBudgetConfig)(nil)}, want: []string{"Budget"}},
		{name: "in flight", cfg: retry.Config{Budget: retry.InFlightBudgetConfig{Share: 1, MinRetries: retry.Off}}},
		{name: "in flight by default", cfg: retry.Config{Budget: &retry.InFlightBudgetConfig{}}},
		{name: "in flight without bounds", cfg: retry.Config{Budget: retry.InFlightBudgetConfig{Share: 1.1, MinRetries: 1_000_001}}, want: []string{"Budget.Share", "Budget.MinRetries"}},
		{name: "in flight not a number", cfg: retry.Config{Budget: retry.InFlightBudgetConfig{Share: math.NaN(), MinRetries: -2}}, want: []string{"Budget.Share", "Budget.MinRetries"}},
		{name: "nothing in flight", cfg: retry.Config{Budget: retry.InFlightBudgetConfig{Share: retry.Off, MinRetries: retry.Off}}, want: []string{"Budget.Share"}},
		{name: "nil in flight", cfg: retry.Config{Budget: (*retry.InFlightBudget)(nil)}, want: []string{"Budget"}},
		{name: "nil pointer to in flight", cfg: retry.Config{Budget: (*retry.InFlightBudgetConfig)(nil)}, want: []string{"Budget"}},
		{name: "ratio", cfg: retry.Config{Budget: retry.BudgetConfig{Ratio: 1.5}}, want: []string{"Budget.Ratio"}},
		{name: "ratio negative", cfg: retry.Config{Budget: retry.BudgetConfig{Ratio: -0.5}}, want: []string{"Budget.Ratio"}},
		{name: "ratio not a number", cfg: retry.Config{Budget: retry.BudgetConfig{Ratio: math.NaN()}}, want: []string{"Budget.Ratio"}},
		{
			name: "reserve not a number", cfg: retry.Config{Budget: retry.BudgetConfig{MinPerSecond: math.NaN()}},
			want: []string{"Budget.MinPerSecond"},
		},
		{name: "reserve infinite", cfg: retry.Config{Budget: retry.BudgetConfig{MinPerSecond: math.Inf(1)}}, want: []string{"Budget.MinPerSecond"}},
		{name: "window short", cfg: retry.Config{Budget: retry.BudgetConfig{Window: 1}}, want: []string{"Budget.Window"}},
		{name: "window long", cfg: retry.Config{Budget: retry.BudgetConfig{Window: math.MaxInt64}}, want: []string{"Budget.Window"}},
		{name: "window negative", cfg: retry.Config{Budget: retry.BudgetConfig{Window: -time.Second}}, want: []string{"Budget.Window"}},
		{
			name: "budget of nothing", cfg: retry.Config{Budget: retry.BudgetConfig{Ratio: retry.Off, MinPerSecond: retry.Off}},
			want: []string{"Budget.Ratio"},
		},
		{name: "all at once", cfg: retry.Config{
			MaxAttempts: -9, BaseDelay: -9, MaxDelay: -9, Factor: -9, Jitter: 9, MaxDuration: -9, MaxPushback: -9,
			Budget: retry.BudgetConfig{Ratio: -9, MinPerSecond: -9, Window: -9},
		}, want: []string{
			"MaxAttempts", "BaseDelay", "MaxDelay", "Factor", "Jitter", "MaxDuration", "MaxPushback",
			"Budget.Ratio", "Budget.MinPerSecond", "Budget.Window",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			assert.Equal(t, tt.want, fields(t, err), "faults of %+v: %v", tt.cfg, err)

			r, newErr := retry.New("", tt.cfg)
			assert.Equal(t, text(err), text(newErr), "New says what Validate says")
			assert.Equal(t, err == nil, r != nil, "a retrier exists if and only if the config is valid")

			part, buildErr := tt.cfg.BuildPolicy()
			assert.Equal(t, text(err), text(buildErr), "BuildPolicy says what Validate says")
			assert.Equal(t, err == nil, part.Retry != nil)
			assert.Equal(t, "retry", part.Kind)
		})
	}
}

func TestConfigContradictionNamesBothFields(t *testing.T) {
	t.Parallel()
	_, err := policy.New("inventory", retry.Config{Name: "again", BaseDelay: time.Minute, MaxDelay: time.Second})
	require.EqualError(t, err, "inventory.again.MaxDelay: 1s: want at least BaseDelay, which is 1m0s")
	_, err = retry.NewBudget(retry.BudgetConfig{Ratio: retry.Off, MinPerSecond: retry.Off})
	require.ErrorContains(t, err, "Ratio and MinPerSecond are both Off")
}

func TestConfigIsEffective(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		instance string
		cfg      retry.Config
		want     retry.Config
	}{
		{name: "zero", want: retry.Config{
			Name: "retry", MaxAttempts: 3, BaseDelay: 100 * time.Millisecond, MaxDelay: 10 * time.Second, Factor: 2, MaxPushback: 30 * time.Second,
		}},
		{name: "long base", cfg: retry.Config{BaseDelay: time.Minute}, want: retry.Config{
			Name: "retry", MaxAttempts: 3, BaseDelay: time.Minute, MaxDelay: time.Minute, Factor: 2, MaxPushback: 30 * time.Second,
		}},
		{name: "short cap", cfg: retry.Config{MaxDelay: time.Millisecond}, want: retry.Config{
			Name: "retry", MaxAttempts: 3, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond, Factor: 2, MaxPushback: 30 * time.Second,
		}},
		{name: "constant", cfg: retry.Config{Backoff: retry.Constant}, want: retry.Config{
			Name: "retry", MaxAttempts: 3, Backoff: retry.Constant, BaseDelay: 100 * time.Millisecond, MaxDelay: 10 * time.Second, Factor: 1, MaxPushback: 30 * time.Second,
		}},
		{name: "decorrelated", cfg: retry.Config{Backoff: retry.Decorrelated}, want: retry.Config{
			Name: "retry", MaxAttempts: 3, Backoff: retry.Decorrelated, BaseDelay: 100 * time.Millisecond, MaxDelay: 10 * time.Second, Factor: 3, MaxPushback: 30 * time.Second,
		}},
		{name: "the argument goes before the field", instance: "b", cfg: retry.Config{
			Name: "a", MaxAttempts: retry.Unlimited, BaseDelay: retry.Off, MaxDelay: 1, Factor: 1, Jitter: retry.NoJitter,
			MaxDuration: 2, MaxPushback: 3, RetryRejected: true,
		}, want: retry.Config{
			Name: "b", MaxAttempts: retry.Unlimited, BaseDelay: retry.Off, MaxDelay: 1, Factor: 1, Jitter: retry.NoJitter,
			MaxDuration: 2, MaxPushback: 3, RetryRejected: true,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := retry.New(tt.instance, tt.cfg)
			require.NoError(t, err)
			got := r.Config()
			budget, ok := got.Budget.(*retry.Budget)
			require.True(t, ok, "a live budget, not %T", got.Budget)
			assert.Equal(t, retry.BudgetConfig{Ratio: 0.2, MinPerSecond: 10, Window: 10 * time.Second}, budget.Config())
			got.Budget = nil
			assert.Equal(t, tt.want, got)
		})
	}
	r, err := retry.New("", retry.Config{Budget: retry.NoBudget{}})
	require.NoError(t, err)
	assert.Equal(t, retry.NoBudget{}, r.Config().Budget)
}

func TestConfigWarnings(t *testing.T) {
	t.Parallel()
	warnings := func(cfg retry.Config) []string {
		part, err := cfg.BuildPolicy()
		require.NoError(t, err)
		return part.Warnings
	}
	assert.Empty(t, warnings(retry.Config{}))
	assert.Empty(t, warnings(retry.Config{MaxAttempts: retry.Unlimited, MaxDuration: time.Minute}))
	assert.Empty(t, warnings(retry.Config{MaxAttempts: 1, Budget: retry.NoBudget{}}))
	w := warnings(retry.Config{Budget: retry.NoBudget{}})
	require.Len(t, w, 1)
	assert.Contains(t, w[0], "no retry budget")
	w = warnings(retry.Config{MaxAttempts: retry.Unlimited})
	require.Len(t, w, 1)
	assert.Contains(t, w[0], "MaxDuration is 0")
}

// An accepted config decides sanely whatever happens to a call.
func FuzzConfig(f *testing.F) {
	f.Add(0, int64(0), int64(0), 0.0, uint8(0), int64(0), int64(0), 0.0, 0.0, int64(0), 1, uint8(2), int64(0), uint8(0), uint8(0), 0, int64(0))
	f.Add(-1, int64(-1), int64(time.Second), 2.0, uint8(1), int64(time.Second), int64(time.Second), 0.1, -1.0, int64(time.Second), 5, uint8(4), int64(time.Second), uint8(1), uint8(1), 2, int64(-1))
	f.Add(3, int64(math.MaxInt64), int64(math.MaxInt64), math.MaxFloat64, uint8(0), int64(math.MaxInt64), int64(math.MaxInt64), 1.0, 1e6, int64(time.Hour), 2, uint8(5), int64(math.MaxInt64), uint8(2), uint8(2), 3, int64(math.MaxInt64))
	f.Add(-2, int64(-2), int64(-2), math.NaN(), uint8(9), int64(-2), int64(-2), math.Inf(1), math.NaN(), int64(-2), -1, uint8(0), int64(math.MinInt64), uint8(3), uint8(3), -1, int64(math.MinInt64))
	start := time.Now()
	f.Fuzz(func(t *testing.T, attempts int, base, most int64, factor float64, jitter uint8, duration, pushback int64,
		ratio, reserve float64, window int64, attempt int, outcome uint8, asked int64, backoff, when uint8, ruled int, delay int64,
	) {
		rule := retry.Rule{Retry: retry.When(when), MaxAttempts: ruled, Delay: time.Duration(delay)}
		cfg := retry.Config{
			Failure: rule, Timeout: rule, Busy: rule, Throttled: rule, Backoff: retry.Backoff(backoff),
			MaxAttempts: attempts, BaseDelay: time.Duration(base), MaxDelay: time.Duration(most), Factor: factor, Jitter: retry.Jitter(jitter),
			MaxDuration: time.Duration(duration), MaxPushback: time.Duration(pushback),
			Budget: retry.BudgetConfig{Ratio: ratio, MinPerSecond: reserve, Window: time.Duration(window)},
		}
		r, err := retry.New("", cfg)
		if err != nil {
			require.NotEmpty(t, fields(t, err), "an error names a field")
			return
		}
		got := r.Config()
		require.NoError(t, got.Validate(), "the effective config is valid: %+v", got)
		retry.FirstAt(r, start)
		d := r.Decide(policy.RetryState{
			Now: start, Started: start, Attempt: attempt, Err: errors.New("failed"),
			Outcome: policy.Outcome{Kind: policy.Kind(outcome % uint8(policy.NumKinds)), Pushback: time.Duration(asked)},
		})
		require.GreaterOrEqual(t, d.Delay, time.Duration(0))
		require.LessOrEqual(t, d.Delay, max(got.MaxDelay, time.Duration(asked), time.Duration(delay)))
		if d.Stop != policy.StopNone {
			require.Zero(t, d.Delay)
		}
	})
}

// A pointer is as good as the value, in every respect.
func TestPointerToNoBudgetWarnsToo(t *testing.T) {
	t.Parallel()
	plain := newPipeline(t, retry.Config{Budget: retry.NoBudget{}})
	assert.Len(t, plain.Warnings(), 1)
	assert.Equal(t, plain.Warnings(), newPipeline(t, retry.Config{Budget: &retry.NoBudget{}}).Warnings())
}
