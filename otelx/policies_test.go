package otelx_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// The state gauges follow a breaker from before the first call, and without traffic.
func TestCollectorFollowsABreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		p := add(t, &reg, "dep", breaker.Config{FailureRatio: 0.5, MinCalls: 4, Window: time.Minute, OpenFor: 5 * time.Second, Probes: 1})
		c := collector(t, &reg, otelx.CollectorConfig{})
		of := func(name, more string) string {
			return fmt.Sprintf(`breakwater_breaker_%s{dependency="dep",policy="breaker"%s} `, name, more)
		}
		expect := func(state, retryAfter, opened, calls, ratio string) {
			t.Helper()
			got := text(t, c)
			for _, s := range policy.BreakerStates()[:6] {
				v := "0"
				if s == state {
					v = "1"
				}
				assert.Contains(t, got, of("state", `,state="`+s+`"`)+v+"\n")
			}
			assert.Contains(t, got, of("retry_after_seconds", "")+retryAfter+"\n")
			assert.Contains(t, got, of("opened_total", "")+opened+"\n")
			assert.Contains(t, got, of("window_calls", "")+calls+"\n")
			assert.Contains(t, got, of("window_failure_ratio", "")+ratio+"\n")
		}
		expect("closed", "0", "0", "0", "0")
		for _, err := range []error{nil, nil, errSick, errSick} {
			_, _ = policy.Do(t.Context(), p, script(err))
		}
		expect("open", "5", "1", "4", "0.5")
		time.Sleep(2 * time.Second)
		expect("open", "3", "1", "4", "0.5")
		time.Sleep(3 * time.Second)
		expect("half_open", "0", "1", "0", "0")
		_, err := policy.Do(t.Context(), p, script())
		require.NoError(t, err)
		expect("closed", "0", "1", "0", "0")
	})
}

// realPolicies is what a cautious service might have.
func realPolicies() []policy.Policy {
	return []policy.Policy{
		fallback.Value("stale"),
		policy.Timeouts{Total: 10 * time.Second, Attempt: time.Second},
		retry.Config{MaxAttempts: 2, BaseDelay: 100 * time.Millisecond, Jitter: retry.NoJitter},
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 5},
		bulkhead.Semaphore{Limit: 1, MaxWait: 100 * time.Millisecond, MaxWaiters: 1},
		breaker.Config{MinCalls: 2, OpenFor: time.Second, Probes: 1, SlowAfter: 500 * time.Millisecond},
	}
}

// A pipeline of every policy this module has passes lint and stays within 80
// series, also after each of them has refused.
func TestCollectorBoundsTheSeriesOfRealPolicies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		c := collector(t, &reg, otelx.CollectorConfig{})
		none := series(t, c)
		policies := realPolicies()
		b, err := breaker.New("breaker", policies[len(policies)-1].(breaker.Config)) //nolint:forcetypeassert // a test
		require.NoError(t, err)
		policies[len(policies)-1] = b
		p := add(t, &reg, "inventory", policies...)
		fresh := series(t, c) - none

		slow := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		for range 4 { // one runs, one waits too long, one finds the queue full
			go func() { _, _ = policy.Do(t.Context(), p, slow) }()
		}
		synctest.Wait()
		got := text(t, c)
		assert.Contains(t, got, `breakwater_bulkhead_in_flight{dependency="inventory",policy="bulkhead"} 1`)
		assert.Contains(t, got, `breakwater_bulkhead_waiting{dependency="inventory",policy="bulkhead"} 1`)
		time.Sleep(9 * time.Second)
		for range 4 {
			_, _ = policy.Do(t.Context(), p, script(errSick, errSick)) // until the breaker opens
		}
		for range 10 {
			_, _ = policy.Do(t.Context(), p, script())
		}
		_, _ = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 6}), p, script())
		time.Sleep(500 * time.Millisecond) // for the tokens to be back
		b.Observe("drill", 0)              // from here on the breaker counts what it would have refused
		_, _ = policy.Do(t.Context(), p, script())
		b.ForceOpen("drill", 0)
		_, _ = policy.Do(t.Context(), p, script())
		got = text(t, c)
		for _, seen := range []string{"bulkhead\",reason=\"waiters", "bulkhead\",reason=\"wait", "breaker\",reason=\"open", "breaker\",reason=\"forced", "ratelimit\",reason=\"cost"} {
			assert.Regexp(t, `breakwater_rejections_total\{dependency="inventory",policy="`+seen+`"\} [1-9]`, got)
		}
		n := series(t, c) - none
		t.Logf("%d series at the start, %d in the end", fresh, n)
		assert.LessOrEqual(t, n, 80)
		assert.GreaterOrEqual(t, n, 78, "what had to go was of single series")
		assert.Contains(t, got, "breakwater_call_duration_seconds_bucket")
		assert.Contains(t, got, `breakwater_breaker_spared_total{dependency="inventory",policy="breaker"} 1`)
		assert.NotContains(t, got, "sick", "no error text")
		assert.Equal(t, strings.Count(got, "# HELP"), strings.Count(got, "# TYPE"))
	})
}

// A trace shows a call refused by a real breaker and answered by a real fallback.
func TestTracerShowsAnOpenBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		p := pipeline(t, "inventory", append(realPolicies(), r.tracer(t))...)
		for range 2 {
			_, _ = policy.Do(t.Context(), p, script(errSick, errSick)) // not followed: no span in the context
		}
		got, err := policy.Do(r.ctx, p, script())
		require.NoError(t, err)
		assert.Equal(t, "stale", got)
		time.Sleep(500 * time.Millisecond)
		vs := r.views(t)
		require.Len(t, vs, 2)
		assert.Equal(t, codes.Unset, vs[0].status)
		assert.Equal(t, codes.Error, vs[1].status)
		for _, v := range vs {
			assert.Equal(t, "breaker", v.attrs["breakwater.policy"], v.name)
			assert.Equal(t, "open", v.attrs["breakwater.reason"], v.name)
			assert.InDelta(t, 0.9, v.attrs["breakwater.retry_after"], 0.11, v.name)
		}
		assert.Equal(t, true, vs[0].attrs["breakwater.degraded"])
		assert.Equal(t, "fallback", vs[0].attrs["breakwater.fallback.policy"])
	})
}
