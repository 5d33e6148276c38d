package retry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

// The window holds what a list would: all durations of the newest slice and of the five
// before it.
func TestDurationsEqualRecount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type entry struct {
			slice int64
			took  time.Duration
		}
		base := time.Now()
		const step = time.Second
		d := newDurations(base, slices*step)
		var all []entry
		var at time.Duration
		var newest int64
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			at = max(at+time.Duration(rapid.Int64Range(-int64(step), int64(4*step)).Draw(rt, "later")), 0)
			newest = max(newest, int64(at/step))
			if rapid.Bool().Draw(rt, "observe") {
				took := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "took"))
				d.observe(base.Add(at), took)
				all = append(all, entry{newest, took})
			}
			var n uint64
			var sum time.Duration
			for _, e := range all {
				if e.slice > newest-slices {
					n++
					sum += e.took
				}
			}
			l := d.latency(base.Add(at))
			require.Equal(rt, n, l.Count())
			require.Equal(rt, sum, l.Sum)
		}
	})
}

func TestDurationsComputeNowAndThen(t *testing.T) {
	t.Parallel()
	base := time.Now()
	d := newDurations(base, 64*time.Second)
	n, result := 0, time.Duration(-1)
	at := func(t time.Duration) time.Duration {
		return d.delay(base.Add(t), func(policy.Latency) time.Duration { n++; return result })
	}
	require.Equal(t, -time.Duration(1), at(0))
	require.Equal(t, -time.Duration(1), at(1))
	require.Equal(t, 2, n, "as long as none is known")
	result = time.Second
	require.Equal(t, time.Second, at(2))
	result = time.Minute
	require.Equal(t, time.Minute, at(2), "the first one is looked at again")
	result = time.Hour
	require.Equal(t, time.Minute, at(time.Second+1))
	require.Equal(t, time.Hour, at(time.Second+2))
	require.Equal(t, 5, n)
	result = -1
	require.Equal(t, -time.Duration(1), at(3*time.Second), "none is known any more")
}
