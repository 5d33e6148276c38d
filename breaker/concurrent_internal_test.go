package breaker

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// Many goroutines call one breaker while it opens and closes, on a clock that moves
// 10 µs with each call. Every change is told once and in order, no more probes run
// than allowed, and the figures add up.
func TestBreakerConcurrentSafe(t *testing.T) {
	t.Parallel()
	const goroutines, each, probes = 8, 20_000, 3
	var mu sync.Mutex
	var changes []StateChange
	base := time.Now()
	b, err := newAt(base, "", Config{
		MinCalls: 10, Window: time.Second, OpenFor: time.Millisecond, Probes: probes, ProbeTimeout: time.Second,
		OnStateChange: func(c StateChange) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, c)
		},
	})
	require.NoError(t, err)
	var clock, admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				n := clock.Add(1)
				now := base.Add(time.Duration(n) * 10 * time.Microsecond)
				word, re := b.enter(now)
				if n%97 == 0 {
					s := b.Snapshot(now).Breaker
					assert.LessOrEqual(t, s.Failures, s.Calls, "%+v", s)
					if s.State == "half_open" {
						assert.LessOrEqual(t, s.ProbesInFlight+int(s.Calls), probes, "%+v", s)
					}
				}
				if re != nil {
					refused.Add(1)
					continue
				}
				admitted.Add(1)
				o := policy.Outcome{Kind: policy.Success}
				switch {
				case n/2000%2 == 1: // the dependency is down half of the time
					o.Kind = policy.Failure
				case n%7 == 0:
					o.Kind = policy.Canceled
				case n%11 == 0:
					o.Kind = policy.NotRun
				}
				b.leave(word, 0, now, o)
				if n%5000 == 0 {
					b.reset(now)
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, int64(goroutines*each), admitted.Load()+refused.Load())
	assert.NotZero(t, refused.Load())
	mu.Lock()
	defer mu.Unlock()
	require.Greater(t, len(changes), 20)
	state := "closed"
	for i, c := range changes {
		require.Equal(t, uint64(i+2), c.Generation, "once and in order")
		require.Equal(t, state, c.From)
		require.NotEqual(t, c.From, c.To)
		state = c.To
		switch c.Why {
		case WhyProbesSucceeded:
			require.Equal(t, uint64(probes), c.Calls)
		case WhyFailureRatio:
			require.GreaterOrEqual(t, c.Calls, uint64(10))
			require.GreaterOrEqual(t, c.Ratio, 0.5)
		}
	}
	s := b.Snapshot(base.Add(time.Hour)).Breaker
	assert.Zero(t, s.ProbesInFlight)
}
