package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Policy      = Config{}
	_ policy.Policy      = (*Retrier)(nil)
	_ policy.Retrier     = (*Retrier)(nil)
	_ policy.Snapshotter = (*Retrier)(nil)
)

// Retrier is a live [Config]: it decides about retries and holds the budget they
// are paid from. It makes no attempts and never waits; the pipeline does.
//
// All methods are safe for concurrent use, and none takes a lock on the path of a
// call that succeeds.
type Retrier struct {
	cfg    Config  // effective values
	budget *Budget // nil when there is none

	// uniform returns an evenly distributed number in [0, n), for the jitter.
	uniform func(n uint64) uint64
}

// New returns a live retrier. The name goes into snapshots; empty means cfg.Name, and
// if that is empty too, "retry". The error, if any, is that of [Config.Validate].
func New(name string, cfg Config) (*Retrier, error) {
	if name != "" {
		cfg.Name = name
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Budget = direct(cfg.Budget)
	if cfg.Budget == nil {
		cfg.Budget = BudgetConfig{}
	}
	budget, err := cfg.Budget.budget()
	if err != nil {
		return nil, err
	}
	if budget != nil {
		cfg.Budget = budget
	}
	return &Retrier{cfg: cfg, budget: budget, uniform: rand.Uint64N}, nil
}

// BuildPolicy returns a part that shares this retrier, and its budget, with every
// other pipeline that it is handed to. It never fails.
func (r *Retrier) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind: kind, Name: r.cfg.Name, Retry: r, Warnings: r.cfg.warnings(),
		MaxAttempts: max(r.cfg.MaxAttempts, 0), BaseDelay: r.shortest(),
	}, nil
}

// shortest returns the least that lies between two attempts.
func (r *Retrier) shortest() time.Duration {
	if r.cfg.Jitter == FullJitter {
		return 0
	}
	return max(r.cfg.BaseDelay, 0)
}

// Config returns the effective configuration: defaults filled in, and as the Budget
// the live one, or [NoBudget].
func (r *Retrier) Config() Config { return r.cfg }

// First counts a first attempt, which pays into the budget.
func (r *Retrier) First(a *policy.Attempt) {
	if r.budget != nil {
		r.budget.first(a.Since(r.budget.counts.Base()), a.Stripe())
	}
}

// Decide says whether another attempt follows, and after which delay. The checks come
// in this order; the first that fails is the Stop of the answer:
//
//  1. outcome: it is one that is retried (canceled and rejected have a Stop of their own)
//  2. call: the call does not ask for NoRetry
//  3. attempts: MaxAttempts is not reached
//  4. pushback: the dependency does not refuse a retry, nor ask for more than MaxPushback
//  5. max_duration: the attempt begins within MaxDuration
//  6. deadline: the attempt begins before the deadline of the call
//  7. budget: the budget has one left, which is then taken
//
// The budget comes last, so that nothing is taken from it for a retry that something
// else forbids.
func (r *Retrier) Decide(s policy.RetryState) policy.Decision {
	pushback, stop := r.outcome(s)
	switch {
	case stop != policy.StopNone:
		return policy.Decision{Stop: stop}
	case s.Call != nil && s.Call.NoRetry:
		return policy.Decision{Stop: policy.StopCall}
	case r.cfg.MaxAttempts != Unlimited && s.Attempt >= r.cfg.MaxAttempts:
		return policy.Decision{Stop: policy.StopAttempts}
	case pushback < 0 || pushback > r.cfg.MaxPushback:
		return policy.Decision{Stop: policy.StopPushback}
	}
	delay := max(r.delay(s.Attempt), pushback)
	// Remaining times are compared with the delay, never added to it: a sum of two
	// durations may wrap around, and would then be early.
	if r.cfg.MaxDuration > 0 && delay >= r.cfg.MaxDuration-max(s.Now.Sub(s.Started), 0) {
		return policy.Decision{Stop: policy.StopMaxDuration}
	}
	if !s.Deadline.IsZero() && delay >= s.Deadline.Sub(s.Now) {
		return policy.Decision{Stop: policy.StopDeadline}
	}
	if r.budget != nil && !r.budget.take(s.Now) {
		return policy.Decision{Stop: policy.StopBudget}
	}
	return policy.Decision{Delay: delay}
}

// outcome says whether an attempt that ended like this is retried, and how long the
// dependency, or the gate that refused, wants to be left alone.
func (r *Retrier) outcome(s policy.RetryState) (pushback time.Duration, stop policy.Stop) {
	switch s.Outcome.Kind {
	case policy.Failure, policy.Timeout, policy.Busy:
		return s.Outcome.Pushback, policy.StopNone
	case policy.Throttled:
		if s.Outcome.Pushback == 0 {
			return 0, policy.StopOutcome // over a limit, and nobody knows for how long
		}
		return s.Outcome.Pushback, policy.StopNone
	case policy.Canceled:
		return 0, policy.StopCanceled
	case policy.NotRun:
		return r.refusal(s.Err)
	default:
		return 0, policy.StopOutcome
	}
}

// refusal is outcome for an attempt that did not run.
func (r *Retrier) refusal(err error) (retryAfter time.Duration, stop policy.Stop) {
	re, ok := errors.AsType[*policy.RejectedError](err)
	if !ok {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return 0, policy.StopDeadline
		case errors.Is(err, context.Canceled):
			return 0, policy.StopCanceled
		default:
			return 0, policy.StopRejected
		}
	}
	// An operator who holds a breaker open, and a pipeline that was closed, do not
	// change their mind within a call.
	lasting := re.RetryAfter == policy.Never || re.Reason == policy.ReasonForced || re.Reason == policy.ReasonClosed
	if !r.cfg.RetryRejected || lasting {
		return 0, policy.StopRejected
	}
	return re.RetryAfter, policy.StopNone
}

// delay returns the backoff before the retry that follows the given attempt.
func (r *Retrier) delay(attempt int) time.Duration {
	return r.cfg.Jitter.spread(backoff(r.cfg.BaseDelay, r.cfg.MaxDelay, r.cfg.Factor, attempt), r.uniform)
}

// Undo gives the retry of the last Decide back to the budget.
func (r *Retrier) Undo(now time.Time) {
	if r.budget != nil {
		r.budget.undo(now)
	}
}

// Snapshot returns the state as it is at the given time. Counts of why calls were not
// retried are the pipeline's.
func (r *Retrier) Snapshot(now time.Time) policy.PolicySnapshot {
	s := &policy.RetrySnapshot{MaxAttempts: max(r.cfg.MaxAttempts, 0)}
	if r.budget != nil {
		r.budget.describe(s, now)
	}
	return policy.PolicySnapshot{Name: r.cfg.Name, Kind: kind, Retry: s}
}
