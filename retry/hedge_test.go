package retry_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func TestHedgeValidate(t *testing.T) {
	t.Parallel()
	var missing *retry.Budget
	for name, tt := range map[string]struct {
		cfg  retry.Hedge
		want []string
	}{
		"zero":                        {},
		"fixed":                       {cfg: retry.Hedge{Delay: time.Microsecond, MaxHedges: 10, Budget: retry.NoBudget{}}},
		"smallest":                    {cfg: retry.Hedge{Quantile: math.SmallestNonzeroFloat64, MinSamples: 1, Window: time.Second, MinDelay: time.Microsecond, MaxDelay: time.Microsecond, MaxHedges: 1}},
		"largest":                     {cfg: retry.Hedge{Delay: time.Hour, Quantile: math.Nextafter(1, 0), MinSamples: 1e6, Window: time.Hour, MinDelay: time.Hour, MaxDelay: time.Hour}},
		"cap below the default least": {cfg: retry.Hedge{MaxDelay: 10 * time.Microsecond}},

		"delay":                {cfg: retry.Hedge{Delay: 50}, want: []string{"Delay"}},
		"negative delay":       {cfg: retry.Hedge{Delay: -time.Second}, want: []string{"Delay"}},
		"quantile of one":      {cfg: retry.Hedge{Quantile: 1}, want: []string{"Quantile"}},
		"a percentage":         {cfg: retry.Hedge{Quantile: 95}, want: []string{"Quantile"}},
		"quantile no number":   {cfg: retry.Hedge{Quantile: math.NaN()}, want: []string{"Quantile"}},
		"samples":              {cfg: retry.Hedge{MinSamples: -1}, want: []string{"MinSamples"}},
		"window":               {cfg: retry.Hedge{Window: time.Millisecond}, want: []string{"Window"}},
		"bounds":               {cfg: retry.Hedge{MinDelay: -1, MaxDelay: 2 * time.Hour}, want: []string{"MinDelay", "MaxDelay"}},
		"bounds the wrong way": {cfg: retry.Hedge{MinDelay: time.Second, MaxDelay: time.Millisecond}, want: []string{"MaxDelay"}},
		"hedges":               {cfg: retry.Hedge{MaxHedges: 11}, want: []string{"MaxHedges"}},
		"what a fixed delay does not need": {
			cfg:  retry.Hedge{Delay: time.Second, MinSamples: 1, Window: time.Minute, MinDelay: time.Second, MaxDelay: time.Second},
			want: []string{"MinSamples", "Window", "MinDelay", "MaxDelay"},
		},
		"budget":     {cfg: retry.Hedge{Budget: retry.BudgetConfig{Ratio: 2}}, want: []string{"Budget.Ratio"}},
		"nil budget": {cfg: retry.Hedge{Budget: missing}, want: []string{"Budget"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			var got []string
			if err != nil {
				for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
					ce, ok := errors.AsType[*policy.ConfigError](e)
					require.True(t, ok)
					assert.Equal(t, "hedge", ce.Policy)
					got = append(got, ce.Field)
				}
			}
			assert.Equal(t, tt.want, got, "%v", err)
			h, newErr := retry.NewHedge("", tt.cfg)
			assert.Equal(t, err == nil, newErr == nil)
			_, buildErr := tt.cfg.BuildPolicy()
			assert.Equal(t, err == nil, buildErr == nil)
			if err == nil {
				again := h.Config()
				require.NoError(t, again.Validate(), "what is effective is valid")
			}
		})
	}
}

func FuzzHedgeValidate(f *testing.F) {
	f.Add(int64(0), 0.0, 0, int64(0), int64(0), int64(0), 0)
	f.Add(int64(time.Second), 0.5, 10, int64(time.Minute), int64(1), int64(time.Hour), 3)
	f.Fuzz(func(t *testing.T, delay int64, q float64, samples int, window, least, most int64, hedges int) {
		cfg := retry.Hedge{
			Delay: time.Duration(delay), Quantile: q, MinSamples: samples, Window: time.Duration(window),
			MinDelay: time.Duration(least), MaxDelay: time.Duration(most), MaxHedges: hedges,
		}
		h, err := retry.NewHedge("", cfg)
		if (err == nil) != (cfg.Validate() == nil) {
			t.Fatalf("New says %v, Validate %v", err, cfg.Validate())
		}
		if err != nil {
			return
		}
		now := time.Now()
		for i := range 200 {
			h.Observe(now, time.Duration(i)*time.Millisecond)
		}
		eff := h.Config()
		if d := h.Delay(now); d != -1 && d != eff.Delay && (d < eff.MinDelay || (eff.MaxDelay > 0 && d > eff.MaxDelay)) {
			t.Fatalf("delay %s of %+v", d, eff)
		}
	})
}

func TestHedgeDefaults(t *testing.T) {
	t.Parallel()
	h, err := retry.NewHedge("", retry.Hedge{})
	require.NoError(t, err)
	cfg := h.Config()
	assert.IsType(t, &retry.Budget{}, cfg.Budget)
	assert.Same(t, h.Budget(), cfg.Budget)
	cfg.Budget = nil
	assert.Equal(t, retry.Hedge{Name: "hedge", Quantile: 0.95, MinSamples: 100, Window: time.Minute, MinDelay: time.Millisecond, MaxHedges: 1}, cfg)
	assert.Equal(t, -time.Duration(1), h.Delay(time.Now()))

	h, err = retry.NewHedge("tail", retry.Hedge{Name: "other", Delay: time.Second, Budget: retry.NoBudget{}})
	require.NoError(t, err)
	assert.Equal(t, retry.Hedge{Name: "tail", Delay: time.Second, MaxHedges: 1, Budget: retry.NoBudget{}}, h.Config())
	assert.Nil(t, h.Budget())
	assert.True(t, h.Allow(policy.HedgeState{}))
	h.First(nil)
	h.Undo(time.Now())
	h.Done()
	h.Observe(time.Now(), time.Second)
	assert.Equal(t, time.Second, h.Delay(time.Now()))
}

func TestHedgeWarnings(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		list []policy.Policy
		want string
	}{
		"none":               {[]policy.Policy{retry.Hedge{}}, ""},
		"no budget":          {[]policy.Policy{retry.Hedge{Budget: retry.NoBudget{}, MaxHedges: 2}}, "inventory.hedge: there is no budget: when every call is slow, the dependency gets its load times 3"},
		"low quantile":       {[]policy.Policy{retry.Hedge{Quantile: 0.5}}, "hedges 50 calls in a hundred"},
		"attempt timeout":    {[]policy.Policy{retry.Hedge{Delay: time.Second}, policy.Timeouts{Attempt: time.Second}}, "the delay 1s is not below the timeout 1s: no attempt lives to be hedged"},
		"total timeout":      {[]policy.Policy{retry.Hedge{MinDelay: time.Second}, policy.Timeouts{Total: time.Second}}, "the delay 1s is not below the timeout 1s"},
		"the shorter of two": {[]policy.Policy{retry.Hedge{Delay: 2 * time.Second}, policy.Timeouts{Attempt: time.Second, Total: time.Minute}}, "the timeout 1s"},
		"in time":            {[]policy.Policy{retry.Hedge{Delay: time.Millisecond}, policy.Timeouts{Attempt: time.Second, Total: time.Minute}}, ""},
		"until it is known":  {[]policy.Policy{retry.Hedge{Quantile: 0.9, Delay: time.Second, MinDelay: time.Minute}, policy.Timeouts{Attempt: time.Second}}, "the delay 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, tt.list...)
			got := strings.Join(p.Warnings(), "\n")
			if tt.want == "" {
				assert.Empty(t, got)
			}
			assert.Contains(t, got, tt.want)
		})
	}
}

func TestHedgesAreOnePolicy(t *testing.T) {
	t.Parallel()
	_, err := policy.New("stock", retry.Hedge{}, retry.Hedge{Name: "other"})
	require.ErrorContains(t, err, `a pipeline has one hedge policy, and "hedge" is there already`)
	_, err = policy.New("stock", retry.Hedge{Quantile: 7})
	require.ErrorContains(t, err, "stock.hedge.Quantile: 7: want above 0 and below 1")
}

var again = policy.Call{Idempotent: true}

func hedgeOf(p *policy.Pipeline) *policy.HedgeSnapshot {
	for _, ps := range p.Snapshot().Policies {
		if ps.Hedge != nil {
			return ps.Hedge
		}
	}
	return nil
}

// slow is a dependency that takes a time, and less when it is asked again.
func slow(ctx context.Context, first time.Duration, calls *atomic.Int32) (int, error) {
	n := calls.Add(1)
	if n > 1 {
		first = time.Millisecond
	}
	select {
	case <-time.After(first):
		return int(n), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestHedgeDelayFollowsFromTheQuantile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Hedge{Quantile: 0.9, MinSamples: 50, Window: 6 * time.Second, MaxHedges: 2})
		ctx := policy.WithCall(t.Context(), again)
		call := func(d time.Duration) (took time.Duration, attempts int32) {
			var n atomic.Int32
			start := time.Now()
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { return slow(ctx, d, &n) })
			require.NoError(t, err)
			synctest.Wait()
			return time.Since(start), n.Load()
		}
		// Too few are known: nothing is hedged.
		for range 49 {
			took, n := call(20 * time.Millisecond)
			assert.Equal(t, 20*time.Millisecond, took)
			assert.Equal(t, int32(1), n)
		}
		assert.Zero(t, hedgeOf(p).Delay)
		assert.Equal(t, uint64(49), hedgeOf(p).Samples)
		call(20 * time.Millisecond)
		d := hedgeOf(p).Delay
		assert.GreaterOrEqual(t, d, 20*time.Millisecond)
		assert.LessOrEqual(t, d, 22500*time.Microsecond, "a bucket is an eighth wide")

		took, n := call(time.Second)
		assert.Equal(t, d+time.Millisecond, took)
		assert.Equal(t, int32(2), n)
		s := hedgeOf(p)
		assert.Equal(t, uint64(1), s.Won)
		assert.Equal(t, uint64(51), s.Samples, "what was overtaken counts")
		assert.Equal(t, 0.9, s.Quantile)
		assert.Equal(t, uint64(50), s.MinSamples)
		assert.Equal(t, 2, s.MaxHedges)

		// The dependency gets slower: the delay follows, since an attempt that was
		// overtaken took at least as long.
		for range 200 {
			call(40 * time.Millisecond)
		}
		assert.Greater(t, hedgeOf(p).Delay, d)

		// Nothing for a while: nothing is known.
		time.Sleep(6 * time.Second)
		assert.Zero(t, hedgeOf(p).Samples)
		_, n = call(time.Second)
		assert.Equal(t, int32(1), n)
	})
}

func TestHedgeDelayBounds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		cfg  retry.Hedge
		took time.Duration
		want time.Duration
	}{
		"least":           {retry.Hedge{MinDelay: 5 * time.Millisecond}, time.Millisecond, 5 * time.Millisecond},
		"the default":     {retry.Hedge{}, 10 * time.Microsecond, time.Millisecond},
		"most":            {retry.Hedge{MaxDelay: 50 * time.Millisecond}, time.Second, 50 * time.Millisecond},
		"the wrong clock": {retry.Hedge{}, -time.Second, time.Millisecond},
		"for ever":        {retry.Hedge{MaxDelay: time.Minute}, math.MaxInt64, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := retry.NewHedge("", tt.cfg)
			require.NoError(t, err)
			for range 100 {
				h.Observe(now, tt.took)
			}
			assert.Equal(t, tt.want, h.Delay(now))
		})
	}
	// Until there are enough, Delay holds.
	h, err := retry.NewHedge("", retry.Hedge{Delay: 7 * time.Millisecond, Quantile: 0.5, MinSamples: 2})
	require.NoError(t, err)
	h.Observe(now, time.Millisecond)
	assert.Equal(t, 7*time.Millisecond, h.Delay(now))
}

// A hedge takes from a budget what a retry does: of 20 calls a fifth may be repeated.
func TestHedgesAndRetriesFromOneBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.2, MinPerSecond: retry.Off})
		require.NoError(t, err)
		// Two pipelines share it, and in the second one retries and hedges do.
		writes := newPipeline(t, retry.Config{Budget: budget, BaseDelay: retry.Off})
		reads := newPipeline(t, retry.Hedge{Budget: budget, Delay: 10 * time.Millisecond, MaxHedges: 3}, retry.Config{Budget: budget, BaseDelay: retry.Off})
		ctx := policy.WithCall(t.Context(), again)
		for range 10 {
			_, err := policy.Do(ctx, writes, func(context.Context) (int, error) { return 0, nil })
			require.NoError(t, err)
			_, err = policy.Do(ctx, reads, func(context.Context) (int, error) { return 0, nil })
			require.NoError(t, err)
		}
		assert.InDelta(t, 4, hedgeOf(reads).BudgetRemaining, 0, "each call paid once")
		assert.Equal(t, "ratio", hedgeOf(reads).BudgetKind)
		assert.InDelta(t, 1, hedgeOf(reads).BudgetLevel, 0)

		var n atomic.Int32
		short, cancel := context.WithTimeout(ctx, 35*time.Millisecond)
		defer cancel()
		_, err = policy.Do(short, reads, func(ctx context.Context) (int, error) {
			n.Add(1)
			<-ctx.Done()
			return 0, ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, int32(4), n.Load())
		synctest.Wait()
		assert.InDelta(t, 1, hedgeOf(reads).BudgetRemaining, 0, "three hedges")

		n.Store(0)
		_, err = policy.Do(ctx, writes, func(context.Context) (int, error) { n.Add(1); return 0, errors.New("x") })
		require.Error(t, err)
		assert.Equal(t, int32(2), n.Load(), "one retry is left")
		n.Store(0)
		v, err := policy.Do(ctx, reads, func(ctx context.Context) (int, error) { return slow(ctx, 100*time.Millisecond, &n) })
		require.NoError(t, err)
		assert.Equal(t, 1, v)
		assert.Equal(t, uint64(3), hedgeOf(reads).Suppressed, "and no hedge")
	})
}

// The other budgets bound hedges as they bound retries.
func TestHedgesFromOtherBudgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := policy.WithCall(t.Context(), again)
		p := newPipeline(t, retry.Hedge{Delay: 10 * time.Millisecond, Budget: retry.InFlightBudgetConfig{Share: 0.5, MinRetries: retry.Off}})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				var n atomic.Int32
				_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) {
					n.Add(1)
					select {
					case <-time.After(time.Second):
						return 1, nil
					case <-ctx.Done():
						return 0, ctx.Err()
					}
				})
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		synctest.Wait()
		s := hedgeOf(p)
		assert.Equal(t, uint64(4), s.Started, "for eight calls in flight")
		assert.Equal(t, uint64(4), s.Suppressed)
		assert.Equal(t, "in_flight", s.BudgetKind)

		// They ended with their calls.
		wg.Go(func() {
			var n atomic.Int32
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { return slow(ctx, time.Second, &n) })
			assert.NoError(t, err)
		})
		wg.Go(func() {
			var n atomic.Int32
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { return slow(ctx, time.Second, &n) })
			assert.NoError(t, err)
		})
		wg.Wait()
		assert.Equal(t, uint64(5), hedgeOf(p).Started)

		// Calls that fail take tokens, also where no retry policy sees them.
		p = newPipeline(t, retry.Hedge{Delay: 10 * time.Millisecond, Budget: retry.TokenBudgetConfig{MaxTokens: 4}})
		for range 2 {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errors.New("x") })
			require.Error(t, err)
		}
		var n atomic.Int32
		_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { return slow(ctx, time.Second, &n) })
		require.NoError(t, err)
		assert.Equal(t, uint64(1), hedgeOf(p).Suppressed)
	})
}

// POST and PATCH say nothing of being idempotent, so their calls are not marked.
func TestCaseB61HedgesOnlyWhatIsIdempotent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Hedge{Delay: 10 * time.Millisecond, MaxHedges: 3})
		var n atomic.Int32
		_, err := policy.Do(t.Context(), p, func(ctx context.Context) (int, error) { return slow(ctx, time.Second, &n) })
		require.NoError(t, err)
		assert.Equal(t, int32(1), n.Load())
	})
}

// The budget allows one hedge: the second, due at 200 ms, does not come, and neither the
// attempt nor the first hedge notices.
func TestCaseB67ADeniedHedgeEndsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Hedge{
			Delay: 100 * time.Millisecond, MaxHedges: 3,
			Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off}, // one call pays for one
		})
		var n atomic.Int32
		var early atomic.Int32
		start := time.Now()
		v, err := policy.Do(policy.WithCall(t.Context(), again), p, func(ctx context.Context) (int32, error) {
			i := n.Add(1)
			select {
			case <-time.After(300*time.Millisecond + time.Duration(i-1)*time.Hour):
			case <-ctx.Done():
				if time.Since(start) < 300*time.Millisecond {
					early.Add(1)
				}
				return 0, ctx.Err()
			}
			return i, nil
		})
		require.NoError(t, err)
		assert.Equal(t, int32(1), v)
		assert.Equal(t, 300*time.Millisecond, time.Since(start))
		synctest.Wait()
		assert.Equal(t, int32(2), n.Load())
		assert.Zero(t, early.Load())
		assert.Contains(t, []uint64{1, 2}, hedgeOf(p).Suppressed)
	})
}

// What a layer above retries is not hedged here: the two would multiply.
func TestHedgeNotBelowARetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, retry.Hedge{Delay: 10 * time.Millisecond})
		ctx := policy.WithHop(policy.WithCall(t.Context(), again), policy.NewHop(2))
		var n atomic.Int32
		_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { return slow(ctx, time.Second, &n) })
		require.NoError(t, err)
		assert.Equal(t, int32(1), n.Load())
	})
}

// A hedger that two pipelines share knows the durations of both.
func TestHedgerShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, err := retry.NewHedge("tail", retry.Hedge{MinSamples: 2})
		require.NoError(t, err)
		one, two := newPipeline(t, h), newPipeline(t, h)
		ctx := policy.WithCall(t.Context(), again)
		for _, p := range []*policy.Pipeline{one, two} {
			var n atomic.Int32
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { return slow(ctx, time.Second, &n) })
			require.NoError(t, err)
		}
		assert.Equal(t, uint64(2), hedgeOf(one).Samples)
		assert.Equal(t, "tail", two.Snapshot().Policies[0].Name)
		assert.Positive(t, hedgeOf(two).Delay)
	})
}

func TestHedgerConcurrentSafe(t *testing.T) {
	t.Parallel()
	h, err := retry.NewHedge("", retry.Hedge{MinSamples: 10, Window: time.Second, Budget: retry.BudgetConfig{MinPerSecond: 100}})
	require.NoError(t, err)
	start := time.Now()
	var granted atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 5000 {
				now := start.Add(time.Duration(j) * 200 * time.Microsecond)
				h.Observe(now, time.Duration(j%100)*time.Millisecond)
				if d := h.Delay(now); d > 105*time.Millisecond {
					t.Errorf("delay %s", d)
				}
				if h.Allow(policy.HedgeState{Now: now}) {
					granted.Add(1)
					if (i+j)%2 == 0 {
						h.Undo(now)
						granted.Add(-1)
					} else {
						h.Done()
					}
				}
				if j%500 == 0 {
					h.Snapshot(now)
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, granted.Load(), int64(1000), "100 a second for a window of 10 s")
}

// A hedger goes on under new settings, with its budget and what it knows.
func TestHedgerReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := retry.Hedge{MinSamples: 2, Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off}}
		p := newPipeline(t, old)
		ctx := policy.WithCall(t.Context(), again)
		slowly := func() {
			var n atomic.Int32
			_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) { return slow(ctx, 10*time.Millisecond, &n) })
			require.NoError(t, err)
			synctest.Wait()
		}
		slowly()
		slowly()
		require.Positive(t, hedgeOf(p).Delay)
		next := old
		assert.Equal(t, "hedge: kept", update(t, p, next))
		next.MaxHedges, next.MinDelay, next.Budget = 3, time.Second, retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}
		assert.Equal(t, "hedge: resized", update(t, p, next))
		s := hedgeOf(p)
		assert.Equal(t, time.Second, s.Delay, "at once")
		assert.Equal(t, uint64(2), s.Samples)
		assert.Equal(t, 3, s.MaxHedges)
		assert.InDelta(t, 1, s.BudgetRemaining, 0, "half of two calls")

		next.Window = time.Hour
		assert.Equal(t, "hedge: resized", update(t, p, next))
		assert.Zero(t, hedgeOf(p).Samples, "of another window")
		assert.Equal(t, "hedge: resized", update(t, p, retry.Hedge{Delay: time.Second, Budget: next.Budget}))
		assert.Equal(t, time.Second, hedgeOf(p).Delay)
		assert.Zero(t, hedgeOf(p).MinSamples)
		assert.Contains(t, update(t, p, retry.Hedge{Budget: retry.NoBudget{}}), "hedge: reset")
	})
}
