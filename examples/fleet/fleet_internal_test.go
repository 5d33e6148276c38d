package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a fleet that a test has the time for. The runs draw from one source of chance,
// so the tests below are not parallel.
var small = options{clients: 200, length: 3 * time.Minute, seed: 1}

// ask returns a scenario. Half as many clients are enough where each call is made thrice.
func (o options) ask(name string) scenario {
	if name == "metastable" {
		o.clients /= 2
	}
	return o.scenario(name)
}

// played are the outcomes of scenarios that were run.
var played = map[string][]outcome{}

// play runs a scenario and returns its figures by variant and name.
func play(t *testing.T, name string) (scenario, []outcome, func(variant int, figure string) float64) {
	t.Helper()
	s := small.ask(name)
	list, ok := played[name]
	if !ok {
		var err error
		list, err = s.run()
		require.NoError(t, err)
		played[name] = list
	}
	for _, o := range list {
		all := o.sum(0, time.Duration(len(o.seconds))*time.Second)
		assert.Equal(t, all.calls, all.good+all.failed, "each call ends once: %s", o.variant)
		assert.Equal(t, o.clients*int(o.length/time.Second), all.calls, "one call of each client in each second")
	}
	return s, list, func(variant int, name string) float64 {
		for _, f := range list[variant].figures {
			if f.name == name {
				return f.value
			}
		}
		t.Fatalf("there is no figure %q", name)
		return 0
	}
}

func TestMetastable(t *testing.T) { //nolint:paralleltest // see small
	_, list, figure := play(t, "metastable")
	for v := range list {
		assert.InDelta(t, 100, figure(v, "answered before"), 0.1)
	}
	const noBudget, reserve, fifth, tenth = 0, 1, 2, 3
	for _, v := range []int{noBudget, reserve} {
		assert.Negative(t, figure(v, "well again after"), "the cause has gone, and the failure stays: %s", list[v].variant)
		assert.Less(t, figure(v, "answered at the end"), 1.0)
		assert.InDelta(t, 3, figure(v, "attempts per call at the end"), 0.1)
	}
	for _, v := range []int{fifth, tenth} {
		assert.InDelta(t, 100, figure(v, "answered at the end"), 0.1)
		assert.InDelta(t, 1, figure(v, "attempts per call at the end"), 0.01)
		assert.GreaterOrEqual(t, figure(v, "well again after"), 0.0)
	}
	assert.LessOrEqual(t, figure(tenth, "well again after"), 30.0)
}

func TestRecovery(t *testing.T) { //nolint:paralleltest // see small
	_, _, figure := play(t, "recovery")
	const step, ramp = 0, 1
	assert.Greater(t, figure(step, "most load, by capacity"), 1.8, "all come back at once")
	assert.Greater(t, figure(step, "breakers opened again"), float64(small.clients), "and are thrown out again")
	assert.Less(t, figure(ramp, "most load, by capacity"), 1.4)
	assert.Zero(t, figure(ramp, "breakers opened again"))
	assert.Zero(t, figure(ramp, "answers too late"))
	assert.Less(t, figure(ramp, "calls lost since it is back"), figure(step, "calls lost since it is back"))
}

func TestShared(t *testing.T) { //nolint:paralleltest // see small
	_, _, figure := play(t, "shared")
	const each, leases, local = 0, 1, 2
	assert.InDelta(t, 100, figure(each, "admitted of the limit"), 0.5)
	assert.InDelta(t, 1, figure(each, "trips per call"), 0.01)
	assert.InDelta(t, 100, figure(leases, "admitted of the limit"), 2, "the total is as sane with leases")
	assert.Less(t, figure(leases, "trips per call"), 0.7)
	assert.Less(t, figure(leases, "mean wait of admitted"), figure(each, "mean wait of admitted"))
	assert.Zero(t, figure(local, "trips per call"))
	assert.Less(t, figure(local, "admitted of the limit"), 85.0, "what quiet nodes do not use is lost")
}

func TestFlapping(t *testing.T) { //nolint:paralleltest // see small
	_, _, figure := play(t, "flapping")
	const none, some, much, ramp = 0, 1, 2, 3
	assert.Greater(t, figure(none, "idle seconds of 120"), 40.0, "all are open, or none is")
	assert.Less(t, figure(some, "idle seconds of 120"), figure(none, "idle seconds of 120"))
	assert.Zero(t, figure(much, "idle seconds of 120"))
	assert.Greater(t, figure(some, "answered"), 1.3*figure(none, "answered"))
	assert.Greater(t, figure(much, "answered"), 1.8*figure(none, "answered"))
	assert.Less(t, figure(ramp, "answers too late"), 0.7*figure(much, "answers too late"))
}

func TestRunsAreTheSame(t *testing.T) { //nolint:paralleltest // see small
	for name, variant := range map[string]int{"metastable": 3, "recovery": 0, "shared": 1, "flapping": 1} {
		s, list, _ := play(t, name)
		again, err := s.variants[variant].fleet.run()
		require.NoError(t, err)
		assert.Equal(t, list[variant].seconds, again.seconds, "%s, %s: to the last call", name, list[variant].variant)
	}
	other := small
	other.seed = 2
	last, err := other.scenario("recovery").variants[0].fleet.run()
	require.NoError(t, err)
	_, list, _ := play(t, "recovery")
	assert.NotEqual(t, list[0].seconds, last.seconds, "another seed is another run")
}

func TestRunCommandLine(t *testing.T) { //nolint:paralleltest // see small
	var out, errOut bytes.Buffer
	var got struct{ Pictures []picture }
	file := filepath.Join(t.TempDir(), "lines.json")
	require.NoError(t, run([]string{"-only", "shared", "-clients", "100", "-lines", file}, &out, &errOut))
	assert.Contains(t, out.String(), "  leases of 1 s ")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, errOut.String(), "shared, leases of 1 s: 2m0s of 100 clients in ")
	require.NoError(t, json.Unmarshal(data, &got))
	require.Len(t, got.Pictures, 1)
	assert.Equal(t, "fleet-shared", got.Pictures[0].Name)
	require.Len(t, got.Pictures[0].Panels, 3)
	assert.Len(t, got.Pictures[0].Panels[0].Lines[0].Y, 120)
	for args, want := range map[string]string{
		"-clients=5": "want 100 to 10000", "-for=1s": "want 3m to 1h", "-only=x": "want some of metastable", "x": "want flags only", "-zap": "not defined",
	} {
		assert.ErrorContains(t, run([]string{args}, &out, &errOut), want)
	}
}

func TestAlign(t *testing.T) {
	t.Parallel()
	for _, slot := range []time.Duration{0, 1, 77, grid - 1} {
		for _, at := range []time.Duration{0, 1, 77, 78, grid - 1, grid, 5*grid + 3} {
			got := align(at, slot)
			assert.GreaterOrEqual(t, got, at)
			assert.Less(t, got-at, time.Duration(grid))
			assert.Equal(t, slot, got%grid)
		}
	}
}
