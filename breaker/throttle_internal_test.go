package breaker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

func newThrottler(t fataler, base time.Time, cfg Throttle, seed uint64) *Throttler {
	th, err := newThrottleAt(base, "", cfg)
	if err != nil {
		t.Fatalf("%+v: %v", cfg, err)
	}
	th.chance = rand.New(rand.NewPCG(seed, 0)).Float64
	return th
}

// go-zero#5551: a throttle that counts its own refusals keeps itself closed to the
// dependency. 1000 calls/s, 30 s of outage, then the time to the first second in which
// 99 % of the calls are let through.
//
// Choice: refusals are counted, as published, and MaxRejection keeps a recovery from
// taking long; IgnoreRefusals leaves them out.
func TestCaseB40ThrottleRecovers(t *testing.T) {
	t.Parallel()
	recovery := func(t *testing.T, cfg Throttle, seed uint64) time.Duration {
		t.Helper()
		cfg.Window, cfg.Buckets = 10*time.Second, 40
		base := time.Now()
		th := newThrottler(t, base, cfg, seed)
		const rate, outage, most = 1000, 30 * time.Second, 600 * time.Second
		passed := 0
		for i := range int(most.Seconds() * rate) {
			at := time.Duration(i) * time.Second / rate
			if since := at - outage; i%rate == 0 {
				if since > 0 && passed >= rate*99/100 {
					return since
				}
				passed = 0
			}
			now := base.Add(at)
			if !th.enter(now, policy.PriorityNormal) {
				continue
			}
			passed++
			o := policy.Outcome{Kind: policy.Success}
			if at < outage {
				o.Kind = policy.Failure
			}
			th.leave(0, now, o)
		}
		return most
	}
	tests := []struct {
		cfg         Throttle
		least, most time.Duration
	}{
		{Throttle{MinCalls: 1, MaxRejection: 1, IgnoreRefusals: true}, 0, 2 * time.Second},
		{Throttle{MinCalls: 1, MaxRejection: 1, IgnoreRefusals: true, K: 1.5}, 0, 2 * time.Second},
		{Throttle{MinCalls: 1, MaxRejection: 1}, 20 * time.Second, 180 * time.Second},
		{Throttle{MinCalls: 1, MaxRejection: 1, K: 1.5}, 20 * time.Second, 300 * time.Second},
		{Throttle{}, 0, 30 * time.Second}, // the defaults
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%+v", tt.cfg), func(t *testing.T) {
			t.Parallel()
			var took []time.Duration
			for seed := range uint64(6) {
				d := recovery(t, tt.cfg, seed)
				took = append(took, d)
				assert.LessOrEqual(t, d, tt.most, "seed %d", seed)
				assert.GreaterOrEqual(t, d, tt.least, "seed %d", seed)
			}
			t.Log(took)
		})
	}
}

// A dependency that can bear half of the load, or a quarter, is given K times what it
// accepts.
func TestThrottleFindsTheShareThatIsAccepted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ k, load, capacity float64 }{{2, 1000, 200}, {1.5, 1000, 200}, {1.1, 1000, 500}, {2, 1000, 900}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			t.Parallel()
			base := time.Now()
			th := newThrottler(t, base, Throttle{K: tt.k}, 1)
			sent, accepted, inSecond := 0.0, 0.0, 0.0
			for i := range int(60 * tt.load) {
				if i%int(tt.load) == 0 {
					inSecond = 0
				}
				if i == int(30*tt.load) { // it has settled
					sent, accepted = 0, 0
				}
				now := base.Add(time.Duration(float64(i) / tt.load * float64(time.Second)))
				if !th.enter(now, policy.PriorityNormal) {
					continue
				}
				sent++
				o := policy.Outcome{Kind: policy.Throttled}
				if inSecond++; inSecond <= tt.capacity {
					accepted++
					o.Kind = policy.Success
				}
				th.leave(0, now, o)
			}
			assert.InDelta(t, tt.capacity, accepted/30, tt.capacity/50, "the dependency is kept busy")
			assert.InDelta(t, min(tt.k*tt.capacity, tt.load), sent/30, tt.capacity/10)
		})
	}
}

// Calls that matter less are refused first.
func TestThrottleHonoursPriority(t *testing.T) {
	t.Parallel()
	base := time.Now()
	th := newThrottler(t, base, Throttle{MinCalls: 100, MaxRejection: 0.8}, 1)
	first := make(map[policy.Priority]int) // percentage accepted when it is first refused
	for accepted := 100; accepted >= 0; accepted-- {
		th.set.Load().win.Reset(base)
		for i := range 100 {
			o := policy.Outcome{Kind: policy.Success}
			if i >= accepted {
				o.Kind = policy.Busy
			}
			th.leave(0, base, o)
		}
		var last float64
		for p := policy.PriorityCritical; p >= policy.PriorityLow; p-- {
			chance := th.set.Load().rejection(th.set.Load().win.Counts(base), int(p-policy.PriorityLow))
			require.GreaterOrEqual(t, chance, last, "%d %% accepted, priority %d", accepted, p)
			require.LessOrEqual(t, chance, 0.8)
			last = chance
			if _, ok := first[p]; chance > 0 && !ok {
				first[p] = accepted
			}
		}
	}
	assert.Equal(t, map[policy.Priority]int{
		policy.PriorityLow: 66, policy.PriorityNormal: 49, policy.PriorityHigh: 33, policy.PriorityCritical: 19,
	}, first)
	for _, p := range []policy.Priority{-128, 127} {
		th.enter(base, p) // does not panic
	}
}

// The probability of a refusal is that of the formula over a recount of all requests.
func TestThrottleEqualsModel(t *testing.T) {
	t.Parallel()
	type request struct {
		bucket   int64
		accepted bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Now()
		cfg := Throttle{
			K:              rapid.Float64Range(1, 4).Draw(rt, "k"),
			Window:         time.Duration(rapid.Int64Range(1, 20).Draw(rt, "window")) * time.Second,
			Buckets:        rapid.IntRange(1, 10).Draw(rt, "buckets"),
			MinCalls:       rapid.IntRange(1, 10).Draw(rt, "min calls"),
			MaxRejection:   rapid.Float64Range(0.1, 1).Draw(rt, "max rejection"),
			IgnoreRefusals: rapid.Bool().Draw(rt, "ignore refusals"),
		}
		th := newThrottler(rt, base, cfg, 0)
		width := int64(cfg.Window) / int64(cfg.Buckets)
		var requests []request
		var newest, ns int64
		count := func(accepted bool) {
			newest = max(newest, ns/width)
			requests = append(requests, request{newest, accepted})
		}
		chance := func(factor float64) float64 {
			r, a := 0.0, 0.0
			for _, q := range requests {
				if q.bucket > max(newest, ns/width)-int64(cfg.Buckets) {
					r++
					if q.accepted {
						a++
					}
				}
			}
			k := 1 + (cfg.K-1)*factor
			if r < float64(cfg.MinCalls) || r <= k*a {
				return 0
			}
			return min((r-k*a)/(r+1), cfg.MaxRejection)
		}
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			ns += rapid.Int64Range(0, int64(2*time.Second)).Draw(rt, "time")
			if rapid.IntRange(0, 20).Draw(rt, "leap") == 0 {
				ns += int64(cfg.Window)
			}
			now := base.Add(time.Duration(ns))
			p := policy.Priority(rapid.IntRange(-1, 2).Draw(rt, "priority"))
			draw := rapid.Float64Range(0, 0.999).Draw(rt, "chance")
			th.chance = func() float64 { return draw }
			want := draw >= chance(map[policy.Priority]float64{-1: 0.5, 0: 1, 1: 2, 2: 4}[p])
			if got := th.enter(now, p); got != want {
				rt.Fatalf("at %d: let through %v, want %v: %+v", ns, got, want, requests)
			}
			if !want && !cfg.IgnoreRefusals {
				count(false)
			}
			if want {
				kind := rapid.SampledFrom(scriptKinds).Draw(rt, "kind")
				th.leave(0, now, policy.Outcome{Kind: kind})
				switch kind {
				case policy.Success, policy.Permanent:
					count(true)
				case policy.Failure, policy.Timeout, policy.Busy, policy.Throttled:
					count(false)
				default:
				}
			}
			s := th.Snapshot(now).Breaker
			if want := 1 - chance(1); s.Share != want || (s.State == "closed") != (want == 1) {
				rt.Fatalf("at %d: %+v, want share %v", ns, s, want)
			}
		}
	})
}

// Figures add up, and no probability stays behind when all calls have ended.
func TestThrottlerConcurrentSafe(t *testing.T) {
	t.Parallel()
	base := time.Now()
	th, err := newThrottleAt(base, "", Throttle{Window: time.Hour, MinCalls: 100})
	require.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused := 0
	const goroutines, each = 8, 3000
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				now := base.Add(time.Duration(i) * time.Millisecond)
				if !th.enter(now, policy.Priority(g%4-1)) {
					mu.Lock()
					refused++
					mu.Unlock()
					continue
				}
				o := policy.Outcome{Kind: policy.Success}
				if i%3 == 0 || i < each/2 {
					o.Kind = policy.Failure
				}
				th.leave(uint32(g), now, o)
				th.Snapshot(now)
			}
		})
	}
	wg.Wait()
	s := th.Snapshot(base).Breaker
	assert.Equal(t, uint64(goroutines*each), s.Calls)
	assert.NotZero(t, refused)
	th.set.Load().win.Reset(base)
	th.look(base)
	for range 1000 {
		assert.True(t, th.enter(base, policy.PriorityLow))
	}
}
