package ratelimit_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// What is left of every kind of limit, when it is new, and after two tokens of it.
func TestQuotas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit       policy.Policy
		first, then []policy.Quota
	}{
		"token bucket": {
			ratelimit.TokenBucket{Rate: ratelimit.PerMinute(100), Burst: 100},
			[]policy.Quota{{Policy: "ratelimit", Limit: 100, Window: time.Minute, Remaining: 100}},
			[]policy.Quota{{Policy: "ratelimit", Limit: 100, Window: time.Minute, Remaining: 98, Reset: 1200 * ms}},
		},
		"a burst of less than a second": {
			ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: 10},
			[]policy.Quota{{Policy: "ratelimit", Limit: 1000, Window: time.Second, Remaining: 10}},
			[]policy.Quota{{Policy: "ratelimit", Limit: 1000, Window: time.Second, Remaining: 8, Reset: 2 * ms}},
		},
		"no limit": {ratelimit.TokenBucket{Rate: ratelimit.PerSecond(math.Inf(1)), Burst: 10}, nil, nil},
		"keyed": {
			ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 10, Name: "per user"},
			[]policy.Quota{{Policy: "per user", Limit: 10, Window: 10 * time.Second, Remaining: 10}},
			[]policy.Quota{{Policy: "per user", Limit: 10, Window: 10 * time.Second, Remaining: 8, Reset: 2 * time.Second}},
		},
		"a key's own": {
			ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 10, Exceptions: map[string]ratelimit.Limit{"ann": {Rate: ratelimit.PerSecond(2), Burst: 40}}},
			[]policy.Quota{{Policy: "keyed", Limit: 40, Window: 20 * time.Second, Remaining: 40}},
			[]policy.Quota{{Policy: "keyed", Limit: 40, Window: 20 * time.Second, Remaining: 38, Reset: time.Second}},
		},
		"fixed window": {
			ratelimit.FixedWindow{Limit: 10, Window: time.Minute},
			[]policy.Quota{{Policy: "fixed_window", Limit: 10, Window: time.Minute, Remaining: 10}},
			[]policy.Quota{{Policy: "fixed_window", Limit: 10, Window: time.Minute, Remaining: 8, Reset: time.Minute}},
		},
		"sliding window": {
			ratelimit.SlidingWindow{Limit: 10, Window: time.Minute},
			[]policy.Quota{{Policy: "sliding_window", Limit: 10, Window: time.Minute, Remaining: 10}},
			[]policy.Quota{{Policy: "sliding_window", Limit: 10, Window: time.Minute, Remaining: 8, Reset: time.Minute}},
		},
		"lane": {
			ratelimit.Lanes{Name: "lanes", Lanes: []ratelimit.LaneConfig{
				{Name: "batch", Rate: ratelimit.PerSecond(4), Burst: 10}, {Name: "realtime", Rate: ratelimit.PerSecond(6), Burst: 12, Priority: policy.PriorityHigh},
			}},
			[]policy.Quota{{Policy: "lanes.realtime", Limit: 12, Window: 2 * time.Second, Remaining: 12}},
			[]policy.Quota{{Policy: "lanes.realtime", Limit: 12, Window: 2 * time.Second, Remaining: 10, Reset: 333333334}},
		},
		"lane under a total": {
			ratelimit.Lanes{Name: "lanes", Lanes: []ratelimit.LaneConfig{{Name: "one", Rate: ratelimit.PerSecond(6), Burst: 12}}, Total: ratelimit.SlidingWindow{Limit: 3, Window: time.Second}},
			[]policy.Quota{{Policy: "lanes.one", Limit: 12, Window: 2 * time.Second, Remaining: 3}},
			[]policy.Quota{{Policy: "lanes.one", Limit: 12, Window: 2 * time.Second, Remaining: 1}},
		},
		"all": {
			ratelimit.All{Limits: []policy.Policy{
				ratelimit.Keyed{Name: "user", Rate: ratelimit.PerSecond(1), Burst: 10}, ratelimit.TokenBucket{Name: "route", Rate: ratelimit.PerSecond(5), Burst: 50},
			}},
			[]policy.Quota{{Policy: "all.user", Limit: 10, Window: 10 * time.Second, Remaining: 10}, {Policy: "all.route", Limit: 50, Window: 10 * time.Second, Remaining: 50}},
			[]policy.Quota{
				{Policy: "all.user", Limit: 10, Window: 10 * time.Second, Remaining: 8, Reset: 2 * time.Second},
				{Policy: "all.route", Limit: 50, Window: 10 * time.Second, Remaining: 48, Reset: 400 * ms},
			},
		},
		"feedback": {
			ratelimit.Feedback{Ceiling: ratelimit.PerSecond(10), Burst: 20},
			[]policy.Quota{{Policy: "feedback", Limit: 20, Window: 2 * time.Second, Remaining: 20}},
			[]policy.Quota{{Policy: "feedback", Limit: 20, Window: 2 * time.Second, Remaining: 18, Reset: 200 * ms}},
		},
		"shadow": {ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Shadow: true}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, c.limit)
				ctx := policy.WithCall(t.Context(), policy.Call{Key: "ann", Priority: policy.PriorityHigh, Cost: 2})
				assert.Equal(t, c.first, p.Quotas(ctx, nil, nil))
				_, err := policy.Do(ctx, p, succeed)
				require.NoError(t, err)
				assert.Equal(t, c.then, p.Quotas(ctx, nil, nil))
				assert.Equal(t, c.then, p.Quotas(t.Context(), &policy.Call{Key: "ann", Priority: policy.PriorityHigh}, nil))
			})
		})
	}
	var none *policy.Pipeline
	assert.Empty(t, none.Quotas(t.Context(), nil, nil))
}

// As many tokens as remain can be taken, and no more; and when Reset has passed there are as many
// as the burst.
func TestQuotaProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		burst := rapid.IntRange(1, 50).Draw(rt, "burst")
		rate := ratelimit.Per(float64(rapid.IntRange(1, 50).Draw(rt, "tokens")), rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, time.Minute}).Draw(rt, "per"))
		steps := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 20).Draw(rt, "ms")
		kind := rapid.IntRange(0, 4).Draw(rt, "kind")
		var fault string
		synctest.Test(t, func(t *testing.T) {
			var l ratelimit.Limiter
			var err error
			switch kind {
			case 0:
				l, err = ratelimit.New("", ratelimit.TokenBucket{Rate: rate, Burst: burst})
			case 1:
				l, err = ratelimit.NewWindow("", ratelimit.FixedWindow{Limit: burst, Window: rate.Per})
			case 2:
				l, err = ratelimit.NewSliding("", ratelimit.SlidingWindow{Limit: burst, Window: rate.Per})
			case 3:
				var b *ratelimit.Buckets
				if b, err = ratelimit.NewKeyed("", ratelimit.Keyed{Rate: rate, Burst: burst}); err == nil {
					l = b.For("a key")
				}
			case 4:
				l, err = ratelimit.NewPace("", ratelimit.Pacer{Rate: rate, Burst: burst})
			}
			require.NoError(t, err)
			quota := func() policy.Quota {
				list := l.(policy.Quoter).Quotas(t.Context(), time.Now(), &policy.Call{}, nil)
				require.Len(t, list, 1)
				return list[0]
			}
			for _, step := range steps {
				time.Sleep(time.Duration(step) * time.Millisecond)
				l.Take(time.Now(), 1+step%3)
				q := quota()
				// A pacer counts what is taken at once against what follows.
				if _, ok := l.Take(time.Now(), q.Remaining+1); ok && kind != 4 {
					fault = "more than what remains was there"
					return
				}
				if _, ok := l.Take(time.Now(), q.Remaining); !ok && kind != 4 {
					fault = "what remains was not there"
					return
				}
			}
			time.Sleep(quota().Reset)
			if _, ok := l.Take(time.Now(), burst); !ok {
				fault = "not reset"
			}
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}
