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

// last returns the served calls a second and the latency in the last half of a phase.
func last(parts []stretch, length time.Duration) (rate float64, latency time.Duration) {
	half := parts[len(parts)/2:]
	n := 0
	for _, s := range half {
		n += s.served
		latency += s.latency / time.Duration(len(half))
	}
	return float64(n) / (length / 2).Seconds(), latency
}

// A backend that can do 400 calls a second is offered 800. The limit that is found
// uses all of it, and nobody waits long in the backend's queue.
func TestAdaptiveOverload(t *testing.T) {
	t.Parallel()
	phases := []phase{
		{length: time.Minute, rate: 200, servers: 20, service: 50 * ms},
		{length: 2 * time.Minute, rate: 800, servers: 20, service: 50 * ms},
		{length: 30 * time.Second, rate: 200, servers: 20, service: 50 * ms},
	}
	seen, end := offer(t, bulkhead.Adaptive{}, phases)
	for _, s := range seen[0][1:] {
		assert.Zero(t, s.refused, "what the backend can do is let in: %+v", s)
	}
	rate, latency := last(seen[1], phases[1].length)
	assert.InDelta(t, 400, rate, 20, "goodput")
	assert.LessOrEqual(t, latency, 125*ms, "twice the latency without contention, and a bit")
	assert.LessOrEqual(t, seen[1][1].latency, 125*ms, "within seconds")
	for _, s := range seen[2][1:] {
		assert.Zero(t, s.refused, "after the overload: %+v", s)
	}
	assert.Zero(t, end.Rebased)
	assert.LessOrEqual(t, end.HighWater, 200)

	// What the brake is for: the estimate alone lets the queue stand for minutes.
	phases[1].length = 30 * time.Second
	alone, _ := offer(t, bulkhead.Adaptive{Tolerance: bulkhead.NoBrake}, phases[:2])
	assert.Greater(t, alone[1][9].latency, 150*ms)
}

// The backend loses half of its servers, and gets them back.
func TestAdaptiveCapacityHalves(t *testing.T) {
	t.Parallel()
	phases := []phase{
		{length: time.Minute, rate: 350, servers: 20, service: 50 * ms},
		{length: 100 * time.Second, rate: 350, servers: 10, service: 50 * ms},
		{length: 30 * time.Second, rate: 350, servers: 20, service: 50 * ms},
	}
	seen, _ := offer(t, bulkhead.Adaptive{}, phases)
	rate, latency := last(seen[1], phases[1].length)
	assert.InDelta(t, 200, rate, 10)
	assert.LessOrEqual(t, latency, 140*ms)
	assert.LessOrEqual(t, seen[1][1].latency, 150*ms, "10 s later")
	rate, _ = last(seen[2], phases[2].length)
	assert.InDelta(t, 350, rate, 15)
	assert.Zero(t, seen[2][9].refused)
}

// The backend has become ten times as slow and it is not for want of servers: the
// floor shows that, and the limit rises above what it was.
func TestAdaptiveRebases(t *testing.T) {
	t.Parallel()
	phases := []phase{
		{length: 30 * time.Second, rate: 400, servers: 200, service: 50 * ms},
		{length: 5 * time.Minute, rate: 200, servers: 200, service: 500 * ms}, // needs 100 permits
	}
	seen, end := offer(t, bulkhead.Adaptive{}, phases)
	assert.Positive(t, end.Rebased)
	assert.Equal(t, 5, end.MinLimit)
	assert.Equal(t, 200, end.MaxLimit)
	rate, _ := last(seen[1], phases[1].length)
	assert.InDelta(t, 200, rate, 8)
	assert.Zero(t, seen[1][9].refused)
}

// A backend that hangs for a minute leaves no mark.
func TestAdaptiveAfterAHang(t *testing.T) {
	t.Parallel()
	phases := []phase{
		{length: 30 * time.Second, rate: 400, servers: 200, service: 50 * ms},
		{length: time.Minute, rate: 400, servers: 200, service: 10 * time.Second},
		{length: time.Minute, rate: 400, servers: 200, service: 50 * ms},
	}
	seen, _ := offer(t, bulkhead.Adaptive{}, phases)
	least := 200
	for _, s := range seen[1] {
		least = min(least, s.limit)
	}
	assert.LessOrEqual(t, least, 20, "while it hangs the limit goes down")
	for _, s := range seen[2][6:] {
		assert.Zero(t, s.refused, "36 s after it: %+v", s)
	}
}

// Clients come until there are 1,000, each with one call at a time. A backend good for
// 400 calls a second goes on doing that.
func TestIncidentAggregatorRamp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live, err := bulkhead.NewAdaptive("", bulkhead.Adaptive{})
		require.NoError(t, err)
		p, b := newPipeline(t, live), newBackend(20, 50*ms)
		var served [6]atomic.Int64 // in every ten seconds
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				if i >= 50 {
					time.Sleep(time.Duration(i-50) * 60 * time.Second / 950)
				}
				time.Sleep(time.Duration(i) * time.Microsecond)
				for {
					at := time.Since(start)
					if at >= time.Minute {
						return
					}
					if _, err := policy.Do(t.Context(), p, b.call); err != nil {
						if !errors.Is(err, bulkhead.ErrFull) {
							t.Errorf("refused with %v", err)
						}
						time.Sleep(500*ms + time.Duration(i)*time.Microsecond)
						continue
					}
					served[min(at/(10*time.Second), 5)].Add(1)
				}
			})
		}
		wg.Wait()
		for i := range served {
			assert.InDelta(t, 4000, served[i].Load(), 400, "goodput in seconds %d to %d", 10*i, 10*i+10)
		}
	})
}

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

// Without traffic the limit does not sink below Initial, so that a burst is welcome.
func TestAdaptiveKeepsRoomForABurst(t *testing.T) {
	t.Parallel()
	seen, _ := offer(t, bulkhead.Adaptive{}, []phase{{length: 5 * time.Minute, rate: 60, servers: 100, service: 10 * ms}})
	for _, s := range seen[0] {
		assert.GreaterOrEqual(t, s.limit, 20)
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
