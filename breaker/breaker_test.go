package breaker_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// step is one call of a script, or a look at the breaker.
type step struct {
	at   time.Duration
	do   policy.Kind   // outcome of the call; NotRun for a look only
	took time.Duration // the call's duration, before at
	n    int           // number of such calls; 0 means 1
	want breaker.State // afterwards
	why  string        // afterwards, if not empty
}

func TestBreakerScripts(t *testing.T) {
	t.Parallel()
	const (
		ok   = policy.Success
		fail = policy.Failure
	)
	tests := []struct {
		name  string
		cfg   breaker.Config
		steps []step
	}{
		{"the defaults: half of 20 calls in 10 s", breaker.Config{}, []step{
			{at: 0, want: breaker.Closed, why: breaker.WhyStart},
			{at: 0, do: ok, n: 10, want: breaker.Closed},
			{at: time.Second, do: fail, n: 9, want: breaker.Closed},
			{at: time.Second, do: fail, want: breaker.Open, why: breaker.WhyFailureRatio},
			{at: 6*time.Second - 1, want: breaker.Open},
			{at: 6 * time.Second, want: breaker.HalfOpen, why: breaker.WhyOpenPassed},
			{at: time.Hour, want: breaker.HalfOpen},
			{at: time.Hour, do: ok, n: 2, want: breaker.HalfOpen},
			{at: time.Hour, do: ok, want: breaker.Closed, why: breaker.WhyProbesSucceeded},
		}},
		{"failures that left the window", breaker.Config{MinCalls: 4}, []step{
			{at: 500 * ms, do: fail, n: 3, want: breaker.Closed},
			{at: 10 * time.Second, do: fail, n: 3, want: breaker.Closed},
			{at: 10 * time.Second, do: fail, want: breaker.Open},
		}},
		{"a success opens it when it makes the window large enough", breaker.Config{MinCalls: 4}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Closed},
			{at: 0, do: ok, want: breaker.Closed},
			{at: 0, do: ok, want: breaker.Open, why: breaker.WhyFailureRatio},
		}},
		{"no success opens it later", breaker.Config{MinCalls: 4, FailureRatio: 0.7}, []step{
			{at: 0, do: ok, n: 8, want: breaker.Closed},
			{at: 5 * time.Second, do: fail, n: 8, want: breaker.Closed},
			{at: 11 * time.Second, do: ok, n: 3, want: breaker.Closed}, // 8 of 11 by now
			{at: 11 * time.Second, do: fail, want: breaker.Open},
		}},
		{"slow calls that succeed", breaker.Config{SlowAfter: 500 * ms, MinCalls: 4}, []step{
			{at: time.Second, do: ok, took: 500 * ms, n: 4, want: breaker.Closed}, // not longer than
			{at: 2 * time.Second, do: ok, took: 500*ms + 1, n: 3, want: breaker.Closed},
			{at: 3 * time.Second, do: ok, took: 500*ms + 1, want: breaker.Open, why: breaker.WhySlowRatio},
		}},
		{"slow calls that callers gave up", breaker.Config{SlowAfter: 500 * ms, MinCalls: 4}, []step{
			{at: time.Second, do: policy.Canceled, took: 500 * ms, n: 10, want: breaker.Closed},
			{at: 2 * time.Second, do: policy.Canceled, took: time.Second, n: 3, want: breaker.Closed},
			{at: 3 * time.Second, do: policy.Throttled, took: time.Second, want: breaker.Open, why: breaker.WhySlowRatio},
		}},
		{"failures are named before slow calls", breaker.Config{SlowAfter: 500 * ms, MinCalls: 2}, []step{
			{at: time.Second, do: policy.Timeout, took: time.Second, n: 2, want: breaker.Open, why: breaker.WhyFailureRatio},
		}},
		{"the failure rule off", breaker.Config{FailureRatio: breaker.Off, SlowAfter: 500 * ms, MinCalls: 2, Probes: 1}, []step{
			{at: 0, do: fail, n: 100, want: breaker.Closed},
			{at: time.Second, do: ok, took: time.Second, n: 99, want: breaker.Closed},
			{at: 2 * time.Second, do: ok, took: time.Second, want: breaker.Open, why: breaker.WhySlowRatio},
			{at: 7 * time.Second, do: fail, want: breaker.Closed},
		}},
		{"what counts as a failure, and what as a call", breaker.Config{MinCalls: 6, FailureRatio: 0.5}, []step{
			{at: 0, do: policy.Timeout, want: breaker.Closed},
			{at: 0, do: policy.Busy, want: breaker.Closed},
			{at: 0, do: policy.Canceled, n: 50, want: breaker.Closed},
			{at: 0, do: policy.Throttled, n: 50, want: breaker.Closed},
			{at: 0, do: policy.NumKinds, n: 50, want: breaker.Closed},
			{at: 0, do: policy.Permanent, n: 3, want: breaker.Closed},
			{at: 0, do: fail, want: breaker.Open},
		}},
		{"a ratio of one", breaker.Config{FailureRatio: 1, MinCalls: 3}, []step{
			{at: 0, do: ok, want: breaker.Closed},
			{at: 0, do: fail, n: 50, want: breaker.Closed},
			{at: 10 * time.Second, do: fail, n: 2, want: breaker.Closed},
			{at: 10 * time.Second, do: fail, want: breaker.Open},
		}},
		{"0.495 is not 0.5", breaker.Config{FailureRatio: 0.5, MinCalls: 200, Window: time.Hour}, []step{
			{at: 0, do: ok, n: 101, want: breaker.Closed},
			{at: 0, do: fail, n: 99, want: breaker.Closed},
			{at: 0, do: fail, want: breaker.Closed}, // 100 of 201
			{at: 0, do: fail, want: breaker.Open},
		}},
		{"0.4 % is above 0.1 %", breaker.Config{FailureRatio: 0.001, MinCalls: 250}, []step{
			{at: 0, do: ok, n: 249, want: breaker.Closed},
			{at: 0, do: fail, want: breaker.Open},
		}},
		{"a p99 rule", breaker.Config{SlowAfter: 100 * ms, SlowRatio: 0.01, MinCalls: 200, Window: time.Hour}, []step{
			{at: time.Second, do: ok, n: 998, want: breaker.Closed},
			{at: 2 * time.Second, do: ok, took: 101 * ms, n: 10, want: breaker.Closed}, // 10 of 1008: p99 is not slow
			{at: 3 * time.Second, do: ok, took: 101 * ms, want: breaker.Open, why: breaker.WhySlowRatio},
		}},
		{"a number of failures", breaker.Config{FailureRatio: 1, FailureCount: 3, MinCalls: 100}, []step{
			{at: 500 * ms, do: fail, n: 2, want: breaker.Closed},
			{at: 10 * time.Second, do: ok, n: 50, want: breaker.Closed},
			{at: 10 * time.Second, do: fail, n: 2, want: breaker.Closed}, // two have left the window
			{at: 10 * time.Second, do: fail, want: breaker.Open, why: breaker.WhyFailureCount},
		}},
		{"failures in a row", breaker.Config{FailureRatio: 1, ConsecutiveFailures: 3, MinCalls: 100}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Closed},
			{at: 0, do: ok, want: breaker.Closed},
			{at: 0, do: policy.Timeout, n: 2, want: breaker.Closed},
			{at: 0, do: policy.Permanent, want: breaker.Closed},
			{at: 0, do: fail, n: 2, want: breaker.Closed},
			{at: 0, do: policy.Canceled, n: 5, want: breaker.Closed}, // which say nothing
			{at: time.Hour, do: policy.Busy, want: breaker.Open, why: breaker.WhyConsecutiveFailures},
		}},
		{"a slow success ends a row", breaker.Config{FailureRatio: 1, ConsecutiveFailures: 2, SlowAfter: 100 * ms, MinCalls: 100}, []step{
			{at: 0, do: fail, want: breaker.Closed},
			{at: time.Second, do: ok, took: 200 * ms, want: breaker.Closed},
			{at: time.Second, do: fail, want: breaker.Closed},
			{at: 2 * time.Second, do: policy.Canceled, took: 200 * ms, want: breaker.Closed}, // which is slow, and no success
			{at: 2 * time.Second, do: fail, want: breaker.Open, why: breaker.WhyConsecutiveFailures},
		}},
		{"ratios are named before numbers", breaker.Config{FailureCount: 2, ConsecutiveFailures: 2, MinCalls: 2}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Open, why: breaker.WhyFailureRatio},
		}},
		{"the last calls", breaker.Config{LastCalls: 4, FailureRatio: 0.75}, []step{
			{at: 0, do: fail, n: 3, want: breaker.Closed}, // MinCalls is 4
			{at: 100 * 365 * 24 * time.Hour, do: ok, want: breaker.Open, why: breaker.WhyFailureRatio},
		}},
		{"the last calls, one by one", breaker.Config{LastCalls: 4, FailureRatio: 0.75}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Closed},
			{at: 0, do: ok, n: 3, want: breaker.Closed}, // fail, ok, ok, ok
			{at: 0, do: fail, n: 2, want: breaker.Closed},
			{at: 0, do: fail, want: breaker.Open}, // ok, fail, fail, fail
		}},
		{"one failed probe is too many without a ratio", breaker.Config{FailureRatio: breaker.Off, FailureCount: 2, OpenFor: time.Second}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Open, why: breaker.WhyFailureCount},
			{at: time.Second, do: ok, n: 2, want: breaker.HalfOpen},
			{at: time.Second, do: fail, want: breaker.Open, why: breaker.WhyProbeFailed},
			{at: 2 * time.Second, do: ok, n: 3, want: breaker.Closed},
		}},
		{"a number of successes", breaker.Config{MinCalls: 2, Probes: 5, Successes: 2, FailureRatio: 0.1, SlowAfter: 100 * ms, OpenFor: time.Second}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Open},
			{at: time.Second, do: fail, n: 2, want: breaker.HalfOpen}, // above every ratio
			{at: 1500 * ms, do: ok, took: 200 * ms, want: breaker.HalfOpen},
			{at: 1500 * ms, do: ok, want: breaker.HalfOpen},
			{at: 1500 * ms, do: ok, want: breaker.Closed, why: breaker.WhyProbesSucceeded},
			{at: 1500 * ms, do: fail, n: 2, want: breaker.Open},
			{at: 2500 * ms, do: ok, want: breaker.HalfOpen},
			{at: 2500 * ms, do: fail, n: 3, want: breaker.HalfOpen},
			{at: 3 * time.Second, do: ok, took: 200 * ms, want: breaker.Open, why: breaker.WhyProbeSlow},
			{at: 4 * time.Second, do: fail, n: 3, want: breaker.HalfOpen},
			{at: 4 * time.Second, do: fail, want: breaker.Open, why: breaker.WhyProbeFailed},
		}},
		{"a ramp", breaker.Config{MinCalls: 2, Probes: 1, OpenFor: time.Second, RampFor: 10 * time.Second}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Open},
			{at: time.Second, do: ok, want: breaker.Recovering, why: breaker.WhyProbesSucceeded},
			{at: 11*time.Second - 1, want: breaker.Recovering},
			{at: 11 * time.Second, want: breaker.Closed, why: breaker.WhyRampEnded},
			{at: 11 * time.Second, do: fail, n: 2, want: breaker.Open, why: breaker.WhyFailureRatio},
		}},
		{"probes that fail", breaker.Config{MinCalls: 2, Probes: 3, FailureRatio: 0.5, OpenFor: time.Second}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Open},
			{at: time.Second, do: fail, want: breaker.HalfOpen}, // one of three
			{at: time.Second, do: fail, want: breaker.Open, why: breaker.WhyProbeFailed},
			{at: 2 * time.Second, do: fail, want: breaker.HalfOpen},
			{at: 2 * time.Second, do: ok, n: 2, want: breaker.Closed},
		}},
		{"probes that are slow", breaker.Config{MinCalls: 2, Probes: 3, SlowAfter: 100 * ms, OpenFor: time.Second}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Open},
			{at: 1500 * ms, do: ok, took: 200 * ms, want: breaker.HalfOpen},
			{at: 1700 * ms, do: policy.Canceled, took: 200 * ms, want: breaker.Open, why: breaker.WhyProbeSlow},
		}},
		{"endless", breaker.Config{MinCalls: 2, OpenFor: math.MaxInt64, Window: math.MaxInt64}, []step{
			{at: 0, do: fail, n: 2, want: breaker.Open},
			{at: 100 * 365 * 24 * time.Hour, want: breaker.Open},
		}},
		{"decades of idleness", breaker.Config{MinCalls: 2}, []step{
			{at: 0, do: fail, want: breaker.Closed},
			{at: 50 * 365 * 24 * time.Hour, do: fail, want: breaker.Closed},
			{at: 100 * 365 * 24 * time.Hour, do: fail, n: 2, want: breaker.Open},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, tt.cfg)
				begin := time.Now()
				for i, s := range tt.steps {
					wait := s.at - s.took - time.Since(begin)
					require.GreaterOrEqual(t, wait, time.Duration(0), "step %d begins before the one above has ended", i)
					time.Sleep(wait)
					if s.do != policy.NotRun {
						permits := make([]breaker.Permit, max(s.n, 1))
						for j := range permits {
							if s.took == 0 {
								continue
							}
							var err error
							permits[j], err = b.Acquire()
							require.NoError(t, err, "step %d: %+v", i, s)
						}
						time.Sleep(s.took)
						for j := range permits {
							if s.took == 0 {
								var err error
								permits[j], err = b.Acquire()
								require.NoError(t, err, "step %d, call %d: %+v", i, j, s)
							}
							require.True(t, permits[j].Done(s.do), "step %d, call %d: %+v", i, j, s)
							if j < len(permits)-1 && s.want == breaker.Open {
								require.NotEqual(t, breaker.Open, b.State(), "step %d: call %d opens it: %+v", i, j, s)
							}
						}
					}
					require.Equal(t, s.want, b.State(), "step %d: %+v", i, s)
					snap := b.Snapshot(time.Now()).Breaker
					require.Equal(t, s.want.String(), snap.State, "step %d: %+v", i, s)
					if s.why != "" {
						require.Equal(t, s.why, snap.Why, "step %d: %+v", i, s)
					}
				}
			})
		})
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, err := breaker.New("disk", breaker.Config{MinCalls: 2, Probes: 1, OpenFor: 3 * time.Second})
		require.NoError(t, err)
		for range 2 {
			p, err := b.Acquire()
			require.NoError(t, err)
			p.Done(policy.Failure)
		}
		time.Sleep(time.Second)
		_, err = b.Acquire()
		requireRefused(t, err, policy.ReasonOpen, 2*time.Second)
		assert.Equal(t, "rejected by disk (open), retry after 2s", err.Error())

		time.Sleep(2*time.Second - 1)
		_, err = b.Acquire()
		requireRefused(t, err, policy.ReasonOpen, 1)
		time.Sleep(time.Nanosecond) // exactly the time that was told
		probe, err := b.Acquire()
		require.NoError(t, err)
		_, err = b.Acquire()
		requireRefused(t, err, policy.ReasonProbes, 0)
		assert.Equal(t, "rejected by disk (probes)", err.Error())
		assert.True(t, probe.Done(policy.Success))
		assert.Equal(t, breaker.Closed, b.State())
	})
}

func TestPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{MinCalls: 2, Probes: 1})
		var none breaker.Permit
		assert.False(t, none.Done(policy.Success), "the zero Permit does nothing")

		p, err := b.Acquire()
		require.NoError(t, err)
		assert.True(t, p.Done(policy.Failure))
		assert.False(t, p.Done(policy.Failure), "a second Done does nothing")
		assert.Equal(t, uint64(1), b.Snapshot(time.Now()).Breaker.Calls)

		p, err = b.Acquire()
		require.NoError(t, err)
		assert.True(t, p.Done(policy.NotRun), "a call that never ran")
		assert.Equal(t, uint64(1), b.Snapshot(time.Now()).Breaker.Calls)

		p, err = b.Acquire()
		require.NoError(t, err)
		assert.True(t, p.Done(policy.Failure))
		time.Sleep(5 * time.Second)
		p, err = b.Acquire()
		require.NoError(t, err)
		assert.True(t, p.Done(policy.NotRun))
		p, err = b.Acquire()
		require.NoError(t, err, "the place of a probe that never ran is free")
		assert.True(t, p.Done(policy.Success))
	})
}

// A probe that never returns must not keep the breaker from deciding, and what it
// returns after it was given up must not count.
func TestProbeTimeout(t *testing.T) {
	t.Parallel()
	halfOpen := func(t *testing.T, cfg breaker.Config) *breaker.Breaker {
		t.Helper()
		cfg.MinCalls, cfg.OpenFor, cfg.ProbeTimeout = 2, 5*time.Second, 2*time.Second
		b := newBreaker(t, cfg)
		for range 2 {
			p, err := b.Acquire()
			require.NoError(t, err)
			p.Done(policy.Failure)
		}
		time.Sleep(5 * time.Second)
		return b
	}
	synctest.Test(t, func(t *testing.T) {
		b := halfOpen(t, breaker.Config{Probes: 1})
		probe, err := b.Acquire()
		require.NoError(t, err)
		begin := time.Now()
		time.Sleep(2*time.Second - 1)
		assert.Equal(t, breaker.HalfOpen, b.State())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, breaker.Open, b.State(), "without any traffic")
		s := b.Snapshot(time.Now()).Breaker
		assert.Equal(t, breaker.WhyProbeTimeout, s.Why)
		assert.Equal(t, 5*time.Second, s.RetryAfter)
		assert.Equal(t, uint64(2), s.Opened)
		time.Sleep(time.Second)
		_, err = b.Acquire()
		requireRefused(t, err, policy.ReasonOpen, 4*time.Second)
		assert.False(t, probe.Done(policy.Success), "too late")
		assert.Equal(t, breaker.Open, b.State())
		time.Sleep(time.Hour)
		s = b.Snapshot(time.Now()).Breaker
		assert.Equal(t, "half_open", s.State)
		assert.Equal(t, begin.Add(7*time.Second), s.Since)

		// The result itself is the first to come after the time has run out.
		b = halfOpen(t, breaker.Config{Probes: 1})
		probe, err = b.Acquire()
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		assert.False(t, probe.Done(policy.Success))
		assert.Equal(t, breaker.Open, b.State())

		// One of three is given up: it counts, and its place is not given away.
		b = halfOpen(t, breaker.Config{Probes: 3, FailureRatio: 0.5})
		probes := make([]breaker.Permit, 3)
		for i := range probes {
			probes[i], err = b.Acquire()
			require.NoError(t, err)
			time.Sleep(ms)
		}
		time.Sleep(2*time.Second - 3*ms)
		_, err = b.Acquire()
		requireRefused(t, err, policy.ReasonProbes, 0)
		s = b.Snapshot(time.Now()).Breaker
		assert.Equal(t, [3]uint64{1, 1, 2}, [3]uint64{s.Calls, s.Failures, uint64(s.ProbesInFlight)})
		assert.False(t, probes[0].Done(policy.Success))
		assert.True(t, probes[1].Done(policy.Success))
		assert.True(t, probes[2].Done(policy.Success))
		assert.Equal(t, breaker.Closed, b.State())

		// With the slow rule alone, a hung probe is a slow one.
		b = newBreaker(t, breaker.Config{
			FailureRatio: breaker.Off, SlowAfter: time.Second, MinCalls: 1, Probes: 1, ProbeTimeout: 2 * time.Second,
		})
		slow, err := b.Acquire()
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		slow.Done(policy.Success)
		require.Equal(t, breaker.Open, b.State())
		time.Sleep(5 * time.Second)
		_, err = b.Acquire()
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		assert.Equal(t, breaker.Open, b.State())
	})
}

func TestReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		b := newBreaker(t, breaker.Config{MinCalls: 2, Probes: 1, OnStateChange: func(breaker.StateChange) { changes++ }})
		fail := func() {
			p, err := b.Acquire()
			require.NoError(t, err)
			p.Done(policy.Failure)
		}
		flying, err := b.Acquire()
		require.NoError(t, err)
		fail()
		b.Reset()
		assert.Zero(t, changes, "it was closed before")
		assert.Zero(t, b.Snapshot(time.Now()).Breaker.Calls)
		assert.True(t, flying.Done(policy.Failure), "a call in flight counts afterwards")
		assert.Equal(t, breaker.Closed, b.State())
		flying, err = b.Acquire()
		require.NoError(t, err)
		fail()
		require.Equal(t, breaker.Open, b.State())

		b.Reset()
		assert.Equal(t, breaker.Closed, b.State())
		assert.Equal(t, breaker.WhyReset, b.Snapshot(time.Now()).Breaker.Why)
		assert.Equal(t, 2, changes)
		assert.False(t, flying.Done(policy.Failure), "a call from before the trip does not")
		fail()
		assert.Equal(t, breaker.Closed, b.State())
		fail()
		require.Equal(t, breaker.Open, b.State())

		time.Sleep(5 * time.Second)
		probe, err := b.Acquire()
		require.NoError(t, err)
		b.Reset()
		assert.False(t, probe.Done(policy.Failure), "nor does a probe")
		assert.Equal(t, breaker.Closed, b.State())
	})
}

func TestShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 1, Shadow: true})
		callMany(t, p, 5, errDown)
		callMany(t, p, 100, errDown) // all of them run
		s := snapshot(t, p, "breaker")
		assert.True(t, s.Shadow)
		assert.Equal(t, "open", s.Breaker.State)
		assert.Equal(t, uint64(5), s.Breaker.Failures, "outcomes that it would have prevented are ignored")
		assert.Equal(t, uint64(100), s.Rejected[policy.ReasonOpen])
		time.Sleep(5 * time.Second)
		require.NoError(t, call(t, p, nil))
		assert.Equal(t, "closed", look(t, p).State)

		b := newBreaker(t, breaker.Config{MinCalls: 2, Shadow: true})
		for i := range 4 {
			permit, err := b.Acquire()
			require.NoError(t, err)
			assert.Equal(t, i < 2, permit.Done(policy.Failure), "call %d", i)
		}
		assert.Equal(t, breaker.Open, b.State())
	})
}

// A response whose body fails after its headers had settled the call.
func TestAmend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 2, FailureRatio: 1, SlowAfter: time.Hour})
		stream := func(t *testing.T) policy.Handle {
			t.Helper()
			h, err := p.Enter(t.Context())
			require.NoError(t, err)
			require.True(t, h.Settle(policy.Success, 0))
			return h
		}
		var hs []policy.Handle
		for range 6 {
			hs = append(hs, stream(t))
		}
		require.Equal(t, [2]uint64{6, 0}, [2]uint64{look(t, p).Calls, look(t, p).Failures})
		for i, h := range hs[:5] {
			require.True(t, h.Amend(policy.Timeout))
			s := look(t, p)
			require.Equal(t, [2]uint64{6, uint64(i + 1)}, [2]uint64{s.Calls, s.Failures})
			require.Equal(t, "closed", s.State)
		}
		hs[5].Amend(policy.Canceled)
		require.Equal(t, uint64(5), look(t, p).Failures, "a caller who stops reading is no failure")
		more := stream(t)
		hs = append(hs, more)
		require.True(t, more.Amend(policy.Failure))
		require.Equal(t, "closed", look(t, p).State, "six of seven")

		time.Sleep(11 * time.Second)
		old := stream(t)
		for range 4 {
			require.ErrorIs(t, call(t, p, errDown), errDown)
		}
		require.Equal(t, "closed", look(t, p).State)
		hs = append(hs, stream(t), stream(t))
		hs[7].Amend(policy.Failure)
		require.Equal(t, "closed", look(t, p).State)
		old.Amend(policy.Failure)
		require.Equal(t, "closed", look(t, p).State, "six of seven again")
		hs[8].Amend(policy.Failure)
		require.Equal(t, "open", look(t, p).State, "an amended outcome opens it")

		time.Sleep(5 * time.Second)
		probe := stream(t)
		require.Equal(t, "half_open", look(t, p).State)
		probe.Amend(policy.Failure)
		require.Equal(t, [2]uint64{1, 1}, [2]uint64{look(t, p).Calls, look(t, p).Failures})
		last := stream(t)
		require.Equal(t, "closed", look(t, p).State, "one of two failed, which is below 1")
		last.Amend(policy.Failure)
		require.Zero(t, look(t, p).Calls, "the probe's state has passed")
		for _, h := range append(hs, old, probe, last) {
			h.Release()
		}
	})
}

// A transaction whose beginning had settled the call, and one of whose statements is slow.
func TestProlong(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]breaker.Config{
		"time":       {Window: time.Minute},
		"last calls": {LastCalls: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg.MinCalls, cfg.Probes, cfg.SlowAfter, cfg.SlowRatio = 4, 1, time.Second, 0.5
				p := newPipeline(t, cfg)
				begin := func(took time.Duration) policy.Handle {
					h, err := p.Enter(t.Context())
					require.NoError(t, err)
					time.Sleep(took)
					require.True(t, h.Settle(policy.Success, 0))
					return h
				}
				slow := func() [2]uint64 { return [2]uint64{look(t, p).Calls, look(t, p).Slow} }
				first := begin(0)
				require.True(t, first.Prolong(time.Second), "longer, and not slow yet")
				require.Equal(t, [2]uint64{1, 0}, slow())
				require.False(t, first.Prolong(time.Millisecond), "no longer")
				require.True(t, first.Prolong(2*time.Second))
				require.Equal(t, [2]uint64{1, 1}, slow())
				require.True(t, first.Prolong(3*time.Second))
				require.Equal(t, [2]uint64{1, 1}, slow(), "a call is slow once")
				require.True(t, first.Amend(policy.Failure))
				require.False(t, first.Prolong(time.Hour), "it has failed")
				require.Equal(t, uint64(1), look(t, p).Failures)
				long := begin(2 * time.Second)
				require.True(t, long.Prolong(3*time.Second))
				require.Equal(t, [2]uint64{2, 2}, slow(), "it was slow before")
				others := []policy.Handle{begin(0), begin(0)}
				require.Equal(t, "open", look(t, p).State, "two of four")
				require.True(t, others[0].Prolong(time.Minute))
				require.Equal(t, uint64(2), look(t, p).Slow, "its state has passed")

				time.Sleep(time.Minute)
				probe := begin(0)
				require.Equal(t, "closed", look(t, p).State)
				for _, h := range append(others, first, long, probe) {
					h.Release()
					require.False(t, h.Prolong(time.Hour))
				}
			})
		})
	}
}

// A probe that turns out slow.
func TestProlongOfAProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, breaker.Config{MinCalls: 1, Probes: 2, SlowAfter: time.Second, SlowRatio: 0.5, OpenFor: time.Minute})
		require.ErrorIs(t, call(t, p, errDown), errDown)
		require.Equal(t, "open", look(t, p).State)
		time.Sleep(time.Minute)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		require.True(t, h.Settle(policy.Success, 0))
		require.Equal(t, "half_open", look(t, p).State)
		require.True(t, h.Prolong(2*time.Second))
		require.Equal(t, "open", look(t, p).State, "one of two is half")
		require.Equal(t, breaker.WhyProbeSlow, look(t, p).Why)
		h.Release()
	})
}

// Two pipelines that are given the same Breaker share its state.
func TestSharedBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{MinCalls: 4})
		one, two := newPipeline(t, b), newPipeline(t, b)
		callMany(t, one, 2, errDown)
		callMany(t, two, 2, errDown)
		requireRefused(t, call(t, one, nil), policy.ReasonOpen, 5*time.Second)
		requireRefused(t, call(t, two, nil), policy.ReasonOpen, 5*time.Second)
		assert.Equal(t, uint64(1), snapshot(t, one, "breaker").Rejected[policy.ReasonOpen], "each counts its own refusals")
	})
}

// waiting is a gate in front of the breaker whose Enter may wait.
type waiting struct{ asked *int }

func (w waiting) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "waiting", Gate: w, Waits: true, Place: policy.PlaceRateLimit}, nil
}
func (w waiting) Peek(*policy.Attempt) error { return nil }
func (w waiting) Enter(context.Context, *policy.Attempt, int) error {
	*w.asked++
	return nil
}
func (w waiting) Leave(*policy.Attempt, int, policy.Outcome) {}

// Nobody waits in front of a breaker that is sure to refuse.
func TestPeekKeepsCallsFromWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 1}, waiting{&asked})
		callMany(t, p, 5, errDown)
		require.Equal(t, 5, asked)
		requireRefused(t, call(t, p, nil), policy.ReasonOpen, 5*time.Second)
		time.Sleep(5*time.Second - 1)
		requireRefused(t, call(t, p, nil), policy.ReasonOpen, 1)
		assert.Equal(t, 5, asked, "open")
		time.Sleep(time.Nanosecond)
		done := make(chan error)
		go func() { done <- callFor(t.Context(), p, time.Hour, nil) }()
		synctest.Wait()
		require.Equal(t, 6, asked)
		requireRefused(t, call(t, p, nil), policy.ReasonProbes, 0)
		assert.Equal(t, 6, asked, "half-open, with its probe in flight")
		time.Sleep(10 * time.Second)
		requireRefused(t, call(t, p, nil), policy.ReasonOpen, 5*time.Second) // the probe is given up
		assert.Equal(t, 7, asked, "Peek could not tell")
		time.Sleep(5 * time.Second)
		require.NoError(t, call(t, p, nil))
		require.NoError(t, <-done)
	})
}
