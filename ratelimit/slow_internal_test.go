package ratelimit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A change to the same limit, or of the origin, is none: not even a fraction of a unit
// is lost.
func TestSameLimitIsNoChange(t *testing.T) {
	t.Parallel()
	cfg := TokenBucket{Rate: PerSecond(math.Pi), Burst: 1000, Initial: StartEmpty}
	b, err := New("", cfg)
	require.NoError(t, err)
	plain, err := New("", cfg)
	require.NoError(t, err)
	require.NotZero(t, b.state.Load().shift, "units are rounded at this rate")
	at := int64(0)
	for i := range 5000 {
		at += int64(7 * i)
		if i%2 == 0 {
			b.setLimit(at, cfg.Rate, int64(cfg.Burst))
		} else {
			b.move(b.state.Load(), at)
		}
		_, got := b.free(at)
		_, want := plain.free(at)
		require.Equal(t, want, got, "at %d", at)
	}
	before := b.state.Load()
	b.move(plain.state.Load(), at+1)
	assert.Same(t, before, b.state.Load(), "a state that is not current is not moved")
}

// Debt is kept by one change of the limit after the other, also where the usual unit
// could not represent it.
func TestDebtIsRepresentable(t *testing.T) {
	t.Parallel()
	b, err := New("", TokenBucket{Rate: PerSecond(1e9), Burst: 1e9, Initial: StartEmpty})
	require.NoError(t, err)
	const second = int64(time.Second)
	_, v := b.reserve(0, 1e9, maxDelay)
	require.Equal(t, taken, v)
	b.setLimit(0, Every(time.Hour), 10)
	at := second
	for _, r := range []Rate{PerSecond(1000.7), PerSecond(math.E), PerSecond(1), PerSecond(1e9), PerSecond(1000)} {
		b.setLimit(at, r, 10)
		s, free := b.free(at)
		assert.InEpsilon(t, -1e9, float64(free)/float64(s.unit), 1e-6, "%v", r)
		wait, v := b.take(at, 10)
		assert.Equal(t, short, v)
		assert.InEpsilon(t, 1e9/r.perSecond(), wait.Seconds(), 1e-6, "%v", r)
	}
}
