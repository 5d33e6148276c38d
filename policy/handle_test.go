package policy_test

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

	"github.com/breakwater-go/breakwater/policy"
)

func TestEnterLeave(t *testing.T) {
	t.Parallel()
	g := &gate{}
	r := &retrier{max: 3}
	p := build(t, g, r)
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, g.held())
	assert.True(t, h.Leave(errBoom))
	assert.Zero(t, g.held())
	assert.Equal(t, []policy.Kind{policy.Failure}, g.kinds())
	assert.Equal(t, 1, r.firsts, "it counts as a first attempt")
	assert.Empty(t, r.states, "it is never retried")

	h, err = p.Enter(t.Context())
	require.NoError(t, err)
	h.Release()
	assert.Equal(t, policy.Failure, g.kinds()[1], "an outcome that nobody told is a failure")
	snap := p.Snapshot()
	assert.Equal(t, uint64(2), snap.Calls[policy.Failure])
	assert.Equal(t, uint64(2), snap.Attempts[policy.Failure])

	var none *policy.Pipeline
	h, err = none.Enter(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, h.Context())
	assert.False(t, h.Leave(nil))
	h.Release()
	h.Abandon()
}

func TestCaseB44_LeavingTwiceDoesNothing(t *testing.T) {
	t.Parallel()
	g := &gate{limit: 1, holds: true}
	p := build(t, g)
	for range 50 {
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		var counted atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				switch i % 4 {
				case 0:
					if h.Leave(nil) {
						counted.Add(1)
					}
				case 1:
					if h.Settle(policy.Success, 0) {
						counted.Add(1)
					}
					h.Release()
				case 2:
					h.Amend(policy.Failure)
					h.Release()
				case 3:
					h.Abandon()
				}
			})
		}
		wg.Wait()
		h.Release()
		require.LessOrEqual(t, counted.Load(), int32(1))
		require.Zero(t, g.held())
	}

	// A handle of an earlier attempt does nothing to a later one.
	old, err := p.Enter(t.Context())
	require.NoError(t, err)
	old.Leave(nil)
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	for range 3 {
		assert.False(t, old.Leave(nil))
		old.Release()
		assert.False(t, old.Amend(policy.Failure))
		old.Abandon()
	}
	assert.Equal(t, 1, g.held())
	assert.NoError(t, h.Context().Err())
	assert.True(t, h.Leave(nil))
}

func TestSettleKeepsThePermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		permit, breaker := &gate{name: "permit", holds: true}, &gate{name: "breaker", place: 1}
		p := build(t, permit, breaker, policy.Timeouts{Attempt: time.Second})
		h, err := p.Enter(t.Context())
		require.NoError(t, err)
		ctx := h.Context()
		_, has := ctx.Deadline()
		assert.True(t, has)
		assert.True(t, h.Settle(policy.Success, 0))
		assert.Equal(t, []policy.Kind{policy.Success}, breaker.kinds())
		assert.Equal(t, 1, permit.held())

		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err(), "the attempt's timeout ended with the outcome")
		_, has = ctx.Deadline()
		assert.False(t, has)
		assert.False(t, h.Leave(errBoom), "the outcome has been told")
		assert.True(t, h.Amend(policy.Failure))
		assert.False(t, h.Amend(policy.Failure), "once")
		assert.Equal(t, []policy.Kind{policy.Failure}, breaker.amended)
		h.Release()
		assert.Zero(t, permit.held())
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.Equal(t, uint64(1), p.Snapshot().Calls[policy.Success])

		h, err = p.Enter(t.Context())
		require.NoError(t, err)
		h.Settle(policy.Busy, time.Second)
		assert.False(t, h.Amend(policy.Failure), "only a success can turn out otherwise")
		h.Abandon()
		h.Abandon()
		assert.Equal(t, uint64(1), p.Snapshot().Abandoned)
		assert.Equal(t, time.Second, breaker.outcomes[1].Pushback)
	})
}

func TestHoldOutlivesTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{holds: true}
		p := build(t, g, policy.Timeouts{Total: 2 * time.Second, Attempt: time.Second})
		var ctx context.Context
		early := make(chan struct{})
		h, err := policy.DoAttempt(t.Context(), p, nil, 0, func(c context.Context, _ int, a *policy.Attempt) (policy.Handle, error) {
			ctx = c //nolint:fatcontext // looked at after the call
			h := a.Hold()
			go func() { defer close(early); h.Amend(policy.Failure) }() // waits until the outcome is settled
			return h, nil
		}, nil)
		require.NoError(t, err)
		<-early
		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err(), "neither timeout reaches beyond the call")
		assert.Equal(t, []policy.Kind{policy.Failure}, g.amended)
		h.Release()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.Zero(t, g.held())

		// A panic after Hold gives everything back at once.
		var kept policy.Handle
		assert.Panics(t, func() {
			_, _ = policy.DoAttempt(t.Context(), p, nil, 0, func(_ context.Context, _ int, a *policy.Attempt) (int, error) {
				kept = a.Hold()
				panic("x")
			}, nil)
		})
		assert.Zero(t, g.held())
		kept.Release()
		assert.Zero(t, g.held())
	})
}

func TestDiscardedOutcomeIsTold(t *testing.T) {
	t.Parallel()
	p := build(t, discarding{})
	h, err := p.Enter(t.Context())
	require.NoError(t, err)
	assert.False(t, h.Leave(nil))
	rec := &recorder{}
	p = build(t, discarding{}, policy.Observe(rec))
	_, err = policy.Do(t.Context(), p, succeed)
	require.NoError(t, err)
	assert.Equal(t, uint64(1), p.Snapshot().Discarded)
	assert.Equal(t, []string{"discarded"}, rec.kinds())
}

// discarding is a gate for which every outcome comes too late.
type discarding struct{}

func (d discarding) BuildPolicy() (policy.Part, error) {
	return policy.Part{Kind: "late", Gate: d}, nil
}
func (discarding) Peek(*policy.Attempt) error                        { return nil }
func (discarding) Enter(context.Context, *policy.Attempt, int) error { return nil }
func (discarding) Leave(a *policy.Attempt, _ int, _ policy.Outcome)  { a.Discard() }

func TestCaseB47_NothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	// The function ignores its context: the attempt is a timeout, no goroutine is
	// left (goleak looks after the package), and the answer is not thrown away.
	synctest.Test(t, func(t *testing.T) {
		g := &gate{}
		p := build(t, g, policy.Timeouts{Attempt: 10 * time.Millisecond})
		for range 1000 {
			v, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { time.Sleep(time.Second); return 1, nil })
			require.NoError(t, err)
			require.Equal(t, 1, v)
			_, err = policy.Do(t.Context(), p, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		assert.Equal(t, []policy.Kind{policy.Success, policy.Timeout}, g.kinds()[:2])
	})
	for range 1000 {
		var reg policy.Registry
		_, err := reg.New("a", &gate{}, &retrier{}, policy.Timeouts{Total: time.Hour, Attempt: time.Minute}, policy.Observe(&recorder{}))
		require.NoError(t, err)
		require.NoError(t, reg.Close(t.Context()))
	}
}

func TestSubscribersDeliverInOrder(t *testing.T) {
	t.Parallel()
	var s policy.Subscribers
	var got []uint64
	event := func(n uint64) policy.Event { return policy.Event{Change: policy.StateChange{Generation: n}} }
	s.Subscribe(func(policy.Event) { panic("listener") })
	cancel := s.Subscribe(func(e policy.Event) {
		got = append(got, e.Change.Generation)
		if e.Change.Generation == 1 { // the listener causes an event
			s.Queue(event(3))
			s.Flush()
		}
	})
	s.Queue(event(1))
	s.Queue(event(2))
	s.Flush()
	assert.Equal(t, []uint64{1, 2, 3}, got)
	cancel()
	cancel()
	s.Queue(event(4))
	s.Flush()
	assert.Equal(t, []uint64{1, 2, 3}, got)

	// A listener that ends its goroutine does not silence the others for good.
	end := s.Subscribe(func(policy.Event) { runtime.Goexit() })
	s.Queue(event(5))
	done := make(chan struct{})
	go func() { defer close(done); s.Flush() }()
	<-done
	end()
	seen := false
	s.Subscribe(func(policy.Event) { seen = true })
	s.Queue(event(6))
	s.Flush()
	assert.True(t, seen)
}

func TestTracerFollowsACall(t *testing.T) {
	t.Parallel()
	tr := &tracer{}
	calls := 0
	p := build(t, policy.Trace(tr), &retrier{max: 3}, &gate{}, &fallbackFunc[int]{answer: func(context.Context, policy.FailedCall) (int, error) { return 5, nil }})
	r, err := policy.DoResult(t.Context(), p, func(ctx context.Context) (int, error) {
		calls++
		assert.Equal(t, calls, ctx.Value(tracerKey{}), "the attempt runs under the span's context")
		return 0, errBoom
	})
	require.NoError(t, err)
	assert.True(t, r.Degraded)
	assert.Equal(t, []string{
		"start stock", "attempt 1", "end failure", "event retry", "attempt 2", "end failure", "event retry",
		"attempt 3", "end failure", "event stopped", "event fallback", "end call failure 3 degraded",
	}, tr.log)

	tr.log = nil
	assert.Panics(t, func() {
		_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { panic("x") })
	})
	assert.Equal(t, []string{"start stock", "attempt 1", "end failure", "end call not_run 1"}, tr.log)

	tr.log, tr.off = nil, true
	_, err = policy.Do(t.Context(), p, succeed)
	require.NoError(t, err)
	assert.Empty(t, tr.log)
}

type tracerKey struct{}

type tracer struct {
	off bool
	log []string
}

func (tr *tracer) StartCall(ctx context.Context, dep string) (context.Context, policy.CallSpan) {
	if tr.off {
		return ctx, nil
	}
	tr.log = append(tr.log, "start "+dep)
	return ctx, (*callSpan)(tr)
}

type callSpan tracer

func (s *callSpan) StartAttempt(ctx context.Context, n int) (context.Context, policy.AttemptSpan) {
	s.log = append(s.log, "attempt "+string(rune('0'+n)))
	return context.WithValue(ctx, tracerKey{}, n), (*attemptSpan)(s)
}
func (s *callSpan) Event(e policy.Event) { s.log = append(s.log, "event "+e.Kind.String()) }
func (s *callSpan) End(e policy.CallEnd) {
	line := "end call " + e.Outcome.Kind.String() + " " + string(rune('0'+e.Attempts))
	if e.Degraded {
		line += " degraded"
	}
	s.log = append(s.log, line)
}

type attemptSpan tracer

func (s *attemptSpan) End(o policy.Outcome, _ error) { s.log = append(s.log, "end "+o.Kind.String()) }

func TestErrorsRead(t *testing.T) {
	t.Parallel()
	refusal := func(dependency string, after time.Duration) *policy.RejectedError {
		return &policy.RejectedError{Dependency: dependency, Policy: "p", Reason: policy.ReasonOpen, RetryAfter: after}
	}
	for err, want := range map[error]string{
		&policy.RejectedError{Dependency: "d", Policy: "p", Reason: policy.ReasonCost, RetryAfter: policy.Never}: "d: rejected by p (cost), no retry will help",
		&policy.RejectedError{Policy: "p"}:                          "rejected by p (unknown)",
		refusal("d", 4823174286):                                    "d: rejected by p (open), retry after 4.824s", // rounded up
		refusal("d", 1):                                             "d: rejected by p (open), retry after 1ms",
		refusal("d", 2*time.Millisecond):                            "d: rejected by p (open), retry after 2ms",
		refusal("d", policy.Never-1):                                "d: rejected by p (open), retry after 2562047h47m16.854s",
		refusal("d", (policy.Never - 1).Truncate(time.Millisecond)): "d: rejected by p (open), retry after 2562047h47m16.854s",
		refusal("", -1):                                             "rejected by p (open)",

		&policy.ConfigError{Dependency: "inventory", Policy: "retry", Field: "MaxAttempts", Value: -2, Want: "want at least 0"}: "inventory.retry.MaxAttempts: -2: want at least 0",
		&policy.AnswerError{Dependency: "d", Kind: policy.Busy}:                                                                 "d: the answer was classified as busy",
		&policy.AnswerError{Dependency: "d", Kind: policy.Busy, Code: 503}:                                                      "d: the answer was classified as busy (status 503)",

		&policy.GaveUpError{Dependency: "d", Attempts: 1, Stop: policy.StopBudget, Last: errBoom}:                                                 "d: gave up after 1 attempt (budget): boom",
		&policy.GaveUpError{Attempts: 2, Stop: policy.StopBudget, Last: errBoom}:                                                                  "gave up after 2 attempts (budget): boom",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopDeadline, Last: errBoom, Cause: context.DeadlineExceeded}:              "d: gave up after 2 attempts (deadline: context deadline exceeded): boom",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopRejected, Last: errBoom, Cause: refusal("d", 0)}:                       "d: gave up after 2 attempts (rejected by p (open)): boom",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopAttempts, Last: errBoom, Cause: refusal("d", 0)}:                       "d: gave up after 2 attempts (attempts: rejected by p (open)): boom",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopRejected, Last: errBoom, Cause: refusal("other", 0)}:                   "d: gave up after 2 attempts (other: rejected by p (open)): boom",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopRejected, Last: errBoom, Cause: fmt.Errorf("d: %w", refusal("d", 0))}:  "d: gave up after 2 attempts (rejected: d: rejected by p (open)): boom",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopBudget, Last: &policy.AnswerError{Dependency: "d", Kind: policy.Busy}}: "d: gave up after 2 attempts (budget): the answer was classified as busy",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopBudget, Last: fmt.Errorf("d: %w", errBoom)}:                            "d: gave up after 2 attempts (budget): boom",
		&policy.GaveUpError{Dependency: "d", Attempts: 2, Stop: policy.StopBudget, Last: &policy.AnswerError{Dependency: "e", Kind: policy.Busy}}: "d: gave up after 2 attempts (budget): e: the answer was classified as busy",
	} {
		assert.EqualError(t, err, want)
	}
	for after, want := range map[time.Duration]int{1: 1, 200 * time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2, policy.Never - 1: 1<<31 - 1} {
		s, ok := (&policy.RejectedError{RetryAfter: after}).RetryAfterSeconds()
		assert.True(t, ok)
		assert.Equal(t, want, s, "%v", after)
	}
	for _, after := range []time.Duration{0, -1, policy.Never} {
		_, ok := (&policy.RejectedError{RetryAfter: after}).RetryAfterSeconds()
		assert.False(t, ok, "%v", after)
	}
	assert.Nil(t, errors.Unwrap(&policy.AnswerError{}))
}
