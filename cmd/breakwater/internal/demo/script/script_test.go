package script_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
)

const ms = time.Millisecond

func TestIncidentPhases(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    time.Duration
		want []time.Duration // where each phase begins, and the end
	}{
		{script.Shortest, []time.Duration{0, 1500 * ms, 2820 * ms, 3900 * ms, 4380 * ms, 6000 * ms}},
		{12 * time.Second, []time.Duration{0, 3000 * ms, 5640 * ms, 7800 * ms, 8760 * ms, 12000 * ms}},
		{20 * time.Second, []time.Duration{0, 5000 * ms, 9400 * ms, 13000 * ms, 14600 * ms, 20000 * ms}},
		// A long run has an incident of bounded length.
		{10 * time.Minute, []time.Duration{0, 150 * time.Second, 156 * time.Second, 161 * time.Second, 164 * time.Second, 600 * time.Second}},
	} {
		s, err := script.Incident(tt.d, 30*ms)
		require.NoError(t, err)
		require.Len(t, s, script.Phases)
		for i, want := range tt.want[:script.Phases] {
			assert.Equal(t, want, s.Start(i), "%s: start of %s", tt.d, s[i].Name)
			assert.Equal(t, i, s.At(want), "%s: phase at the start of %s", tt.d, s[i].Name)
			if i > 0 {
				assert.Equal(t, i-1, s.At(want-1), "%s: phase right before %s", tt.d, s[i].Name)
			}
		}
		assert.Equal(t, tt.d, s.End())
		assert.Equal(t, script.HealthyPhase, s.At(-time.Hour))
		assert.Equal(t, script.RecoveredPhase, s.At(tt.d+time.Hour))
	}
}

func TestIncidentTooShort(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-time.Second, 0, script.Shortest - 1} {
		_, err := script.Incident(d, 30*ms)
		assert.ErrorContains(t, err, "want at least 6s", "%s", d)
	}
}

func TestFinish(t *testing.T) {
	t.Parallel()
	s := script.Script{
		{Name: "a", For: 100 * ms, Service: 20 * ms},
		{Name: "b", For: 100 * ms, Service: 2000 * ms},
		{Name: "c", For: 100 * ms, Service: 50 * ms, Fails: true},
		{Name: "d", Service: 10 * ms},
	}
	for _, tt := range []struct {
		name  string
		at    time.Duration
		end   time.Duration
		phase int
	}{
		{"inside a phase", 0, 20 * ms, 0},
		{"before the start", -50 * ms, -30 * ms, 0},
		{"ends with its phase: the next one decides", 80 * ms, 100 * ms, 1},
		// Half of the work at once, 5 % while slow, and 45 % of 50 ms.
		{"stands still until the slow phase ends", 90 * ms, 222500 * time.Microsecond, 2},
		{"began in the slow phase", 150 * ms, 248750 * time.Microsecond, 2},
		{"from the last but one to the last", 275 * ms, 305 * ms, 3},
		{"after the end", time.Hour, time.Hour + 10*ms, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			end, phase := s.Finish(tt.at)
			assert.InDelta(t, tt.end, end, float64(time.Microsecond), "Finish(%s) = %s, want %s", tt.at, end, tt.end)
			assert.Equal(t, tt.phase, phase)
		})
	}
}

// TestFinishKeepsOrder pins what makes the scripted dependency a plausible one:
// calls end in the order in which they begin, none takes longer than the slowest
// phase would make it, and the phase is the one of the end.
func TestFinishKeepsOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(int64(script.Shortest), int64(time.Hour)).Draw(t, "for"))
		s, err := script.Incident(d, 30*ms)
		require.NoError(t, err)
		a := time.Duration(rapid.Int64Range(0, int64(d)).Draw(t, "a"))
		b := a + time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "gap"))
		endA, phaseA := s.Finish(a)
		endB, _ := s.Finish(b)
		assert.LessOrEqual(t, endA, endB+1, "a call that began at %s ended after one that began at %s", a, b)
		assert.Greater(t, endA, a)
		assert.LessOrEqual(t, endA-a, 2*time.Second)
		assert.Equal(t, s.At(endA), phaseA)
	})
}

func TestSteady(t *testing.T) {
	t.Parallel()
	s := script.Steady(80 * ms)
	for _, at := range []time.Duration{-time.Hour, 0, time.Hour} {
		end, phase := s.Finish(at)
		assert.Equal(t, at+80*ms, end)
		assert.Zero(t, phase)
	}
}
