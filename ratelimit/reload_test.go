package ratelimit_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func reload(t *testing.T, p *policy.Pipeline, spec policy.Policy) string {
	t.Helper()
	u, err := p.Prepare(spec)
	require.NoError(t, err)
	require.NoError(t, u.Apply())
	return u.Replacements[0].String()
}

// passes counts how many of n calls at one instant are let in.
func passes(ctx context.Context, p *policy.Pipeline, n int) (let int) {
	for range n {
		if policy.Run(ctx, p, func(context.Context) error { return nil }) == nil {
			let++
		}
	}
	return let
}

// The same settings a hundred times grant nothing, and neither do larger ones; what
// arrives from then on does so at the new rate.
func TestCaseB59ReloadGrantsNothing(t *testing.T) {
	t.Parallel()
	rate := ratelimit.PerSecond
	for name, tt := range map[string]struct{ before, after policy.Policy }{
		"bucket":   {ratelimit.TokenBucket{Rate: rate(10), Burst: 10}, ratelimit.TokenBucket{Rate: rate(20), Burst: 20}},
		"keyed":    {ratelimit.Keyed{Rate: rate(10), Burst: 10}, ratelimit.Keyed{Rate: rate(20), Burst: 20}},
		"feedback": {ratelimit.Feedback{Ceiling: rate(10), Burst: 10}, ratelimit.Feedback{Ceiling: rate(20), Burst: 10}},
		"pacer":    {ratelimit.Pacer{Rate: rate(10), Burst: 10}, ratelimit.Pacer{Rate: rate(20), Burst: 20}},
		"lanes": {
			ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate(10), Burst: 10}}},
			ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate(20), Burst: 20}}},
		},
		"all": {
			ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Rate: rate(10), Burst: 10}, ratelimit.Keyed{Rate: rate(50), Burst: 50}}},
			ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Rate: rate(20), Burst: 20}, ratelimit.Keyed{Rate: rate(60), Burst: 60}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, err := policy.New("dep", tt.before)
				require.NoError(t, err)
				require.Equal(t, 10, passes(t.Context(), p, 20))
				for range 100 {
					require.Contains(t, reload(t, p, tt.before), "kept")
					require.Equal(t, 0, passes(t.Context(), p, 1))
				}
				require.Contains(t, reload(t, p, tt.after), "resized")
				require.Equal(t, 0, passes(t.Context(), p, 20))
				time.Sleep(500 * time.Millisecond)
				assert.InDelta(t, 10, passes(t.Context(), p, 20), 1)
			})
		})
	}
}

func TestReloadOfWindows(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, after policy.Policy }{
		"fixed":   {ratelimit.FixedWindow{Limit: 5, Window: time.Minute}, ratelimit.FixedWindow{Limit: 8, Window: time.Minute}},
		"sliding": {ratelimit.SlidingWindow{Limit: 5, Window: time.Minute}, ratelimit.SlidingWindow{Limit: 8, Window: time.Minute}},
		"counter": {ratelimit.SlidingWindow{Limit: 5, Window: time.Minute, Approximate: true}, ratelimit.SlidingWindow{Limit: 8, Window: time.Minute, Approximate: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, err := policy.New("dep", tt.before)
				require.NoError(t, err)
				require.Equal(t, 5, passes(t.Context(), p, 10))
				require.Contains(t, reload(t, p, tt.after), "resized")
				assert.Equal(t, 3, passes(t.Context(), p, 10), "what was let in stays counted")
			})
		})
	}
}

// A smaller burst takes away what does not fit. Waits can be set, too.
func TestReloadShrinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 10, Initial: 8})
		require.NoError(t, err)
		reload(t, p, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), Burst: 3})
		assert.Equal(t, 3, passes(t.Context(), p, 10))
		w, err := policy.New("dep", ratelimit.WarmUp{Rate: ratelimit.PerSecond(100), Period: time.Minute})
		require.NoError(t, err)
		assert.Contains(t, reload(t, w, ratelimit.WarmUp{Rate: ratelimit.PerSecond(50), Period: time.Minute, MaxWait: time.Second}), "resized")
		assert.Contains(t, reload(t, w, ratelimit.WarmUp{Rate: ratelimit.PerSecond(50), Period: time.Hour}), "reset (Period cannot be changed in place")
		assert.Contains(t, reload(t, p, ratelimit.Pacer{Name: "ratelimit", Rate: ratelimit.PerSecond(50)}), "reset (it was a ratelimit)")
	})
}

// Whoever looks at a limit while it gets new settings sees the one or the other.
func TestReloadConcurrentSafe(t *testing.T) {
	t.Parallel()
	specs := []policy.Policy{
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(10), MaxWaiters: 3},
		ratelimit.TokenBucket{Rate: ratelimit.PerSecond(20), MaxWaiters: 4},
	}
	p, err := policy.New("dep", specs[0])
	require.NoError(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				assert.Contains(t, []int{3, 4}, p.Snapshot().Policies[0].Limiter.MaxWaiters)
			}
		}
	}()
	for i := range 200 {
		reload(t, p, specs[i%2])
	}
	close(stop)
	<-done
}

// Who was let in by a key stays counted, whatever of its limit is changed.
func TestReloadOfKeyed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rate := ratelimit.PerSecond
		cfg := ratelimit.Keyed{
			Rate: rate(1), Burst: 5, MaxKeys: 2,
			Exceptions: map[string]ratelimit.Limit{"big": {Rate: rate(1), Burst: 20}},
		}
		p, err := policy.New("dep", cfg)
		require.NoError(t, err)
		of := func(key string, n int) int {
			return passes(policy.WithCall(t.Context(), policy.Call{Key: key}), p, n)
		}
		assert.Equal(t, []int{5, 3, 10}, []int{of("a", 6), of("b", 3), of("big", 10)})
		cfg.MaxKeys, cfg.TTL, cfg.Exceptions = 100, time.Hour, nil
		assert.Equal(t, "keyed: resized", reload(t, p, cfg))
		assert.Equal(t, []int{0, 2, 5}, []int{of("a", 1), of("b", 3), of("new", 6)})
		assert.LessOrEqual(t, of("big", 30), 5, "an exception no more")
		cfg.MaxKeys = 1
		assert.Equal(t, "keyed: resized", reload(t, p, cfg))
		assert.Equal(t, []int{0, 0}, []int{of("a", 1), of("b", 1)}, "nobody is forgotten for it")
		cfg.MaxWait = 2 * time.Second
		assert.Equal(t, "keyed: resized", reload(t, p, cfg))
		start := time.Now()
		assert.Equal(t, 1, of("a", 1))
		assert.Equal(t, time.Second, time.Since(start), "it waits now")
	})
}

// A rate that is on its way up goes on from where it is.
func TestReloadOfFeedback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := ratelimit.Feedback{Ceiling: ratelimit.PerSecond(1000), Burst: 10, RecoverIn: 10 * time.Second, Recovery: ratelimit.RecoverAdditive}
		p, err := policy.New("dep", cfg)
		require.NoError(t, err)
		rate := func() float64 { return p.Snapshot().Policies[0].Limiter.Rate }
		_ = policy.Run(t.Context(), p, func(context.Context) error { return policy.AsThrottled(errors.New("too many"), 0) })
		time.Sleep(5 * time.Second)
		found := rate()
		require.Less(t, found, 999.0)
		cfg.RecoverIn, cfg.Burst, cfg.MaxWait = 100*time.Second, 20, time.Second
		assert.Equal(t, "feedback: resized", reload(t, p, cfg))
		assert.InDelta(t, found, rate(), 1e-6)
		time.Sleep(time.Second)
		assert.Greater(t, rate(), found)
		assert.Less(t, rate(), found+100)
		cfg.Decrease, cfg.Recovery = 0.9, ratelimit.RecoverCubic
		found = rate()
		assert.Equal(t, "feedback: resized", reload(t, p, cfg))
		assert.InDelta(t, found, rate(), 1e-6)
		time.Sleep(time.Hour)
		assert.InDelta(t, 1000, rate(), 1e-6)
	})
}

// The waits of what is made of several limits can change.
func TestReloadOfWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1}
		all, err := policy.New("dep", ratelimit.All{Limits: []policy.Policy{one}})
		require.NoError(t, err)
		lane := ratelimit.LaneConfig{Name: "a", Rate: ratelimit.PerSecond(1), Burst: 1}
		lanes, err := policy.New("dep", ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{lane}})
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, []int{passes(t.Context(), all, 2), passes(t.Context(), lanes, 2)})
		assert.Equal(t, "all: resized", reload(t, all, ratelimit.All{Limits: []policy.Policy{one}, MaxWait: time.Minute}))
		lane.MaxWait = time.Minute
		assert.Equal(t, "lanes: resized", reload(t, lanes, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{lane}}))
		start := time.Now()
		require.Equal(t, 2, passes(t.Context(), all, 2))
		assert.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, 3, passes(t.Context(), lanes, 3))
		assert.Equal(t, 4*time.Second, time.Since(start), "two arrived meanwhile, of which one fits")
		lane.LendAbove = 1
		assert.Contains(t, reload(t, lanes, ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{lane}}), "reset (lane a: LendAbove cannot be changed in place)")
	})
}

// What is in flight, what is known of the load and a shedding that goes on stay.
func TestReloadOfSystem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cpu := 0.0
		cfg := ratelimit.System{
			CPU: func() (float64, error) { return cpu, nil }, MaxDelay: ratelimit.NoDelay, MinInFlight: 1, Window: 5 * time.Second,
		}
		p, err := policy.New("dep", cfg)
		require.NoError(t, err)
		load := func() policy.LoadSnapshot { return *p.Snapshot().Policies[0].Limiter.Load }
		var held []policy.Handle
		for range 3 {
			a, err := p.Enter(t.Context())
			require.NoError(t, err)
			held = append(held, a)
		}
		cpu = 1
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			_ = policy.Run(t.Context(), p, func(context.Context) error { time.Sleep(10 * time.Millisecond); return nil })
		}
		before := load()
		require.True(t, before.Overloaded)
		require.Equal(t, 3, before.InFlight)
		require.NotZero(t, before.Throughput)
		cfg.Window, cfg.CoolDown, cfg.Sample, cfg.MaxCPU = time.Minute, 5*time.Second, 50*time.Millisecond, 0.9
		assert.Equal(t, "system: resized", reload(t, p, cfg))
		after := load()
		assert.Equal(t, before, after)
		_, err = p.Enter(t.Context())
		var re *policy.RejectedError
		require.ErrorAs(t, err, &re)
		assert.Equal(t, 5*time.Second, re.RetryAfter)
		time.Sleep(7 * time.Second)
		assert.InDelta(t, before.Throughput, load().Throughput, 1e-9, "the longer window still knows it")
		for _, a := range held {
			a.Leave(nil)
			a.Release()
		}
		cfg.CPU, cfg.MaxCPU, cfg.MaxDelay = nil, 0, 0
		assert.Equal(t, "system: resized", reload(t, p, cfg))
		time.Sleep(time.Second)
		require.NoError(t, policy.Run(t.Context(), p, func(context.Context) error { return nil }))
		assert.Zero(t, load().CPU)
		assert.Zero(t, load().InFlight)
	})
}

// Reloads under way while calls come and go lose no call.
func TestReloadUnderLoadConcurrentSafe(t *testing.T) {
	t.Parallel()
	const workers, calls = 4, 2000
	huge := ratelimit.PerSecond(1e5) // a burst of ten seconds: no call is that late
	specs := map[string]func(i int) policy.Policy{
		"system": func(i int) policy.Policy {
			return ratelimit.System{MaxDelay: time.Hour, MinInFlight: 10 + i%10, Window: time.Duration(1+i%9) * time.Second}
		},
		"keyed": func(i int) policy.Policy {
			return ratelimit.Keyed{Rate: huge, Burst: 1e6 + i%3, MaxKeys: 10 + i%50, TTL: time.Duration(1+i%9) * time.Second}
		},
		"feedback": func(i int) policy.Policy {
			return ratelimit.Feedback{Ceiling: huge, Burst: 1e6 + i%3, RecoverIn: time.Duration(1+i%9) * time.Second}
		},
		"lanes": func(i int) policy.Policy {
			return ratelimit.Lanes{Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: huge, Burst: 1e6, MaxWait: time.Duration(1+i%9) * time.Second}}}
		},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := policy.New("dep", spec(0))
			require.NoError(t, err)
			var wg sync.WaitGroup
			for g := range workers {
				wg.Go(func() {
					for i := range calls {
						ctx := policy.WithCall(t.Context(), policy.Call{Key: strconv.Itoa((g + i) % 20)})
						assert.NoError(t, policy.Run(ctx, p, func(context.Context) error { return nil }))
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			for i, over := 1, false; !over; i++ {
				require.Equal(t, name+": resized", reload(t, p, spec(i)))
				select {
				case <-done:
					over = true
				default:
				}
			}
			if l := p.Snapshot().Policies[0].Limiter.Load; l != nil {
				assert.Zero(t, l.InFlight)
			}
		})
	}
}
