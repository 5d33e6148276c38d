package breaker_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	type cfg = breaker.Config
	tests := []struct {
		name   string
		cfg    cfg
		fields []string // that are reported
	}{
		{"zero", cfg{}, nil},
		{"the design's example", cfg{FailureRatio: 0.5, SlowAfter: 500 * time.Millisecond, SlowRatio: 0.5, Window: time.Second, MinCalls: 5, OpenFor: 5 * time.Second}, nil},
		{"ratio of one", cfg{FailureRatio: 1}, nil},
		{"smallest ratio", cfg{FailureRatio: math.SmallestNonzeroFloat64}, nil},
		{"smallest and largest of all", cfg{
			FailureRatio: 1, SlowRatio: 1, SlowAfter: time.Microsecond, Window: ms, OpenFor: ms, ProbeTimeout: ms,
			Buckets: 1000, MinCalls: 1, Probes: 1000,
		}, nil},
		{"just below", cfg{
			SlowAfter: time.Microsecond - 1, Window: ms - 1, OpenFor: ms - 1, ProbeTimeout: ms - 1,
		}, []string{"SlowAfter", "Window", "OpenFor", "ProbeTimeout"}},
		{"slow ratio above one", cfg{SlowRatio: math.Nextafter(1, 2), SlowAfter: time.Second}, []string{"SlowRatio"}},
		{"percent for a ratio", cfg{FailureRatio: 50}, []string{"FailureRatio"}},
		{"just above one", cfg{FailureRatio: math.Nextafter(1, 2)}, []string{"FailureRatio"}},
		{"negative ratio", cfg{FailureRatio: -0.5}, []string{"FailureRatio"}},
		{"NaN", cfg{FailureRatio: math.NaN(), SlowRatio: math.NaN(), SlowAfter: time.Second}, []string{"FailureRatio", "SlowRatio"}},
		{"infinite", cfg{FailureRatio: math.Inf(1), SlowRatio: math.Inf(-1), SlowAfter: time.Second}, []string{"FailureRatio", "SlowRatio"}},
		{"slow rule alone", cfg{FailureRatio: breaker.Off, SlowAfter: time.Second}, nil},
		{"slow ratio without a limit", cfg{SlowRatio: 0.5}, []string{"SlowRatio"}},
		{"slow rule off", cfg{SlowRatio: breaker.Off, SlowAfter: time.Second}, nil},
		{"slow rule off without a limit", cfg{SlowRatio: breaker.Off}, nil},
		{"both rules off", cfg{FailureRatio: breaker.Off}, []string{"FailureRatio"}},
		{"both rules turned off", cfg{FailureRatio: breaker.Off, SlowRatio: breaker.Off, SlowAfter: time.Second}, []string{"FailureRatio"}},
		{"numbers without a unit", cfg{SlowAfter: 500, Window: 10, OpenFor: 5, ProbeTimeout: 30}, []string{"SlowAfter", "Window", "OpenFor", "ProbeTimeout"}},
		{"negative durations", cfg{SlowAfter: -1, Window: -1, OpenFor: -1, ProbeTimeout: -1}, []string{"SlowAfter", "Window", "OpenFor", "ProbeTimeout"}},
		{"endless durations", cfg{SlowAfter: math.MaxInt64, Window: math.MaxInt64, OpenFor: math.MaxInt64, ProbeTimeout: math.MaxInt64}, nil},
		{"negative numbers", cfg{Buckets: -1, MinCalls: -1, Probes: -1}, []string{"Buckets", "MinCalls", "Probes"}},
		{"every rule", cfg{
			SlowAfter: time.Second, FailureCount: 5, ConsecutiveFailures: 3, LastCalls: 100, OpenGrowth: breaker.Linear,
			MaxOpenFor: time.Minute, ForgetAfter: time.Hour, OpenJitter: 0.5, MaxRetryAfter: time.Minute,
			Probes: 5, Successes: 5, RampFor: time.Minute, RampStart: 0.01,
		}, nil},
		{"a count alone", cfg{FailureRatio: breaker.Off, FailureCount: 5}, nil},
		{"a row alone", cfg{FailureRatio: breaker.Off, ConsecutiveFailures: 5}, nil},
		{"a row that is too long", cfg{ConsecutiveFailures: 1_000_001}, []string{"ConsecutiveFailures"}},
		{"a row as long as it may be", cfg{ConsecutiveFailures: 1_000_000}, nil},
		{"negative rules", cfg{FailureRatio: breaker.Off, FailureCount: -1, ConsecutiveFailures: -1}, []string{"FailureCount", "ConsecutiveFailures"}},
		{"two kinds of window", cfg{Window: time.Second, LastCalls: 50}, []string{"LastCalls"}},
		{"buckets of an exact window", cfg{Buckets: 10, LastCalls: 50}, []string{"Buckets"}},
		{"more calls needed than the window holds", cfg{LastCalls: 10, MinCalls: 11, FailureCount: 12}, []string{"MinCalls", "FailureCount"}},
		{"as many calls as the window holds", cfg{LastCalls: 10, MinCalls: 10, FailureCount: 10}, nil},
		{"a window of calls is short", cfg{LastCalls: 1}, nil},
		{"a window of calls is long", cfg{LastCalls: 100_000}, nil},
		{"a window of calls is too long", cfg{LastCalls: 100_001}, []string{"LastCalls"}},
		{"a window of minus one", cfg{LastCalls: -1}, []string{"LastCalls"}},
		{"more successes needed than probes allowed", cfg{Probes: 2, Successes: 3}, []string{"Successes"}},
		{"more successes needed than probes by default", cfg{Successes: 4}, []string{"Successes"}},
		{"as many successes as probes", cfg{Successes: 3}, nil},
		{"negative successes", cfg{Successes: -1}, []string{"Successes"}},
		{"bad probes are reported once", cfg{Probes: -1, Successes: 2}, []string{"Probes"}},
		{"ramp shorter than the window", cfg{Window: 10 * time.Second, RampFor: 10*time.Second - 1}, []string{"RampFor"}},
		{"ramp shorter than the default window", cfg{RampFor: 5 * time.Second}, []string{"RampFor"}},
		{"ramp as long as the window", cfg{RampFor: 10 * time.Second}, nil},
		{"a window of calls has no length", cfg{LastCalls: 10, RampFor: ms}, nil},
		{"ramp without a unit", cfg{LastCalls: 10, RampFor: 10}, []string{"RampFor"}},
		{"ramp that begins full", cfg{RampFor: time.Minute, RampStart: 1}, []string{"RampStart"}},
		{"ramp that begins below nothing", cfg{RampFor: time.Minute, RampStart: -0.1}, []string{"RampStart"}},
		{"ramp that begins nowhere", cfg{RampFor: time.Minute, RampStart: math.NaN()}, []string{"RampStart"}},
		{"start of no ramp", cfg{RampStart: 0.5}, []string{"RampStart"}},
		{"growth that shrinks", cfg{OpenFor: time.Minute, MaxOpenFor: time.Second}, []string{"MaxOpenFor"}},
		{"growth below the default", cfg{MaxOpenFor: time.Second}, []string{"MaxOpenFor"}},
		{"growth to nothing more", cfg{OpenFor: time.Second, MaxOpenFor: time.Second}, nil},
		{"kind of no growth", cfg{OpenGrowth: breaker.Linear}, []string{"OpenGrowth"}},
		{"unknown growth", cfg{MaxOpenFor: time.Minute, OpenGrowth: 2}, []string{"OpenGrowth"}},
		{"forgetting no growth", cfg{ForgetAfter: time.Minute}, []string{"ForgetAfter"}},
		{"growth without a unit", cfg{OpenFor: ms, MaxOpenFor: 10, ForgetAfter: 10}, []string{"MaxOpenFor", "ForgetAfter"}},
		{"all of it jitter", cfg{OpenJitter: 1}, []string{"OpenJitter"}},
		{"negative jitter", cfg{OpenJitter: -0.1}, []string{"OpenJitter"}},
		{"NaN jitter", cfg{OpenJitter: math.NaN()}, []string{"OpenJitter"}},
		{"wishes ignored", cfg{MaxRetryAfter: breaker.Off}, nil},
		{"wishes without a unit", cfg{MaxRetryAfter: 30}, []string{"MaxRetryAfter"}},
		{"wishes too short to matter", cfg{MaxRetryAfter: 5*time.Second - 1}, []string{"MaxRetryAfter"}},
		{"wishes of the same length", cfg{MaxRetryAfter: 5 * time.Second}, nil},
		{"large numbers", cfg{Buckets: 1001, MinCalls: math.MaxInt, Probes: 1001}, []string{"Buckets", "Probes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var fields []string
			err := tt.cfg.Validate()
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, e := range joined.Unwrap() {
					ce, ok := errors.AsType[*policy.ConfigError](e)
					require.True(t, ok, "%v", e)
					assert.Equal(t, "breaker", ce.Policy)
					assert.NotEmpty(t, ce.Want)
					fields = append(fields, ce.Field)
				}
			}
			assert.Equal(t, tt.fields, fields, "%v", err)

			b, newErr := breaker.New("x", tt.cfg)
			assert.Equal(t, err == nil, newErr == nil, "New agrees with Validate")
			assert.Equal(t, err == nil, b != nil)
		})
	}
}

func TestConfigErrorsReadWell(t *testing.T) {
	t.Parallel()
	_, err := policy.New("inventory",
		breaker.Config{FailureRatio: 50, SlowRatio: 0.5},
		breaker.Config{Name: "disk", FailureRatio: breaker.Off})
	require.Error(t, err)
	assert.Equal(t, "inventory.breaker.FailureRatio: 50: want above 0 and at most 1 (0 means 0.5, -1 turns the rule off)\n"+
		"inventory.breaker.SlowRatio: 0.5: has no effect without SlowAfter, which says when a call is slow\n"+
		"inventory.disk.FailureRatio: every rule is off, so the breaker would never open; set FailureRatio, SlowAfter, FailureCount or ConsecutiveFailures", err.Error())
}

func TestConfigReturnsTheEffectiveValues(t *testing.T) {
	t.Parallel()
	b, err := breaker.New("", breaker.Config{})
	require.NoError(t, err)
	assert.Equal(t, breaker.Config{
		Name: "breaker", FailureRatio: 0.5, SlowRatio: breaker.Off, Window: 10 * time.Second, Buckets: 10, MinCalls: 20,
		OpenFor: 5 * time.Second, MaxOpenFor: 5 * time.Second, MaxRetryAfter: time.Minute,
		Probes: 3, ProbeTimeout: 10 * time.Second,
	}, b.Config())

	b, err = breaker.New("", b.Config())
	require.NoError(t, err, "effective values are valid ones")
	assert.Equal(t, breaker.Off, int(b.Config().SlowRatio))

	b, err = breaker.New("disk", breaker.Config{Name: "other", SlowAfter: time.Second, OpenFor: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, "disk", b.Config().Name)
	assert.InDelta(t, 0.5, b.Config().SlowRatio, 0)
	assert.Equal(t, time.Minute, b.Config().ProbeTimeout, "as long as it is open")

	b, err = breaker.New("", breaker.Config{Name: "other"})
	require.NoError(t, err)
	assert.Equal(t, "other", b.Config().Name)

	b, err = breaker.New("", breaker.Config{LastCalls: 15, OpenFor: time.Minute, MaxOpenFor: time.Hour, RampFor: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, breaker.Config{
		Name: "breaker", FailureRatio: 0.5, SlowRatio: breaker.Off, LastCalls: 15, MinCalls: 15,
		OpenFor: time.Minute, MaxOpenFor: time.Hour, ForgetAfter: time.Hour, MaxRetryAfter: time.Hour,
		Probes: 3, ProbeTimeout: time.Minute, RampFor: time.Minute, RampStart: 0.1,
	}, b.Config())
	_, err = breaker.New("", b.Config())
	require.NoError(t, err, "effective values are valid ones")

	b, err = breaker.New("", breaker.Config{LastCalls: 100, MaxRetryAfter: breaker.Off})
	require.NoError(t, err)
	assert.Equal(t, 20, b.Config().MinCalls)
	assert.Equal(t, time.Duration(breaker.Off), b.Config().MaxRetryAfter)
	_, err = breaker.New("", b.Config())
	require.NoError(t, err)
}

func TestGrowthNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "exponential", breaker.Exponential.String())
	assert.Equal(t, "linear", breaker.Linear.String())
	assert.Equal(t, "unknown", breaker.Growth(2).String())
}

func TestConfigWarnings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  breaker.Config
		want []string
	}{
		{"defaults", breaker.Config{}, nil},
		{"the design's example", breaker.Config{FailureRatio: 0.5, SlowAfter: 500 * time.Millisecond, SlowRatio: 0.5, MinCalls: 5}, nil},
		{
			"one call is enough",
			breaker.Config{MinCalls: 1},
			[]string{"d.breaker: with MinCalls 1 and FailureRatio 0.5 a single failed call opens the breaker; raise MinCalls"},
		},
		{
			"one call among few is enough",
			breaker.Config{FailureRatio: 0.1, SlowAfter: time.Second, SlowRatio: 0.05, MinCalls: 10},
			[]string{
				"d.breaker: with MinCalls 10 and FailureRatio 0.1 a single failed call opens the breaker; raise MinCalls",
				"d.breaker: with MinCalls 10 and SlowRatio 0.05 a single slow call opens the breaker; raise MinCalls",
			},
		},
		{"one call more", breaker.Config{FailureRatio: 0.1, MinCalls: 11}, nil},
		{
			"one failure is enough",
			breaker.Config{FailureCount: 1, ConsecutiveFailures: 1},
			[]string{
				"d.breaker: with FailureCount 1 a single failed call opens the breaker; raise it",
				"d.breaker: with ConsecutiveFailures 1 a single failed call opens the breaker; raise it",
			},
		},
		{
			"a p99 rule in a small window",
			breaker.Config{SlowAfter: time.Second, SlowRatio: 0.01, MinCalls: 100},
			[]string{"d.breaker: with MinCalls 100 and SlowRatio 0.01 a single slow call opens the breaker; raise MinCalls"},
		},
		{"a p99 rule", breaker.Config{SlowAfter: time.Second, SlowRatio: 0.01, MinCalls: 101}, nil},
		{
			"probes end before they are slow",
			breaker.Config{SlowAfter: time.Minute, ProbeTimeout: time.Minute},
			[]string{"d.breaker: ProbeTimeout 1m0s is not above SlowAfter 1m0s: a probe counts as hung before it is slow"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := policy.New("d", tt.cfg)
			require.NoError(t, err)
			if len(tt.want) == 0 {
				assert.Empty(t, p.Warnings())
				return
			}
			assert.Equal(t, tt.want, p.Warnings())
		})
	}
}

func TestBuildPolicy(t *testing.T) {
	t.Parallel()
	cfg := breaker.Config{Name: "disk", Shadow: true}
	one, err := cfg.BuildPolicy()
	require.NoError(t, err)
	two, err := cfg.BuildPolicy()
	require.NoError(t, err)
	assert.Equal(t, "breaker", one.Kind)
	assert.Equal(t, "disk", one.Name)
	assert.Equal(t, policy.PlaceBreaker, one.Place)
	assert.True(t, one.Shadow)
	assert.False(t, one.Waits || one.Holds)
	assert.NotSame(t, one.Gate, two.Gate, "a Config makes a breaker for each pipeline")

	b, err := breaker.New("", breaker.Config{})
	require.NoError(t, err)
	one, err = b.BuildPolicy()
	require.NoError(t, err)
	assert.Same(t, b, one.Gate, "a Breaker is shared")
}
