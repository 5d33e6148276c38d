package breaker

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// opened returns a breaker that opened at base, with one failed call.
func opened(t *testing.T, base time.Time, cfg Config) *Breaker {
	t.Helper()
	cfg.MinCalls = 1
	b, err := newAt(base, "", cfg)
	require.NoError(t, err)
	word, refused := b.enter(base)
	require.Nil(t, refused)
	b.leave(word, 0, base, policy.Outcome{Kind: policy.Failure})
	require.Equal(t, Open, b.m.state)
	return b
}

// Two probes succeed and the third hangs: at a ratio of one that is no reason to
// open, and the breaker closes by time alone.
func TestAHungProbeMayCloseTheBreaker(t *testing.T) {
	t.Parallel()
	base := time.Now()
	b := opened(t, base, Config{FailureRatio: 1, Probes: 3, OpenFor: time.Second, ProbeTimeout: time.Second})
	now := base.Add(time.Second)
	for i := range 3 {
		word, refused := b.enter(now)
		require.Nil(t, refused)
		if i < 2 {
			b.leave(word, 0, now, policy.Outcome{Kind: policy.Success})
		}
	}
	_, refused := b.enter(now.Add(time.Second - 1))
	require.NotNil(t, refused)
	now = now.Add(time.Second)
	s := b.Snapshot(now).Breaker
	assert.Equal(t, "closed", s.State)
	assert.Zero(t, s.Calls, "the window is new")
	word, refused := b.enter(now)
	require.Nil(t, refused)
	assert.Equal(t, wordOf(4), word, "no probe, but an ordinary call")
	assert.False(t, b.leave(word, 0, now, policy.Outcome{Kind: policy.Success}))
	assert.Equal(t, uint64(1), b.Snapshot(now).Breaker.Calls)
}

// Durations that reach the end of time stay there.
func TestTimeDoesNotOverflow(t *testing.T) {
	t.Parallel()
	base := time.Now()
	now := base.Add(time.Hour)
	b, err := newAt(base, "", Config{MinCalls: 1, OpenFor: math.MaxInt64, ProbeTimeout: math.MaxInt64})
	require.NoError(t, err)
	b.leave(wordOf(1), 0, now, policy.Outcome{Kind: policy.Failure, Duration: math.MaxInt64})
	_, refused := b.enter(now)
	require.NotNil(t, refused)
	assert.Equal(t, time.Duration(math.MaxInt64)-time.Hour, refused.RetryAfter)
	_, refused = b.enter(base.Add(-time.Hour))
	require.NotNil(t, refused)
	assert.Equal(t, time.Duration(math.MaxInt64), refused.RetryAfter, "a clock before the breaker's birth is at it")

	b = opened(t, base, Config{Probes: 1, OpenFor: time.Second, ProbeTimeout: math.MaxInt64})
	_, refused = b.enter(now)
	require.Nil(t, refused)
	_, refused = b.enter(now.Add(100 * 365 * 24 * time.Hour))
	require.NotNil(t, refused, "the probe still runs")
}

// The number of a probe comes round after 2^32 of them, and leaves out zero, which
// is the word of a call that is none.
func TestProbeNumbersComeRound(t *testing.T) {
	t.Parallel()
	base := time.Now()
	b := opened(t, base, Config{Probes: 2, OpenFor: time.Second})
	b.m.lastID = math.MaxUint32 - 1
	now := base.Add(time.Second)
	last, refused := b.enter(now)
	require.Nil(t, refused)
	first, refused := b.enter(now)
	require.Nil(t, refused)
	assert.Equal(t, []uint64{wordOf(3) | math.MaxUint32, wordOf(3) | 1}, []uint64{last, first})
	assert.False(t, b.leave(last, 0, now, policy.Outcome{Kind: policy.Success}))
	assert.True(t, b.leave(last, 0, now, policy.Outcome{Kind: policy.Success}), "a second time")
	assert.False(t, b.leave(first, 0, now, policy.Outcome{Kind: policy.Success}))
	assert.Equal(t, Closed, b.m.state)
}

// A generation is compared by its lower half, so a call of 2^32 changes ago is the
// first that would be taken for a present one.
func TestGenerationsAreToldApart(t *testing.T) {
	t.Parallel()
	base := time.Now()
	b, err := newAt(base, "", Config{MinCalls: 1})
	require.NoError(t, err)
	b.m.gen, b.m.first = math.MaxUint32, math.MaxUint32
	b.publishLocked()
	old, refused := b.enter(base)
	require.Nil(t, refused)
	b.leave(old, 0, base, policy.Outcome{Kind: policy.Failure})
	b.reset(base)
	require.Equal(t, uint64(math.MaxUint32)+2, b.m.gen)
	assert.True(t, b.leave(old, 0, base, policy.Outcome{Kind: policy.Failure}))
	word, refused := b.enter(base)
	require.Nil(t, refused)
	assert.False(t, b.leave(word, 0, base, policy.Outcome{Kind: policy.Success}))
}

// A probe that was amended twice, or after all had failed, counts once.
func TestAmendNeverExceedsTheProbes(t *testing.T) {
	t.Parallel()
	base := time.Now()
	b := opened(t, base, Config{FailureRatio: 1, Probes: 3, OpenFor: time.Second})
	now := base.Add(time.Second)
	word, refused := b.enter(now)
	require.Nil(t, refused)
	b.leave(word, 0, now, policy.Outcome{Kind: policy.Success})
	b.amend(word, now, policy.Outcome{Kind: policy.Failure})
	b.amend(word, now, policy.Outcome{Kind: policy.Failure})
	s := b.Snapshot(now).Breaker
	assert.Equal(t, [3]uint64{1, 1, 0}, [3]uint64{s.Calls, s.Failures, s.Slow})
	assert.Equal(t, "half_open", s.State)
}

func TestStateNames(t *testing.T) {
	t.Parallel()
	var names []string
	for s := Closed; s <= ForcedClosed; s++ {
		names = append(names, s.String())
	}
	assert.Equal(t, policy.BreakerStates(), append(names, throttling))
	assert.Equal(t, "unknown", (ForcedClosed + 1).String())
	assert.Zero(t, share(0, 0))
}
