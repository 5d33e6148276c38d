package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

// A change by hand is made as a whole or not at all, whatever the values.
func TestPropTuneIsAllOrNothing(t *testing.T) {
	t.Parallel()
	rate := ratelimit.PerSecond(10)
	for name, spec := range map[string]policy.Policy{
		"token_bucket": ratelimit.TokenBucket{Rate: rate, Burst: 5},
		"pacer":        ratelimit.Pacer{Rate: rate},
		"warm_up":      ratelimit.WarmUp{Rate: rate, Period: time.Second},
		"keyed":        ratelimit.Keyed{Rate: rate, Burst: 5},
		"feedback":     ratelimit.Feedback{Floor: ratelimit.PerSecond(1), Ceiling: rate},
		"sliding":      ratelimit.SlidingWindow{Limit: 10, Window: time.Second},
		"fixed":        ratelimit.FixedWindow{Limit: 10, Window: time.Second},
		"lanes": ratelimit.Lanes{
			Lanes: []ratelimit.LaneConfig{{Name: "a", Rate: rate}, {Name: "b", Rate: rate}},
			Total: ratelimit.SlidingWindow{Limit: 50, Window: time.Second},
		},
		"all": ratelimit.All{Limits: []policy.Policy{
			ratelimit.TokenBucket{Name: "one", Rate: rate, Burst: 5}, ratelimit.FixedWindow{Name: "two", Limit: 10, Window: time.Second},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := policy.New("a", spec)
			require.NoError(t, err)
			tunable := p.Controls()[0].Tunable
			require.NotNil(t, tunable)
			read := func() map[string]float64 {
				now := map[string]float64{}
				for _, s := range tunable.Settings() {
					now[s.Name] = s.Value
				}
				return now
			}
			rapid.Check(t, func(t *rapid.T) {
				want := map[string]float64{}
				for _, s := range tunable.Settings() {
					if !rapid.Bool().Draw(t, "set "+s.Name) {
						continue
					}
					want[s.Name] = rapid.OneOf(
						rapid.SampledFrom([]float64{s.Least, s.Most, s.Value, 0, -1, 1, 2, 1.5, 100, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}),
						rapid.Float64Range(s.Least, math.Min(s.Most, 1e4)),
						rapid.Map(rapid.IntRange(1, 1000), func(i int) float64 { return float64(i) }),
					).Draw(t, s.Name)
				}
				before := read()
				err := tunable.Tune(want)
				after := read()
				for name, was := range before {
					is := was
					if v, ok := want[name]; ok && err == nil {
						is = v
					}
					if !assert.InEpsilon(t, is, after[name], 1e-9, "%s: %v: %v", name, want, err) {
						t.FailNow()
					}
				}
			})
		})
	}
}
