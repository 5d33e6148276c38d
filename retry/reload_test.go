package retry_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

// update gives a pipeline another retry policy and returns what became of the old one.
func update(t *testing.T, p *policy.Pipeline, next policy.Policy) string {
	t.Helper()
	u, err := p.Prepare(next)
	require.NoError(t, err)
	require.NoError(t, u.Apply())
	require.Len(t, u.Replacements, 1)
	return u.Replacements[0].String()
}

// A budget is not forgotten when settings change: neither is it full again, nor are
// retries granted twice.
func TestReloadKeepsTheBudget(t *testing.T) {
	t.Parallel()
	live, err := retry.NewBudget(retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off})
	require.NoError(t, err)
	tests := []struct {
		name      string
		old, next retry.Config
		want      string
		remaining float64 // of 10 calls that failed, each tried once more as far as the budget went
	}{
		{
			name: "nothing", want: "retry: kept",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			remaining: 0,
		},
		{
			name: "attempts and delays", want: "retry: resized",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			next:      retry.Config{MaxAttempts: 5, Busy: retry.Rule{Retry: retry.Never}, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			remaining: 0,
		},
		{
			name: "a larger ratio", want: "retry: resized",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: &retry.BudgetConfig{Ratio: 0.8, MinPerSecond: retry.Off}},
			remaining: 3,
		},
		{
			name: "another window", want: "retry: resized",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: 1, Window: time.Second}},
			remaining: 1,
		},
		{
			name: "another kind", want: "retry: reset (the budget is another one)",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{}},
			remaining: 4,
		},
		{
			name: "none", want: "retry: reset (the budget is another one)",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.NoBudget{}},
			remaining: 0,
		},
		{
			name: "still none", want: "retry: resized",
			old:  retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.NoBudget{}},
			next: retry.Config{MaxAttempts: 3, BaseDelay: retry.Off, Budget: &retry.NoBudget{}},
		},
		{
			name: "tokens", want: "retry: resized",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{MaxTokens: 40}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{MaxTokens: 30}},
			remaining: 4, // 40 - 20 are 20, half of 30 is 15
		},
		{
			name: "fewer tokens than there are", want: "retry: resized",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{MaxTokens: 100}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{MaxTokens: 10}},
			remaining: 4,
		},
		{
			name: "in flight", want: "retry: resized",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.InFlightBudgetConfig{}},
			next:      retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.InFlightBudgetConfig{MinRetries: 7}},
			remaining: 7,
		},
		{
			name: "a live budget", want: "retry: resized",
			old:       retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: live},
			next:      retry.Config{MaxAttempts: 3, BaseDelay: retry.Off, Budget: live},
			remaining: 0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, tt.old)
			for range 10 {
				_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errDown })
			}
			assert.Equal(t, tt.want, update(t, p, tt.next))
			s := budgetOf(p)
			assert.InDelta(t, tt.remaining, s.BudgetRemaining, 0)
			most := tt.next.MaxAttempts
			assert.Equal(t, most, s.MaxAttempts)
		})
	}
}

func TestReloadSettings(t *testing.T) {
	t.Parallel()
	r := newRetrier(t, retry.Config{Name: "again"})
	apply, err := r.Reload(retry.Config{Name: "other", MaxAttempts: 5, Busy: retry.Rule{Delay: time.Second}})
	require.NoError(t, err)
	assert.Equal(t, 3, r.Config().MaxAttempts, "not before apply")
	before := r.Budget()
	apply()
	cfg := r.Config()
	assert.Equal(t, "again", cfg.Name, "a name is for life")
	assert.Equal(t, 5, cfg.MaxAttempts)
	assert.Same(t, before, cfg.Budget)
	now := time.Now()
	d := r.Decide(policy.RetryState{Now: now, Started: now, Attempt: 4, Outcome: policy.Outcome{Kind: policy.Busy}})
	assert.Equal(t, policy.Decision{Delay: time.Second}, d)

	_, err = r.Reload(retry.Config{MaxAttempts: -7})
	require.Error(t, err)
	_, err = r.Reload(policy.Timeouts{})
	require.Error(t, err)
	_, err = r.Reload(&retry.Config{})
	require.NoError(t, err)
}

// Settings change while calls go on; what is counted stays exact.
func TestReloadConcurrentSafe(t *testing.T) {
	t.Parallel()
	for name, budgets := range map[string][2]retry.BudgetSource{
		"ratio":     {retry.BudgetConfig{Ratio: 0.1, MinPerSecond: retry.Off}, retry.BudgetConfig{Ratio: 0.3, MinPerSecond: retry.Off}},
		"tokens":    {retry.TokenBudgetConfig{MaxTokens: 100}, retry.TokenBudgetConfig{MaxTokens: 50, TokenRatio: 0.5}},
		"in flight": {retry.InFlightBudgetConfig{}, retry.InFlightBudgetConfig{Share: 0.5, MinRetries: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := func(i int) retry.Config {
				return retry.Config{MaxAttempts: 2 + i%2, BaseDelay: retry.Off, Budget: budgets[i%2]}
			}
			p := newPipeline(t, cfg(0))
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 300 {
						_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errDown })
					}
				})
			}
			for i := range 100 {
				assert.NotContains(t, update(t, p, cfg(i)), "reset")
			}
			wg.Wait()
			s := budgetOf(p)
			assert.Zero(t, s.BudgetInFlight)
			if name == "in flight" {
				assert.Zero(t, s.BudgetRetries)
			}
			if name == "ratio" {
				assert.EqualValues(t, 2400, s.BudgetFirsts)
				assert.LessOrEqual(t, s.BudgetRetries, uint64(720))
			}
		})
	}
}
