package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// told collects the changes of a breaker, one line each.
func told(lines *[]string) func(breaker.StateChange) {
	return func(c breaker.StateChange) {
		*lines = append(*lines, fmt.Sprintf("%d: %s -> %s (%s) %s %v", c.Generation, c.From, c.To, c.Why, c.Note, c.RetryAfter))
	}
}

func TestForceOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		b := newBreaker(t, breaker.Config{MinCalls: 5, Probes: 1, OnStateChange: told(&lines)})
		p := newPipeline(t, b)
		flying, err := b.Acquire()
		require.NoError(t, err)
		b.ForceOpen("ann: maintenance", time.Minute)
		assert.Equal(t, breaker.ForcedOpen, b.State())
		requireRefused(t, call(t, p, nil), policy.ReasonForced, time.Minute)
		assert.False(t, flying.Done(policy.Failure), "a result from before")
		time.Sleep(59 * time.Second)
		requireRefused(t, call(t, p, nil), policy.ReasonForced, time.Second)
		s := look(t, p)
		assert.Equal(t, "forced_open", s.State)
		assert.Equal(t, breaker.WhyForced, s.Why)
		assert.Equal(t, "ann: maintenance", s.Note)
		assert.Equal(t, time.Second, s.RetryAfter)
		assert.Zero(t, s.Share)
		assert.Zero(t, s.Opened, "it did not open by a rule")
		time.Sleep(time.Second)
		assert.Equal(t, breaker.HalfOpen, b.State(), "without traffic")
		s = look(t, p)
		assert.Equal(t, breaker.WhyExpired, s.Why)
		assert.Empty(t, s.Note)
		require.NoError(t, call(t, p, nil))
		assert.Equal(t, breaker.Closed, b.State())

		b.ForceOpen("bob", 0)
		time.Sleep(1000 * time.Hour)
		requireRefused(t, call(t, p, nil), policy.ReasonForced, 0)
		assert.Zero(t, look(t, p).RetryAfter)
		b.Release("cat: done")
		assert.Equal(t, breaker.HalfOpen, b.State())
		b.ForceOpen("dan", -1)
		b.Reset()
		assert.Equal(t, breaker.Closed, b.State())
		assert.Empty(t, look(t, p).Note)
		b.Release("eve") // there is nothing to end
		assert.Equal(t, []string{
			"2: closed -> forced_open (forced) ann: maintenance 1m0s",
			"3: forced_open -> half_open (expired) ann: maintenance 0s",
			"4: half_open -> closed (probes_succeeded)  0s",
			"5: closed -> forced_open (forced) bob 0s",
			"6: forced_open -> half_open (released) cat: done 0s",
			"7: half_open -> forced_open (forced) dan 0s",
			"8: forced_open -> closed (reset)  0s",
		}, lines)
	})
}

func TestForceClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		b := newBreaker(t, breaker.Config{MinCalls: 5, OnStateChange: told(&lines)})
		p := newPipeline(t, b)
		callMany(t, p, 4, errDown)
		b.ForceClosed("ann", time.Minute)
		callMany(t, p, 100, errDown)
		s := look(t, p)
		assert.Equal(t, "forced_closed", s.State)
		assert.Equal(t, [2]uint64{104, 104}, [2]uint64{s.Calls, s.Failures}, "the window goes on")
		assert.Equal(t, time.Minute, s.RetryAfter)
		assert.InDelta(t, 1, s.Share, 0)
		time.Sleep(time.Minute)
		assert.Equal(t, breaker.Closed, b.State())
		time.Sleep(time.Hour)
		callMany(t, p, 5, errDown)
		require.Equal(t, breaker.Open, b.State())

		b.ForceClosed("bob", 0)
		callMany(t, p, 100, errDown)
		require.Equal(t, breaker.ForcedClosed, b.State())
		b.Release("bob")
		require.Equal(t, breaker.Closed, b.State())
		assert.Equal(t, uint64(100), look(t, p).Calls)
		callMany(t, p, 1, errDown)
		assert.Equal(t, breaker.Open, b.State(), "it has been failing all along")
		assert.Equal(t, []string{
			"2: closed -> forced_closed (forced) ann 1m0s",
			"3: forced_closed -> closed (expired) ann 0s",
			"4: closed -> open (failure_ratio)  5s",
			"5: open -> forced_closed (forced) bob 0s",
			"6: forced_closed -> closed (released) bob 0s",
			"7: closed -> open (failure_ratio)  5s",
		}, lines)
	})
}

func TestObserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		b := newBreaker(t, breaker.Config{MinCalls: 5, Probes: 1, OnStateChange: told(&lines)})
		asked := 0
		p := newPipeline(t, b, waiting{&asked})
		callMany(t, p, 5, errDown)
		requireRefused(t, call(t, p, nil), policy.ReasonOpen, 5*time.Second)
		b.Observe("ann: false alarm?", 10*time.Second)
		callMany(t, p, 100, errDown) // all of them run
		permit, err := b.Acquire()
		require.NoError(t, err)
		assert.False(t, permit.Done(policy.Failure), "it counts nothing")
		s := look(t, p)
		assert.Equal(t, "open", s.State, "it decides as ever")
		assert.True(t, s.Observing)
		assert.Equal(t, "ann: false alarm?", s.Note)
		assert.Equal(t, uint64(101), s.Spared)
		assert.Equal(t, uint64(5), s.Failures, "outcomes that it would have prevented are ignored")
		assert.Zero(t, p.Snapshot().Discarded, "which is not being late")
		time.Sleep(5 * time.Second)
		callMany(t, p, 1, errDown) // the probe
		require.Equal(t, breaker.Open, b.State())
		time.Sleep(5*time.Second - 1)
		callMany(t, p, 1, errDown)
		time.Sleep(time.Nanosecond)
		assert.Equal(t, breaker.HalfOpen, b.State())
		assert.False(t, look(t, p).Observing)
		require.NoError(t, call(t, p, nil))

		b.Observe("bob", 0)
		callMany(t, p, 5, errDown)
		callMany(t, p, 5, errDown)
		b.ForceOpen("cat", 0) // replaces it
		requireRefused(t, call(t, p, nil), policy.ReasonForced, 0)
		b.Observe("dan", 0) // replaces that
		assert.Equal(t, breaker.HalfOpen, b.State())
		b.Release("eve")
		assert.False(t, look(t, p).Observing)
		assert.Equal(t, []string{
			"2: closed -> open (failure_ratio)  5s",
			"2: open -> open (observed) ann: false alarm? 10s",
			"3: open -> half_open (open_passed)  0s",
			"4: half_open -> open (probe_failed)  5s",
			"4: open -> open (expired) ann: false alarm? 0s",
			"5: open -> half_open (open_passed)  0s",
			"6: half_open -> closed (probes_succeeded)  0s",
			"6: closed -> closed (observed) bob 0s",
			"7: closed -> open (failure_ratio)  5s",
			"8: open -> forced_open (forced) cat 0s",
			"9: forced_open -> half_open (released) dan 0s",
			"9: half_open -> half_open (observed) dan 0s",
			"9: half_open -> half_open (released) eve 0s",
		}, lines)
	})
}

func TestReadySaysWhatIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		b := newBreaker(t, breaker.Config{MinCalls: 5})
		p, err := reg.New("inventory", b)
		require.NoError(t, err)
		ready := func(want string) {
			t.Helper()
			ok, why := reg.Ready()
			assert.Equal(t, want, why)
			assert.Equal(t, want == "", ok)
		}
		ready("")
		callMany(t, p, 5, errDown)
		time.Sleep(time.Second)
		ready("inventory: breaker is open for 1s because of failure_ratio; next probe in 4s")
		b.Observe("ann", 0)
		ready("")
		b.ForceClosed("ann", 0)
		ready("")
		b.ForceOpen("ann: maintenance", time.Minute)
		ready("inventory: breaker is forced_open for 0s because of forced (ann: maintenance); that ends in 1m0s")
		b.ForceOpen("ann: maintenance", 0)
		ready("inventory: breaker is forced_open for 0s because of forced (ann: maintenance)")
	})
}

// queued is a runner whose worker takes a task up after an hour.
type queued struct{ then func() }

func (q queued) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "queue", Runner: q, Waits: true}, nil
}
func (q queued) Peek(*policy.Attempt) error { return nil }
func (q queued) Run(_ context.Context, _ *policy.Attempt, t policy.Task) policy.RunResult {
	q.then()
	if err := t.Look(); err != nil {
		return policy.RunResult{State: policy.RunRefused, Err: err}
	}
	t.Begin()
	t.Run()
	return policy.RunResult{State: policy.RunDone}
}

// A call that was queued when the breaker opened does not run.
func TestRecheck(t *testing.T) {
	t.Parallel()
	trip := func(t *testing.T, b *breaker.Breaker) {
		t.Helper()
		callMany(t, newPipeline(t, b), 5, errDown)
		require.Equal(t, breaker.Open, b.State())
	}
	tests := []struct {
		name  string
		then  func(t *testing.T, b *breaker.Breaker) // while the call is queued
		want  policy.Reason
		after time.Duration
	}{
		{"nothing happened", func(*testing.T, *breaker.Breaker) {}, policy.ReasonUnknown, 0},
		{"open", trip, policy.ReasonOpen, 5 * time.Second},
		{"open for a while", func(t *testing.T, b *breaker.Breaker) {
			t.Helper()
			trip(t, b)
			time.Sleep(3 * time.Second)
		}, policy.ReasonOpen, 2 * time.Second},
		{"half-open by now", func(t *testing.T, b *breaker.Breaker) {
			t.Helper()
			trip(t, b)
			time.Sleep(time.Hour)
		}, policy.ReasonProbes, 0},
		{"closed again", func(t *testing.T, b *breaker.Breaker) {
			t.Helper()
			trip(t, b)
			b.Reset()
		}, policy.ReasonUnknown, 0},
		{"forced open", func(_ *testing.T, b *breaker.Breaker) { b.ForceOpen("", time.Minute) }, policy.ReasonForced, time.Minute},
		{"forced closed", func(_ *testing.T, b *breaker.Breaker) { b.ForceClosed("", 0) }, policy.ReasonUnknown, 0},
		{"open, and only watched", func(t *testing.T, b *breaker.Breaker) {
			t.Helper()
			trip(t, b)
			b.Observe("", 0)
		}, policy.ReasonUnknown, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Config{MinCalls: 5, Probes: 1})
				p := newPipeline(t, b, queued{func() { tt.then(t, b) }})
				err := call(t, p, nil)
				if tt.want == policy.ReasonUnknown {
					require.NoError(t, err)
					return
				}
				requireRefused(t, err, tt.want, tt.after)
				assert.Equal(t, uint64(1), snapshot(t, p, "breaker").Rejected[tt.want])
			})
		})
	}
	t.Run("a probe", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t, breaker.Config{MinCalls: 5, Probes: 3, FailureRatio: 1, ProbeTimeout: time.Minute})
			wait := time.Minute - 1
			p := newPipeline(t, b, queued{func() { time.Sleep(wait) }})
			trip(t, b)
			time.Sleep(5 * time.Second)
			require.NoError(t, call(t, p, nil), "its place is held while it is queued")
			require.Equal(t, uint64(1), look(t, p).Calls)
			wait = time.Minute
			requireRefused(t, call(t, p, nil), policy.ReasonProbes, 0)
			b.Reset()
			require.NoError(t, call(t, p, nil))
		})
	})
}
