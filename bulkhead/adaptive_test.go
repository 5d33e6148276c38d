package bulkhead_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

const ms = time.Millisecond

func newAdaptive(t *testing.T, cfg bulkhead.Adaptive) *bulkhead.AdaptivePermits {
	t.Helper()
	p, err := bulkhead.NewAdaptive("", cfg)
	require.NoError(t, err)
	return p
}

// Which outcomes say something about the limit. At the floor only one call fits.
func TestAdaptiveOutcomes(t *testing.T) {
	t.Parallel()
	fail := errors.New("failed")
	tests := []struct {
		name  string
		err   error
		grows bool
	}{
		{name: "success", grows: true},
		{name: "permanent", err: policy.AsPermanent(fail), grows: true},
		{name: "timeout", err: context.DeadlineExceeded, grows: true},
		{name: "failure", err: fail},
		{name: "throttled", err: policy.AsThrottled(fail, 0)},
		{name: "canceled", err: context.Canceled},
		{name: "busy", err: policy.AsBusy(fail, 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				live := newAdaptive(t, bulkhead.Adaptive{Min: 5, Initial: 10, Max: 20})
				p := newPipeline(t, live)
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * ms)
						for range 600 {
							_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(50 * ms); return 1, tt.err })
							if errors.Is(err, bulkhead.ErrFull) {
								time.Sleep(50 * ms)
							}
						}
					})
				}
				wg.Wait()
				switch {
				case tt.grows:
					assert.Greater(t, live.Limit(), 10)
				case tt.name == "busy":
					assert.Equal(t, 5, live.Limit(), "the dependency says that it is too much")
				default:
					assert.Equal(t, 10, live.Limit(), "it says nothing")
				}
				assert.Zero(t, live.InFlight())
			})
		})
	}
}

func TestAdaptiveRebaseByHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := newAdaptive(t, bulkhead.Adaptive{})
		p, b := newPipeline(t, live), newBackend(100, 50*ms)
		var wg sync.WaitGroup
		for i := range 18 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * ms)
				for range 600 {
					_, _ = policy.Do(t.Context(), p, b.call)
				}
			})
		}
		wg.Wait()
		require.Greater(t, live.Limit(), 20)
		live.Rebase()
		assert.Equal(t, 20, live.Limit())
		assert.EqualValues(t, 1, live.Snapshot(time.Now()).Bulkhead.Rebased)
	})
}

// Waits, priorities and the reserve are those of a semaphore.
func TestAdaptiveIsASemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := newAdaptive(t, bulkhead.Adaptive{Name: "db", Min: 2, Initial: 2, Max: 2, Reserve: 1, MaxWait: time.Second, MaxWaiters: 1})
		front := &slow{}
		p := newPipeline(t, front, live)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, hold(500*ms))
				assert.NoError(t, err, "the second waits for the first")
			})
			synctest.Wait()
		}
		b := live.Snapshot(time.Now()).Bulkhead
		assert.Equal(t, 1, b.InFlight)
		assert.Equal(t, 1, b.Waiting)
		assert.Equal(t, 1, b.Reserve)
		_, err := policy.Do(t.Context(), p, hold(0))
		assert.Equal(t, policy.ReasonWaiters, reasonOf(t, err))
		assert.EqualError(t, err, "inventory: rejected by db (waiters)")
		assert.Equal(t, 2, front.entered, "refused before anybody waits")
		_, err = policy.Do(policy.WithPriority(t.Context(), policy.PriorityHigh), p, hold(0))
		require.NoError(t, err, "from the reserve")
		wg.Wait()
		b = live.Snapshot(time.Now()).Bulkhead
		assert.Equal(t, 500*ms, b.Wait.Sum)
		assert.Zero(t, b.InFlight)

		quick := newAdaptive(t, bulkhead.Adaptive{Min: 1, Initial: 1, Max: 1})
		p = newPipeline(t, quick)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		_, err = policy.Do(t.Context(), p, hold(0))
		assert.Equal(t, policy.ReasonConcurrency, reasonOf(t, err))
		require.True(t, h.Settle(policy.Success, 0))
		assert.Equal(t, 1, quick.InFlight(), "held until the release")
		h.Release()
		assert.Zero(t, quick.InFlight())

		assert.Panics(t, func() {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic("x") })
		})
		assert.Zero(t, quick.InFlight(), "also after a panic")
	})
}

func TestAdaptiveShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := newAdaptive(t, bulkhead.Adaptive{Min: 1, Initial: 1, Max: 1, Shadow: true, MaxWait: time.Hour})
		p := newPipeline(t, live)
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := policy.Do(t.Context(), p, hold(time.Second))
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Equal(t, time.Second, time.Since(start), "nobody waited")
		ps := p.Snapshot().Policies[0]
		assert.True(t, ps.Shadow)
		assert.Equal(t, "adaptive", ps.Kind)
		assert.EqualValues(t, 2, ps.Rejected[policy.ReasonConcurrency])
		assert.Zero(t, live.InFlight())
	})
}

func TestAdaptiveValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  bulkhead.Adaptive
		want []string
		says string
	}{
		{name: "zero"},
		{name: "low ceiling", cfg: bulkhead.Adaptive{Max: 3}},
		{name: "high floor", cfg: bulkhead.Adaptive{Min: 300}},
		{name: "low initial", cfg: bulkhead.Adaptive{Initial: 2}},
		{name: "high initial", cfg: bulkhead.Adaptive{Initial: 1000}},
		{name: "no brake", cfg: bulkhead.Adaptive{Tolerance: bulkhead.NoBrake}},
		{name: "negative limits", cfg: bulkhead.Adaptive{Min: -1, Max: -1, Initial: -1}, want: []string{"Min", "Max", "Initial"}},
		{name: "floor above ceiling", cfg: bulkhead.Adaptive{Min: 9, Max: 8}, want: []string{"Min", "Initial"}, says: "Max (8)"},
		{name: "initial above ceiling", cfg: bulkhead.Adaptive{Initial: 9, Max: 8}, want: []string{"Initial"}, says: "Max"},
		{name: "initial below floor", cfg: bulkhead.Adaptive{Initial: 9, Min: 10}, want: []string{"Initial"}, says: "Min"},
		{name: "tolerance", cfg: bulkhead.Adaptive{Tolerance: 1}, want: []string{"Tolerance"}},
		{name: "tolerance NaN", cfg: bulkhead.Adaptive{Tolerance: math.NaN()}, want: []string{"Tolerance"}},
		{name: "tolerance infinite", cfg: bulkhead.Adaptive{Tolerance: math.Inf(1)}, want: []string{"Tolerance"}},
		{name: "waiters without wait", cfg: bulkhead.Adaptive{MaxWaiters: 1}, want: []string{"MaxWaiters"}, says: "MaxWait"},
		{name: "negative wait", cfg: bulkhead.Adaptive{MaxWait: -1, MaxWaiters: -1}, want: []string{"MaxWait", "MaxWaiters"}},
		{name: "reserve", cfg: bulkhead.Adaptive{Min: 3, Reserve: 2}},
		{name: "reserve is the floor", cfg: bulkhead.Adaptive{Min: 3, Reserve: 3}, want: []string{"Reserve"}, says: "Min"},
		{name: "negative reserve", cfg: bulkhead.Adaptive{Reserve: -1}, want: []string{"Reserve"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.Validate()
			assert.Equal(t, tt.want, fields(t, err), "faults of %+v: %v", tt.cfg, err)
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
			}
			live, newErr := bulkhead.NewAdaptive("", tt.cfg)
			assert.Equal(t, err == nil, live != nil)
			part, buildErr := tt.cfg.BuildPolicy()
			assert.Equal(t, err == nil, part.Gate != nil)
			if err != nil {
				assert.EqualError(t, newErr, err.Error())
				assert.EqualError(t, buildErr, err.Error())
				return
			}
			assert.NoError(t, live.Config().Validate(), "effective values are valid")
			assert.Equal(t, live.Config().Initial, live.Limit())
		})
	}
	live, err := bulkhead.NewAdaptive("db", bulkhead.Adaptive{Name: "x", MaxWait: time.Second})
	require.NoError(t, err)
	assert.Equal(t, bulkhead.Adaptive{Name: "db", Min: 5, Max: 200, Initial: 20, Tolerance: 2, MaxWait: time.Second, MaxWaiters: 20}, live.Config())
}

func FuzzAdaptive(f *testing.F) {
	f.Add(0, 0, 0, 0.0, int64(0), 0, 0)
	f.Add(1, math.MaxInt32, 1, 1.1, int64(1), 1, 0)
	f.Add(math.MinInt, math.MaxInt, -1, math.NaN(), int64(-1), -1, -1)
	f.Fuzz(func(t *testing.T, least, most, initial int, tolerance float64, wait int64, waiters, reserve int) {
		cfg := bulkhead.Adaptive{Min: least, Max: most, Initial: initial, Tolerance: tolerance, MaxWait: time.Duration(wait), MaxWaiters: waiters, Reserve: reserve}
		p, err := policy.New("x", cfg)
		if err != nil {
			_, ok := errors.AsType[*policy.ConfigError](err)
			assert.True(t, ok, "an error names a field: %v", err)
			return
		}
		_, err = policy.Do(t.Context(), p, hold(0))
		require.NoError(t, err, "an accepted config lets one in")
	})
}

// Everything at once: never more inside than the ceiling, nothing lost.
func TestAdaptiveConcurrentSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live := newAdaptive(t, bulkhead.Adaptive{Min: 2, Initial: 4, Max: 6, MaxWait: 3 * ms, MaxWaiters: 4})
		p := newPipeline(t, live)
		var inside, peak, done, failed atomic.Int64
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i := range 800 {
					if (g+i)%301 == 0 {
						live.Rebase()
					}
					_ = live.Snapshot(time.Now())
					_, err := policy.Do(policy.WithPriority(t.Context(), policy.Priority(i%4-1)), p, func(context.Context) (int, error) {
						raise(&peak, inside.Add(1))
						defer inside.Add(-1)
						time.Sleep(time.Duration(5+i%4) * ms)
						return 0, nil
					})
					if err == nil {
						done.Add(1)
					} else {
						failed.Add(1)
						time.Sleep(ms)
					}
				}
			})
		}
		wg.Wait()
		assert.LessOrEqual(t, peak.Load(), int64(6))
		assert.EqualValues(t, 16*800, done.Load()+failed.Load())
		assert.Positive(t, done.Load())
		assert.Positive(t, failed.Load())
		assert.Zero(t, live.InFlight())
		assert.GreaterOrEqual(t, live.Limit(), 2)
		assert.LessOrEqual(t, live.Limit(), 6)
	})
}
