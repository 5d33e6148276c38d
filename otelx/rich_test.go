package otelx_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

// hedges is a policy.Hedger that hedges after a delay, if it has one.
type hedges struct{ delay time.Duration }

func (hedges) First(*policy.Attempt) {}

func (h hedges) Delay(time.Time) time.Duration {
	if h.delay == 0 {
		return -1
	}
	return h.delay
}
func (hedges) Allow(policy.HedgeState) bool     { return true }
func (hedges) Undo(time.Time)                   {}
func (hedges) Done()                            {}
func (hedges) Observe(time.Time, time.Duration) {}
func (hedges) Snapshot(time.Time) policy.PolicySnapshot {
	return policy.PolicySnapshot{Hedge: &policy.HedgeSnapshot{MaxHedges: 1, Delay: 61 * time.Millisecond, HasBudget: true, BudgetRemaining: 62}}
}

func (h hedges) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "hedge", Hedge: h, MaxHedges: 1}, nil
}

// remembering is a fallback that has a cache and a queue.
type remembering struct{ answer }

func (remembering) Snapshot(time.Time) policy.PolicySnapshot {
	return policy.PolicySnapshot{Fallback: &policy.FallbackSnapshot{
		Mapped: 70,
		Stale:  &policy.StaleSnapshot{Hits: 71, Misses: 72, Stale: 73, Negative: 74, Loads: 75, Failures: 76, Entries: 77, Evicted: 78, OldestAge: 79 * time.Second},
		Defer:  &policy.DeferSnapshot{Accepted: 80, Refused: 81, Unconfirmed: 82, InFlight: 83, Connected: true, Reconnects: 84},
	}}
}

func (r remembering) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "fallback", Name: "stale", Fallback: r}, nil
}

// The richest pipeline there is: one policy of each kind, in its richest form, and more
// gates besides.
func rich(tb testing.TB, reg *policy.Registry, name string) *policy.Pipeline {
	tb.Helper()
	shared := form("shared", policy.PlaceRateLimit, policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{
		Tokens: 90, Burst: 91, Rate: 92,
		Shared: &policy.SharedSnapshot{Mode: policy.SharedModeLocal, RoundTrips: 93, Errors: 94, LeaseHits: 95, Leased: 96, StoodIn: 97, Latency: policy.Latency{Counts: []uint64{1, 2}, Sum: time.Second}},
	}})
	two := form("all", policy.PlaceRateLimit, policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{
		Tokens: 100, Burst: 101, Rate: 102,
		Limits: []policy.PolicySnapshot{
			{Name: "user", Rejected: [policy.NumReasons]uint64{policy.ReasonRate: 100, policy.ReasonCost: 3}, Limiter: &policy.LimiterSnapshot{Tokens: 104, Rate: 105}},
			{Name: "route", Limiter: &policy.LimiterSnapshot{Tokens: 106, Rate: 107}},
		},
	}})
	return add(tb, reg, name,
		remembering{answer{name: "stale"}},
		policy.Timeouts{Total: time.Minute},
		retries{max: 2, snap: &policy.RetrySnapshot{HasBudget: true}}, hedges{},
		shared, two, keyedLimiter, feedback, lanes, load, pool, keyedBreaker,
	)
}

// No dependency has more than 80 series, however much there is to say, and what is left
// out is what matters least.
func TestCollectorHoldsTheBoundOfSeries(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	count := func(most int) int {
		var empty policy.Registry
		return series(t, collector(t, &reg, otelx.CollectorConfig{MaxSeries: most})) - series(t, collector(t, &empty, otelx.CollectorConfig{}))
	}
	rich(t, &reg, "rich")
	all := count(-1)
	t.Logf("the richest pipeline has %d series, of which %d are shown", all, count(0))
	assert.Greater(t, all, 150)
	assert.LessOrEqual(t, count(0), 80)
	assert.Greater(t, count(0), 60, "whole metrics go, and not more than must")
	for most := 20; most < 200; most += 7 {
		assert.LessOrEqual(t, count(most), most)
	}
	got := text(t, collector(t, &reg, otelx.CollectorConfig{}))
	for _, there := range []string{
		`breakwater_calls_total{dependency="rich",outcome="success"} 0`,
		`breakwater_breaker_state{dependency="rich",policy="keyed_breaker",state="forced_open"} 1`,
		`breakwater_omitted_series{dependency="rich"} ` + strconv.Itoa(all-count(0)+1),
	} {
		assert.Contains(t, got, there)
	}
	assert.NotContains(t, got, "breakwater_breaker_evicted_keys_total")
}

// Where nothing must be left out, everything is there.
func TestCollectorShowsTheRichestPipeline(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	rich(t, &reg, "rich")
	c := collector(t, &reg, otelx.CollectorConfig{MaxSeries: -1})
	got := text(t, c)
	for _, line := range []string{
		`hedge_delay_seconds{dependency="rich",policy="hedge"} 0.061`,
		`hedge_budget_remaining{dependency="rich",policy="hedge"} 62`,
		`hedges_total{dependency="rich",policy="hedge"} 0`,
		`fallback_cache_lookups_total{dependency="rich",policy="stale",result="hit"} 71`,
		`fallback_cache_lookups_total{dependency="rich",policy="stale",result="miss"} 72`,
		`fallback_cache_lookups_total{dependency="rich",policy="stale",result="stale"} 73`,
		`fallback_cache_lookups_total{dependency="rich",policy="stale",result="negative"} 74`,
		`fallback_cache_loads_total{dependency="rich",policy="stale"} 75`,
		`fallback_cache_load_failures_total{dependency="rich",policy="stale"} 76`,
		`fallback_cache_entries{dependency="rich",policy="stale"} 77`,
		`fallback_cache_evicted_total{dependency="rich",policy="stale"} 78`,
		`fallback_cache_oldest_age_seconds{dependency="rich",policy="stale"} 79`,
		`fallback_deferred_total{dependency="rich",policy="stale",result="accepted"} 80`,
		`fallback_deferred_total{dependency="rich",policy="stale",result="refused"} 81`,
		`fallback_deferred_total{dependency="rich",policy="stale",result="unconfirmed"} 82`,
		`fallback_defer_in_flight{dependency="rich",policy="stale"} 83`,
		`fallback_defer_connected{dependency="rich",policy="stale"} 1`,
		`fallback_defer_reconnects_total{dependency="rich",policy="stale"} 84`,
		`ratelimit_shared_mode{dependency="rich",mode="local",policy="shared"} 1`,
		`ratelimit_shared_mode{dependency="rich",mode="shared",policy="shared"} 0`,
		`ratelimit_shared_round_trips_total{dependency="rich",policy="shared"} 93`,
		`ratelimit_shared_errors_total{dependency="rich",policy="shared"} 94`,
		`ratelimit_shared_lease_hits_total{dependency="rich",policy="shared"} 95`,
		`ratelimit_shared_leased_tokens{dependency="rich",policy="shared"} 96`,
		`ratelimit_shared_stood_in_total{dependency="rich",policy="shared"} 97`,
		`ratelimit_shared_round_trip_seconds_count{dependency="rich",policy="shared"} 3`,
		`ratelimit_part_rejected_total{dependency="rich",part="user",policy="all"} 103`,
		`ratelimit_part_tokens{dependency="rich",part="user",policy="all"} 104`,
		`ratelimit_part_rate{dependency="rich",part="route",policy="all"} 107`,
	} {
		assert.Contains(t, got, "breakwater_"+line+"\n")
	}
	preg := prometheus.NewPedanticRegistry()
	require.NoError(t, preg.Register(c))
	problems, err := testutil.GatherAndLint(preg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// A fallback hides nothing: the failure is counted as one, and so is the answer; and
// what its own gate refused is neither answered nor failed.
func TestCaseB57FallbackHidesNothingFromMetrics(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	p := add(t, &reg, "dep", breaker.Config{MinCalls: 10}, fallback.Value("stale"))
	got, err := policy.Do(t.Context(), p, script(errSick))
	require.NoError(t, err)
	assert.Equal(t, "stale", got)
	c, m := collector(t, &reg, otelx.CollectorConfig{}), meter(t, &reg, otelx.MeterConfig{})
	for _, view := range []map[string]float64{scraped(t, c), observed(t, m.collect(t))} {
		for series, want := range map[string]float64{
			"breakwater_calls_total[dependency=dep outcome=failure]":                   1,
			"breakwater_calls_total[dependency=dep outcome=success]":                   0,
			"breakwater_attempts_total[dependency=dep outcome=failure]":                1,
			"breakwater_fallbacks_total[dependency=dep policy=fallback result=served]": 1,
			"breakwater_fallbacks_total[dependency=dep policy=fallback result=failed]": 0,
			"breakwater_breaker_window_calls[dependency=dep policy=breaker]":           1,
			"breakwater_breaker_window_failure_ratio[dependency=dep policy=breaker]":   1,
			"breakwater_attempt_duration_seconds_count[dependency=dep]":                1,
			"breakwater_call_duration_seconds_count[dependency=dep]":                   1,
			"breakwater_rejections_total[dependency=dep policy=breaker reason=open]":   0,
		} {
			v, ok := view[series]
			assert.True(t, ok, series)
			assert.InDelta(t, want, v, 0, series)
		}
	}
}

// A hundred thousand keys, errors and hosts make no more series than a few do, and none
// of them is to be read.
func TestCaseB69SeriesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		p := add(t, &reg, "dep", breaker.Keyed{Config: breaker.Config{MinCalls: 1}, MaxKeys: 1000})
		c := collector(t, &reg, otelx.CollectorConfig{})
		call := func(i int) {
			key := "https://shop-" + strconv.Itoa(i) + ".example/user"
			_, _ = policy.Do(policy.WithCall(t.Context(), policy.Call{Key: key}), p, func(context.Context) (int, error) {
				return 0, errors.New("cannot reach " + key)
			})
		}
		call(0)
		few := series(t, c)
		for i := range 100_000 {
			call(i)
		}
		got := text(t, c)
		assert.Equal(t, few, series(t, c))
		assert.NotContains(t, got, "shop-")
		assert.NotContains(t, got, "cannot reach")
		assert.Contains(t, got, `breakwater_breaker_keys{dependency="dep",policy="keyed_breaker"} 1000`)

		// Pipelines that are made for each host are dependencies up to a number, and
		// one beyond it, which adds them up.
		for i := range 1000 {
			p := add(t, &reg, "host-"+strconv.Itoa(i), policy.Derived(), breaker.Config{})
			_, _ = policy.Do(t.Context(), p, script(errSick))
		}
		all := scraped(t, c)
		dependencies := map[string]bool{}
		total := 0.0
		for k, v := range all {
			for _, f := range []string{"breakwater_calls_total[dependency=", "x"} {
				if len(k) > len(f) && k[:len(f)] == f {
					dependencies[k[len(f):]] = true
				}
			}
			if k == "breakwater_calls_total[dependency=other outcome=failure]" {
				total = v
			}
		}
		assert.Len(t, dependencies, int(policy.NumKinds)*(1+100+1))
		assert.InDelta(t, 900, total, 0)
		assert.InDelta(t, 900, all["breakwater_folded_dependencies[]"], 0)
		assert.InDelta(t, 900, all["breakwater_breaker_state[dependency=other policy=breaker state=closed]"], 0)
		assert.InDelta(t, 900, all["breakwater_attempt_duration_seconds_count[dependency=other]"], 0)
		assert.InDelta(t, 1, all["breakwater_breaker_window_failure_ratio[dependency=other policy=breaker]"], 0)
	})
}

// Native buckets hold every duration, near to where it is.
func TestCollectorNativeHistogram(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		durations := rapid.SliceOfN(rapid.Int64Range(0, 260_000_000_000), 0, 40).Draw(rt, "durations")
		var h *dto.Histogram
		synctest.Test(t, func(t *testing.T) {
			var reg policy.Registry
			p := add(t, &reg, "dep")
			for _, d := range durations {
				_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(time.Duration(d)); return 0, nil })
			}
			h = native(t, collector(t, &reg, otelx.CollectorConfig{}))
		})
		slices.Sort(durations)
		got := nativeUppers(h)
		require.Len(rt, got, len(durations))
		for i, upper := range got {
			d := time.Duration(durations[i]).Seconds()
			assert.LessOrEqual(rt, d, upper*1.0625+1e-6)
			assert.GreaterOrEqual(rt, d, upper/1.0905*0.9375-1e-6)
		}
		assert.Equal(rt, uint64(len(durations)), h.GetSampleCount())
	})
}

func native(tb testing.TB, c prometheus.Collector) *dto.Histogram {
	tb.Helper()
	preg := prometheus.NewPedanticRegistry()
	require.NoError(tb, preg.Register(c))
	families, err := preg.Gather()
	require.NoError(tb, err)
	for _, f := range families {
		if f.GetName() == "breakwater_attempt_duration_seconds" {
			return f.GetMetric()[0].GetHistogram()
		}
	}
	tb.Fatal("there is none")
	return nil
}

// nativeUppers returns, in order, the upper edge of the bucket of each duration.
func nativeUppers(h *dto.Histogram) (uppers []float64) {
	for range h.GetZeroCount() {
		uppers = append(uppers, h.GetZeroThreshold())
	}
	index, count, next := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[next]
			next++
			for range count {
				uppers = append(uppers, math.Exp2(float64(index)/8))
			}
			index++
		}
	}
	return uppers
}
