package retry

import (
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/breakwater-go/breakwater/policy"
)

func mustBudget(t *testing.T, cfg BudgetConfig) *Budget {
	t.Helper()
	b, err := NewBudget(cfg)
	require.NoError(t, err)
	return b
}

// granted counts how many retries b allows at once.
func granted(b *Budget, now time.Time) (n int) {
	for b.Take(now) {
		n++
	}
	return n
}

func TestCaseB53RatioIsExact(t *testing.T) {
	t.Parallel()
	tests := []struct {
		ratio  float64
		firsts int
		want   int
	}{
		{ratio: 0.6, firsts: 10, want: 6},
		{ratio: 0.3, firsts: 10, want: 3},
		{ratio: 1.0 / 3, firsts: 10, want: 3},
		{ratio: 1.0 / 3, firsts: 3, want: 1},
		{ratio: 1.0 / 3, firsts: 2, want: 0},
		{ratio: 0.7, firsts: 10, want: 7},
		{ratio: 0.7, firsts: 9, want: 6},
		{ratio: 0.29, firsts: 100, want: 29}, // 28.999999999999996 as a product of floats
		{ratio: 0.57, firsts: 100, want: 57}, // 56.99999999999999
		{ratio: 0.1, firsts: 9, want: 0},
		{ratio: 0.1, firsts: 30, want: 3}, // 3.0000000000000004 with an inexact 0.1
		{ratio: 1, firsts: 1, want: 1},
		{ratio: 1, firsts: 0, want: 0},
		{ratio: 1e-9, firsts: 1000, want: 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%v of %d", tt.ratio, tt.firsts), func(t *testing.T) {
			t.Parallel()
			b := mustBudget(t, BudgetConfig{Ratio: tt.ratio, MinPerSecond: Off})
			now := time.Now()
			for range tt.firsts {
				b.firstAt(now)
			}
			var s policy.RetrySnapshot
			b.describe(&s, now)
			assert.InDelta(t, tt.want, s.BudgetRemaining, 0, "remaining before")
			assert.Equal(t, tt.want, granted(b, now))
			b.describe(&s, now)
			assert.Equal(t, policy.RetrySnapshot{
				BudgetKind: "ratio", BudgetRatio: tt.ratio, BudgetFirsts: uint64(tt.firsts), BudgetRetries: uint64(tt.want),
			}, s)
		})
	}
}

// Every ratio of whole hundredths, and every number of calls up to a thousand, gives
// what integers give.
func TestCaseB53NoFloatTraps(t *testing.T) {
	t.Parallel()
	for percent := 1; percent <= 100; percent++ {
		b := mustBudget(t, BudgetConfig{Ratio: float64(percent) / 100, MinPerSecond: Off})
		now := time.Now()
		retries := 0
		for firsts := 1; firsts <= 1000; firsts++ {
			b.firstAt(now)
			retries += granted(b, now)
			require.Equal(t, firsts*percent/100, retries, "%d %% of %d", percent, firsts)
		}
	}
}

func TestCaseB53ReserveIsHonoured(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cfg    BudgetConfig
		firsts int
		want   int
	}{
		{cfg: BudgetConfig{Ratio: 0.1, MinPerSecond: 10, Window: 10 * time.Second}, firsts: 10, want: 101},
		{cfg: BudgetConfig{Ratio: 0.1, MinPerSecond: 10, Window: 10 * time.Second}, firsts: 0, want: 100},
		{cfg: BudgetConfig{Ratio: Off, MinPerSecond: 0.1, Window: 10 * time.Second}, firsts: 1000, want: 1},
		{cfg: BudgetConfig{Ratio: Off, MinPerSecond: 0.3, Window: 10 * time.Second}, firsts: 1000, want: 3},
		{cfg: BudgetConfig{Ratio: 0.5, MinPerSecond: 0.05, Window: 10 * time.Second}, firsts: 1, want: 1}, // a half and a half
		{cfg: BudgetConfig{}, firsts: 50, want: 110},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%+v of %d", tt.cfg, tt.firsts), func(t *testing.T) {
			t.Parallel()
			b := mustBudget(t, tt.cfg)
			now := time.Now()
			for range tt.firsts {
				b.firstAt(now)
			}
			assert.Equal(t, tt.want, granted(b, now))
		})
	}
}

func TestCaseB53ExactUnderConcurrencyConcurrentSafe(t *testing.T) {
	t.Parallel()
	const (
		workers = 1000
		each    = 20
		reserve = 7
	)
	b := mustBudget(t, BudgetConfig{Ratio: 0.3, MinPerSecond: reserve, Window: time.Second})
	now := time.Now()
	var taken, undone atomic.Int64
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			for i := range each {
				b.firstAt(now)
				if !b.Take(now) {
					continue
				}
				taken.Add(1)
				if (g+i)%10 == 0 {
					b.Undo(now)
					undone.Add(1)
				}
			}
		})
	}
	wg.Wait()
	most := int64(workers*each*3/10 + reserve)
	assert.LessOrEqual(t, taken.Load()-undone.Load(), most)
	assert.Positive(t, undone.Load())
	assert.EqualValues(t, most-(taken.Load()-undone.Load()), granted(b, now), "what is left is exactly the rest")
}

func TestBudgetUndoGivesBack(t *testing.T) {
	t.Parallel()
	b := mustBudget(t, BudgetConfig{Ratio: 1, MinPerSecond: Off})
	now := time.Now()
	b.Undo(now) // nothing was taken: nothing to give
	require.Zero(t, granted(b, now))
	b.firstAt(now)
	require.Equal(t, 1, granted(b, now))
	b.Undo(now)
	require.Equal(t, 1, granted(b, now))
}

func TestBudgetForgets(t *testing.T) {
	t.Parallel()
	b := mustBudget(t, BudgetConfig{Ratio: 0.5, MinPerSecond: Off, Window: 10 * time.Second})
	now := time.Now()
	for range 10 {
		b.firstAt(now)
	}
	require.Equal(t, 5, granted(b, now))
	now = now.Add(time.Minute)
	assert.Zero(t, granted(b, now), "calls of long ago pay for nothing")
	b.firstAt(now)
	b.firstAt(now)
	assert.Equal(t, 1, granted(b, now), "retries of long ago weigh nothing")
}

// Against a list of all events, recounted with whole numbers and fractions: the same
// retries are allowed, at every step.
func TestBudgetEqualsRecount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		den := rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 100, 1000}).Draw(t, "denominator")
		num := rapid.Int64Range(1, den).Draw(t, "numerator")
		min10 := rapid.Int64Range(0, 30).Draw(t, "tenths of a retry per second")
		const window, buckets = 10 * time.Second, budgetBuckets

		cfg := BudgetConfig{Ratio: float64(num) / float64(den), MinPerSecond: float64(min10) / 10, Window: window}
		if min10 == 0 {
			cfg.MinPerSecond = Off
		}
		base := time.Now()
		b, err := newBudget(cfg, base)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Duration(0)
		var firsts, retries []int64 // numbers of buckets
		inWindow := func(list []int64) (n int64) {
			for _, bucket := range list {
				if bucket > int64(at/(window/buckets))-buckets {
					n++
				}
			}
			return n
		}
		now := func() time.Time { return base.Add(at) }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			bucket := int64(at / (window / buckets))
			switch rapid.SampledFrom([]string{"firsts", "retry", "undo", "wait"}).Draw(t, "step") {
			case "firsts":
				for range rapid.IntRange(1, 12).Draw(t, "n") {
					b.firstAt(now())
					firsts = append(firsts, bucket)
				}
			case "retry":
				limit := new(big.Rat).Mul(big.NewRat(num, den), new(big.Rat).SetInt64(inWindow(firsts)))
				limit.Add(limit, big.NewRat(min10*int64(window/time.Second), 10))
				want := new(big.Rat).SetInt64(inWindow(retries)+1).Cmp(limit) <= 0
				if got := b.Take(now()); got != want {
					t.Fatalf("%+v: retry allowed: %v, want %v: %d firsts, %d retries in the window", cfg, got, want, inWindow(firsts), inWindow(retries))
				}
				if want {
					retries = append(retries, bucket)
				}
			case "undo":
				b.Undo(now())
				if inWindow(retries) > 0 {
					retries = retries[:len(retries)-1]
				}
			case "wait":
				at += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
			}
		}
		var s policy.RetrySnapshot
		b.describe(&s, now())
		if int64(s.BudgetFirsts) != inWindow(firsts) || int64(s.BudgetRetries) != inWindow(retries) {
			t.Fatalf("snapshot %+v, want %d firsts and %d retries", s, inWindow(firsts), inWindow(retries))
		}
	})
}
