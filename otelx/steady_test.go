package otelx_test

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// names returns the series that there are, apart from those about the registry.
func names(all map[string]float64) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(s string) bool { return !strings.Contains(s, "dependency=") })
}

// A real throttle refuses for the reason that it has a series for at zero, and has none
// for what it never does.
func TestCollectorBeginsAThrottleAtZero(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	p := add(t, &reg, "dep", breaker.Throttle{MinCalls: 1})
	c := collector(t, &reg, otelx.CollectorConfig{})
	before := scraped(t, c)
	for range 50 {
		_, _ = policy.Do(t.Context(), p, script(errSick))
	}
	after := scraped(t, c)
	const refused = "breakwater_rejections_total[dependency=dep policy=throttle reason=throttle]"
	assert.Contains(t, before, refused)
	assert.Greater(t, after[refused], 1.0)
	assert.Equal(t, names(before), names(after))
}

// What is left out depends on the settings alone: in an incident no series goes away, and
// those of what happens for the first time have been at zero.
func TestCollectorShowsTheSameSeriesThroughAnIncident(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, rules := range []breaker.Config{
			{MinCalls: 1, RampFor: time.Minute},
			{MinCalls: 1, SlowAfter: time.Hour},
			{MinCalls: 1, SlowAfter: time.Hour, ConsecutiveFailures: 3},
		} {
			var reg policy.Registry
			b, err := breaker.New("breaker", rules)
			require.NoError(t, err)
			p := add(t, &reg, "dep", b,
				policy.Timeouts{Total: time.Minute, Attempt: time.Second}, fallback.Value("stale"), retry.Config{},
				bulkhead.Semaphore{MaxWait: time.Second}, ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1000), Burst: 100})
			c := collector(t, &reg, otelx.CollectorConfig{})
			before := names(scraped(t, c))
			assert.Len(t, before, 80)

			_, _ = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 200}), p, script())
			b.Observe("drill", time.Hour)
			for range 3 {
				_, _ = policy.Do(t.Context(), p, script(errSick, errSick, errSick))
			}
			b.ForceOpen("drill", time.Hour)
			_, _ = policy.Do(t.Context(), p, script(errSick))
			all := scraped(t, c)
			assert.Equal(t, before, names(all))
			for _, seen := range []string{
				"breakwater_breaker_spared_total[dependency=dep policy=breaker]",
				"breakwater_rejections_total[dependency=dep policy=breaker reason=forced]",
				"breakwater_rejections_total[dependency=dep policy=ratelimit reason=cost]",
				"breakwater_retry_stops_total[dependency=dep policy=retry stop=attempts]",
			} {
				assert.Positive(t, all[seen], seen)
			}
			assert.Contains(t, all, "breakwater_retry_stops_total[dependency=dep policy=retry stop=hop]")
		}
	})
}

// What alerts look at is never left out.
func TestCollectorKeepsWhatAlertsLookAt(t *testing.T) {
	t.Parallel()
	lanes := ratelimit.Lanes{}
	for i := range 20 {
		lanes.Lanes = append(lanes.Lanes, ratelimit.LaneConfig{Name: strconv.Itoa(i), Rate: ratelimit.PerSecond(1), MaxWait: time.Second})
	}
	for name, policies := range map[string][]policy.Policy{
		"keyed": {
			breaker.Keyed{Config: breaker.Config{SlowAfter: time.Second, ConsecutiveFailures: 3}},
			bulkhead.Pool{},
			ratelimit.Keyed{Rate: ratelimit.PerSecond(1), MaxWait: time.Second},
			retry.Config{},
			fallback.Value(1),
		},
		"lanes": {lanes, breaker.Config{}, retry.Config{}},
	} {
		var reg policy.Registry
		p := add(t, &reg, "dep", policies...)
		all := scraped(t, collector(t, &reg, otelx.CollectorConfig{}))
		assert.LessOrEqual(t, len(names(all)), 80, name)
		want := []string{"retry_stops_total[dependency=dep policy=retry stop=budget]", "abandoned_total[dependency=dep]"}
		if name == "keyed" {
			want = append(want, "bulkhead_orphan_panics_total[dependency=dep policy=pool]", "ratelimit_overflowed_total[dependency=dep policy=keyed]")
		}
		for _, series := range want {
			assert.Contains(t, all, "breakwater_"+series, name)
		}
		require.NoError(t, p.Close(t.Context()))
	}
}

// Counters of pipelines that are shown as one never fall: neither when one of them goes
// away nor when it cannot be read for once.
func TestCollectorKeepsWhatFoldedPipelinesCounted(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	c := collector(t, &reg, otelx.CollectorConfig{MaxDerived: 1})
	m := meter(t, &reg, otelx.MeterConfig{MaxDerived: 1})
	call := func(p *policy.Pipeline) {
		for range 10 {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, nil })
		}
	}
	g := &gate{}
	for i := range 4 {
		call(add(t, &reg, "h"+strconv.Itoa(i), policy.Derived(), g))
		g = &gate{}
	}
	broken := &gate{}
	call(add(t, &reg, "h4", policy.Derived(), broken))
	expect := func(calls, folded float64) {
		t.Helper()
		for _, all := range []map[string]float64{scraped(t, c), observed(t, m.collect(t))} {
			assert.InDelta(t, calls, all["breakwater_calls_total[dependency=other outcome=success]"], 0)
			assert.InDelta(t, calls, all["breakwater_attempt_duration_seconds_count[dependency=other]"], 0)
			assert.InDelta(t, folded, all["breakwater_folded_dependencies[]"], 0)
			assert.InDelta(t, folded, all["breakwater_gate_info[dependency=other kind=gate mode=enforce policy=gate]"], 0.1)
		}
	}
	expect(40, 4)
	require.NoError(t, reg.Remove(t.Context(), "h3"))
	expect(40, 3)
	expect(40, 3)
	call(add(t, &reg, "h3", policy.Derived(), &gate{})) // has nothing to do with the one before
	expect(50, 4)

	broken.broken = true
	for _, all := range []map[string]float64{scraped(t, c), observed(t, m.collect(t))} {
		assert.InDelta(t, 50, all["breakwater_calls_total[dependency=other outcome=success]"], 0)
	}
	broken.broken = false
	expect(50, 4)

	for _, name := range []string{"h1", "h2", "h3", "h4"} {
		require.NoError(t, reg.Remove(t.Context(), name))
	}
	for _, all := range []map[string]float64{scraped(t, c), observed(t, m.collect(t))} {
		assert.InDelta(t, 50, all["breakwater_calls_total[dependency=other outcome=success]"], 0)
		assert.InDelta(t, 0, all["breakwater_folded_dependencies[]"], 0)
		assert.NotContains(t, all, "breakwater_gate_info[dependency=other kind=gate mode=enforce policy=gate]")
	}
}

// A place among those that are shown by name is free again when its pipeline goes away.
func TestCollectorShowsTheNextDerivedPipelineByName(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	c := collector(t, &reg, otelx.CollectorConfig{MaxDerived: 1})
	for i := range 10 {
		name := "h" + strconv.Itoa(i)
		add(t, &reg, name, policy.Derived())
		assert.Contains(t, text(t, c), `breakwater_retries_total{dependency="`+name+`"}`)
		require.NoError(t, reg.Remove(t.Context(), name))
	}
	assert.NotContains(t, text(t, c), `"other"`)
}

// A figure that is no number is left out, and is neither the highest nor the lowest.
func TestCollectorLeavesOutWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	for i, rate := range []float64{1, math.NaN(), 3} {
		add(t, &reg, "h"+strconv.Itoa(i), policy.Derived(), form("gate", policy.PlaceRateLimit,
			policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{Rate: rate, Tokens: rate}}))
	}
	add(t, &reg, "own", form("gate", policy.PlaceRateLimit, policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{Rate: math.NaN()}}))
	all := scraped(t, collector(t, &reg, otelx.CollectorConfig{MaxDerived: 1}))
	assert.InDelta(t, 3, all["breakwater_ratelimit_rate[dependency=other policy=gate]"], 0)
	assert.InDelta(t, 3, all["breakwater_ratelimit_tokens[dependency=other policy=gate]"], 0)
	assert.NotContains(t, all, "breakwater_ratelimit_rate[dependency=own policy=gate]")
	for series, v := range all {
		assert.False(t, math.IsNaN(v), series)
	}
}
