package breaker_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// A data-aggregation platform under ten times its load: response times climb from
// 50 ms to 5 s within a minute, and calls fail once they exceed the timeout of 2 s.
// The slow-call rule opens the breaker while every call still succeeds; the error
// rule opens it when there are errors.
func TestAggregatorRamp(t *testing.T) {
	t.Parallel()
	type result struct {
		opened, firstError time.Duration // since the ramp began; 0 is never
		why                string
		failures           uint64 // when it opened
	}
	ramp := func(t *testing.T, rule breaker.Config) (r result) {
		t.Helper()
		begin := time.Now()
		var mu sync.Mutex // goroutines of one instant run side by side
		rule.Window, rule.MinCalls, rule.OpenFor = time.Second, 5, 5*time.Second
		rule.OnStateChange = func(c breaker.StateChange) {
			mu.Lock()
			defer mu.Unlock()
			if c.To == "open" && r.opened == 0 {
				r.opened, r.why, r.failures = c.Time.Sub(begin), c.Why, c.Failures
			}
		}
		p := newPipeline(t, rule, policy.Timeouts{Attempt: 2 * time.Second})
		const rate, length = 50, 60 // calls per second, seconds
		for range rate * length {
			at := time.Since(begin)
			latency := 50*ms + at*(5000-50)/60_000
			go func() {
				err := callFor(t.Context(), p, latency, nil)
				mu.Lock()
				defer mu.Unlock()
				if err != nil && r.firstError == 0 && r.opened == 0 {
					r.firstError = time.Since(begin)
				}
			}()
			time.Sleep(time.Second / rate)
		}
		time.Sleep(10 * time.Second)
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		slow := ramp(t, breaker.Config{FailureRatio: breaker.Off, SlowAfter: 500 * ms, SlowRatio: 0.5})
		errs := ramp(t, breaker.Config{FailureRatio: 0.5})
		t.Logf("slow calls: %+v; errors: %+v", slow, errs)

		require.NotZero(t, slow.opened)
		assert.Equal(t, breaker.WhySlowRatio, slow.why)
		assert.Zero(t, slow.failures, "no call has failed yet")
		assert.Zero(t, slow.firstError)

		require.NotZero(t, errs.opened)
		assert.Equal(t, breaker.WhyFailureRatio, errs.why)
		assert.NotZero(t, errs.firstError, "it opens only when errors appear")
		assert.LessOrEqual(t, errs.firstError, errs.opened)

		// Calls that begin at t take more than 500 ms from t = 5.46 s on, and more
		// than 2 s from t = 23.6 s on; they are counted when they end.
		assert.InDelta(t, 6, slow.opened.Seconds(), 1)
		assert.InDelta(t, 25.6, errs.opened.Seconds(), 1)
	})
}
