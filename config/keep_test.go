package config_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// Every kind of policy goes on under new settings: under load nobody is refused for a
// reload, no permit is lost, no state changes, and nothing is reset.
func TestCaseB59EveryKindIsKeptConcurrentSafe(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][2]string{
		"limits": {
			"system: {MaxDelay: 1h, Window: 1s}, keyed: {Rate: 100000/s, Burst: 10000000, MaxKeys: 10}, feedback: {Ceiling: 100000/s, Burst: 10000000}, lanes: {Lanes: [{Name: x, Rate: 100000/s, Burst: 10000000}]}, pacer: {Rate: 1000000000/s, Burst: 10000000, MaxWait: 1m}",
			"system: {MaxDelay: 2h, Window: 9s, MinInFlight: 50}, keyed: {Rate: 200000/s, Burst: 10000000, MaxKeys: 500, TTL: 1h, MaxWait: 1s}, feedback: {Ceiling: 200000/s, Burst: 10000000, RecoverIn: 1m}, lanes: {Lanes: [{Name: x, Rate: 200000/s, Burst: 10000000, MaxWait: 1s}]}, pacer: {Rate: 2000000000/s, Burst: 10000000, MaxWait: 1m}",
		},
		"breakers": {
			"keyed_breaker: {MaxKeys: 5, Window: 1s}, throttle: {Window: 1s}, breaker: {Window: 1s}",
			"keyed_breaker: {MaxKeys: 900, Window: 9s, MinCalls: 9}, throttle: {Window: 9s, K: 3}, breaker: {Window: 9s, Buckets: 90, MinCalls: 7}",
		},
		"bulkheads": {
			"bulkhead: {Limit: 50, MaxWait: 1m}, adaptive: {Min: 20, Max: 50, MaxWait: 1m}, pool: {Workers: 9, Queue: 100, MaxWait: 1m}",
			"bulkhead: {Limit: 60, Reserve: 9, MaxWait: 1m}, adaptive: {Min: 10, Max: 90, Initial: 30, MaxWait: 1m, Reserve: 2}, pool: {Workers: 5, Queue: 200, MaxWait: 1m, MinWorkers: 2}",
		},
		"retries": {
			"retry: {Budget: {Window: 1s}}, hedge: {MinDelay: 30m}, timeout: {Total: 1m}",
			"retry: {MaxAttempts: 2, Budget: {Window: 9s, Ratio: 0.5}}, hedge: {MinDelay: 1h}, timeout: {Total: 2m}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manage(t, one(texts[0]))
			p, _ := m.reg.Get("a")
			var calls atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			end := sync.OnceFunc(func() { close(stop); wg.Wait() })
			defer end()
			for i := range 4 {
				wg.Go(func() {
					ctx := policy.WithCall(t.Context(), policy.Call{Key: string(rune('a' + i))})
					for {
						select {
						case <-stop:
							return
						default:
						}
						assert.NoError(t, policy.Run(ctx, p, func(context.Context) error { return nil }))
						calls.Add(1)
					}
				})
			}
			for i := range 100 {
				m.store.set(one(texts[(i+1)%2]), nil)
				r, err := m.Reload(t.Context())
				require.NoError(t, err)
				require.NotContains(t, r.String(), "reset")
				require.Contains(t, r.String(), "resized")
				for n := calls.Load(); calls.Load() < n+20; {
					_ = p.Snapshot()
				}
			}
			end()
			for _, s := range p.Snapshot().Policies {
				assert.Equal(t, [policy.NumReasons]uint64{}, s.Rejected, s.Name)
				switch {
				case s.Breaker != nil:
					assert.Equal(t, "closed", s.Breaker.State, s.Name)
				case s.Bulkhead != nil:
					assert.Zero(t, s.Bulkhead.InFlight, s.Name)
				case s.Limiter != nil && s.Limiter.Load != nil:
					assert.Zero(t, s.Limiter.Load.InFlight, s.Name)
				}
			}
			require.NoError(t, p.Close(context.WithoutCancel(t.Context())))
		})
	}
}

// What starts afresh says why.
func TestResetSaysWhy(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][2]string{
		"warm_up: reset (Period cannot be changed in place: how warm it is means something else then)":                           {"warm_up: {Rate: 9/s, Period: 1s}", "warm_up: {Rate: 9/s, Period: 2s}"},
		"sliding_window: reset (Approximate cannot be changed in place: a counter does not know when each call was)":             {"sliding_window: {Limit: 9, Window: 1s}", "sliding_window: {Limit: 9, Window: 1s, Approximate: true}"},
		"lanes: reset (lanes, and a limit over all, cannot come or go in place: nobody can say whose the tokens in between are)": {"lanes: {Lanes: [{Name: x, Rate: 5/s}]}", "lanes: {Lanes: [{Name: x, Rate: 5/s}, {Name: y, Rate: 5/s}]}"},
		"retry: reset (the budget is another one)": {"retry: {}", "retry: {Budget: none}"},
	} {
		m := manage(t, one(texts[0]))
		m.store.set(one(texts[1]), nil)
		r, err := m.Reload(t.Context())
		require.NoError(t, err, name)
		assert.Equal(t, "a: "+name, strings.TrimSpace(r.String()))
	}
}
