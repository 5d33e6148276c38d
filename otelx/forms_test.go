package otelx_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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

// form returns a gate that says s.
func form(kind string, place int, s policy.PolicySnapshot) *gate {
	return &gate{part: policy.Part{Kind: kind, Place: place}, snap: s}
}

// Forms of policies that have more to say than the ordinary ones. Every figure is
// another, so that none can stand in the place of another.
var (
	keyedBreaker = form("keyed_breaker", policy.PlaceBreaker, policy.PolicySnapshot{Breaker: &policy.BreakerSnapshot{
		State: "forced_open", RetryAfter: 90 * time.Second, Share: 0.875, Calls: 400, FailureRatio: 0.25, Opened: 11,
		Consecutive: 4, ConsecutiveThreshold: 5, MaxProbes: 3, Observing: true, Spared: 6,
		Keys: 8, MaxKeys: 1000, OpenKeys: 1, MaxOpenKeys: 2, Evicted: 33, Capped: 7,
	}})
	throttle = form("throttle", policy.PlaceBreaker, policy.PolicySnapshot{Breaker: &policy.BreakerSnapshot{
		State: "throttling", Share: 0.625, Calls: 500, FailureRatio: 0.375, Opened: 12,
	}})
	pool = form("pool", policy.PlaceBulkhead, policy.PolicySnapshot{Bulkhead: &policy.BulkheadSnapshot{
		InFlight: 1, Limit: 2, Waiting: 3, MaxWaiters: 4, MostWaiting: 17, HighWater: 5, MinLimit: 1, MaxLimit: 6, Rebased: 7,
		Wait:    policy.Latency{Counts: []uint64{2, 6}, Sum: 10 * time.Second},
		Workers: 9, Idle: 1, Orphans: 10, Run: policy.Latency{Counts: []uint64{11}, Sum: 12 * time.Second}, Completed: 11,
		Abandoned: 13, Expired: 14, CallerRan: 15, OrphanPanics: 16, Overloaded: true,
	}})
	keyedLimiter = form("keyed", policy.PlaceRateLimit, policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{
		Tokens: 20, Burst: 20, Rate: 21, Waiting: 22, MaxWaiters: 100, Delay: 23 * time.Second,
		Keyed: &policy.KeyedSnapshot{Keys: 24, MaxKeys: 1000, Overflowed: 25, Top: []policy.KeySnapshot{{Key: "4711", Calls: 9}}},
	}})
	feedback = form("feedback", policy.PlaceRateLimit, policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{
		Tokens: 30, Burst: 31, Rate: 32,
		Feedback: &policy.FeedbackSnapshot{Floor: 1, Ceiling: 99, Drain: 33 * time.Second, Pushbacks: 34, Decreases: 35},
	}})
	lanes = form("lanes", policy.PlaceRateLimit, policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{
		Tokens: 40, Burst: 41, Rate: 42, Waiting: 43, MaxWaiters: 44,
		Lanes: []policy.LaneSnapshot{
			{Name: "paid", Waiting: 45, Admitted: 46, Borrowed: 47, Rejected: [policy.NumReasons]uint64{policy.ReasonRate: 40, policy.ReasonWait: 8}},
			{Name: "f\xff", Admitted: 49},
		},
	}})
	load = form("load", policy.PlaceRateLimit, policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{
		Load: &policy.LoadSnapshot{
			Overloaded: true, CPU: 0.75, Delay: 50 * time.Millisecond, Failed: 51, InFlight: 52, Limit: 53,
			Shed: [4]uint64{54, 55, 56, 57},
		},
	}})
)

func forms(tb testing.TB) *policy.Registry {
	tb.Helper()
	var reg policy.Registry
	for _, g := range []*gate{keyedBreaker, throttle, pool, keyedLimiter, feedback, lanes, load} {
		add(tb, &reg, g.part.Kind, g)
	}
	return &reg
}

func TestCollectorShowsEveryForm(t *testing.T) {
	t.Parallel()
	c := collector(t, forms(t), otelx.CollectorConfig{})
	want, err := os.Open("testdata/forms.prom")
	require.NoError(t, err)
	defer func() { _ = want.Close() }()
	var names []string
	for _, f := range gather(t, c) {
		for _, prefix := range []string{"breakwater_breaker_", "breakwater_bulkhead_", "breakwater_ratelimit_", "breakwater_rejections", "breakwater_gate"} {
			if strings.HasPrefix(f, prefix) {
				names = append(names, f)
			}
		}
	}
	require.NoError(t, testutil.CollectAndCompare(c, want, names...))
	assert.NotContains(t, text(t, c), "4711", "no key is a label")
}

// gather returns the names of all metrics that there are.
func gather(tb testing.TB, c prometheus.Collector) (names []string) {
	tb.Helper()
	preg := prometheus.NewPedanticRegistry()
	require.NoError(tb, preg.Register(c))
	families, err := preg.Gather()
	require.NoError(tb, err)
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

func TestCollectorOfEveryFormPassesLint(t *testing.T) {
	t.Parallel()
	preg := prometheus.NewPedanticRegistry()
	require.NoError(t, preg.Register(collector(t, forms(t), otelx.CollectorConfig{})))
	problems, err := testutil.GatherAndLint(preg)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// The reference says how many series each form has; so does this.
func TestCollectorBoundsTheSeriesOfEveryForm(t *testing.T) {
	t.Parallel()
	var empty, bare policy.Registry
	none := series(t, collector(t, &empty, otelx.CollectorConfig{}))
	add(t, &bare, "dep")
	pipe := series(t, collector(t, &bare, otelx.CollectorConfig{})) - none
	assert.Equal(t, 20+11+8, pipe, "a pipeline without policies")
	for _, tt := range []struct {
		g    *gate
		want int
	}{
		{keyedBreaker, 6 + 5 + 1 + 1 + 4 + 4 + 1}, // states, ordinary, rule, spared, keys, reasons, info
		{throttle, 2 + 4 + 1 + 1},                 // neither retry_after nor probes
		{pool, 3 + 6 + 1 + 10 + 2 + 1},            // ordinary, queue, adaptive, pool, reasons, info
		{keyedLimiter, 1 + 3 + 2 + 4 + 1},         // rate, queue, keys, reasons, info
		{feedback, 3 + 3 + 2 + 1},                 // ordinary, feedback, reasons, info
		{lanes, 3 + 2 + 2*5 + 5 + 1},              // ordinary, queue, five each, reasons, info
		{load, 10 + 1 + 1},                        // its own, reason, info
	} {
		var reg policy.Registry
		add(t, &reg, "dep", tt.g)
		assert.Equal(t, tt.want, series(t, collector(t, &reg, otelx.CollectorConfig{}))-none-pipe, tt.g.part.Kind)
	}
}

// The same of real policies, which need not say what their fakes here do.
func TestCollectorBoundsTheSeriesOfRealForms(t *testing.T) {
	t.Parallel()
	rules := breaker.Config{SlowAfter: time.Second, ConsecutiveFailures: 5}
	for name, tt := range map[string]struct {
		policy policy.Policy
		want   int
	}{
		"retry":             {retry.Config{}, 11},
		"fallback":          {fallback.Value("stale"), 2},
		"timeouts":          {policy.Timeouts{Total: time.Second}, 0},
		"breaker":           {breaker.Config{}, 17},
		"breaker, rules":    {rules, 17 + 2},
		"keyed breaker":     {breaker.Keyed{Config: rules}, 17 + 2 + 4},
		"throttle":          {breaker.Throttle{}, 8},
		"semaphore":         {bulkhead.Semaphore{}, 5},
		"semaphore, queue":  {bulkhead.Semaphore{MaxWait: time.Second}, 5 + 7},
		"semaphore, shadow": {bulkhead.Semaphore{MaxWait: time.Second, Shadow: true}, 5},
		"adaptive":          {bulkhead.Adaptive{}, 6},
		"adaptive, queue":   {bulkhead.Adaptive{MaxWait: time.Second}, 6 + 7},
		"pool":              {bulkhead.Pool{Queue: bulkhead.NoQueue}, 15},
		"pool, queue":       {bulkhead.Pool{}, 15 + 7},
		"token bucket":      {ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1)}, 6},
		"pacer":             {ratelimit.Pacer{Rate: ratelimit.PerSecond(1)}, 6},
		"pacer, queue":      {ratelimit.Pacer{Rate: ratelimit.PerSecond(1), MaxWait: 9 * time.Second}, 6 + 5},
		"keyed limiter":     {ratelimit.Keyed{Rate: ratelimit.PerSecond(1)}, 6},
		"two limits": {ratelimit.All{Limits: []policy.Policy{
			ratelimit.TokenBucket{Name: "a", Rate: ratelimit.PerSecond(1)}, ratelimit.TokenBucket{Name: "b", Rate: ratelimit.PerSecond(1)},
		}}, 6 + 2*3},
	} {
		var bare, reg policy.Registry
		add(t, &bare, "dep")
		p := add(t, &reg, "dep", tt.policy)
		without := series(t, collector(t, &bare, otelx.CollectorConfig{}))
		assert.Equal(t, tt.want, series(t, collector(t, &reg, otelx.CollectorConfig{}))-without, name)
		require.NoError(t, p.Close(t.Context()))
	}
}

// Fallbacks of typed handles are counted by their names.
func TestCollectorShowsTypedFallbacks(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	p := add(t, &reg, "dep")
	_, err := policy.For(p, fallback.Value("stale")).Do(t.Context(), script(errSick))
	require.NoError(t, err)
	assert.Contains(t, text(t, collector(t, &reg, otelx.CollectorConfig{})), `breakwater_fallbacks_total{dependency="dep",policy="fallback",result="served"} 1`)
}

// A series for each state that there is, and none for one that there is not: a throttle
// is never open, and nothing else throttles.
func TestCollectorCoversEveryBreakerState(t *testing.T) {
	t.Parallel()
	for _, state := range policy.BreakerStates() {
		for _, probes := range []int{0, 1} {
			var reg policy.Registry
			add(t, &reg, "dep", form("breaker", policy.PlaceBreaker, policy.PolicySnapshot{Breaker: &policy.BreakerSnapshot{State: state, MaxProbes: probes}}))
			states := []string{"closed", "open", "half_open", "recovering", "forced_open", "forced_closed"}
			if probes == 0 {
				states = []string{"closed", "throttling"}
			}
			if !slices.Contains(states, state) {
				states = append(states, state) // of a gate that somebody else has written
			}
			want := strings.Builder{}
			want.WriteString("# HELP breakwater_breaker_state 1 for the state the breaker is in, 0 for the others; of a keyed breaker, the state of its worst key.\n# TYPE breakwater_breaker_state gauge\n")
			for _, s := range states {
				v := 0
				if s == state {
					v = 1
				}
				fmt.Fprintf(&want, "breakwater_breaker_state{dependency=\"dep\",policy=\"breaker\",state=%q} %d\n", s, v)
			}
			c := collector(t, &reg, otelx.CollectorConfig{})
			require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want.String()), "breakwater_breaker_state"), state)
		}
	}
}

// A breaker that was told to observe is told apart from one that means it, and back.
func TestCollectorShowsCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		b, err := breaker.New("breaker", breaker.Config{MinCalls: 1, OpenFor: time.Minute})
		require.NoError(t, err)
		p := add(t, &reg, "dep", b)
		c := collector(t, &reg, otelx.CollectorConfig{})
		mode := func(m string) string {
			return `breakwater_gate_info{dependency="dep",kind="breaker",mode="` + m + `",policy="breaker"} 1`
		}
		const spared = `breakwater_breaker_spared_total{dependency="dep",policy="breaker"} `
		got := text(t, c)
		assert.Contains(t, got, mode("enforce"))
		assert.Contains(t, got, spared+"0\n", "at zero before the first")

		b.Observe("drill", time.Minute)
		for range 3 { // the first opens it, two more run all the same
			_, _ = policy.Do(t.Context(), p, script(errSick))
		}
		got = text(t, c)
		assert.Contains(t, got, mode("observe"))
		assert.NotContains(t, got, mode("enforce"))
		assert.Contains(t, got, spared+"2\n")

		b.Release("drill")
		got = text(t, c)
		assert.Contains(t, got, mode("enforce"))
		assert.Contains(t, got, spared+"2\n", "a counter does not go away")

		b.ForceOpen("fire", 20*time.Minute)
		got = text(t, c)
		assert.Contains(t, got, `breakwater_breaker_state{dependency="dep",policy="breaker",state="forced_open"} 1`)
		assert.Contains(t, got, `breakwater_breaker_retry_after_seconds{dependency="dep",policy="breaker"} 1200`)
		assert.Contains(t, got, `breakwater_breaker_admitted_ratio{dependency="dep",policy="breaker"} 0`)
		assert.NotContains(t, got, "drill", "no notes")
		assert.NotContains(t, got, "fire", "no notes")
	})
}

// Keys are rolled up: a thousand of them add no series, and none is to be read.
func TestCollectorRollsUpKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		p := add(t, &reg, "dep",
			breaker.Keyed{Config: breaker.Config{MinCalls: 1, OpenFor: time.Minute}, MaxKeys: 900},
			ratelimit.Keyed{Rate: ratelimit.PerSecond(1), Burst: 1})
		c := collector(t, &reg, otelx.CollectorConfig{})
		fresh := series(t, c)
		for i := range 1000 {
			var errs []error
			if i >= 990 {
				errs = []error{errSick}
			}
			ctx := policy.WithCall(t.Context(), policy.Call{Key: "shop-" + strconv.Itoa(i)})
			_, _ = policy.Do(ctx, p, script(errs...))
		}
		got := text(t, c)
		assert.Equal(t, fresh, series(t, c))
		assert.NotContains(t, got, "shop-")
		for _, want := range []string{
			`breaker_keys{dependency="dep",policy="keyed_breaker"} 900`,
			`breaker_open_keys{dependency="dep",policy="keyed_breaker"} 10`,
			`breaker_evicted_keys_total{dependency="dep",policy="keyed_breaker"} 100`,
			`breaker_capped_openings_total{dependency="dep",policy="keyed_breaker"} 0`,
			`breaker_state{dependency="dep",policy="keyed_breaker",state="open"} 1`,
			`ratelimit_keys{dependency="dep",policy="keyed"} 1000`,
			`ratelimit_rate{dependency="dep",policy="keyed"} 1`,
		} {
			assert.Contains(t, got, "breakwater_"+want+"\n")
		}
	})
}

// A real pool says from the start that it is one, and tells of what nobody is told.
func TestCollectorFollowsAPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		p := add(t, &reg, "dep", bulkhead.Pool{Workers: 2, Queue: 4}, policy.Timeouts{Attempt: time.Second})
		defer func() { assert.NoError(t, p.Close(t.Context())) }()
		c := collector(t, &reg, otelx.CollectorConfig{})
		fresh := series(t, c)
		assert.Contains(t, text(t, c), `breakwater_bulkhead_run_seconds_count{dependency="dep",policy="pool"} 0`)

		_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(2 * time.Second); panic("late") })
		require.Error(t, err)
		assert.Contains(t, text(t, c), `breakwater_bulkhead_orphans{dependency="dep",policy="pool"} 1`)
		time.Sleep(2 * time.Second)
		_, err = policy.Do(t.Context(), p, script())
		require.NoError(t, err)
		synctest.Wait()
		got := text(t, c)
		for _, want := range []string{
			"orphans %s0", "orphan_panics_total %s1", "abandoned_total %s1", "expired_total %s0", "caller_runs_total %s0",
			"overloaded %s0", "run_seconds_count %s2", "run_seconds_sum %s2", "in_flight %s0", "limit %s2", "wait_seconds_count %s0",
		} {
			name, value, _ := strings.Cut(want, " %s")
			assert.Contains(t, got, "breakwater_bulkhead_"+name+`{dependency="dep",policy="pool"} `+value+"\n")
		}
		assert.Equal(t, fresh, series(t, c), "traffic adds none")
	})
}

// An adaptive limit and a throttle: what they are not has no series.
func TestCollectorShowsOnlyWhatThereIs(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	add(t, &reg, "dep", bulkhead.Adaptive{}, breaker.Throttle{})
	got := text(t, collector(t, &reg, otelx.CollectorConfig{}))
	for _, there := range []string{
		`bulkhead_rebased_total{dependency="dep",policy="adaptive"} 0`,
		`bulkhead_limit{dependency="dep",policy="adaptive"} 20`,
		`breaker_admitted_ratio{dependency="dep",policy="throttle"} 1`,
		`rejections_total{dependency="dep",policy="throttle",reason="throttle"} 0`,
		`rejections_total{dependency="dep",policy="adaptive",reason="concurrency"} 0`,
	} {
		assert.Contains(t, got, "breakwater_"+there+"\n")
	}
	for _, not := range []string{
		`reason="open"`, "breaker_spared", "bulkhead_wait", "bulkhead_workers", "breaker_retry_after", "breaker_window_slow", "breaker_consecutive", "breaker_keys", `"probes"`,
	} {
		assert.NotContains(t, got, not)
	}
}

// What a closed pipeline refuses is shown, and not at the price of the scrape when a
// policy has the name that the pipeline gives to itself.
func TestCollectorShowsAClosedPipeline(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"gate", "pipeline"} {
		var reg policy.Registry
		g := form("gate", policy.PlaceBulkhead, policy.PolicySnapshot{})
		g.part.Name = name
		p := add(t, &reg, "dep", g)
		require.NoError(t, p.Close(t.Context()))
		_, err := policy.Do(t.Context(), p, script())
		require.ErrorIs(t, err, policy.ErrClosed)
		got := text(t, collector(t, &reg, otelx.CollectorConfig{}))
		const refused = `breakwater_rejections_total{dependency="dep",policy="pipeline",reason="closed"} 1`
		if name == "pipeline" {
			assert.NotContains(t, got, refused)
			assert.Contains(t, got, `breakwater_gate_info{dependency="dep",kind="gate",mode="enforce",policy="pipeline"} 1`)
		} else {
			assert.Contains(t, got, refused)
		}
	}
}
