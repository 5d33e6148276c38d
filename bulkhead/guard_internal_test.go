package bulkhead

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	calm := func(mean time.Duration) period { return period{mean: mean, calls: 100, limit: 100} }
	pressed := func(mean time.Duration) period { return period{mean: mean, calls: 100, limit: 100, pressed: true} }
	type step struct {
		name    string
		p       period
		limit   int // afterwards, with an estimate of 100
		base    time.Duration
		rebased bool
	}
	tests := []struct {
		name      string
		tolerance float64
		steps     []step
	}{
		{name: "calm", tolerance: 2, steps: []step{
			{"first", calm(80 * ms), 100, 80 * ms, false},
			{"the base follows", calm(160 * ms), 100, 90 * ms, false},
			{"and down", calm(10 * ms), 100, 80 * ms, false},
			{"slow, and nobody was refused", calm(800 * ms), 100, 170 * ms, false},
		}},
		{name: "overload", tolerance: 2, steps: []step{
			{"base", calm(50 * ms), 100, 50 * ms, false},
			{"at the tolerance", pressed(100 * ms), 100, 50 * ms, false},
			{"a bit above", pressed(105 * ms), 90, 50 * ms, false},
			{"by little's law", pressed(160 * ms), 56, 50 * ms, false},
			{"by half at most", pressed(10000 * ms), 28, 50 * ms, false},
			{"better", pressed(99 * ms), 30, 50 * ms, false},
			{"a fast one lowers the base", pressed(40 * ms), 32, 40 * ms, false},
			{"no pressure", calm(40 * ms), 42, 40 * ms, false},
			{"no pressure", calm(40 * ms), 53, 40 * ms, false},
		}},
		{name: "the floor does not help", tolerance: 2, steps: []step{
			{"base", calm(50 * ms), 100, 50 * ms, false},
			{"slow", pressed(500 * ms), 50, 50 * ms, false},
			{"slow", pressed(500 * ms), 25, 50 * ms, false},
			{"slow", pressed(500 * ms), 12, 50 * ms, false},
			{"slow", pressed(500 * ms), 10, 50 * ms, false},
			{"slow at the floor", pressed(500 * ms), 100, 500 * ms, true},
			{"that is how it is", pressed(900 * ms), 100, 500 * ms, false},
			{"fast again", pressed(50 * ms), 100, 50 * ms, false},
		}},
		{name: "busy", tolerance: 2, steps: []step{
			{"base", calm(50 * ms), 100, 50 * ms, false},
			{"one in eleven", period{mean: 50 * ms, calls: 100, busy: 10, limit: 100}, 100, 50 * ms, false},
			{"more", period{mean: 50 * ms, calls: 100, busy: 20, limit: 100}, 90, 50 * ms, false},
			{"nothing but", period{busy: 20, limit: 100, pressed: true}, 81, 50 * ms, false},
			{"answers again", pressed(50 * ms), 86, 50 * ms, false},
		}},
		{name: "busy at the floor is no base", tolerance: 1.1, steps: []step{
			{"base", calm(50 * ms), 100, 50 * ms, false},
			{"down", period{mean: 500 * ms, calls: 10, busy: 20, limit: 11, pressed: true}, 10, 50 * ms, false},
			{"floor", period{mean: 500 * ms, calls: 10, busy: 20, limit: 11, pressed: true}, 10, 50 * ms, false},
			{"floor", period{mean: 500 * ms, calls: 10, busy: 20, limit: 11, pressed: true}, 10, 50 * ms, false},
		}},
		{name: "off", tolerance: 0, steps: []step{
			{"base", calm(50 * ms), 100, 0, false},
			{"slow", pressed(5000 * ms), 100, 0, false},
		}},
		{name: "overloaded from the start", tolerance: 2, steps: []step{
			{"first", pressed(400 * ms), 100, 400 * ms, false},
			{"the estimate has found something better", pressed(100 * ms), 100, 100 * ms, false},
			{"and is held to it", pressed(400 * ms), 50, 100 * ms, false},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(10, 200, tt.tolerance)
			for i, s := range tt.steps {
				assert.Equal(t, s.rebased, g.judge(s.p), "step %d, %s: rebased", i, s.name)
				assert.Equal(t, s.limit, g.limit(100), "step %d, %s: limit", i, s.name)
				assert.Equal(t, s.base, g.base, "step %d, %s: base", i, s.name)
			}
		})
	}
}

// Whatever it is told, the limit stays between floor and ceiling and at most at the
// estimate, and never gets stuck: enough calm periods free the estimate.
func TestGuardBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(1, 20).Draw(t, "min")
		most := least + rapid.IntRange(0, 1000).Draw(t, "more")
		g := newGuard(least, most, rapid.SampledFrom([]float64{0, 1.1, 2, 1e300}).Draw(t, "tolerance"))
		estimate := func(t *rapid.T) int { return rapid.IntRange(least, most).Draw(t, "estimate") }
		t.Repeat(map[string]func(*rapid.T){
			"judge": func(t *rapid.T) {
				g.judge(period{
					mean:    time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "mean")),
					calls:   rapid.IntRange(0, 1<<30).Draw(t, "calls"),
					busy:    rapid.IntRange(0, 1<<26).Draw(t, "busy"),
					pressed: rapid.Bool().Draw(t, "pressed"),
					limit:   estimate(t),
				})
			},
			"calm": func(t *rapid.T) {
				for range 40 {
					g.judge(period{mean: 1, calls: 1, limit: most})
				}
				if got := g.limit(most); got != most {
					t.Fatalf("limit %d after calm, want %d", got, most)
				}
			},
			"": func(t *rapid.T) {
				e := estimate(t)
				if got := g.limit(e); got < least || got > e {
					t.Fatalf("limit %d outside [%d, %d]", got, least, e)
				}
			},
		})
	})
}
