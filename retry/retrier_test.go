package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

var errDown = errors.New("down")

func newRetrier(tb testing.TB, cfg retry.Config) *retry.Retrier {
	tb.Helper()
	r, err := retry.New("", cfg)
	require.NoError(tb, err)
	return r
}

func TestDecide(t *testing.T) {
	t.Parallel()
	start := time.Now()
	failed := policy.RetryState{
		Now: start, Started: start, Attempt: 1, Err: errDown,
		Outcome: policy.Outcome{Kind: policy.Failure}, Call: &policy.Call{},
	}
	with := func(change func(s *policy.RetryState)) policy.RetryState {
		s := failed
		change(&s)
		return s
	}
	kind := func(k policy.Kind, pushback time.Duration) policy.RetryState {
		return with(func(s *policy.RetryState) { s.Outcome = policy.Outcome{Kind: k, Pushback: pushback} })
	}
	refused := func(err error) policy.RetryState {
		return with(func(s *policy.RetryState) { s.Outcome, s.Err = policy.Outcome{Kind: policy.NotRun}, err })
	}
	const second = time.Second
	// One second before the first retry, and no chance.
	plain := retry.Config{BaseDelay: second, Jitter: retry.NoJitter}
	cfg := func(change func(c *retry.Config)) retry.Config {
		c := plain
		change(&c)
		return c
	}
	again := cfg(func(c *retry.Config) { c.RetryRejected = true })
	broke := cfg(func(c *retry.Config) { c.Budget = retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off} })

	tests := []struct {
		name  string
		cfg   retry.Config
		state policy.RetryState
		stop  policy.Stop
		delay time.Duration
	}{
		{name: "failure", cfg: plain, state: kind(policy.Failure, 0), delay: second},
		{name: "timeout", cfg: plain, state: kind(policy.Timeout, 0), delay: second},
		{name: "busy", cfg: plain, state: kind(policy.Busy, 0), delay: second},
		{name: "throttled, time unknown", cfg: plain, state: kind(policy.Throttled, 0), stop: policy.StopOutcome},
		{name: "throttled, time known", cfg: plain, state: kind(policy.Throttled, 3*second), delay: 3 * second},
		{name: "throttled, for ever", cfg: plain, state: kind(policy.Throttled, -1), stop: policy.StopPushback},
		{name: "success", cfg: plain, state: kind(policy.Success, 0), stop: policy.StopOutcome},
		{name: "permanent", cfg: plain, state: kind(policy.Permanent, 0), stop: policy.StopOutcome},
		{name: "canceled", cfg: plain, state: kind(policy.Canceled, 0), stop: policy.StopCanceled},
		{name: "kind of the future", cfg: plain, state: kind(policy.NumKinds, 0), stop: policy.StopOutcome},

		{name: "throttled, never", cfg: cfg(func(c *retry.Config) { c.Throttled.Retry = retry.Never }), state: kind(policy.Throttled, second), stop: policy.StopOutcome},
		{name: "throttled, always", cfg: cfg(func(c *retry.Config) { c.Throttled.Retry = retry.Always }), state: kind(policy.Throttled, 0), delay: second},
		{name: "throttled, after a time of its own", cfg: cfg(func(c *retry.Config) { c.Throttled.Delay = 7 * second }), state: kind(policy.Throttled, 0), delay: 7 * second},
		{name: "busy, when it says so", cfg: cfg(func(c *retry.Config) { c.Busy.Retry = retry.AwaitPushback }), state: kind(policy.Busy, 0), stop: policy.StopOutcome},
		{name: "busy, and it says so", cfg: cfg(func(c *retry.Config) { c.Busy.Retry = retry.AwaitPushback }), state: kind(policy.Busy, 3*second), delay: 3 * second},
		{name: "busy, exactly", cfg: cfg(func(c *retry.Config) { c.Busy.Delay, c.Jitter = 500*time.Millisecond, retry.FullJitter }), state: kind(policy.Busy, 0), delay: 500 * time.Millisecond},
		{name: "busy, exactly and asked for more", cfg: cfg(func(c *retry.Config) { c.Busy.Delay = 500 * time.Millisecond }), state: kind(policy.Busy, second), delay: second},
		{name: "longer than MaxDelay", cfg: cfg(func(c *retry.Config) { c.Busy.Delay = time.Minute }), state: kind(policy.Busy, 0), delay: time.Minute},
		{name: "timeout, at once", cfg: cfg(func(c *retry.Config) { c.Timeout.Delay = retry.Off }), state: kind(policy.Timeout, 0)},
		{name: "timeout, once", cfg: cfg(func(c *retry.Config) { c.Timeout.MaxAttempts = 2 }), state: with(func(s *policy.RetryState) { s.Attempt, s.Outcome.Kind = 2, policy.Timeout }), stop: policy.StopAttempts},
		{name: "the others as before", cfg: cfg(func(c *retry.Config) { c.Timeout = retry.Rule{MaxAttempts: 1, Delay: retry.Off} }), state: with(func(s *policy.RetryState) { s.Attempt = 2 }), delay: 2 * second},
		{name: "failures, never", cfg: cfg(func(c *retry.Config) { c.Failure.Retry = retry.Never }), state: failed, stop: policy.StopOutcome},

		{name: "part of a retry", cfg: plain, state: with(func(s *policy.RetryState) { s.Hop = policy.NewHop(2) }), stop: policy.StopHop},
		{name: "first try of the layers above", cfg: plain, state: with(func(s *policy.RetryState) { s.Hop = policy.NewHop(1) }), delay: second},
		{name: "call without retry", cfg: plain, state: with(func(s *policy.RetryState) { s.Call = &policy.Call{NoRetry: true} }), stop: policy.StopCall},
		{name: "nothing known about the call", cfg: plain, state: with(func(s *policy.RetryState) { s.Call = nil }), delay: second},

		{name: "second attempt", cfg: plain, state: with(func(s *policy.RetryState) { s.Attempt = 2 }), delay: 2 * second},
		{name: "last attempt", cfg: plain, state: with(func(s *policy.RetryState) { s.Attempt = 3 }), stop: policy.StopAttempts},
		{name: "one attempt", cfg: cfg(func(c *retry.Config) { c.MaxAttempts = 1 }), state: failed, stop: policy.StopAttempts},
		{
			name: "unlimited", cfg: cfg(func(c *retry.Config) { c.MaxAttempts = retry.Unlimited }),
			state: with(func(s *policy.RetryState) { s.Attempt = math.MaxInt }), delay: 10 * second,
		},
		{name: "no backoff", cfg: cfg(func(c *retry.Config) { c.BaseDelay = retry.Off }), state: failed},
		{name: "no backoff, pushback", cfg: cfg(func(c *retry.Config) { c.BaseDelay = retry.Off }), state: kind(policy.Busy, 2), delay: 2},

		{name: "pushback above the backoff", cfg: plain, state: kind(policy.Busy, 7*second), delay: 7 * second},
		{name: "pushback below the backoff", cfg: plain, state: kind(policy.Busy, 1), delay: second},
		{name: "pushback above MaxDelay", cfg: plain, state: kind(policy.Busy, 20*second), delay: 20 * second},
		{name: "pushback at MaxPushback", cfg: plain, state: kind(policy.Busy, 30*second), delay: 30 * second},
		{name: "pushback too long", cfg: plain, state: kind(policy.Busy, 30*second+1), stop: policy.StopPushback},
		{name: "pushback for ever", cfg: plain, state: kind(policy.Failure, -1), stop: policy.StopPushback},
		{name: "no waiting will help", cfg: plain, state: kind(policy.Busy, policy.Never), stop: policy.StopPushback},

		{name: "deadline far", cfg: plain, state: with(func(s *policy.RetryState) { s.Deadline = start.Add(second + 1) }), delay: second},
		{name: "deadline at the retry", cfg: plain, state: with(func(s *policy.RetryState) { s.Deadline = start.Add(second) }), stop: policy.StopDeadline},
		{name: "deadline over", cfg: plain, state: with(func(s *policy.RetryState) { s.Deadline = start.Add(-second) }), stop: policy.StopDeadline},
		{
			name: "duration enough", cfg: cfg(func(c *retry.Config) { c.MaxDuration = second + 1 }), state: failed, delay: second,
		},
		{name: "duration used up by the delay", cfg: cfg(func(c *retry.Config) { c.MaxDuration = second }), state: failed, stop: policy.StopMaxDuration},
		{
			name: "duration used up by the attempt", cfg: cfg(func(c *retry.Config) { c.MaxDuration = 5 * second }),
			state: with(func(s *policy.RetryState) { s.Now = start.Add(4 * second) }), stop: policy.StopMaxDuration,
		},
		{
			name: "duration exceeded long ago", cfg: cfg(func(c *retry.Config) { c.MaxDuration = 1 }),
			state: with(func(s *policy.RetryState) { s.Now = start.Add(math.MaxInt64) }), stop: policy.StopMaxDuration,
		},

		{name: "budget empty", cfg: broke, state: failed, stop: policy.StopBudget},
		{
			name: "budget asked last", cfg: broke,
			state: with(func(s *policy.RetryState) { s.Deadline = start }), stop: policy.StopDeadline,
		},

		{name: "refused", cfg: plain, state: refused(&policy.RejectedError{RetryAfter: second}), stop: policy.StopRejected},
		{name: "context over before the attempt", cfg: again, state: refused(context.DeadlineExceeded), stop: policy.StopDeadline},
		{name: "caller gone before the attempt", cfg: again, state: refused(context.Canceled), stop: policy.StopCanceled},
		{name: "not run, nobody knows why", cfg: again, state: refused(nil), stop: policy.StopRejected},
		{name: "refused, retried", cfg: again, state: refused(&policy.RejectedError{RetryAfter: 5 * second}), delay: 5 * second},
		{name: "refused, time unknown", cfg: again, state: refused(&policy.RejectedError{Reason: policy.ReasonConcurrency}), delay: second},
		{name: "refused, wrapped", cfg: again, state: refused(fmt.Errorf("x: %w", &policy.RejectedError{RetryAfter: 5 * second})), delay: 5 * second},
		{name: "refused for long", cfg: again, state: refused(&policy.RejectedError{RetryAfter: time.Minute}), stop: policy.StopPushback},
		{name: "refused for ever", cfg: again, state: refused(&policy.RejectedError{RetryAfter: policy.Never}), stop: policy.StopRejected},
		{name: "forced open", cfg: again, state: refused(&policy.RejectedError{Reason: policy.ReasonForced}), stop: policy.StopRejected},
		{name: "closed", cfg: again, state: refused(&policy.RejectedError{Reason: policy.ReasonClosed}), stop: policy.StopRejected},
		{
			name: "refused at the last attempt", cfg: again,
			state: with(func(s *policy.RetryState) {
				s.Outcome, s.Err, s.Attempt = policy.Outcome{}, &policy.RejectedError{RetryAfter: second}, 3
			}), stop: policy.StopAttempts,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := newRetrier(t, tt.cfg).Decide(tt.state)
			assert.Equal(t, policy.Decision{Stop: tt.stop, Delay: tt.delay}, got, "stop is %q, want %q", got.Stop, tt.stop)
		})
	}
}

func TestCaseB62SumsDoNotOverflow(t *testing.T) {
	t.Parallel()
	start := time.Now()
	tests := []struct {
		name string
		cfg  retry.Config
		in   policy.RetryState
		want policy.Stop
	}{
		{
			name: "deadline in 2 s, next wait 10 s",
			cfg:  retry.Config{BaseDelay: 10 * time.Second, Jitter: retry.NoJitter},
			in:   policy.RetryState{Now: start, Deadline: start.Add(2 * time.Second)},
			want: policy.StopDeadline,
		},
		{
			name: "at most 1 s, backoff of nearly for ever",
			cfg:  retry.Config{MaxDuration: time.Second, BaseDelay: math.MaxInt64 - 1, Jitter: retry.NoJitter},
			in:   policy.RetryState{Now: start.Add(time.Millisecond)},
			want: policy.StopMaxDuration,
		},
		{
			name: "at most 1 s, asked to wait nearly for ever",
			cfg:  retry.Config{MaxDuration: time.Second, MaxPushback: math.MaxInt64},
			in:   policy.RetryState{Now: start.Add(time.Millisecond), Outcome: policy.Outcome{Pushback: math.MaxInt64 - 1}},
			want: policy.StopMaxDuration,
		},
		{
			name: "deadline in 1 s, asked to wait nearly for ever",
			cfg:  retry.Config{MaxPushback: math.MaxInt64},
			in:   policy.RetryState{Now: start, Deadline: start.Add(time.Second), Outcome: policy.Outcome{Pushback: math.MaxInt64 - 1}},
			want: policy.StopDeadline,
		},
		{
			name: "at most 15 min, asked to wait 30 min, and willing to",
			cfg:  retry.Config{MaxDuration: 15 * time.Minute, MaxPushback: time.Hour},
			in:   policy.RetryState{Now: start, Outcome: policy.Outcome{Pushback: 30 * time.Minute}},
			want: policy.StopMaxDuration,
		},
		{
			name: "asked to wait 30 min, and not willing to",
			cfg:  retry.Config{MaxDuration: 15 * time.Minute},
			in:   policy.RetryState{Now: start, Outcome: policy.Outcome{Pushback: 30 * time.Minute}},
			want: policy.StopPushback,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.in.Started, tt.in.Attempt, tt.in.Err, tt.in.Outcome.Kind = start, 1, errDown, policy.Busy
			got := newRetrier(t, tt.cfg).Decide(tt.in)
			assert.Equal(t, policy.Decision{Stop: tt.want}, got, "stop is %q, want %q", got.Stop, tt.want)
		})
	}
}

// fail decides about a first attempt that failed.
func fail(r *retry.Retrier, now time.Time) policy.Stop {
	return r.Decide(policy.RetryState{
		Now: now, Started: now, Attempt: 1, Err: errDown, Outcome: policy.Outcome{Kind: policy.Failure},
	}).Stop
}

func TestCaseB53OwnRetryIsAllowed(t *testing.T) {
	t.Parallel()
	r := newRetrier(t, retry.Config{Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off}})
	now := time.Now()
	retry.FirstAt(r, now)
	assert.Equal(t, policy.StopNone, fail(r, now))
	assert.Equal(t, policy.StopBudget, fail(r, now))
}

// Six calls that fail and a ratio of one half: three retries, in whatever order calls
// begin and fail.
func TestCaseB53AnyOrder(t *testing.T) {
	t.Parallel()
	orders := map[string]string{ // + begins, - fails
		"all begin first":   "++++++------",
		"one by one":        "+-+-+-+-+-+-",
		"late ones pay too": "+++---+++---",
	}
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRetrier(t, retry.Config{Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}})
			now := time.Now()
			retries := 0
			for _, c := range order {
				if c == '+' {
					retry.FirstAt(r, now)
				} else if fail(r, now) == policy.StopNone {
					retries++
				}
			}
			assert.Equal(t, 3, retries)
		})
	}
}

func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	budget, err := retry.NewBudget(retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off})
	require.NoError(t, err)
	reads, writes := newRetrier(t, retry.Config{Budget: budget}), newRetrier(t, retry.Config{Budget: budget})
	now := time.Now()
	for range 4 {
		retry.FirstAt(reads, now)
	}
	assert.Equal(t, policy.StopNone, fail(writes, now), "paid for by reads")
	assert.Equal(t, policy.StopNone, fail(reads, now))
	assert.Equal(t, policy.StopBudget, fail(writes, now))
	writes.Undo(now)
	assert.Equal(t, policy.StopNone, fail(reads, now), "given back by writes")
	assert.Equal(t, reads.Snapshot(now).Retry, writes.Snapshot(now).Retry)

	own := retry.Config{Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: retry.Off}}
	reads, writes = newRetrier(t, own), newRetrier(t, own)
	for range 4 {
		retry.FirstAt(reads, now)
	}
	assert.Equal(t, policy.StopBudget, fail(writes, now), "a spec gives each policy a budget of its own")
}

func TestDecideTakesNothingForNothing(t *testing.T) {
	t.Parallel()
	r := newRetrier(t, retry.Config{Budget: retry.BudgetConfig{Ratio: 1, MinPerSecond: retry.Off}})
	now := time.Now()
	retry.FirstAt(r, now)
	for _, s := range []policy.RetryState{
		{Outcome: policy.Outcome{Kind: policy.Permanent}, Attempt: 1},
		{Outcome: policy.Outcome{Kind: policy.Failure}, Attempt: 3},
		{Outcome: policy.Outcome{Kind: policy.Failure}, Attempt: 1, Call: &policy.Call{NoRetry: true}},
		{Outcome: policy.Outcome{Kind: policy.Failure, Pushback: -1}, Attempt: 1},
		{Outcome: policy.Outcome{Kind: policy.Failure}, Attempt: 1, Deadline: now.Add(-1)},
		{Outcome: policy.Outcome{Kind: policy.NotRun}, Attempt: 1, Err: &policy.RejectedError{}},
	} {
		s.Now, s.Started = now, now
		require.NotEqual(t, policy.StopNone, r.Decide(s).Stop)
	}
	assert.Zero(t, r.Snapshot(now).Retry.BudgetRetries)
	assert.Equal(t, policy.StopNone, fail(r, now), "the one retry is still there")
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := newRetrier(t, retry.Config{Name: "again", MaxAttempts: 5, Budget: retry.BudgetConfig{Ratio: 0.5, MinPerSecond: 1, Window: 2 * time.Second}})
	assert.Equal(t, policy.PolicySnapshot{Name: "again", Kind: "retry", Retry: &policy.RetrySnapshot{
		MaxAttempts: 5, HasBudget: true, BudgetKind: "ratio", BudgetLevel: 1, BudgetRatio: 0.5, BudgetRemaining: 2,
	}}, r.Snapshot(now), "right without traffic")
	for range 3 {
		retry.FirstAt(r, now)
	}
	require.Equal(t, policy.StopNone, fail(r, now))
	assert.Equal(t, &policy.RetrySnapshot{
		MaxAttempts: 5, HasBudget: true, BudgetKind: "ratio", BudgetLevel: 2.0 / 3, BudgetRatio: 0.5, BudgetFirsts: 3, BudgetRetries: 1, BudgetRemaining: 2,
	}, r.Snapshot(now).Retry, "3.5 less one, in whole retries")

	r = newRetrier(t, retry.Config{MaxAttempts: retry.Unlimited, Budget: retry.NoBudget{}})
	retry.FirstAt(r, now)
	r.Undo(now)
	assert.Equal(t, &policy.RetrySnapshot{}, r.Snapshot(now).Retry, "0 is unlimited")
}

// Whatever happens at once, the budget holds and a snapshot is never absurd.
func TestRetrierConcurrentSafe(t *testing.T) {
	t.Parallel()
	r := newRetrier(t, retry.Config{Budget: retry.BudgetConfig{Ratio: 0.2, MinPerSecond: 5, Window: time.Second}})
	start := time.Now()
	var wg sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range 2000 {
				now := start.Add(time.Duration(i) * time.Microsecond) // all within one bucket
				retry.FirstAt(r, now)
				if fail(r, now) == policy.StopNone && i%3 == 0 {
					r.Undo(now)
				}
				if i%100 == 0 {
					s := r.Snapshot(now).Retry
					assert.LessOrEqual(t, float64(s.BudgetRetries), 0.2*float64(s.BudgetFirsts)+5)
				}
			}
		})
	}
	wg.Wait()
	s := r.Snapshot(start.Add(2 * time.Millisecond)).Retry
	assert.EqualValues(t, 4*runtime.GOMAXPROCS(0)*2000, s.BudgetFirsts)
	assert.LessOrEqual(t, float64(s.BudgetRetries), 0.2*float64(s.BudgetFirsts)+5)
	assert.Positive(t, s.BudgetRetries)
}
