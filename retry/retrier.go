package retry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/draw"
	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Policy      = Config{}
	_ policy.Policy      = (*Retrier)(nil)
	_ policy.Retrier     = (*Retrier)(nil)
	_ policy.Snapshotter = (*Retrier)(nil)
	_ policy.Reloader    = (*Retrier)(nil)
)

// Retrier is a live [Config]: it decides about retries and holds the budget they
// are paid from. It makes no attempts and never waits; the pipeline does.
//
// All methods are safe for concurrent use, and none takes a lock on the path of a
// call that succeeds.
type Retrier struct {
	budget LiveBudget // nil when there is none
	set    atomic.Pointer[settings]
}

// settings are what [Retrier.Reload] replaces.
type settings struct {
	cfg    Config       // effective values
	source BudgetSource // as it was handed over
	rules  rules
	delays delays
}

func newSettings(cfg Config, source BudgetSource) *settings {
	return &settings{
		cfg: cfg, source: source, rules: cfg.rules(),
		delays: delays{
			kind: cfg.Backoff, base: cfg.BaseDelay, most: cfg.MaxDelay, factor: cfg.Factor, jitter: cfg.Jitter,
			uniform: draw.Uint64N,
		},
	}
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
	source, budget, err := liveBudget(cfg.Budget)
	if err != nil {
		return nil, err
	}
	cfg.Budget = source
	if budget != nil {
		cfg.Budget = budget
	}
	r := &Retrier{budget: budget}
	r.set.Store(newSettings(cfg, source))
	return r, nil
}

// BuildPolicy returns a part that shares this retrier, and its budget, with every
// other pipeline that it is handed to. It never fails.
func (r *Retrier) BuildPolicy() (policy.Part, error) { return r.part(true), nil }

// part returns what the retrier is in a pipeline. shared says that others may use its
// budget.
func (r *Retrier) part(shared bool) policy.Part {
	set := r.set.Load()
	p := policy.Part{
		Kind: kind, Name: set.cfg.Name, Retry: r, Warnings: set.cfg.warnings(),
		MaxAttempts: max(set.cfg.MaxAttempts, 0), BaseDelay: set.shortest(),
	}
	if r.budget != nil {
		p.Budget = r.budget
		p.Calls = r.budget.calls(shared)
	}
	return p
}

// shortest returns the least that lies between two attempts.
func (set *settings) shortest() time.Duration {
	least := time.Duration(-1)
	for _, rule := range set.rules {
		d := rule.Delay
		switch {
		case rule.Retry == Never:
			continue
		case d == 0:
			d = set.delays.least()
		}
		if d = max(d, 0); least < 0 || d < least {
			least = d
		}
	}
	return max(least, 0)
}

// Config returns the effective configuration: defaults filled in, and as the Budget
// the live one, or [NoBudget].
func (r *Retrier) Config() Config { return r.set.Load().cfg }

// Budget returns the live budget, to be shared with others, or nil if there is none.
func (r *Retrier) Budget() LiveBudget { return r.budget }

// First counts a first attempt, which pays into the budget.
func (r *Retrier) First(a *policy.Attempt) {
	if r.budget != nil {
		r.budget.First(a)
	}
}

// Decide says whether another attempt follows, and after which delay. The checks come
// in this order; the first that fails is the Stop of the answer:
//
//  1. outcome: it is one that is retried (canceled and rejected have a Stop of their own)
//  2. call: the call does not ask for NoRetry
//  3. hop: no layer above is retrying
//  4. attempts: MaxAttempts, that of the outcome's rule if it has one, is not reached
//  5. pushback: the dependency does not refuse a retry, nor ask for more than MaxPushback
//  6. max_duration: the attempt begins within MaxDuration
//  7. deadline: the attempt begins before the deadline of the call
//  8. budget: the budget has one left, which is then taken
//
// The budget comes last, so that nothing is taken from it for a retry that something
// else forbids.
func (r *Retrier) Decide(s policy.RetryState) policy.Decision {
	set := r.set.Load()
	pushback, rule, stop := set.outcome(s)
	if r.budget != nil && s.Outcome.Kind != policy.NotRun && (stop == policy.StopNone || s.Outcome.Pushback < 0) {
		r.budget.failed()
	}
	switch {
	case stop != policy.StopNone:
		return policy.Decision{Stop: stop}
	case s.Call != nil && s.Call.NoRetry:
		return policy.Decision{Stop: policy.StopCall}
	case s.Hop.IsRetry():
		return policy.Decision{Stop: policy.StopHop}
	case rule.MaxAttempts != Unlimited && s.Attempt >= rule.MaxAttempts:
		return policy.Decision{Stop: policy.StopAttempts}
	case pushback < 0 || pushback > set.cfg.MaxPushback:
		return policy.Decision{Stop: policy.StopPushback}
	}
	delay := rule.Delay
	if delay == 0 {
		delay = set.delays.before(s.Attempt, s.LastDelay)
	}
	delay = max(delay, pushback, 0)
	// Remaining times are compared with the delay, never added to it: a sum of two
	// durations may wrap around, and would then be early.
	if set.cfg.MaxDuration > 0 && delay >= set.cfg.MaxDuration-max(s.Now.Sub(s.Started), 0) {
		return policy.Decision{Stop: policy.StopMaxDuration}
	}
	if !s.Deadline.IsZero() && delay >= s.Deadline.Sub(s.Now) {
		return policy.Decision{Stop: policy.StopDeadline}
	}
	if r.budget != nil && !r.budget.Take(s.Now) {
		return policy.Decision{Stop: policy.StopBudget}
	}
	return policy.Decision{Delay: delay}
}

// outcome says whether an attempt that ended like this is retried, by which rule, and
// how long the dependency, or the gate that refused, wants to be left alone.
func (set *settings) outcome(s policy.RetryState) (pushback time.Duration, rule Rule, stop policy.Stop) {
	switch k := s.Outcome.Kind; {
	case k == policy.Canceled:
		return 0, rule, policy.StopCanceled
	case k == policy.NotRun:
		pushback, stop = set.refusal(s.Err)
		return pushback, Rule{MaxAttempts: set.cfg.MaxAttempts}, stop
	case k >= policy.NumKinds:
		return 0, rule, policy.StopOutcome
	default:
		rule = set.rules[k]
	}
	if rule.Retry == Never || (rule.Retry == AwaitPushback && s.Outcome.Pushback == 0) {
		return 0, rule, policy.StopOutcome
	}
	return s.Outcome.Pushback, rule, policy.StopNone
}

// refusal is outcome for an attempt that did not run.
func (set *settings) refusal(err error) (retryAfter time.Duration, stop policy.Stop) {
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
	if !set.cfg.RetryRejected || lasting {
		return 0, policy.StopRejected
	}
	return re.RetryAfter, policy.StopNone
}

// Undo gives the retry of the last Decide back to the budget.
func (r *Retrier) Undo(now time.Time) {
	if r.budget != nil {
		r.budget.Undo(now)
	}
}

// Snapshot returns the state as it is at the given time. Counts of why calls were not
// retried are the pipeline's.
func (r *Retrier) Snapshot(now time.Time) policy.PolicySnapshot {
	cfg := r.Config()
	s := &policy.RetrySnapshot{MaxAttempts: max(cfg.MaxAttempts, 0)}
	if r.budget != nil {
		s.HasBudget = true
		r.budget.describe(s, now)
	}
	return policy.PolicySnapshot{Name: cfg.Name, Kind: kind, Retry: s}
}
