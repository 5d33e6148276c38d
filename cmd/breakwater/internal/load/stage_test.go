package load_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/load"
)

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"20/s": 20, "2.5/s": 2.5, "600/m": 10, "3600/h": 1, "20": 20, " 7 / s ": 7, "1e3/s": 1000} {
		got, err := load.ParseRate(text)
		require.NoError(t, err, text)
		assert.InDelta(t, want, got, 1e-9, text)
	}
	for text, want := range map[string]string{
		"": "is no rate", "fast": "is no rate", "20/": "is no rate", "20/d": "is no rate", "/s": "is no rate", "20/s/s": "is no rate",
		"0/s": "want more than 0", "-1/s": "want more than 0", "NaN": "want more than 0", "Inf": "want more than 0", "2000000/s": "at most 1000000",
	} {
		_, err := load.ParseRate(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestParseRamp(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]float64{
		"50..1000": {50, 1000}, "1000..50": {1000, 50}, "0..5": {0, 5}, "5..0": {5, 0}, "50/s..100/s": {50, 100}, "60..120/m": {1, 2}, "60/m..5/s": {1, 5},
	} {
		from, to, err := load.ParseRamp(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, [2]float64{from, to}, text)
	}
	for _, text := range []string{"", "50", "50..", "..5", "0..0", "-1..5", "1..x", "1..NaN"} {
		_, _, err := load.ParseRamp(text)
		assert.Error(t, err, text)
	}
}

func TestNewScheduleCountsRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		stages []load.Stage
		n      int
		text   string
	}{
		{"burst", []load.Stage{{Burst: 50}}, 50, "burst of 50"},
		{"rate", []load.Stage{{From: 20, To: 20, For: 10 * time.Second}}, 200, "20/s for 10s"},
		{"a fraction", []load.Stage{{From: 2.5, To: 2.5, For: 12 * time.Second}}, 30, "2.5/s for 12s"},
		{"one begun", []load.Stage{{From: 2, To: 2, For: 1100 * time.Millisecond}}, 3, "2/s for 1.1s"},
		{"ramp", []load.Stage{{From: 50, To: 1000, For: time.Minute}}, 31500, "50..1000/s for 1m0s"},
		{"many", []load.Stage{{Burst: 5}, {For: time.Second}, {From: 10, To: 0, For: 2 * time.Second}}, 15, "burst of 5, pause of 1s, 10..0/s for 2s"},
	} {
		s, err := load.NewSchedule(tt.stages...)
		require.NoError(t, err, tt.name)
		assert.Equal(t, tt.n, s.Requests(), tt.name)
		assert.Equal(t, tt.text, s.String(), tt.name)
	}
	for want, stages := range map[string][]load.Stage{
		"no requests":                  {{For: time.Second}},
		"stage 1: for: 0s":             {{From: 1, To: 1}},
		"stage 2: burst: -1":           {{Burst: 5}, {Burst: -1}},
		"at most 24h0m0s":              {{From: 1, To: 1, For: 25 * time.Hour}},
		"the stages last":              {{From: 1, To: 1, For: 20 * time.Hour}, {From: 1, To: 1, For: 20 * time.Hour}},
		"want at most 1000000000":      {{From: 1e5, To: 1e5, For: 20 * time.Hour}},
		"stage 2: with it there are":   {{From: 1e5, To: 1e5, For: 2 * time.Hour}, {From: 1e5, To: 1e5, For: 2 * time.Hour}},
		"want 0 to 1000000":            {{From: -1, To: 1, For: time.Second}},
		"1001 stages: want at most 10": make([]load.Stage, 1001),
	} {
		_, err := load.NewSchedule(stages...)
		assert.ErrorContains(t, err, want)
	}
}

func TestReadStages(t *testing.T) {
	t.Parallel()
	s, err := load.ReadStages("stages.yaml", []byte(`
stages:
  - burst: 50 # at once
  - pause: 5s
  - rate: 20/s
    for: 10s
  - {ramp: 50..1000, for: 1m}
`))
	require.NoError(t, err)
	assert.Equal(t, "burst of 50, pause of 5s, 20/s for 10s, 50..1000/s for 1m0s", s.String())
	assert.Equal(t, 75*time.Second, s.Length())
	assert.Equal(t, 50, s.Burst())
	assert.True(t, s.Lasts())

	for _, tt := range []struct{ text, want string }{
		{"", "f: the file is empty: want stages"},
		{"stages: 5", "f:1:1: want stages, and a list below it"},
		{"- burst: 5", `f:1:1: want a mapping with one of [stages]`},
		{"stage:\n- burst: 5", `f:1:1: "stage": want one of [stages]`},
		{"stages:\n- burst: 0", `f:2:10: burst: "0": want a number of requests from 1`},
		{"stages:\n- burst: 5\n  for: 1s", "f:3:8: for: a burst is one instant"},
		{"stages:\n- pause: 5s\n  for: 1", "f:3:8: for: a pause says itself"},
		{"stages:\n- rate: 5/s", "f:2:3: rate: want for"},
		{"stages:\n- rate: 5/x\n  for: 1s", `f:2:9: rate: "5/x" is no rate`},
		{"stages:\n- rate: 5/s\n  for: 0s", `f:3:8: "0s": want a duration above 0`},
		{"stages:\n- rate: 5/s\n  for: [1s]", "f:3:8: want a single value"},
		{"stages:\n- rate: 5/s\n  ramp: 1..2\n  for: 1s", "want one of burst, pause, rate and ramp"},
		{"stages:\n- rate: 5/s\n  fur: 1s", `f:3:3: "fur": want one of [burst pause rate ramp for]`},
		{"stages:\n- rate: 5/s\n  rate: 5/s", "f:3:3: mapping key"},
		{"stages:\n- burst: 5\n---\nstages: []", "a second document"},
		{"stages: [", "f:1:"},
		{"stages:\n- pause: 1s", "f: there are no requests in this load"},
		{"stages:\n- burst: 5\n- rate: 1/y\n  for: 1s\n- zap: 1", `f:3:9: rate: "1/y" is no rate`},
	} {
		_, err := load.ReadStages("f", []byte(tt.text))
		assert.ErrorContains(t, err, tt.want, tt.text)
	}
	_, err = load.ReadStages("f", []byte("stages:\n- burst: x\n- zap: 1"))
	require.ErrorContains(t, err, "f:2:10:", "all faults at once")
	require.ErrorContains(t, err, "f:3:3:")
}

func FuzzReadStages(f *testing.F) {
	f.Add([]byte("stages:\n- burst: 5\n- pause: 1s\n- rate: 5/s\n  for: 1s\n- ramp: 1..2\n  for: 1s"))
	f.Add([]byte("stages: [{rate: 1e300/s, for: 1s}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := load.ReadStages("f", data)
		if err == nil && (s.Requests() < 1 || s.Length() < 0) {
			t.Errorf("%d requests in %v", s.Requests(), s.Length())
		}
	})
}
