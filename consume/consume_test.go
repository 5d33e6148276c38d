package consume_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/consume"
	"github.com/breakwater-go/breakwater/internal/conformance"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
)

var errBoom = errors.New("boom")

func pipe(tb testing.TB, policies ...policy.Policy) *policy.Pipeline {
	tb.Helper()
	p, err := policy.New("stock", policies...)
	require.NoError(tb, err)
	return p
}

func processor(tb testing.TB, p *policy.Pipeline, cfg consume.Config) *consume.Processor {
	tb.Helper()
	w, err := consume.New(p, cfg)
	require.NoError(tb, err)
	return w
}

func requireVerdict(t *testing.T, want consume.Verdict, w *consume.Processor, handler func(context.Context) error) {
	t.Helper()
	requireVerdictUnder(t.Context(), t, want, w, handler)
}

func requireVerdictUnder(ctx context.Context, t *testing.T, want consume.Verdict, w *consume.Processor, handler func(context.Context) error) {
	t.Helper()
	got, _ := w.Process(ctx, handler)
	require.Equal(t, want, got)
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		handler  func(attempt int) error
		cfg      consume.Config
		policies []policy.Policy
		want     consume.Verdict
		attempts int
		least    time.Duration // that it takes
		most     time.Duration
	}{
		{name: "handled", handler: func(int) error { return nil }, want: consume.Ack, attempts: 1},
		{name: "permanent", handler: func(int) error { return policy.AsPermanent(errBoom) }, want: consume.Dead, attempts: 1},
		{
			name: "handled at last", want: consume.Ack, attempts: 3, least: 1500 * time.Millisecond, most: 3 * time.Second,
			handler: func(n int) error {
				if n < 3 {
					return errBoom
				}
				return nil
			},
		},
		{name: "never", handler: func(int) error { return errBoom }, want: consume.Dead, attempts: 5, least: 7500 * time.Millisecond, most: 15 * time.Second},
		{name: "fewer attempts", handler: func(int) error { return errBoom }, cfg: consume.Config{MaxAttempts: 1}, want: consume.Dead, attempts: 1},
		{name: "panics", handler: func(int) error { panic("boom") }, want: consume.Dead, attempts: 5, least: time.Second, most: time.Minute},
		{name: "ends its goroutine", handler: func(int) error { runtime.Goexit(); return nil }, want: consume.Dead, attempts: 5, least: time.Second, most: time.Minute},
		{
			name: "asks for a time", want: consume.Dead, attempts: 2, least: 40 * time.Second, most: 40 * time.Second,
			cfg: consume.Config{MaxAttempts: 2}, handler: func(int) error { return policy.AsBusy(errBoom, 40*time.Second) },
		},
		{
			name: "longer than it may be held", want: consume.Requeue, attempts: 3, least: 2 * time.Minute, most: 2 * time.Minute,
			cfg: consume.Config{BaseDelay: time.Minute, MaxHold: 2 * time.Minute}, handler: func(int) error { return errBoom },
		},
		{
			name: "can never be let in", want: consume.Dead, handler: func(int) error { return nil },
			policies: []policy.Policy{ratelimit.TokenBucket{Rate: ratelimit.PerSecond(1), Burst: 1}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := processor(t, pipe(t, tt.policies...), tt.cfg)
				began, attempts := time.Now(), 0
				ctx := policy.WithCall(t.Context(), policy.Call{Cost: 2})
				got, err := w.Process(ctx, func(context.Context) error {
					attempts++
					return tt.handler(attempts)
				})
				assert.Equal(t, tt.want, got)
				assert.Equal(t, tt.want == consume.Ack, err == nil)
				if tt.name == "longer than it may be held" {
					assert.InDelta(t, tt.attempts, attempts, 1) // by chance
				} else {
					assert.Equal(t, tt.attempts, attempts)
				}
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, tt.least)
				assert.LessOrEqual(t, took, tt.most)
				s := w.Snapshot()
				assert.EqualValues(t, 1, s.Acked+s.Dead+s.Requeued)
				assert.Zero(t, s.Handling+s.Held)
			})
		})
	}
}

// The breaker is open for a minute: no message is given back, none is dead, and the handler
// runs only as often as the breaker probes.
func TestOpenBreakerUsesUpNoDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, breaker.Config{FailureRatio: 0.5, MinCalls: 5, Window: time.Second, OpenFor: 10 * time.Second, Probes: 1})
		w := processor(t, p, consume.Config{Workers: 10, MaxAttempts: 3})
		began := time.Now()
		sick := func() bool { return time.Since(began) < time.Minute }
		var calls, whileSick atomic.Int64
		var verdicts [3]atomic.Int64
		done := make(chan struct{})
		for range 10 { // ten workers, with ten messages each
			go func() {
				defer func() { done <- struct{}{} }()
				for range 10 {
					v, _ := w.Process(t.Context(), func(context.Context) error {
						calls.Add(1)
						if sick() {
							whileSick.Add(1)
							return errBoom
						}
						return nil
					})
					verdicts[v].Add(1)
				}
			}()
		}
		time.Sleep(25 * time.Second)
		assert.Greater(t, w.PausedFor(), time.Second)
		assert.Equal(t, 10, w.Snapshot().Held)
		for range 10 {
			<-done
		}
		assert.EqualValues(t, 100, verdicts[consume.Ack].Load(), "dead %d, requeued %d", verdicts[consume.Dead].Load(), verdicts[consume.Requeue].Load())
		assert.Less(t, whileSick.Load(), int64(25), "of a breaker that lets one probe through in ten seconds")
		assert.Zero(t, w.PausedFor())
		assert.Less(t, w.Snapshot().Refused, uint64(1000), "nobody hammers at the breaker")
	})
}

// What has been held for too long goes back, and so does everything when the consumer stops.
func TestHeldMessagesGoBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pipe(t, bulkhead.Semaphore{Limit: 1})
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		defer h.Release()
		var last consume.Failure
		w := processor(t, p, consume.Config{MaxHold: time.Minute, OnFailure: func(f consume.Failure) { last = f }})
		began := time.Now()
		requireVerdict(t, consume.Requeue, w, func(context.Context) error { return nil })
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, consume.Failure{Verdict: consume.Requeue, Final: true, Err: last.Err}, last)
		require.ErrorContains(t, last.Err, "MaxHold")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		requireVerdictUnder(ctx, t, consume.Requeue, w, func(context.Context) error { return nil })
	})
}

// A delay that is longer than a message may be held does not make it go round: it comes again
// at once.
func TestLongDelayIsNoLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []consume.Failure
		w := processor(t, pipe(t), consume.Config{BaseDelay: time.Hour, MaxDelay: math.MaxInt64, MaxHold: time.Minute, OnFailure: func(f consume.Failure) { told = append(told, f) }})
		for _, d := range []time.Duration{0, math.MaxInt64} {
			began := time.Now()
			requireVerdict(t, consume.Requeue, w, func(context.Context) error { return policy.AsBusy(errBoom, d) })
			require.Equal(t, time.Minute, time.Since(began))
		}
		require.Len(t, told, 2, "once for each message")
		require.True(t, told[0].Final)
		require.Equal(t, 1, told[0].Attempt)
		require.Zero(t, w.Snapshot().Failed, "no attempt followed")
	})
}

// A pipeline further down, such as that of one host of many, holds up its own messages only.
func TestRefusalFurtherDownHoldsOneMessage(t *testing.T) {
	t.Parallel()
	for _, under := range []bool{false, true} {
		t.Run(fmt.Sprint("under a pipeline ", under), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var p *policy.Pipeline
				if under {
					p = pipe(t, breaker.Config{})
				}
				down, err := policy.New("a host", ratelimit.TokenBucket{Rate: ratelimit.PerMinute(6), Burst: 1})
				require.NoError(t, err)
				w := processor(t, p, consume.Config{MaxHold: 12 * time.Second})
				toDown := func(ctx context.Context) error {
					return policy.Run(ctx, down, func(context.Context) error { return nil })
				}
				requireVerdict(t, consume.Ack, w, toDown)
				began := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					v, _ := w.Process(t.Context(), toDown)
					assert.Equal(t, consume.Ack, v)
					assert.Equal(t, 10*time.Second, time.Since(began), "as long as it must")
				}()
				time.Sleep(time.Millisecond)
				requireVerdict(t, consume.Ack, w, func(context.Context) error { return nil })
				assert.Equal(t, time.Millisecond, time.Since(began))
				assert.Equal(t, 1, w.Snapshot().Held)
				<-done

				h, err := policy.New("another", bulkhead.Semaphore{Limit: 1})
				require.NoError(t, err)
				permit, err := h.Enter(t.Context())
				require.NoError(t, err)
				defer permit.Release()
				began = time.Now()
				requireVerdict(t, consume.Requeue, w, func(ctx context.Context) error {
					return policy.Run(ctx, h, func(context.Context) error { return nil })
				})
				assert.Equal(t, 12*time.Second, time.Since(began))
			})
		})
	}
}

// A message that nobody takes back goes on with the attempts that it has, and one that had to
// wait for its worker is held for what is left.
func TestMessageIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := processor(t, pipe(t), consume.Config{BaseDelay: 45 * time.Second, MaxHold: time.Minute})
		var m consume.Message
		calls, verdict := 0, consume.Requeue
		for verdict == consume.Requeue {
			verdict, _ = w.ProcessMessage(t.Context(), &m, func(context.Context) error { calls++; return errBoom })
		}
		require.Equal(t, consume.Dead, verdict)
		require.Equal(t, 5, calls)

		p := pipe(t, bulkhead.Semaphore{Limit: 1})
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		defer h.Release()
		w = processor(t, p, consume.Config{MaxHold: time.Minute})
		began := time.Now()
		verdict, _ = w.ProcessMessage(t.Context(), &consume.Message{Arrived: began.Add(-45 * time.Second)}, func(context.Context) error { return nil })
		require.Equal(t, consume.Requeue, verdict)
		require.Equal(t, 15*time.Second, time.Since(began))
	})
}

// A handler that is at work when the consumer stops, and fails for it, has not failed.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := processor(t, pipe(t), consume.Config{MaxAttempts: 1, Shutdown: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		requireVerdictUnder(ctx, t, consume.Ack, w, func(context.Context) error { time.Sleep(30 * time.Second); return nil })
		require.Equal(t, 30*time.Second, time.Since(began))
		requireVerdictUnder(ctx, t, consume.Requeue, w, func(context.Context) error { panic("not begun") })

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		requireVerdictUnder(ctx, t, consume.Requeue, w, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		requireVerdictUnder(ctx, t, consume.Ack, w, func(ctx context.Context) error { <-ctx.Done(); return nil })
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	_, err := consume.New(nil, consume.Config{Workers: -1, MaxAttempts: math.MinInt, BaseDelay: -1, MaxDelay: -1, MaxHold: -1, Shutdown: -1})
	for _, field := range []string{"Workers", "MaxAttempts", "BaseDelay", "MaxDelay", "MaxHold", "Shutdown"} {
		require.ErrorContains(t, err, "consume."+field)
	}
	w, err := consume.New(nil, consume.Config{})
	require.NoError(t, err)
	require.Equal(t, consume.Config{Workers: 10, MaxAttempts: 5, BaseDelay: time.Second, MaxDelay: time.Minute, MaxHold: 10 * time.Minute, Shutdown: 10 * time.Second}, w.Config())
	requireVerdict(t, consume.Ack, w, func(context.Context) error { return nil })
	w, err = consume.New(nil, consume.Config{MaxAttempts: 1})
	require.NoError(t, err)
	requireVerdict(t, consume.Dead, w, func(context.Context) error { return errBoom })
	require.Equal(t, "ack dead requeue", consume.Ack.String()+" "+consume.Dead.String()+" "+consume.Requeue.String())
}

// A message that is refused is held, and handled once there is room: what the suite calls
// refused shows as a message that waits, so it is left to the tests above.
func TestConformance(t *testing.T) { //nolint:paralleltest // it counts goroutines
	conformance.Run(t, conformance.Adapter{
		Pool: true,
		Skip: map[conformance.Case]string{
			conformance.Refused:   "a message that is refused waits",
			conformance.Abandoned: "nobody reads a part of a message",
			conformance.Gone:      "the far end is the handler's business",
			conformance.Deadline:  "the context of a consumer says when it stops; deadlines are the pipeline's",
		},
		Start: func(t *testing.T, p *policy.Pipeline, c conformance.Case) (func(context.Context) error, func()) {
			t.Helper()
			w := processor(t, p, consume.Config{MaxAttempts: 1, Shutdown: 1})
			return func(ctx context.Context) error {
				_, err := w.Process(ctx, func(ctx context.Context) error {
					switch c {
					case conformance.Slow:
						time.Sleep(conformance.Slowness)
					case conformance.Canceled, conformance.Deadline:
						<-ctx.Done()
						return ctx.Err()
					case conformance.Panic:
						panic("boom")
					case conformance.Failure:
						return errBoom
					case conformance.Success, conformance.Refused, conformance.Abandoned, conformance.Gone:
					}
					return nil
				})
				return err
			}, func() {}
		},
	})
}
