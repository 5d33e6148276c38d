package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// open-liberty#7080: everyone who saw half-open was let through.
func TestCaseB28NoMoreProbesThanAllowed(t *testing.T) {
	t.Parallel()
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	synctest.Test(t, func(t *testing.T) {
		for range rounds {
			p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 3})
			callMany(t, p, 5, errDown)
			time.Sleep(5 * time.Second)

			var running, ran, refused atomic.Int64
			release, barrier := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					<-barrier
					_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) {
						ran.Add(1)
						running.Add(1)
						<-release
						running.Add(-1)
						return 1, nil
					})
					if errors.Is(err, breaker.ErrOpen) {
						refused.Add(1)
					}
				})
			}
			close(barrier)
			synctest.Wait()
			require.Equal(t, int64(3), running.Load())
			require.Equal(t, int64(97), refused.Load())
			s := snapshot(t, p, "breaker")
			require.Equal(t, 3, s.Breaker.ProbesInFlight)
			require.Equal(t, uint64(97), s.Rejected[policy.ReasonProbes])
			close(release)
			wg.Wait()
			require.Equal(t, int64(3), ran.Load())
			require.Equal(t, "closed", look(t, p).State, "exactly three successes close it")
		}
	})
}

func TestCaseB28ASecondCallDoesNotOutrunTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 1})
		callMany(t, p, 5, errDown)
		time.Sleep(5 * time.Second)
		done := make(chan error)
		go func() { done <- callFor(t.Context(), p, 2*time.Second, errDown) }()
		time.Sleep(time.Second)
		requireRefused(t, call(t, p, nil), policy.ReasonProbes, 0)
		require.ErrorIs(t, <-done, errDown)
		assert.Equal(t, "open", look(t, p).State)
	})
}

// resilience4j#544, erpc#1118: an answer that counts as nothing kept its place.
func TestCaseB29IgnoredOutcomesGiveTheirPlaceBack(t *testing.T) {
	t.Parallel()
	ignored := policy.AsThrottled(errors.New("over quota"), 0)
	halfOpen := func(t *testing.T) *policy.Pipeline {
		t.Helper()
		p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 5})
		callMany(t, p, 5, errDown)
		time.Sleep(5 * time.Second)
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		p := halfOpen(t)
		callMany(t, p, 4, nil)
		require.ErrorIs(t, call(t, p, ignored), ignored)
		assert.Equal(t, "half_open", look(t, p).State)
		require.NoError(t, call(t, p, nil), "a sixth call is let in")
		assert.Equal(t, "closed", look(t, p).State)

		p = halfOpen(t)
		for range 1000 {
			require.ErrorIs(t, call(t, p, ignored), ignored, "each time one more is let in")
			s := look(t, p)
			require.Equal(t, "half_open", s.State)
			require.Zero(t, s.Calls)
			require.Zero(t, s.ProbesInFlight)
		}

		p = halfOpen(t)
		for i := 1; i <= 25; i++ {
			require.Equal(t, "half_open", look(t, p).State, "before call %d", i)
			if i%5 != 0 {
				require.ErrorIs(t, call(t, p, ignored), ignored)
			} else {
				require.NoError(t, call(t, p, nil))
			}
		}
		assert.Equal(t, "closed", look(t, p).State, "on call 25")

		// 80 % of the answers are neutral, 1.7 % are failures: far below one half.
		p = newPipeline(t, breaker.Config{})
		counted := 0
		for i := range 10_000 {
			if i%10 < 8 {
				require.ErrorIs(t, call(t, p, ignored), ignored)
				continue
			}
			counted++
			if counted%12 == 0 {
				require.ErrorIs(t, call(t, p, errDown), errDown)
			} else {
				require.NoError(t, call(t, p, nil))
			}
		}
		s := look(t, p)
		assert.Equal(t, "closed", s.State)
		assert.Equal(t, [2]uint64{2000, 166}, [2]uint64{s.Calls, s.Failures})
	})
}

// Hystrix#1621, monix#1080: a probe whose caller gave up was never heard of again.
// Choice: a cancelled probe leaves the breaker half-open.
func TestCaseB30CancelledProbe(t *testing.T) {
	t.Parallel()
	halfOpen := func(t *testing.T, probes int) *policy.Pipeline {
		t.Helper()
		p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: probes})
		callMany(t, p, 5, errDown)
		time.Sleep(5 * time.Second)
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		p := halfOpen(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- callFor(ctx, p, time.Hour, nil) }()
		synctest.Wait()
		requireRefused(t, call(t, p, nil), policy.ReasonProbes, 0)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		s := look(t, p)
		assert.Equal(t, "half_open", s.State)
		assert.Zero(t, s.ProbesInFlight)
		assert.Zero(t, s.Failures)
		require.NoError(t, call(t, p, nil), "the next call is a probe at once")
		assert.Equal(t, "closed", look(t, p).State)

		p = halfOpen(t, 3)
		ctx, cancel = context.WithCancel(t.Context())
		for range 3 {
			go func() { done <- callFor(ctx, p, time.Hour, nil) }()
		}
		synctest.Wait()
		cancel()
		for range 3 {
			require.ErrorIs(t, <-done, context.Canceled)
		}
		require.NoError(t, call(t, p, nil), "the fourth is let in")
		assert.Equal(t, "half_open", look(t, p).State)

		// Refused callers who give up change nothing for the probe that runs.
		p = halfOpen(t, 1)
		go func() { done <- callFor(t.Context(), p, 5*time.Second, nil) }()
		time.Sleep(time.Second)
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			err := callFor(ctx, p, time.Second, nil)
			cancel()
			requireRefused(t, err, policy.ReasonProbes, 0)
		}
		assert.Equal(t, "half_open", look(t, p).State)
		require.NoError(t, <-done)
		assert.Equal(t, "closed", look(t, p).State)
	})
}

// Sentinel#1638: a breaker waited for the result of a probe that the next rule had
// refused.
func TestCaseB32ProbeRefusedByALaterPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, policy.Ordered(
			breaker.Config{Name: "one", MinCalls: 5, OpenFor: 10 * time.Second, Probes: 1},
			breaker.Config{Name: "two", MinCalls: 5, OpenFor: 20 * time.Second, Probes: 1},
		))
		callMany(t, p, 5, errDown)
		ran := 0
		try := func() error {
			_, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { ran++; return 1, nil })
			return err
		}
		time.Sleep(11 * time.Second)
		for i := range 100 { // to t = 20 s
			err := try()
			requireRefused(t, err, policy.ReasonOpen, 9*time.Second-time.Duration(i)*90*ms)
			re, _ := errors.AsType[*policy.RejectedError](err)
			require.Equal(t, "two", re.Policy)
			one := snapshot(t, p, "one").Breaker
			require.Zero(t, one.ProbesInFlight)
			require.Zero(t, one.Calls)
			time.Sleep(90 * ms)
		}
		require.Zero(t, ran)
		time.Sleep(time.Second)
		require.NoError(t, try())
		assert.Equal(t, 1, ran)
		assert.Equal(t, "closed", snapshot(t, p, "one").Breaker.State)
		assert.Equal(t, "closed", snapshot(t, p, "two").Breaker.State)

		for _, reason := range []policy.Reason{policy.ReasonConcurrency, policy.ReasonRate} {
			b := newBreaker(t, breaker.Config{MinCalls: 5, Probes: 1})
			open := newPipeline(t, b)
			p := newPipeline(t, policy.Ordered(b, full{reason}))
			for range 50 {
				require.ErrorIs(t, call(t, p, errDown), policy.ErrRejected)
			}
			assert.Zero(t, look(t, p).Calls, "%v: the outer breaker counts nothing", reason)
			callMany(t, open, 5, errDown)
			time.Sleep(5 * time.Second)
			for range 50 {
				err := call(t, p, nil)
				re, _ := errors.AsType[*policy.RejectedError](err)
				require.Equal(t, reason, re.Reason)
			}
			s := look(t, p)
			assert.Equal(t, "half_open", s.State)
			assert.Zero(t, s.ProbesInFlight, "%v: and keeps no place", reason)
			require.NoError(t, call(t, open, nil))
			assert.Equal(t, "closed", look(t, p).State)
		}
	})
}

// Polly#217, #223: a call from before the trip decided for the probes.
func TestCaseB33LateResults(t *testing.T) {
	t.Parallel()
	for _, late := range []error{nil, errDown} {
		t.Run(fmt.Sprint("late ", late), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var events []policy.Event
				p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 1},
					policy.Observe(policy.ObserverFunc(func(e policy.Event) {
						if e.Kind == policy.EventDiscarded {
							events = append(events, e)
						}
					})))
				a, probe := make(chan error), make(chan error)
				go func() { a <- callFor(t.Context(), p, 10*time.Second, late) }()
				time.Sleep(time.Second)
				callMany(t, p, 5, errDown)
				require.Equal(t, "open", look(t, p).State)
				time.Sleep(5 * time.Second)
				go func() { probe <- callFor(t.Context(), p, 5*time.Second, nil) }()

				require.ErrorIs(t, <-a, late)
				s := look(t, p)
				assert.Equal(t, "half_open", s.State)
				assert.Zero(t, s.Calls)
				assert.Equal(t, 1, s.ProbesInFlight)
				requireRefused(t, call(t, p, nil), policy.ReasonProbes, 0)
				assert.Len(t, events, 1, "the late result is told as discarded")
				assert.Equal(t, uint64(1), p.Snapshot().Discarded)

				require.NoError(t, <-probe)
				s = look(t, p)
				assert.Equal(t, "closed", s.State)
				assert.Zero(t, s.Calls, "the new window has neither the late call nor the probe")
			})
		})
	}
	t.Run("a probe of an earlier half-open state", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 2, FailureRatio: 0.5})
			callMany(t, p, 5, errDown)
			time.Sleep(5 * time.Second)
			first, second := make(chan error), make(chan error)
			go func() { first <- callFor(t.Context(), p, 7*time.Second, nil) }()
			synctest.Wait()
			callMany(t, p, 1, errDown) // one of two: it opens again
			require.Equal(t, "open", look(t, p).State)
			time.Sleep(5 * time.Second)
			go func() { second <- callFor(t.Context(), p, 8*time.Second, nil) }()
			go func() { second <- callFor(t.Context(), p, 8*time.Second, nil) }()
			require.NoError(t, <-first)
			s := look(t, p)
			assert.Equal(t, "half_open", s.State)
			assert.Zero(t, s.Calls)
			assert.Equal(t, 2, s.ProbesInFlight)
			requireRefused(t, call(t, p, nil), policy.ReasonProbes, 0)
			require.NoError(t, <-second)
			require.NoError(t, <-second)
			assert.Equal(t, "closed", look(t, p).State)
		})
	})
	t.Run("the handle says so", func(t *testing.T) {
		t.Parallel()
		b := newBreaker(t, breaker.Config{MinCalls: 5})
		early, err := b.Acquire()
		require.NoError(t, err)
		for range 5 {
			permit, err := b.Acquire()
			require.NoError(t, err)
			require.True(t, permit.Done(policy.Failure))
		}
		assert.False(t, early.Done(policy.Success))
		assert.Equal(t, breaker.Open, b.State())
	})
}

// gobreaker#119: the callback ran under the lock.
func TestCaseB35Callbacks(t *testing.T) {
	t.Parallel()
	t.Run("a handler may use the breaker", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var b *breaker.Breaker
			var p *policy.Pipeline
			var got []string
			var states []breaker.State
			b = newBreaker(t, breaker.Config{MinCalls: 5, Probes: 1, OnStateChange: func(c breaker.StateChange) {
				got = append(got, fmt.Sprintf("%s %d: %s -> %s (%s)", c.Name, c.Generation, c.From, c.To, c.Why))
				states = append(states, b.State())
				b.Snapshot(time.Now())
				_ = call(t, p, errDown) // opens nothing further: one failure in a new window
			}})
			p = newPipeline(t, b)
			begin := time.Now()
			callMany(t, p, 5, errDown)
			time.Sleep(5 * time.Second)
			b.Reset()
			assert.Equal(t, 5*time.Second, time.Since(begin), "nothing waited")
			assert.Equal(t, []string{
				"breaker 2: closed -> open (failure_ratio)",
				"breaker 3: open -> half_open (open_passed)",
				"breaker 4: half_open -> closed (reset)",
			}, got, "each change once and in order")
			assert.Equal(t, []breaker.State{breaker.Open, breaker.Closed, breaker.Closed}, states,
				"when it is told of half-open, Reset has gone on to closed")
		})
	})
	t.Run("a classifier that panics", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			bad := errors.New("bad")
			p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 1},
				policy.ClassifyErrors(func(err error) policy.Kind {
					if errors.Is(err, bad) {
						panic("classifier")
					}
					return policy.NotRun
				}))
			callMany(t, p, 5, errDown)
			time.Sleep(5 * time.Second)
			for range 10 {
				assert.PanicsWithValue(t, "classifier", func() { _ = call(t, p, bad) })
				require.Equal(t, "half_open", look(t, p).State)
				require.Zero(t, look(t, p).ProbesInFlight)
			}
			require.NoError(t, call(t, p, nil))
			assert.Equal(t, "closed", look(t, p).State)
		})
	})
	t.Run("a handler that panics", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			told := 0
			p := newPipeline(t, breaker.Config{MinCalls: 5, Probes: 1, OnStateChange: func(breaker.StateChange) {
				told++
				panic("handler")
			}})
			callMany(t, p, 5, errDown)
			assert.Equal(t, "open", look(t, p).State, "the change is kept")
			time.Sleep(5 * time.Second)
			require.NoError(t, call(t, p, nil))
			assert.Equal(t, "closed", look(t, p).State)
			assert.Equal(t, 3, told)
		})
	})
}

// armeria#2761: the event that moves the buckets was left out of the decision.
func TestCaseB37TheEventOnTheEdgeDecides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, breaker.Config{MinCalls: 2, FailureRatio: 0.1, Window: 10 * time.Second})
		require.NoError(t, call(t, p, nil))
		time.Sleep(100 * ms)
		require.NoError(t, call(t, p, nil))
		time.Sleep(900 * ms) // the edge of the next bucket
		require.ErrorIs(t, call(t, p, errDown), errDown)
		s := look(t, p)
		assert.Equal(t, "open", s.State)
		assert.Equal(t, uint64(3), s.Calls)
		assert.Equal(t, uint64(1), s.Failures)
	})
}

// resilience4j#903, #597: a short window or a large minimum kept the half-open state
// from ever deciding.
func TestCaseB39HalfOpenHasItsOwnRule(t *testing.T) {
	t.Parallel()
	cfg := breaker.Config{Window: time.Second, MinCalls: 100, Probes: 10, FailureRatio: 0.25}
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, cfg)
		callMany(t, p, 100, errDown)
		time.Sleep(5 * time.Second)
		begin := time.Now()
		for i := range 10 {
			require.Equal(t, "half_open", look(t, p).State, "before probe %d", i+1)
			require.NoError(t, call(t, p, nil))
			if i < 9 {
				time.Sleep(300 * ms)
			}
		}
		assert.Equal(t, "closed", look(t, p).State)
		assert.Equal(t, 2700*ms, time.Since(begin))

		p = newPipeline(t, cfg)
		callMany(t, p, 100, errDown)
		time.Sleep(5 * time.Second)
		for i := range 7 { // 1, 4 and 7 fail
			require.Equal(t, "half_open", look(t, p).State, "before probe %d", i+1)
			if i%3 == 0 {
				require.ErrorIs(t, call(t, p, errDown), errDown)
			} else {
				require.NoError(t, call(t, p, nil))
			}
			time.Sleep(300 * ms)
		}
		s := look(t, p)
		assert.Equal(t, "open", s.State, "3 of 10 is certain to reach 25 %% at the seventh")
		assert.Equal(t, breaker.WhyProbeFailed, s.Why)

		p = newPipeline(t, cfg)
		callMany(t, p, 100, errDown)
		time.Sleep(5 * time.Second)
		callMany(t, p, 4, nil)
		time.Sleep(time.Hour)
		require.NoError(t, call(t, p, nil), "it still lets probes in")
		assert.Equal(t, uint64(5), look(t, p).Calls, "and has forgotten none")

		p = newPipeline(t, breaker.Config{MinCalls: 10, FailureRatio: 0.25})
		callMany(t, p, 9, errDown)
		assert.Equal(t, "closed", look(t, p).State)
		callMany(t, p, 1, errDown)
		assert.Equal(t, "open", look(t, p).State)
	})
}

// go-zero#5551: refusals fed the failure figures. resilience4j#1262: one of several
// counters survived the rotation.
func TestCaseB40RefusalsAreNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, breaker.Config{MinCalls: 10})
		callMany(t, p, 10, errDown)
		for range 1000 {
			requireRefused(t, call(t, p, nil), policy.ReasonOpen, 5*time.Second)
		}
		s := snapshot(t, p, "breaker")
		assert.Equal(t, uint64(10), s.Breaker.Failures)
		assert.Equal(t, uint64(10), s.Breaker.Calls)
		assert.Equal(t, uint64(1000), s.Rejected[policy.ReasonOpen])
		time.Sleep(5 * time.Second)
		callMany(t, p, 3, nil)
		assert.Equal(t, "closed", look(t, p).State)
		callMany(t, p, 9, errDown)
		assert.Equal(t, "closed", look(t, p).State, "the new window holds nine")

		p = newPipeline(t, breaker.Config{MinCalls: 1000, SlowAfter: 50 * ms})
		for range 10 { // one in each bucket
			require.ErrorIs(t, callFor(t.Context(), p, time.Second, errDown), errDown)
		}
		b := look(t, p)
		assert.Equal(t, [3]uint64{10, 10, 10}, [3]uint64{b.Calls, b.Failures, b.Slow})
		for range 10 {
			time.Sleep(time.Second)
			s := look(t, p)
			assert.LessOrEqual(t, s.Slow, s.Failures)
			assert.Less(t, s.Calls, b.Calls)
			b = s
		}
		assert.Zero(t, b.Calls+b.Failures+b.Slow, "%+v", b)
	})
}

// gkit#72, s3-orchestrator#424, goyek#232: a panic or runtime.Goexit kept its place.
func TestCaseB41PanicAndGoexit(t *testing.T) {
	t.Parallel()
	goexit := func(p *policy.Pipeline) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { runtime.Goexit(); return 1, nil })
		}()
		<-done
	}
	panics := func(p *policy.Pipeline) {
		assert.PanicsWithValue(t, "x", func() {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic("x") })
		})
	}
	panicsNil := func(p *policy.Pipeline) {
		assert.Panics(t, func() {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic(nil) })
		})
	}
	for name, end := range map[string]func(*policy.Pipeline){"panic": panics, "goexit": goexit, "panic(nil)": panicsNil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPipeline(t, breaker.Config{MinCalls: 5, FailureRatio: 1, Probes: 1})
				for i := range 5 {
					require.Equal(t, "closed", look(t, p).State)
					end(p)
					require.Equal(t, uint64(i+1), look(t, p).Failures, "no success is recorded")
				}
				require.Equal(t, "open", look(t, p).State, "five open it")
				time.Sleep(5 * time.Second)
				end(p)
				s := look(t, p)
				assert.Equal(t, "open", s.State, "a probe that panics opens it again")
				assert.Equal(t, breaker.WhyProbeFailed, s.Why)
				assert.Zero(t, s.ProbesInFlight)
			})
		})
	}
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, breaker.Config{MinCalls: 1_000_000, Probes: 1})
			for range 100 {
				panics(p)
				goexit(p)
			}
			s := look(t, p)
			assert.Equal(t, uint64(200), s.Calls)
			assert.Equal(t, uint64(200), s.Failures)
		})
	})
}

// gobreaker#105: callers who walked away opened the breaker for everybody.
func TestCaseB42CancellationIsNeutral(t *testing.T) {
	t.Parallel()
	cfg := breaker.Config{MinCalls: 5}
	grpcCanceled := errors.New("rpc error: code = Canceled")
	tests := []struct {
		name string
		err  func(ctx context.Context) error
	}{
		{"wrapped", func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }},
		{"only mentioned", func(context.Context) error { return errors.New("driver: canceling statement due to user request") }},
		{"grpc", func(context.Context) error { return grpcCanceled }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, cfg, policy.ClassifyErrors(func(err error) policy.Kind {
				if errors.Is(err, grpcCanceled) {
					return policy.Canceled
				}
				return policy.NotRun
			}))
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				_, err := policy.Do(ctx, p, func(ctx context.Context) (int, error) {
					cancel()
					return 0, tt.err(ctx)
				})
				require.Error(t, err)
			}
			s := look(t, p)
			assert.Equal(t, "closed", s.State)
			assert.Zero(t, s.Calls)
		})
	}
	t.Run("grpc, the caller is still there", func(t *testing.T) {
		t.Parallel()
		p := newPipeline(t, cfg, policy.ClassifyErrors(func(error) policy.Kind { return policy.Canceled }))
		for range 100 {
			require.Error(t, call(t, p, grpcCanceled))
		}
		assert.Zero(t, look(t, p).Calls)
	})
	t.Run("own timeout", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, cfg, policy.Timeouts{Attempt: time.Second})
			for range 5 {
				require.Equal(t, "closed", look(t, p).State)
				require.ErrorIs(t, callFor(t.Context(), p, time.Hour, nil), context.DeadlineExceeded)
			}
			assert.Equal(t, "open", look(t, p).State)
		})
	})
	// Choice: a deadline is a timeout of the dependency, whoever set it. Otherwise a
	// hung dependency would hide behind its callers' deadlines.
	t.Run("the caller's own deadline", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := newPipeline(t, cfg)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				require.ErrorIs(t, callFor(ctx, p, time.Hour, nil), context.DeadlineExceeded)
				cancel()
			}
			assert.Equal(t, "open", look(t, p).State)
		})
	})
	t.Run("not found is an answer", func(t *testing.T) {
		t.Parallel()
		p := newPipeline(t, cfg)
		for range 100 {
			require.Error(t, call(t, p, policy.AsPermanent(errors.New("not found"))))
		}
		s := look(t, p)
		assert.Equal(t, "closed", s.State)
		assert.Equal(t, [2]uint64{100, 0}, [2]uint64{s.Calls, s.Failures})
	})
}

// unkey#6568: 0.14 % of errors tripped a rule of five in five seconds.
func TestCaseB72NoiseDoesNotOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := breaker.Config{FailureRatio: 0.5, MinCalls: 20}
		p := newPipeline(t, cfg)
		for i := range 4200 {
			if i%700 == 350 {
				require.ErrorIs(t, call(t, p, errDown), errDown)
			} else {
				require.NoError(t, call(t, p, nil))
			}
			time.Sleep(5 * time.Second / 4200)
		}
		s := look(t, p)
		assert.Equal(t, "closed", s.State)
		assert.Equal(t, [2]uint64{4200, 6}, [2]uint64{s.Calls, s.Failures})

		p = newPipeline(t, cfg)
		callMany(t, p, 19, errDown)
		assert.Equal(t, "closed", look(t, p).State)
		callMany(t, p, 1, errDown)
		assert.Equal(t, "open", look(t, p).State)
	})
}
