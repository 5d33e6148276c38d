package policy_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
)

func TestLatencyErrorIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.SliceOfN(rapid.Int64Range(-5, int64(200*time.Second)), 1, 50).Draw(t, "durations")
		var h hist.Histogram
		for _, n := range ns {
			h.Record(time.Duration(n))
		}
		l := policy.Latency{Counts: make([]uint64, hist.Buckets)}
		l.Sum = h.AddTo(l.Counts)
		require.Equal(t, uint64(len(ns)), l.Count())
		slices.Sort(ns)
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			rank := max(int(q*float64(len(ns))+0.9999999), 1)
			exact := max(time.Duration(ns[rank-1]), 0)
			got := l.Quantile(q)
			require.Greater(t, got, exact, "q %v", q)
			require.LessOrEqual(t, got, exact+exact/8+time.Microsecond, "q %v", q)
		}
		require.LessOrEqual(t, l.Below(l.Quantile(1)), l.Count())
		require.Equal(t, l.Count(), l.Below(l.Quantile(1)))
	})
}

func TestBucketsMeet(t *testing.T) {
	t.Parallel()
	for i := range hist.Buckets - 1 {
		edge := hist.Upper(i)
		assert.Equal(t, i, hist.Index(edge-1), "bucket %d", i)
		assert.Equal(t, i+1, hist.Index(edge), "bucket %d", i)
	}
	assert.Equal(t, hist.Buckets-1, hist.Index(1<<63-1))
	assert.Zero(t, policy.Latency{}.Quantile(0.5))
}

func TestLatencySub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := build(t)
		call := func(d time.Duration) {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(d); return 0, nil })
			require.NoError(t, err)
		}
		call(time.Second)
		before := p.Snapshot().Latency
		call(time.Millisecond)
		since := p.Snapshot().Latency.Sub(before)
		assert.Equal(t, uint64(1), since.Count())
		assert.Equal(t, time.Millisecond, since.Sum)
		assert.Less(t, since.Quantile(1), 2*time.Millisecond)
		assert.Equal(t, uint64(2), p.Snapshot().Latency.Sub(policy.Latency{}).Count())
	})
}
