package breaker_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

func TestStateChangesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var handler []breaker.StateChange
		var observed, subscribed []policy.Event
		b, err := breaker.New("disk", breaker.Config{
			FailureRatio: 0.5, SlowAfter: 100 * ms, SlowRatio: 0.75, MinCalls: 4, Probes: 2,
			OnStateChange: func(c breaker.StateChange) { handler = append(handler, c) },
		})
		require.NoError(t, err)
		p := newPipeline(t, b, policy.Observe(policy.ObserverFunc(func(e policy.Event) {
			if e.Kind == policy.EventStateChange {
				observed = append(observed, e)
			}
		})))
		cancel := b.Subscribe(func(e policy.Event) { subscribed = append(subscribed, e) })

		require.NoError(t, call(t, p, nil))
		callMany(t, p, 3, errDown)
		time.Sleep(7 * time.Second)
		require.NoError(t, call(t, p, nil))
		require.NoError(t, callFor(t.Context(), p, 200*ms, nil))
		cancel()
		for range 3 {
			require.NoError(t, callFor(t.Context(), p, 200*ms, nil))
		}
		require.NoError(t, call(t, p, nil))

		want := []policy.StateChange{
			{
				From: "closed", To: "open", Why: breaker.WhyFailureRatio, Generation: 2,
				Calls: 4, Failures: 3, Ratio: 0.75, Threshold: 0.5, RetryAfter: 5 * time.Second,
			},
			{From: "open", To: "half_open", Why: breaker.WhyOpenPassed, Generation: 3},
			{
				From: "half_open", To: "closed", Why: breaker.WhyProbesSucceeded, Generation: 4,
				Calls: 2, Slow: 1,
			},
			{
				From: "closed", To: "open", Why: breaker.WhySlowRatio, Generation: 5,
				Calls: 4, Slow: 3, Ratio: 0.75, Threshold: 0.75, RetryAfter: 5 * time.Second,
			},
		}
		times := []time.Duration{0, 5 * time.Second, 7200 * ms, 7800 * ms}
		require.Len(t, handler, 4)
		require.Len(t, observed, 4)
		for i, c := range handler {
			assert.Equal(t, breaker.StateChange{Name: "disk", Time: c.Time, StateChange: want[i]}, c)
			assert.Equal(t, times[i], c.Time.Sub(begin), "when the state began, which may be before a call noticed")
			assert.Equal(t, policy.Event{
				Kind: policy.EventStateChange, Time: c.Time, Dependency: "inventory", Policy: "disk", Change: want[i],
			}, observed[i])
		}
		assert.Len(t, subscribed, 3, "until it was ended")
	})
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		b, err := breaker.New("disk", breaker.Config{SlowAfter: 100 * ms, SlowRatio: 0.9, MinCalls: 4, Probes: 2})
		require.NoError(t, err)
		at := func(d time.Duration) policy.BreakerSnapshot {
			s := b.Snapshot(begin.Add(d))
			assert.Equal(t, "disk", s.Name)
			assert.Equal(t, "breaker", s.Kind)
			return *s.Breaker
		}
		want := policy.BreakerSnapshot{
			State: "closed", Since: begin, Generation: 1, Why: breaker.WhyStart,
			FailureThreshold: 0.5, SlowThreshold: 0.9, MinCalls: 4, MaxProbes: 2, Share: 1,
		}
		assert.Equal(t, want, at(0), "from the start")

		done := func(kind policy.Kind, took time.Duration) {
			p, err := b.Acquire()
			require.NoError(t, err)
			time.Sleep(took)
			p.Done(kind)
		}
		done(policy.Success, 0)
		done(policy.Success, 200*ms)
		done(policy.Failure, 0)
		want.Calls, want.Failures, want.Slow, want.FailureRatio, want.SlowRatio = 3, 1, 1, 1.0/3, 1.0/3
		assert.Equal(t, want, at(200*ms))
		done(policy.Failure, 0)
		opened := policy.BreakerSnapshot{
			State: "open", Since: begin.Add(200 * ms), Generation: 2, Why: breaker.WhyFailureRatio,
			RetryAfter: 5 * time.Second, Calls: 4, Failures: 2, Slow: 1, FailureRatio: 0.5, SlowRatio: 0.25,
			FailureThreshold: 0.5, SlowThreshold: 0.9, MinCalls: 4, MaxProbes: 2, Opened: 1,
		}
		assert.Equal(t, opened, at(200*ms), "what opened it")
		half := policy.BreakerSnapshot{
			State: "half_open", Since: begin.Add(5200 * ms), Generation: 3, Why: breaker.WhyOpenPassed,
			FailureThreshold: 0.5, SlowThreshold: 0.9, MinCalls: 4, MaxProbes: 2, Opened: 1,
		}
		assert.Equal(t, half, at(time.Hour), "as it will be")
		assert.Equal(t, opened, at(200*ms), "and looking ahead has changed nothing")

		time.Sleep(6 * time.Second)
		done(policy.Success, 0)
		_, err = b.Acquire()
		require.NoError(t, err)
		half.Calls, half.ProbesInFlight = 1, 1
		assert.Equal(t, half, at(time.Since(begin)))
	})
}

// A trip must not be missed because calls that fail and calls that succeed reach
// MinCalls together.
func TestTripIsNotMissedConcurrentSafe(t *testing.T) {
	t.Parallel()
	for range 500 {
		b := newBreaker(t, breaker.Config{MinCalls: 8, FailureRatio: 0.5})
		start := make(chan struct{})
		var wg sync.WaitGroup
		for g := range 8 {
			permit, err := b.Acquire()
			require.NoError(t, err)
			wg.Go(func() {
				<-start
				if g%2 == 0 {
					permit.Done(policy.Failure)
				} else {
					permit.Done(policy.Success)
				}
			})
		}
		close(start)
		wg.Wait()
		require.Equal(t, breaker.Open, b.State(), "%+v", b.Snapshot(time.Now()).Breaker)
	}
}
