package bulkhead_test

import (
	"errors"
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

// The backend loses half of its servers, and gets them back. The figures that -v
// prints are those of docs/reference/bulkhead.md.
func TestAdaptiveCapacityHalves(t *testing.T) {
	t.Parallel()
	phases := []phase{
		{length: time.Minute, rate: 350, servers: 20, service: 50 * ms},
		{length: 100 * time.Second, rate: 350, servers: 10, service: 50 * ms},
		{length: 30 * time.Second, rate: 350, servers: 20, service: 50 * ms},
	}
	alone, _ := offer(t, bulkhead.Adaptive{Tolerance: bulkhead.NoBrake}, phases)
	seen, _ := offer(t, bulkhead.Adaptive{}, phases)
	for i, s := range seen[1] {
		t.Logf("second %3d to %3d of the loss: %v and %d/s with the guard, %v and %d/s without",
			10*i, 10*i+10, s.latency.Round(ms), s.served/10, alone[1][i].latency.Round(ms), alone[1][i].served/10)
	}
	rate, latency := last(seen[1], phases[1].length)
	assert.InDelta(t, 200, rate, 10)
	assert.LessOrEqual(t, latency, 140*ms)
	assert.LessOrEqual(t, seen[1][1].latency, 150*ms, "10 s later")
	for _, s := range alone[1][1:6] {
		assert.Greater(t, s.latency, 2*latency, "alone the estimate takes minutes: %+v", s)
	}
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
	alone, _ := offer(t, bulkhead.Adaptive{Tolerance: bulkhead.NoBrake}, phases)
	seen, end := offer(t, bulkhead.Adaptive{}, phases)
	for i, s := range seen[1][:6] {
		t.Logf("second %3d to %3d: %d/s with the guard, %d/s without", 30*i, 30*i+30, s.served/30, alone[1][i].served/30)
	}
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

// Without traffic the limit does not sink below Initial, so that a burst is welcome.
func TestAdaptiveKeepsRoomForABurst(t *testing.T) {
	t.Parallel()
	seen, _ := offer(t, bulkhead.Adaptive{}, []phase{{length: 5 * time.Minute, rate: 60, servers: 100, service: 10 * ms}})
	for _, s := range seen[0] {
		assert.GreaterOrEqual(t, s.limit, 20)
	}
}
