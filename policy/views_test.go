package policy_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/fallback"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// What callers waited: with the wait for a token, the retries, their delays and the
// fallback, and without the calls that never reached the dependency.
func TestSnapshotCallLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lasting := func(d time.Duration, errs ...error) func(context.Context) (int, error) {
			return func(context.Context) (int, error) {
				time.Sleep(d)
				if len(errs) == 0 {
					return 1, nil
				}
				err := errs[0]
				errs = errs[1:]
				return 0, err
			}
		}
		p, err := policy.New("dep",
			ratelimit.All{Limits: []policy.Policy{ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1}}, MaxWait: 10 * time.Second},
			retry.Config{MaxAttempts: 2, BaseDelay: 2 * time.Second, Jitter: retry.NoJitter},
		)
		require.NoError(t, err)
		sums := func() (calls, attempts time.Duration, n uint64) {
			s := p.Snapshot()
			return s.CallLatency.Sum, s.Latency.Sum, s.CallLatency.Count()
		}
		_, _ = policy.Do(t.Context(), p, lasting(100*time.Millisecond))
		calls, attempts, n := sums()
		assert.Equal(t, []any{100 * time.Millisecond, 100 * time.Millisecond, uint64(1)}, []any{calls, attempts, n})

		_, _ = policy.Do(t.Context(), p, lasting(100*time.Millisecond)) // 900 ms until the token is there
		calls, attempts, n = sums()
		assert.Equal(t, []any{1100 * time.Millisecond, 200 * time.Millisecond, uint64(2)}, []any{calls, attempts, n})

		time.Sleep(time.Minute)
		_, _ = policy.Do(t.Context(), p, lasting(100*time.Millisecond, errors.New("x"))) // twice, two seconds apart
		calls, attempts, n = sums()
		assert.Equal(t, []any{3300 * time.Millisecond, 400 * time.Millisecond, uint64(3)}, []any{calls, attempts, n})

		time.Sleep(time.Minute)
		h, err := p.Enter(t.Context()) // by hand
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond)
		h.Leave(nil)
		h.Release()
		calls, _, n = sums()
		assert.Equal(t, []any{3350 * time.Millisecond, uint64(4)}, []any{calls, n})

		_, err = policy.Do(policy.WithCall(t.Context(), policy.Call{Cost: 2}), p, lasting(0))
		require.ErrorIs(t, err, policy.ErrRejected)
		_, _, n = sums()
		assert.Equal(t, uint64(4), n, "a call that was refused took nobody's time")
	})
}

// A call's time is that of its caller: the fallback's is in it.
func TestSnapshotCallLatencyHasTheFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.New("dep", fallback.Func(func(context.Context, policy.FailedCall) (int, error) {
			time.Sleep(time.Second)
			return 0, nil
		}))
		require.NoError(t, err)
		_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, errors.New("x") })
		require.NoError(t, err)
		s := p.Snapshot()
		assert.Equal(t, time.Second, s.CallLatency.Sum)
		assert.Equal(t, time.Duration(0), s.Latency.Sum)
	})
}

// spans is a tracer that keeps what it is told of admissions and ends.
type spans struct {
	admissions []policy.Admission
	ends       []policy.CallEnd
	mu         sync.Mutex
}

func (s *spans) StartCall(ctx context.Context, _ string) (context.Context, policy.CallSpan) {
	return ctx, s
}

func (s *spans) StartAttempt(ctx context.Context, _ int) (context.Context, policy.AttemptSpan) {
	return ctx, attemptSpans{s}
}
func (s *spans) Event(policy.Event) {}
func (s *spans) End(e policy.CallEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, e)
}

type attemptSpans struct{ *spans }

func (attemptSpans) End(policy.Outcome, error) {}
func (a attemptSpans) Admission(ad policy.Admission) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.admissions = append(a.admissions, ad)
}

func TestTracerIsToldOfWaitsAndProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &spans{}
		p, err := policy.New("dep", policy.Trace(s),
			bulkhead.Semaphore{Limit: 1, MaxWait: 2 * time.Second},
			breaker.Config{MinCalls: 1, OpenFor: 5 * time.Second},
		)
		require.NoError(t, err)
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { h.Leave(nil); h.Release() })
		_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(time.Second); return 0, errors.New("x") })
		require.Error(t, err)
		_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, nil })
		require.ErrorIs(t, err, breaker.ErrOpen)
		time.Sleep(5 * time.Second)
		_, err = policy.Do(t.Context(), p, func(context.Context) (int, error) { return 0, nil })
		require.NoError(t, err)
		assert.Equal(t, []policy.Admission{{Waited: time.Second}, {}, {Probe: true}}, s.admissions)
		assert.Equal(t, 2*time.Second, s.ends[0].Duration)
	})
}

func TestTracerIsToldOfWaitsForAPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &spans{}
		p, err := policy.New("dep", policy.Trace(s), bulkhead.Pool{Workers: 1, Queue: 1})
		require.NoError(t, err)
		slow := func(context.Context) (int, error) { time.Sleep(100 * time.Millisecond); return 0, nil }
		done := make(chan struct{})
		for range 2 {
			go func() { _, _ = policy.Do(t.Context(), p, slow); done <- struct{}{} }()
			synctest.Wait()
		}
		<-done
		<-done
		assert.Equal(t, []policy.Admission{{}, {Waited: 100 * time.Millisecond}}, s.admissions)
		require.NoError(t, p.Close(t.Context()))
		_, err = policy.Do(t.Context(), p, slow)
		require.ErrorIs(t, err, policy.ErrClosed)
		assert.Len(t, s.admissions, 3)
	})
}

func TestRegistryNumbersDerivedPipelines(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	for _, name := range []string{"b", "own", "a"} {
		var policies []policy.Policy
		if name != "own" {
			policies = append(policies, policy.Derived())
		}
		_, err := reg.New(name, policies...)
		require.NoError(t, err)
	}
	got := map[string]int{}
	for _, s := range reg.Snapshot() {
		got[s.Dependency] = s.Derived
	}
	assert.Equal(t, map[string]int{"b": 1, "a": 2, "own": 0}, got)
}

func TestRegistryGivesFreeNumbersAgain(t *testing.T) {
	t.Parallel()
	var reg policy.Registry
	number := func(name string) int {
		p, err := reg.New(name, policy.Derived())
		require.NoError(t, err)
		return p.Snapshot().Derived
	}
	for i, name := range []string{"a", "b", "c"} {
		assert.Equal(t, i+1, number(name))
	}
	require.NoError(t, reg.Remove(t.Context(), "b"))
	require.NoError(t, reg.Remove(t.Context(), "a"))
	require.NoError(t, reg.Remove(t.Context(), "a"), "again")
	assert.Equal(t, 1, number("d"))
	assert.Equal(t, 2, number("a"))
	assert.Equal(t, 4, number("e"))
}

func TestRegistryTellsOfItsConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reg policy.Registry
		assert.Zero(t, reg.Config())
		var got []policy.Event
		reg.Use(policy.Observe(policy.ObserverFunc(func(e policy.Event) { got = append(got, e) })))
		fault := errors.New("line 3")
		start := time.Now()
		reg.ConfigApplied("r1")
		time.Sleep(time.Second)
		reg.ConfigRefused("r2", fault)
		assert.Equal(t, policy.ConfigSnapshot{Version: 1, Name: "r1", Since: start, Applied: 1, Refused: 1, LastError: fault, RefusedAt: time.Now()}, reg.Config())
		reg.ConfigAdjusted("r2")
		assert.Equal(t, fault, reg.Config().LastError, "it is still wrong")
		reg.ConfigApplied("r3")
		assert.Equal(t, policy.ConfigSnapshot{Version: 3, Name: "r3", Since: time.Now(), Applied: 3, Refused: 1}, reg.Config())
		require.Len(t, got, 4)
		assert.Equal(t, policy.StateChange{From: "0", To: "1", Why: "applied", Note: "r1", Generation: 1}, got[0].Change)
		assert.Equal(t, policy.StateChange{From: "1", To: "1", Why: "refused", Note: "r2", Generation: 1}, got[1].Change)
		require.ErrorIs(t, got[1].Err, fault)
		assert.Equal(t, "adjusted", got[2].Change.Why)
		assert.Equal(t, "config", got[3].Kind.String())
	})
}
