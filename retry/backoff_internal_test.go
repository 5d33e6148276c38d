package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

const forever = time.Duration(math.MaxInt64)

func TestCaseB08BackoffNeverOverflows(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 10_000; n++ {
		want := time.Minute
		if n <= 6 {
			want = time.Second << (n - 1)
		}
		require.Equal(t, want, backoff(time.Second, time.Minute, 2, n), "retry %d", n)
	}
	tests := []struct {
		name   string
		base   time.Duration
		most   time.Duration
		factor float64
		n      int
		want   time.Duration
	}{
		{name: "retry 200 of an unlimited number", base: 2 * time.Second, most: 5 * time.Minute, factor: 2, n: 200, want: 5 * time.Minute},
		{name: "largest int", base: time.Second, most: time.Minute, factor: 2, n: math.MaxInt, want: time.Minute},
		{name: "no cap, last that fits", base: 1, most: forever, factor: 2, n: 63, want: 1 << 62},
		{name: "no cap, first that does not", base: 1, most: forever, factor: 2, n: 64, want: forever},
		{name: "no cap, infinite product", base: time.Second, most: forever, factor: 2, n: 2000, want: forever},
		{name: "largest factor", base: time.Second, most: forever, factor: math.MaxFloat64, n: 3, want: forever},
		{name: "base at the cap", base: forever, most: forever, factor: 2, n: 1, want: forever},
		{name: "base just below the cap", base: forever - 1, most: forever, factor: 1, n: 1, want: forever},
		{name: "factor 1", base: time.Second, most: time.Minute, factor: 1, n: 1 << 30, want: time.Second},
		{name: "off", base: Off, most: time.Minute, factor: 2, n: 5, want: 0},
		{name: "attempt 0", base: time.Second, most: time.Minute, factor: 2, n: 0, want: time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, backoff(tt.base, tt.most, tt.factor, tt.n))
		})
	}
}

func TestCaseB09JitterOfNothing(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, 2, 9, time.Second, forever - 1, forever} {
		for _, j := range []Jitter{FullJitter, NoJitter, EqualJitter} {
			for name, uniform := range map[string]func(uint64) uint64{
				"lowest":  func(uint64) uint64 { return 0 },
				"highest": func(n uint64) uint64 { return n - 1 },
				"random":  rand.Uint64N,
			} {
				got := j.spread(d, uniform)
				assert.GreaterOrEqual(t, got, time.Duration(0), "%s %s of %d", name, j, d)
				assert.LessOrEqual(t, got, max(d, 0), "%s %s of %d", name, j, d)
				if j == EqualJitter {
					assert.GreaterOrEqual(t, got, max(d, 0)/2, "%s %s of %d", name, j, d)
				}
				if j == NoJitter || name == "highest" {
					assert.Equal(t, max(d, 0), got, "%s %s of %d", name, j, d)
				}
			}
		}
	}
}

func TestCaseB09FullJitterIsEven(t *testing.T) {
	t.Parallel()
	const (
		span  = 100 * time.Millisecond
		draws = 10_000
	)
	source := rand.New(rand.NewPCG(1, 2))
	var sum time.Duration
	for range draws {
		d := FullJitter.spread(span, source.Uint64N)
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, span)
		sum += d
	}
	assert.InDelta(t, float64(50*time.Millisecond), float64(sum/draws), float64(2*time.Millisecond), "mean")
}

func TestCaseB09InstancesDiffer(t *testing.T) {
	t.Parallel()
	delays := func() (list [8]time.Duration) {
		r, err := New("", Config{BaseDelay: time.Hour, MaxDelay: time.Hour, MaxAttempts: Unlimited, Budget: NoBudget{}})
		require.NoError(t, err)
		for i := range list {
			list[i] = r.set.Load().delays.before(1, 0)
		}
		return list
	}
	assert.NotEqual(t, delays(), delays(), "two retriers do not march in step")
}

// A wall clock that steps back, or a reading that is late, is no reason to wait for
// longer, to panic or to give up.
func TestCaseB09TimeGoesBack(t *testing.T) {
	t.Parallel()
	r, err := New("", Config{Jitter: NoJitter, MaxDuration: time.Second})
	require.NoError(t, err)
	start := time.Unix(1_000_000, 0)
	got := r.Decide(policy.RetryState{
		Started: start, Now: start.Add(-time.Hour), Attempt: 1, Outcome: policy.Outcome{Kind: policy.Failure},
	})
	assert.Equal(t, policy.Decision{Delay: 100 * time.Millisecond}, got)
}

func TestBackoffWithinBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base"))
		most := time.Duration(rapid.Int64Range(int64(base), math.MaxInt64).Draw(t, "most"))
		factor := rapid.Float64Range(1, math.MaxFloat64).Draw(t, "factor")
		n := rapid.IntRange(1, math.MaxInt).Draw(t, "n")
		d := backoff(base, most, factor, n)
		if d < 0 || d > most {
			t.Fatalf("backoff(%d, %d, %v, %d) = %d", base, most, factor, n, d)
		}
		if d < base {
			t.Fatalf("backoff(%d, %d, %v, %d) = %d, below the base", base, most, factor, n, d)
		}
		if next := backoff(base, most, factor, min(n, math.MaxInt-1)+1); next < d {
			t.Fatalf("backoff(%d, %d, %v) falls from %d to %d after retry %d", base, most, factor, d, next, n)
		}
		draw := rapid.Uint64().Draw(t, "draw")
		if j := FullJitter.spread(d, func(n uint64) uint64 { return draw % n }); j < 0 || j > d {
			t.Fatalf("full jitter of %d = %d", d, j)
		}
	})
}

func TestJitterNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "full", FullJitter.String())
	assert.Equal(t, "none", NoJitter.String())
	assert.Equal(t, "equal", EqualJitter.String())
	assert.Equal(t, "unknown", numJitters.String())
	assert.Equal(t, "exponential", Exponential.String())
	assert.Equal(t, "constant", Constant.String())
	assert.Equal(t, "decorrelated", Decorrelated.String())
	assert.Equal(t, "unknown", numBackoffs.String())
	assert.Equal(t, "usual", Usual.String())
	assert.Equal(t, "always", Always.String())
	assert.Equal(t, "await_pushback", AwaitPushback.String())
	assert.Equal(t, "never", Never.String())
	assert.Equal(t, "unknown", numWhens.String())
}

// Whatever the settings, the chance and the delay before: never negative, never above
// the cap, and within the range that the kind promises.
func TestCaseB08DelaysStayWithinTheirRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := delays{
			kind:   rapid.SampledFrom([]Backoff{Exponential, Constant, Decorrelated}).Draw(t, "kind"),
			base:   time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "base")),
			factor: rapid.Float64Range(1, math.MaxFloat64).Draw(t, "factor"),
			jitter: rapid.SampledFrom([]Jitter{FullJitter, NoJitter, EqualJitter}).Draw(t, "jitter"),
		}
		d.most = time.Duration(rapid.Int64Range(int64(d.base), math.MaxInt64).Draw(t, "most"))
		draw := rapid.Uint64().Draw(t, "draw")
		d.uniform = func(n uint64) uint64 { return draw % n }
		n := rapid.IntRange(-1, math.MaxInt).Draw(t, "n")
		last := time.Duration(rapid.Int64().Draw(t, "last"))
		got := d.before(n, last)
		if got < d.least() || got > d.most {
			t.Fatalf("%+v: retry %d after %d waits %d, want %d to %d", d, n, last, got, d.least(), d.most)
		}
		if d.kind == Constant && got > d.base {
			t.Fatalf("%+v: constant backoff of %d waits %d", d, d.base, got)
		}
	})
}

// min(cap, random from base to three times the last delay): the formula of the AWS
// article, with the least, the largest and the middle draw.
func TestDecorrelatedFollowsTheFormula(t *testing.T) {
	t.Parallel()
	const base, most = time.Second, 20 * time.Second
	draws := map[string]func(uint64) uint64{
		"lowest":  func(uint64) uint64 { return 0 },
		"highest": func(n uint64) uint64 { return n - 1 },
		"middle":  func(n uint64) uint64 { return n / 2 },
	}
	want := map[string][]time.Duration{
		"lowest":  {base, base, base, base},
		"highest": {3 * base, 9 * base, most, most},
		"middle":  {2 * base, 3500 * time.Millisecond, 5750 * time.Millisecond, 9125 * time.Millisecond},
	}
	for name, uniform := range draws {
		d := delays{kind: Decorrelated, base: base, most: most, factor: defaultGrowth, uniform: uniform}
		last := time.Duration(0)
		for i, w := range want[name] {
			last = d.before(i+1, last)
			assert.Equal(t, w, last, "%s draw, retry %d", name, i+1)
		}
	}
	d := delays{kind: Decorrelated, base: base, most: most, factor: defaultGrowth, uniform: draws["highest"]}
	assert.Equal(t, most, d.before(2, time.Hour), "a pushback before it does not blow it up")
}

// A backoff that has long passed its cap is still spread over the whole range: the cap
// is not where callers meet.
func TestCaseB09JitterIsNotLostAtTheCap(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(3, 4))
	for jitter, mean := range map[Jitter]time.Duration{FullJitter: 30 * time.Second, EqualJitter: 45 * time.Second} {
		d := delays{base: time.Second, most: time.Minute, factor: 2, jitter: jitter, uniform: source.Uint64N}
		var sum time.Duration
		for range 10_000 {
			sum += d.before(40, 0)
		}
		assert.InDelta(t, mean.Seconds(), (sum / 10_000).Seconds(), 1, jitter.String())
	}
}
