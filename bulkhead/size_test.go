package bulkhead_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/bulkhead"
)

// The figures of docs/howto/size-a-bulkhead.md.
func TestRefusedShare(t *testing.T) {
	t.Parallel()
	tests := []struct {
		busy    float64
		permits int
		want    float64 // percent, to the digits of the page
		digits  float64
	}{
		{8, 8, 24, 1},
		{8, 10, 12, 1},
		{8, 12, 5, 1},
		{8, 14, 1.7, 0.1},
		{8, 16, 0.5, 0.1},
		{100, 100, 8, 1},
		{100, 120, 0.6, 0.1},
		{1, 1, 50, 0.1},
		{0, 5, 0, 1e-9},
		{-1, 5, 0, 1e-9},
		{math.NaN(), 5, 0, 1e-9},
		{5, 0, 100, 1e-9},
		{math.Inf(1), 5, 100, 1e-9},
	}
	for _, tt := range tests {
		assert.InDelta(t, tt.want, 100*bulkhead.RefusedShare(tt.busy, tt.permits), tt.digits/2, "%v busy, %d permits", tt.busy, tt.permits)
	}
}

func TestLimitFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		rate    float64
		latency time.Duration
		refused float64
		want    int
	}{
		{10, 800 * time.Millisecond, 0.01, 15},
		{10, 800 * time.Millisecond, 0.24, 8},
		{10, 800 * time.Millisecond, 1, 1},
		{0, time.Second, 0.01, 1},
		{math.NaN(), time.Second, 0.01, 1},
		{-5, time.Second, 0.01, 1},
		{1e7, time.Second, 0.1, 9_000_000},
		{1e300, time.Hour, 0, math.MaxInt32},
		{1e7, time.Second, 2, 1},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, bulkhead.LimitFor(tt.rate, tt.latency, tt.refused), "%v/s of %s, %v refused", tt.rate, tt.latency, tt.refused)
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.01, 2000).Draw(t, "rate")
		refused := rapid.Float64Range(0.0001, 0.5).Draw(t, "refused")
		n := bulkhead.LimitFor(rate, time.Second, refused)
		if got := bulkhead.RefusedShare(rate, n); got > refused {
			t.Fatalf("%d permits refuse %v, want at most %v", n, got, refused)
		}
		if n > 1 && bulkhead.RefusedShare(rate, n-1) <= refused {
			t.Fatalf("%d permits would do, not %d", n-1, n)
		}
	})
}

func TestQueueFor(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 1000, bulkhead.QueueFor(2000, 500*time.Millisecond))
	assert.Equal(t, 1, bulkhead.QueueFor(1, time.Millisecond))
	assert.Equal(t, 1, bulkhead.QueueFor(math.NaN(), time.Second))
	assert.Equal(t, 1, bulkhead.QueueFor(-1, time.Second))
	assert.Equal(t, math.MaxInt32, bulkhead.QueueFor(1e300, time.Hour))
}
