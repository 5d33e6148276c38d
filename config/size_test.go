package config_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/config"
	"github.com/breakwater-go/breakwater/policy"
)

func figures(t *testing.T, m config.Measured) (map[string]float64, string) {
	t.Helper()
	s, err := config.Size(m)
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range s.Figures {
		got[f.Name] = f.Value
		t.Logf("%s = %.4g %s: %s", f.Name, f.Value, f.Unit, f.How)
	}
	return got, s.Policies
}

// A vendor allows 10 calls per second of 800 ms each: 8 in flight on average, for which 8
// permits refuse 24 % of random arrivals.
func TestIncidentOCRSize(t *testing.T) {
	t.Parallel()
	got, _ := figures(t, config.Measured{Rate: 10, Latency: 800 * time.Millisecond, P99: 1500 * time.Millisecond})
	assert.InDelta(t, 8, got["in flight on average"], 1e-9)
	assert.InDelta(t, 24, got["refused without headroom"], 0.5)
	assert.InDelta(t, 15, got["concurrency"], 0)
	got, policies := figures(t, config.Measured{Rate: 12, Quota: 10, Latency: 800 * time.Millisecond})
	assert.InDelta(t, 8, got["fleet limit"], 1e-9, "80 % of the quota")
	assert.Contains(t, policies, "ratelimit: {Rate: 8/s, Burst: 8}")
	assert.Contains(t, policies, "timeout: {Attempt: 1.6s} # twice the mean, as no P99 is known")
	_, policies = figures(t, config.Measured{Rate: 12, Quota: 10, Latency: 800 * time.Millisecond, P99: 1500 * time.Millisecond})
	assert.Contains(t, policies, "timeout: {Attempt: 3s} # twice the P99\n")
}

// 200 workers at 100 ms work off a queue of 1,000 in 500 ms; four nodes of 1,875 calls per
// second make a fleet limit of 6,000, 1,500 for each while they cannot share it.
func TestIncidentOrdersSize(t *testing.T) {
	t.Parallel()
	got, policies := figures(t, config.Measured{Best: 200, Latency: 100 * time.Millisecond, Wait: 500 * time.Millisecond, NodeLimit: 1875, Nodes: 4})
	assert.InDelta(t, 200, got["workers"], 0)
	assert.InDelta(t, 300, got["workers at most"], 0)
	assert.InDelta(t, 1000, got["queue"], 0)
	assert.InDelta(t, 6000, got["fleet limit by node"], 1e-9)
	assert.InDelta(t, 1500, got["local share by node"], 1e-9)
	assert.Contains(t, policies, "pool: {Workers: 200, Queue: 1000, MaxWait: 500ms}")
}

func TestSizeFaults(t *testing.T) {
	t.Parallel()
	_, err := config.Size(config.Measured{Rate: math.NaN(), Latency: -1, Nodes: -1, Refused: 1})
	for _, field := range []string{"size.Rate", "size.Latency", "size.Nodes", "size.Refused"} {
		require.ErrorContains(t, err, field)
	}
	_, err = config.Size(config.Measured{})
	require.ErrorContains(t, err, "at least one")
	_, err = config.Size(config.Measured{Rate: 10})
	require.ErrorContains(t, err, "size.Latency", "a rate alone says nothing")
}

// What size recommends for a rate above the quota is free of findings also where the figures
// stand beside it as facts.
func TestSizeWithItsFactsIsClean(t *testing.T) {
	t.Parallel()
	_, policies := figures(t, config.Measured{Rate: 12, Quota: 10, Latency: 800 * time.Millisecond, P99: 1500 * time.Millisecond})
	settings, err := config.Load(t.Context(), file("dependencies:\n  vendor:\n    facts: {Rate: 12/s, Latency: 800ms, P99: 1500ms, Quota: 10/s}\n    "+strings.ReplaceAll(policies, "\n", "\n    ")))
	require.NoError(t, err)
	assert.Empty(t, config.Lint(settings))
}

// Whatever it is given, the policies that come out are valid.
func TestSizesAreValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := config.Measured{
			Rate: rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 20_000)).Draw(t, "rate"), Quota: rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 20_000)).Draw(t, "quota"),
			NodeLimit: rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 20_000)).Draw(t, "node"), Nodes: rapid.IntRange(0, 50).Draw(t, "nodes"),
			Latency: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)).Draw(t, "latency")),
			P99:     time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "p99")),
			Best:    rapid.IntRange(0, 500).Draw(t, "best"),
		}
		m.Wait = m.Latency * time.Duration(rapid.IntRange(0, 50).Draw(t, "wait")) // in calls
		s, err := config.Size(m)
		if err != nil {
			return
		}
		text := "dependencies:\n  x:\n    " + strings.ReplaceAll(s.Policies, "\n", "\n    ")
		settings, err := config.Load(t.Context(), file(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, f := range config.Lint(settings) {
			if f.Rule.Severity > config.Note {
				t.Fatalf("%v\n%s", f, text)
			}
		}
		if _, err := policy.New("x", settings.Dependencies[0].Specs()...); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}

func TestReadLoadTest(t *testing.T) {
	t.Parallel()
	steps, err := config.ReadLoadTest(strings.NewReader(`concurrency, throughput, latency_ms, p99_ms, errors, note
50, 500, 100, 120, 0, a
100, 1000, 100, 130, 0, b
200, 1960, 102, 180, 0.001, c
400, 2000, 200, 900, 0.002, d
800, 2100, 380, 4000, 0.2, e
`))
	require.NoError(t, err)
	assert.Equal(t, config.LoadTest{Concurrency: 200, Throughput: 1960, Latency: 102 * time.Millisecond, P99: 180 * time.Millisecond, Errors: 0.001}, config.BestConcurrency(steps))
	for text, want := range map[string]string{
		"": "EOF", "a,b\n1,2": `no column "concurrency"`, "concurrency,throughput\n": "no rows",
		"concurrency,throughput\n1,x": "line 2: throughput", "concurrency,throughput\n1,-1": "line 2", "concurrency,throughput\n1": "wrong number of fields",
		"concurrency,throughput\nNaN,1": "line 2: concurrency",
	} {
		_, err := config.ReadLoadTest(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestRising(t *testing.T) {
	t.Parallel()
	step := func(throughput, failed float64) config.LoadTest {
		return config.LoadTest{Concurrency: 1, Throughput: throughput, Errors: failed}
	}
	for name, tt := range map[string]struct {
		steps []config.LoadTest
		want  bool
	}{
		"none":                {nil, false},
		"one":                 {[]config.LoadTest{step(100, 0)}, true},
		"to the end":          {[]config.LoadTest{step(100, 0), step(90, 0), step(200, 0)}, true},
		"flat at the end":     {[]config.LoadTest{step(100, 0), step(200, 0), step(206, 0)}, false},
		"falling":             {[]config.LoadTest{step(100, 0), step(200, 0), step(150, 0)}, false},
		"failures at the end": {[]config.LoadTest{step(100, 0), step(200, 0.02)}, false},
	} {
		assert.Equal(t, tt.want, config.Rising(tt.steps), name)
	}
}

func TestReadPrometheus(t *testing.T) {
	t.Parallel()
	m, err := config.ReadPrometheus(strings.NewReader(`{"status":"success","data":{"resultType":"vector","result":[
		{"metric":{"fact":"rate"},"value":[1700000000,"12.5"]},
		{"metric":{"fact":"latency"},"value":[1700000000,"0.8"]},
		{"metric":{"fact":"p99"},"value":[1700000000,"1.5"]}]}}`))
	require.NoError(t, err)
	assert.Equal(t, config.Measured{Rate: 12.5, Latency: 800 * time.Millisecond, P99: 1500 * time.Millisecond}, m)
	for _, bad := range []string{
		"", "{}", `{"status":"error","error":"no"}`, `{"status":"success","data":{"resultType":"matrix"}}`,
		`{"status":"success","data":{"resultType":"vector","result":[]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"fact":"x"},"value":[1,"1"]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"fact":"rate"},"value":[1,"NaN"]}]}}`,
	} {
		_, err := config.ReadPrometheus(strings.NewReader(bad))
		require.Error(t, err, bad)
	}
}
