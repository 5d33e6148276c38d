package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func ask(context.Context) (string, error) { return "here", nil }

// region midnight

func TestQuotaEndsAtMidnight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // bubbles begin at midnight UTC
		p, err := policy.New("geocoder", QuotaConfig{Limit: 2})
		require.NoError(t, err)
		time.Sleep(20 * time.Hour)
		for range 2 {
			_, err := policy.Do(t.Context(), p, ask)
			require.NoError(t, err)
		}
		_, err = policy.Do(t.Context(), p, ask)
		re, ok := errors.AsType[*policy.RejectedError](err)
		require.True(t, ok, "got %v", err)
		assert.Equal(t, policy.ReasonRate, re.Reason)
		assert.Equal(t, 4*time.Hour, re.RetryAfter)
		require.ErrorIs(t, err, ErrQuota)

		time.Sleep(re.RetryAfter)
		_, err = policy.Do(t.Context(), p, ask)
		require.NoError(t, err)
	})
}

// endregion

// region refund

func TestRefusedFurtherInCostsNothing(t *testing.T) {
	t.Parallel()
	p, err := policy.New("geocoder", QuotaConfig{Limit: 2}, bulkhead.Semaphore{Limit: 1})
	require.NoError(t, err)
	h, err := p.Enter(t.Context()) // takes the only permit
	require.NoError(t, err)
	for range 10 {
		_, err = policy.Do(t.Context(), p, ask)
		require.ErrorIs(t, err, bulkhead.ErrFull)
	}
	h.Leave(nil)
	_, err = policy.Do(t.Context(), p, ask)
	require.NoError(t, err)
	_, err = policy.Do(t.Context(), p, ask)
	require.ErrorIs(t, err, ErrQuota)
}

// endregion

func TestRefundOfYesterdayIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("geocoder", QuotaConfig{Limit: 2}, bulkhead.Semaphore{Limit: 1, MaxWait: time.Hour})
		require.NoError(t, err)
		time.Sleep(23*time.Hour + 45*time.Minute)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		defer h.Release()
		_, err = policy.Do(t.Context(), p, ask) // waits over midnight, in vain
		require.ErrorIs(t, err, bulkhead.ErrFull)
		assert.InDelta(t, 2, p.Snapshot().Policies[0].Limiter.Tokens, 0)
	})
}

func TestCost(t *testing.T) {
	t.Parallel()
	p, err := policy.New("geocoder", QuotaConfig{Limit: 5})
	require.NoError(t, err)
	cost := func(n int) error {
		_, err := policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: n}), p, ask)
		return err
	}
	re, ok := errors.AsType[*policy.RejectedError](cost(6))
	require.True(t, ok)
	assert.Equal(t, policy.ReasonCost, re.Reason)
	assert.Equal(t, policy.Never, re.RetryAfter)
	require.NoError(t, cost(3))
	require.ErrorIs(t, cost(3), ErrQuota)
	require.NoError(t, cost(2))
}

func TestShadowOnlyWatches(t *testing.T) {
	t.Parallel()
	p, err := policy.New("geocoder", QuotaConfig{Limit: 1, Shadow: true})
	require.NoError(t, err)
	for range 3 {
		_, err := policy.Do(t.Context(), p, ask)
		require.NoError(t, err)
	}
	assert.EqualValues(t, 2, p.Snapshot().Policies[0].Rejected[policy.ReasonRate])
}

func TestLimitIsExactConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no midnight in between
		const limit = 1000
		p, err := policy.New("geocoder", QuotaConfig{Limit: limit})
		require.NoError(t, err)
		var ran atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range limit / 2 {
					_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { ran.Add(1); return 0, nil })
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, limit, ran.Load())
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := policy.New("geocoder", QuotaConfig{Name: "daily"})
	require.EqualError(t, err, "geocoder.daily.Limit: 0: want 1 to 4294967295")
}
