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

// Many goroutines call one breaker while it opens and closes, by rules and by
// commands, on a clock that moves 10 µs with each call. Every change is told once and
// in order, no more probes run than allowed, and the figures add up.
func TestBreakerConcurrentSafe(t *testing.T) {
	t.Parallel()
	const goroutines, each, probes = 8, 10_000, 3
	tests := []struct {
		name string
		cfg  Config
	}{
		{"time", Config{MinCalls: 10, Window: time.Second}},
		{"calls", Config{MinCalls: 10, LastCalls: 100, ConsecutiveFailures: 15, FailureCount: 60}},
		{"ramp", Config{
			MinCalls: 10, Window: 5 * time.Millisecond, RampFor: 5 * time.Millisecond, Successes: 2,
			MaxOpenFor: 4 * time.Millisecond, OpenJitter: 0.5, SlowAfter: 10 * time.Millisecond,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var changes []StateChange
			base := time.Now()
			cfg := tt.cfg
			cfg.OpenFor, cfg.Probes, cfg.ProbeTimeout = time.Millisecond, probes, time.Second
			cfg.OnStateChange = func(c StateChange) {
				mu.Lock()
				defer mu.Unlock()
				changes = append(changes, c)
			}
			b, err := newAt(base, "", cfg)
			require.NoError(t, err)
			var clock, admitted, refused atomic.Int64
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					for range each {
						n := clock.Add(1)
						now := base.Add(time.Duration(n) * 10 * time.Microsecond)
						word, re := b.enter(now)
						switch n % 97 {
						case 0:
							s := b.Snapshot(now).Breaker
							assert.LessOrEqual(t, s.Failures, s.Calls, "%+v", s)
							if s.State == "half_open" {
								assert.LessOrEqual(t, s.ProbesInFlight+int(s.Calls), probes, "%+v", s)
							}
						case 1:
							_ = b.recheck(word, now)
						}
						if re != nil {
							refused.Add(1)
							continue
						}
						admitted.Add(1)
						o := policy.Outcome{Kind: policy.Success, Duration: time.Duration(n%12) * time.Millisecond}
						switch {
						case n/2000%2 == 1: // the dependency is down half of the time
							o.Kind, o.Pushback = policy.Failure, time.Duration(n%7)*time.Millisecond
						case n%7 == 0:
							o.Kind = policy.Canceled
						case n%11 == 0:
							o.Kind = policy.NotRun
						}
						b.leave(word, uint32(g), now, o)
						if o.Kind == policy.Success && n%13 == 0 {
							b.amend(word, now, policy.Outcome{Kind: policy.Failure})
						}
						switch n % 9000 {
						case 1000:
							b.reset(now)
						case 2000:
							b.force(now, ForcedOpen, "a", time.Millisecond)
						case 3000:
							b.force(now, ForcedClosed, "b", time.Millisecond)
						case 4000:
							b.observe(now, "c", time.Millisecond)
						case 5000:
							b.release(now, "d")
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
			state, generation, opened := "closed", uint64(1), uint64(0)
			for _, c := range changes {
				require.Equal(t, state, c.From, "%+v", c)
				if c.From != c.To || c.Why == WhyForced {
					generation++
				}
				require.Equal(t, generation, c.Generation, "once and in order: %+v", c)
				state = c.To
				switch c.Why {
				case WhyProbesSucceeded:
					require.LessOrEqual(t, c.Calls, uint64(probes))
				case WhyFailureRatio:
					require.GreaterOrEqual(t, c.Calls, uint64(10))
					require.GreaterOrEqual(t, c.Ratio, 0.5)
				}
				if c.To == "open" && c.From != "open" {
					opened++
				}
			}
			s := b.Snapshot(base.Add(time.Duration(clock.Load()) * 10 * time.Microsecond)).Breaker
			assert.Equal(t, opened, s.Opened)
			assert.Zero(t, b.Snapshot(base.Add(time.Hour)).Breaker.ProbesInFlight)
		})
	}
}

// A row of failures is counted exactly when nothing succeeds meanwhile, and ended by
// whatever does.
func TestRowConcurrentSafe(t *testing.T) {
	t.Parallel()
	var r row
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				r.failed()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, uint64(8000), r.load())
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				r.failed()
				r.succeeded()
			}
		})
	}
	wg.Wait()
	r.succeeded()
	assert.Zero(t, r.load())
	r.word.Store(1<<64 - 1)
	assert.Equal(t, uint64(1<<32-1), r.failed(), "it has an end")
	assert.Equal(t, uint64(1<<32-1), r.amended())
}
