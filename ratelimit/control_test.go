package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

func settingsOf(tn policy.Tunable) map[string]float64 {
	m := map[string]float64{}
	for _, s := range tn.Settings() {
		m[s.Name] = s.Value
	}
	return m
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTune(t *testing.T) {
	t.Parallel()
	second := ratelimit.PerSecond
	tests := []struct {
		name  string
		of    policy.Tunable
		start map[string]float64
		set   map[string]float64
		want  map[string]float64
	}{
		{
			"token bucket", must(ratelimit.New("", ratelimit.TokenBucket{Rate: second(10), Burst: 20})),
			map[string]float64{"Rate": 10, "Burst": 20},
			map[string]float64{"Rate": 5},
			map[string]float64{"Rate": 5, "Burst": 20},
		},
		{
			"pacer", must(ratelimit.NewPace("", ratelimit.Pacer{Rate: ratelimit.PerMinute(60), MaxWait: time.Second})),
			map[string]float64{"Rate": 1, "Burst": 1},
			map[string]float64{"Rate": 2, "Burst": 3},
			map[string]float64{"Rate": 2, "Burst": 3},
		},
		{
			"warm-up", must(ratelimit.NewRamp("", ratelimit.WarmUp{Rate: second(100), Period: time.Second})),
			map[string]float64{"Rate": 100, "Burst": 1},
			map[string]float64{"Rate": 50},
			map[string]float64{"Rate": 50, "Burst": 1},
		},
		{
			"fixed window", must(ratelimit.NewWindow("", ratelimit.FixedWindow{Limit: 10, Window: time.Minute})),
			map[string]float64{"Limit": 10},
			map[string]float64{"Limit": 7},
			map[string]float64{"Limit": 7},
		},
		{
			"sliding window", must(ratelimit.NewSliding("", ratelimit.SlidingWindow{Limit: 10, Window: time.Minute})),
			map[string]float64{"Limit": 10},
			map[string]float64{"Limit": 7},
			map[string]float64{"Limit": 7},
		},
		{
			"keyed", must(ratelimit.NewKeyed("", ratelimit.Keyed{Rate: second(10), Burst: 20})),
			map[string]float64{"Rate": 10, "Burst": 20},
			map[string]float64{"Burst": 30},
			map[string]float64{"Rate": 10, "Burst": 30},
		},
		{
			"feedback", must(ratelimit.NewFeedback("", ratelimit.Feedback{Ceiling: second(100), Floor: second(10)})),
			map[string]float64{"Floor": 10, "Ceiling": 100},
			map[string]float64{"Ceiling": 80},
			map[string]float64{"Floor": 10, "Ceiling": 80},
		},
		{
			"lanes", must(ratelimit.NewLaneSet("", ratelimit.Lanes{
				Lanes: []ratelimit.LaneConfig{{Name: "realtime", Rate: second(6), Burst: 8}, {Name: "batch", Rate: second(4), Burst: 10, Priority: policy.PriorityLow}},
				Total: ratelimit.SlidingWindow{Limit: 10, Window: time.Second},
			})),
			map[string]float64{"realtime.Rate": 6, "realtime.Burst": 8, "batch.Rate": 4, "batch.Burst": 10, "Total.Limit": 10},
			map[string]float64{"realtime.Rate": 5, "Total.Limit": 9},
			map[string]float64{"realtime.Rate": 5, "realtime.Burst": 8, "batch.Rate": 4, "batch.Burst": 10, "Total.Limit": 9},
		},
		{
			"all", must(ratelimit.NewAll("", ratelimit.All{Limits: []policy.Policy{
				ratelimit.TokenBucket{Name: "account", Rate: second(10), Burst: 20},
				ratelimit.FixedWindow{Name: "day", Limit: 1000, Window: 24 * time.Hour},
			}})),
			map[string]float64{"account.Rate": 10, "account.Burst": 20, "day.Limit": 1000},
			map[string]float64{"day.Limit": 900},
			map[string]float64{"account.Rate": 10, "account.Burst": 20, "day.Limit": 900},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.InDeltaMapValues(t, tt.start, settingsOf(tt.of), 1e-9)
			var faults *policy.ConfigError
			for _, bad := range []map[string]float64{{"Nothing": 1}, {tt.of.Settings()[0].Name: math.NaN()}, {tt.of.Settings()[0].Name: -1}} {
				require.ErrorAs(t, tt.of.Tune(bad), &faults, "%v", bad)
			}
			assert.InDeltaMapValues(t, tt.start, settingsOf(tt.of), 1e-9, "what is wrong changes nothing")
			require.NoError(t, tt.of.Tune(nil))
			require.NoError(t, tt.of.Tune(tt.set))
			assert.InDeltaMapValues(t, tt.want, settingsOf(tt.of), 1e-9)
		})
	}
}
