package retry_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func tokens(tb testing.TB, cfg retry.TokenBudgetConfig) *retry.TokenBudget {
	tb.Helper()
	b, err := retry.NewTokenBudget(cfg)
	require.NoError(tb, err)
	return b
}

// budgetOf returns what the pipeline's snapshot says about its budget.
func budgetOf(p *policy.Pipeline) policy.RetrySnapshot {
	for _, ps := range p.Snapshot().Policies {
		if ps.Retry != nil {
			r := *ps.Retry
			r.Stopped = [policy.NumStops]uint64{}
			return r
		}
	}
	return policy.RetrySnapshot{}
}

// The example of gRPC's proposal A6: 10 tokens, 0.1 for each success, and no retry at or
// below half.
func TestTokensFollowA6(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{}})
	full := policy.RetrySnapshot{
		MaxAttempts: 2, HasBudget: true, BudgetKind: "tokens", BudgetLevel: 1, BudgetRatio: 0.1,
		BudgetRemaining: 4, BudgetTokens: 10, BudgetMaxTokens: 10,
	}
	require.Equal(t, full, budgetOf(p))
	attempts := 0
	down := func(context.Context) (int, error) { attempts++; return 0, errDown }
	fine := func(context.Context) (int, error) { return 1, nil }

	// Each call that fails makes two attempts, and each of them takes a token.
	for call, want := range []int{2, 2, 1, 1} { // 10→8→6→5, then →4
		attempts = 0
		_, err := policy.Do(t.Context(), p, down)
		require.ErrorIs(t, err, errDown)
		assert.Equal(t, want, attempts, "attempts of call %d", call+1)
	}
	assert.EqualValues(t, 2, stopped(p, policy.StopBudget))
	s := budgetOf(p)
	assert.InDelta(t, 4, s.BudgetTokens, 0)
	assert.InDelta(t, 0.4, s.BudgetLevel, 0)
	assert.Zero(t, s.BudgetRemaining)

	// 5.0 is half and not enough; with 21 successes it is 6.1, of which the failure
	// takes 1.
	for range 20 {
		_, _ = policy.Do(t.Context(), p, fine)
	}
	attempts = 0
	_, _ = policy.Do(t.Context(), p, down) // 6→5
	assert.Equal(t, 1, attempts)
	for range 11 {
		_, _ = policy.Do(t.Context(), p, fine)
	}
	attempts = 0
	_, _ = policy.Do(t.Context(), p, down) // 6.1→5.1: a retry, →4.1
	assert.Equal(t, 2, attempts)
	assert.InDelta(t, 4.1, budgetOf(p).BudgetTokens, 1e-9)

	for range 1000 {
		_, _ = policy.Do(t.Context(), p, fine)
	}
	assert.Equal(t, full, budgetOf(p), "never above the most")
}

// What a failure takes does not depend on whether it would be retried; what is no
// failure of that kind takes nothing.
func TestTokensAreTakenByFailures(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		ctx  func(context.Context) context.Context
		want float64
	}{
		{name: "failure", err: errDown, want: 9},
		{name: "of a call that is not retried", err: errDown, want: 9, ctx: func(ctx context.Context) context.Context {
			return policy.WithCall(ctx, policy.Call{NoRetry: true})
		}},
		{name: "pushback that says never", err: policy.AsBusy(errDown, -1), want: 9},
		{name: "throttled, for an unknown time", err: policy.AsThrottled(errDown, 0), want: 10},
		{name: "permanent", err: policy.AsPermanent(errDown), want: 10},
		{name: "canceled", err: context.Canceled, want: 10},
		{name: "refused", err: &policy.RejectedError{}, want: 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, retry.Config{MaxAttempts: 1, Budget: retry.TokenBudgetConfig{}})
			ctx := t.Context()
			if tt.ctx != nil {
				ctx = tt.ctx(ctx)
			}
			_, _ = policy.Do(ctx, p, func(context.Context) (int, error) { return 0, tt.err })
			assert.InDelta(t, tt.want, budgetOf(p).BudgetTokens, 0)
		})
	}
}

// Against whole thousandths, counted by hand.
func TestTokensEqualRecount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 1000).Draw(rt, "most")
		gain := rapid.IntRange(1, 5000).Draw(rt, "thousandths")
		p := newPipeline(t, retry.Config{
			MaxAttempts: 2, BaseDelay: retry.Off,
			Budget: retry.TokenBudgetConfig{MaxTokens: most, TokenRatio: float64(gain) / 1000},
		})
		have := most * 1000
		for _, fails := range rapid.SliceOfN(rapid.IntRange(0, 2), 1, 50).Draw(rt, "failures of each call") {
			made := 0
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) {
				if made++; made <= fails {
					return 0, errDown
				}
				return 1, nil
			})
			want := 1
			if fails > 0 {
				if have = max(have-1000, 0); 2*have > most*1000 {
					want = 2
				}
			}
			switch {
			case fails == 2 && want == 2:
				have = max(have-1000, 0)
			case fails < want:
				have = min(have+gain, most*1000)
			}
			require.Equal(rt, want, made, "attempts")
			require.InDelta(rt, float64(have)/1000, budgetOf(p).BudgetTokens, 1e-9)
		}
	})
}

// However failures and successes interleave, no more retries are made than there are
// tokens above half, and those that successes bring.
func TestTokensConcurrentSafe(t *testing.T) {
	t.Parallel()
	const workers, each = 64, 200
	p := newPipeline(t, retry.Config{MaxAttempts: 2, BaseDelay: retry.Off, Budget: retry.TokenBudgetConfig{MaxTokens: 100, TokenRatio: 0.5}})
	var wg sync.WaitGroup
	var successes, retries atomic.Int64
	for g := range workers {
		wg.Go(func() {
			for i := range each {
				made := 0
				_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
					if made++; made > 1 {
						retries.Add(1)
					}
					if (g+i)%3 == 0 {
						return 1, nil
					}
					return 0, errDown
				})
				if err == nil {
					successes.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, retries.Load(), 50+successes.Load()/2)
	assert.Positive(t, retries.Load())
	s := budgetOf(p)
	assert.GreaterOrEqual(t, s.BudgetTokens, 0.0)
	assert.LessOrEqual(t, s.BudgetTokens, 100.0)
}

func TestTokensAsAHedgeUsesThem(t *testing.T) {
	t.Parallel()
	b := tokens(t, retry.TokenBudgetConfig{MaxTokens: 1})
	assert.True(t, b.Take(time.Now()))
	b.Undo(time.Now())
	assert.True(t, b.Take(time.Now()))
	b.Done()
	assert.Equal(t, retry.TokenBudgetConfig{MaxTokens: 1, TokenRatio: 0.1}, b.Config())
}
