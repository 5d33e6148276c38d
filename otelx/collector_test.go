package otelx_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/otelx"
	"github.com/breakwater-go/breakwater/policy"
)

func collector(tb testing.TB, reg *policy.Registry, cfg otelx.CollectorConfig) *otelx.Collector {
	tb.Helper()
	c, err := otelx.NewCollector(reg, cfg)
	require.NoError(tb, err)
	return c
}

func add(tb testing.TB, reg *policy.Registry, name string, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := reg.New(name, policies...)
	require.NoError(tb, err)
	return p
}

// everyPolicy is one policy of each kind, each with all it can say.
func everyPolicy() (policies []policy.Policy, refuse *bool) {
	refuse = new(bool)
	breaker := &gate{
		part: policy.Part{Kind: "breaker", Place: policy.PlaceBreaker},
		snap: policy.PolicySnapshot{Breaker: &policy.BreakerSnapshot{
			State: "open", RetryAfter: 1500 * time.Millisecond, Calls: 40, Failures: 20, Slow: 10,
			FailureRatio: 0.5, SlowRatio: 0.25, SlowThreshold: 0.5, MaxProbes: 3, Opened: 3,
		}},
		refuse: func() error {
			if !*refuse {
				return nil
			}
			return &policy.RejectedError{Reason: policy.ReasonOpen}
		},
	}
	return []policy.Policy{
		answer{name: "stale"},
		policy.Timeouts{Total: time.Minute},
		retries{max: 2, delay: time.Second, snap: &policy.RetrySnapshot{MaxAttempts: 2, HasBudget: true, BudgetRatio: 0.1, BudgetRemaining: 7.5}},
		&gate{
			part: policy.Part{Kind: "ratelimit", Name: "limit", Place: policy.PlaceRateLimit},
			snap: policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{Tokens: -2.5, Burst: 600, Rate: 6000}},
		},
		&gate{
			part: policy.Part{Kind: "bulkhead", Place: policy.PlaceBulkhead},
			snap: policy.PolicySnapshot{Bulkhead: &policy.BulkheadSnapshot{
				InFlight: 3, Limit: 50, Waiting: 1, MaxWaiters: 20, HighWater: 48,
				Wait: policy.Latency{Counts: []uint64{1, 0, 3}, Sum: 9 * time.Microsecond},
			}},
		},
		breaker,
	}, refuse
}

// Every metric of a pipeline that has everything, after traffic whose counts are
// plain to see here.
func TestCollectorShowsEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		policies, refuse := everyPolicy()
		p := add(t, &reg, "inventory", policies...)
		c := collector(t, &reg, otelx.CollectorConfig{MaxSeries: -1})

		lasting := func(d time.Duration, err error) func(context.Context) (string, error) {
			return func(context.Context) (string, error) { time.Sleep(d); return "", err }
		}
		for range 3 {
			_, _ = policy.Do(t.Context(), p, lasting(time.Millisecond, nil))
		}
		_, _ = policy.Do(t.Context(), p, lasting(100*time.Millisecond, errSick))               // twice, then a fallback
		_, _ = policy.Do(t.Context(), p, lasting(10*time.Second, policy.AsPermanent(errSick))) // a fallback
		*refuse = true
		_, _ = policy.Do(t.Context(), p, lasting(0, nil)) // a fallback

		want, err := os.Open("testdata/everything.prom")
		require.NoError(t, err)
		defer func() { _ = want.Close() }()
		require.NoError(t, testutil.CollectAndCompare(c, want))
	})
}

// Counters of the closed sets are there, at zero, before anything has happened:
// otherwise the first event of each would be missing from every rate.
func TestCollectorIsRightBeforeTheFirstCall(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	policies, _ := everyPolicy()
	add(t, &reg, "inventory", policies...)
	c := collector(t, &reg, otelx.CollectorConfig{})
	var want []string
	for k := range policy.NumKinds {
		want = append(want, `breakwater_calls_total{dependency="inventory",outcome="`+k.String()+`"} 0`)
		want = append(want, `breakwater_attempts_total{dependency="inventory",outcome="`+k.String()+`"} 0`)
	}
	want = append(want,
		`breakwater_rejections_total{dependency="inventory",policy="limit",reason="rate"} 0`,
		`breakwater_rejections_total{dependency="inventory",policy="bulkhead",reason="waiters"} 0`,
		`breakwater_rejections_total{dependency="inventory",policy="bulkhead",reason="wait"} 0`,
		`breakwater_rejections_total{dependency="inventory",policy="breaker",reason="open"} 0`,
		`breakwater_rejections_total{dependency="inventory",policy="breaker",reason="probes"} 0`,
		`breakwater_rejections_total{dependency="inventory",policy="breaker",reason="forced"} 0`,
		`breakwater_retry_stops_total{dependency="inventory",policy="retry",stop="budget"} 0`,
		`breakwater_retry_stops_total{dependency="inventory",policy="retry",stop="hop"} 0`,
		`breakwater_fallbacks_total{dependency="inventory",policy="stale",result="served"} 0`,
		`breakwater_attempt_duration_seconds_count{dependency="inventory"} 0`,
		`breakwater_breaker_state{dependency="inventory",policy="breaker",state="open"} 1`,
		`breakwater_snapshot_failures_total 0`,
	)
	got := text(t, c)
	for _, line := range want {
		assert.Contains(t, got, line+"\n")
	}
}

// text returns what a scrape returns.
func text(tb testing.TB, c prometheus.Collector) string {
	tb.Helper()
	preg := prometheus.NewPedanticRegistry()
	require.NoError(tb, preg.Register(c))
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(preg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(tb, http.StatusOK, rec.Code, rec.Body)
	return rec.Body.String()
}

func TestCollectorPassesLint(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	policies, _ := everyPolicy()
	add(t, &reg, "inventory", policies...)
	add(t, &reg, "shadowed", shadow())
	preg := prometheus.NewPedanticRegistry()
	require.NoError(t, preg.Register(collector(t, &reg, otelx.CollectorConfig{})))
	problems, err := testutil.GatherAndLint(preg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// A dependency with one policy of each kind stays within 80 series, whatever
// happens to it.
func TestCollectorBoundsTheNumberOfSeries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		c := collector(t, &reg, otelx.CollectorConfig{})
		none := series(t, c)
		policies, _ := everyPolicy()
		p := add(t, &reg, "inventory", policies...)
		fresh := series(t, c) - none
		t.Logf("%d series", fresh)
		assert.LessOrEqual(t, fresh, 80)
		for i := range 1000 {
			ctx := policy.WithCall(t.Context(), policy.Call{Key: strconv.Itoa(i)})
			_, _ = policy.Do(ctx, p, script(errSick, fmt.Errorf("error %d", i)))
		}
		assert.Equal(t, fresh, series(t, c)-none, "traffic adds none")

		policies, _ = everyPolicy()
		add(t, &reg, "other", policies...)
		assert.Equal(t, 2*fresh, series(t, c)-none, "each dependency has as many")
	})
}

// series counts as Prometheus does: a histogram has one for each bucket, one for
// +Inf, one for the count and one for the sum.
func series(tb testing.TB, c prometheus.Collector) (n int) {
	tb.Helper()
	for line := range strings.Lines(text(tb, c)) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

func shadow() *gate {
	g := refusing(policy.ReasonRate, 0)
	g.part = policy.Part{Kind: "ratelimit", Shadow: true}
	g.snap = policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{Burst: 1, Rate: 1}}
	return g
}

func TestCollectorCountsPanics(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	p := add(t, &reg, "dep")
	assert.Panics(t, func() {
		_, _ = policy.Do(t.Context(), p, func(context.Context) (string, error) { panic("x") })
	})
	got := text(t, collector(t, &reg, otelx.CollectorConfig{}))
	assert.Contains(t, got, `breakwater_panics_total{dependency="dep"} 1`)
	assert.Contains(t, got, `breakwater_attempts_total{dependency="dep",outcome="failure"} 1`)
}

// What a gate in shadow mode would have refused is not among the refusals.
func TestCollectorKeepsShadowGatesApart(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	p := add(t, &reg, "dep", shadow())
	_, err := policy.Do(t.Context(), p, script())
	require.NoError(t, err)
	require.NoError(t, testutil.CollectAndCompare(collector(t, &reg, otelx.CollectorConfig{}), strings.NewReader(`
# HELP breakwater_gate_info Always 1: the kind of a gate, and whether it enforces its decisions, is in shadow mode or was told to observe.
# TYPE breakwater_gate_info gauge
breakwater_gate_info{dependency="dep",kind="ratelimit",mode="shadow",policy="ratelimit"} 1
# HELP breakwater_shadow_rejections_total Attempts that a gate in shadow mode would have refused.
# TYPE breakwater_shadow_rejections_total counter
breakwater_shadow_rejections_total{dependency="dep",policy="ratelimit",reason="cost"} 0
breakwater_shadow_rejections_total{dependency="dep",policy="ratelimit",reason="rate"} 1
`), "breakwater_rejections_total", "breakwater_shadow_rejections_total", "breakwater_gate_info"))
}

// A gate of somebody else's has the reasons it has given, and no others.
func TestCollectorShowsForeignGates(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	g := refusing(policy.ReasonUnknown, 0)
	g.part.Name = "own"
	p := add(t, &reg, "dep", g)
	c := collector(t, &reg, otelx.CollectorConfig{})
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(""), "breakwater_rejections_total"))
	_, err := policy.Do(t.Context(), p, script())
	require.ErrorIs(t, err, policy.ErrRejected)
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP breakwater_rejections_total Attempts that a gate refused.
# TYPE breakwater_rejections_total counter
breakwater_rejections_total{dependency="dep",policy="own",reason="unknown"} 1
`), "breakwater_rejections_total"))
}

// A panic in a policy's Snapshot would end the process: Prometheus collects on
// goroutines of its own.
func TestCollectorSurvivesAPanicInASnapshot(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	g := &gate{broken: true}
	add(t, &reg, "broken", g)
	add(t, &reg, "sound")
	c := collector(t, &reg, otelx.CollectorConfig{})
	got := text(t, c)
	assert.Contains(t, got, "breakwater_snapshot_failures_total 1\n")
	assert.Contains(t, got, `dependency="sound"`)
	assert.NotContains(t, got, `dependency="broken"`)
	g.broken = false
	got = text(t, c)
	assert.Contains(t, got, "breakwater_snapshot_failures_total 1\n")
	assert.Contains(t, got, `dependency="broken"`)
}

func TestCollectorConfig(t *testing.T) {
	t.Parallel()
	var reg policy.Registry

	c := collector(t, &reg, otelx.CollectorConfig{})
	assert.Equal(t, otelx.DefaultBuckets(), c.Config().Buckets)
	c.Config().Buckets[0] = 0
	assert.Equal(t, otelx.DefaultBuckets(), c.Config().Buckets, "the caller gets a copy")

	// Bounds move to the nearest edge.
	c = collector(t, &reg, otelx.CollectorConfig{Buckets: []time.Duration{
		time.Microsecond, 8500, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 251658240 * time.Microsecond,
	}})
	assert.Equal(t, []time.Duration{
		time.Microsecond, 8 * time.Microsecond, 98304 * time.Microsecond, 245760 * time.Microsecond, 983040 * time.Microsecond, 251658240 * time.Microsecond,
	}, c.Config().Buckets)

	_, err := otelx.NewCollector(nil, otelx.CollectorConfig{Buckets: []time.Duration{0, time.Second, time.Second, time.Hour, time.Millisecond}})
	require.Error(t, err)
	for _, want := range []string{
		"collector.reg: want a registry",
		"collector.Buckets[0]: 0s: want 1µs to 4m11.65824s",
		"collector.Buckets[2]: 1s: want rising bounds",
		"collector.Buckets[3]: 1h0m0s: want 1µs to 4m11.65824s",
	} {
		assert.ErrorContains(t, err, want)
	}
	for _, d := range []time.Duration{-1, time.Microsecond - 1, 251658240*time.Microsecond + 1} {
		assert.Error(t, otelx.CollectorConfig{Buckets: []time.Duration{d}}.Validate(), d)
	}
	assert.NoError(t, otelx.CollectorConfig{}.Validate())
	require.ErrorContains(t, otelx.CollectorConfig{MaxSeries: 19}.Validate(), "collector.MaxSeries: 19: want at least 20")
	require.ErrorContains(t, otelx.CollectorConfig{MaxDerived: -1}.Validate(), "collector.MaxDerived: -1: want at least 0")
	require.ErrorContains(t, otelx.CollectorConfig{CallBuckets: []time.Duration{0}, WaitBuckets: []time.Duration{-1}}.Validate(), "collector.WaitBuckets[0]: -1ns")
	assert.Equal(t, 80, c.Config().MaxSeries)
	assert.Equal(t, 100, c.Config().MaxDerived)
	assert.Equal(t, -1, collector(t, &reg, otelx.CollectorConfig{MaxSeries: -7}).Config().MaxSeries)
}

// Every bucket holds exactly the durations up to its bound.
func TestCollectorHistogramIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		bounds := rapid.SliceOfNDistinct(rapid.Int64Range(1_000, 251_000_000_000), 1, 12, rapid.ID).Draw(rt, "bounds")
		durations := rapid.SliceOfN(rapid.Int64Range(0, 300_000_000_000), 0, 40).Draw(rt, "durations")
		cfg := otelx.CollectorConfig{}
		for _, b := range bounds {
			cfg.Buckets = append(cfg.Buckets, time.Duration(b))
		}
		if cfg.Validate() != nil {
			cfg.Buckets = cfg.Buckets[:1]
		}
		var got map[float64]uint64
		var count uint64
		var sum float64
		var used []time.Duration
		synctest.Test(t, func(t *testing.T) {
			var reg policy.Registry
			p := add(t, &reg, "dep")
			for _, d := range durations {
				_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(time.Duration(d)); return 0, nil })
			}
			c := collector(t, &reg, cfg)
			used = c.Config().Buckets
			got, count, sum = histogram(t, c)
		})
		var total time.Duration
		want := map[float64]uint64{}
		for _, b := range used {
			want[b.Seconds()] = 0
			for _, d := range durations {
				if time.Duration(d) < b {
					want[b.Seconds()]++
				}
			}
		}
		for _, d := range durations {
			total += time.Duration(d)
		}
		assert.Equal(rt, want, got)
		assert.Equal(rt, uint64(len(durations)), count)
		assert.InDelta(rt, total.Seconds(), sum, 1e-6)
	})
}

func histogram(tb testing.TB, c prometheus.Collector) (buckets map[float64]uint64, count uint64, sum float64) {
	tb.Helper()
	preg := prometheus.NewPedanticRegistry()
	require.NoError(tb, preg.Register(c))
	families, err := preg.Gather()
	require.NoError(tb, err)
	buckets = map[float64]uint64{}
	for _, f := range families {
		if f.GetName() != "breakwater_attempt_duration_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		for _, b := range h.GetBucket() {
			buckets[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		count, sum = h.GetSampleCount(), h.GetSampleSum()
	}
	return buckets, count, sum
}

func FuzzCollectorConfig(f *testing.F) {
	f.Add(int64(1_000), int64(1_125))
	f.Add(int64(250_000_000), int64(262_144_000))
	f.Fuzz(func(t *testing.T, a, b int64) {
		cfg := otelx.CollectorConfig{Buckets: []time.Duration{time.Duration(a), time.Duration(b)}}
		var reg policy.Registry
		c, err := otelx.NewCollector(&reg, cfg)
		require.Equal(t, cfg.Validate() == nil, err == nil)
		if err != nil {
			return
		}
		used := c.Config().Buckets
		require.Less(t, used[0], used[1])
		for i, d := range cfg.Buckets {
			require.LessOrEqual(t, (used[i] - d).Abs(), max(d/16, time.Microsecond/2), "%s moved to %s", d, used[i])
		}
		again, err := otelx.NewCollector(&reg, c.Config())
		require.NoError(t, err)
		require.Equal(t, used, again.Config().Buckets, "edges stay where they are")
	})
}

func TestCollectorConcurrentSafe(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	c := collector(t, &reg, otelx.CollectorConfig{})
	preg := prometheus.NewPedanticRegistry()
	require.NoError(t, preg.Register(c))
	const workers, calls = 4, 200
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			p := add(t, &reg, string(rune('a'+i)), retries{max: 2}, shadow())
			for range calls {
				_, _ = policy.Do(t.Context(), p, script(errSick))
			}
		})
		wg.Go(func() {
			for range 20 {
				_, err := preg.Gather()
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	got := text(t, c)
	for _, dep := range []string{"a", "b", "c", "d"} {
		assert.Contains(t, got, `breakwater_calls_total{dependency="`+dep+`",outcome="success"} 200`)
		assert.Contains(t, got, `breakwater_retries_total{dependency="`+dep+`"} 200`)
	}
}
