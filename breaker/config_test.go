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
		"inventory.disk.FailureRatio: both rules are off, so the breaker would never open; set FailureRatio or SlowAfter", err.Error())
}

func TestConfigReturnsTheEffectiveValues(t *testing.T) {
	t.Parallel()
	b, err := breaker.New("", breaker.Config{})
	require.NoError(t, err)
	assert.Equal(t, breaker.Config{
		Name: "breaker", FailureRatio: 0.5, SlowRatio: breaker.Off, Window: 10 * time.Second, Buckets: 10, MinCalls: 20,
		OpenFor: 5 * time.Second, Probes: 3, ProbeTimeout: 10 * time.Second,
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
