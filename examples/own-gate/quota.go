package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// region config

// ErrQuota is the cause of a quota's refusals.
var ErrQuota = errors.New("quota: used up for today")

// QuotaConfig configures a [Quota]. It can be handed to policy.New as it is.
type QuotaConfig struct {
	// Name is the instance name. Empty means "quota".
	Name string

	// Limit is the number of calls a day (UTC), at least 1.
	Limit int

	// Shadow makes the quota watch only.
	Shadow bool
}

// BuildPolicy implements [policy.Policy]: each pipeline gets a quota of its own.
func (c QuotaConfig) BuildPolicy() (policy.Part, error) {
	q, err := NewQuota(c)
	if err != nil {
		return policy.Part{Kind: "quota", Name: c.Name}, err
	}
	return q.BuildPolicy()
}

// endregion

// region live

// Quota bounds the calls of a day, as a vendor's contract does. Several pipelines may
// share one. It is safe for concurrent use.
type Quota struct {
	cfg QuotaConfig

	// state is the day, counted from 1970, and the calls of that day.
	state atomic.Uint64
}

// NewQuota returns a live quota.
func NewQuota(cfg QuotaConfig) (*Quota, error) {
	if cfg.Limit < 1 || int64(cfg.Limit) >= 1<<32 {
		return nil, &policy.ConfigError{Policy: "quota", Field: "Limit", Value: cfg.Limit, Want: "want 1 to 4294967295"}
	}
	return &Quota{cfg: cfg}, nil
}

// BuildPolicy implements [policy.Policy].
func (q *Quota) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:        "quota",
		Name:        q.cfg.Name,
		Gate:        q,
		Place:       policy.PlaceRateLimit,
		Shadow:      q.cfg.Shadow,
		RefundsOnly: true, // Leave has nothing to do for an attempt that ran
	}, nil
}

// endregion

const day = 24 * time.Hour

func dayOf(t time.Time) uint64 { return uint64(t.Unix() / int64(day/time.Second)) }

func split(state uint64) (day, used uint64) { return state >> 32, state & (1<<32 - 1) }

// on returns the state as it is today. A clock that is behind counts for the day that
// has begun already.
func on(state, today uint64) (day, used uint64) {
	if day, used = split(state); today > day {
		return today, 0
	}
	return day, used
}

// region gate

// Peek implements [policy.Gate]: it refuses what Enter would, and takes nothing.
func (q *Quota) Peek(a *policy.Attempt) error {
	_, used := on(q.state.Load(), dayOf(a.Now()))
	return q.refuse(a, used)
}

// Enter implements [policy.Gate].
func (q *Quota) Enter(_ context.Context, a *policy.Attempt, slot int) error {
	for {
		state := q.state.Load()
		day, used := on(state, dayOf(a.Now()))
		if err := q.refuse(a, used); err != nil {
			return err
		}
		if q.state.CompareAndSwap(state, day<<32|(used+uint64(a.Cost()))) {
			a.Slot(slot).Word = day
			return nil
		}
	}
}

// refuse returns a refusal if the attempt does not fit on top of what is used.
func (q *Quota) refuse(a *policy.Attempt, used uint64) error {
	limit := uint64(q.cfg.Limit)
	switch cost := uint64(a.Cost()); {
	case cost > limit:
		return &policy.RejectedError{Reason: policy.ReasonCost, RetryAfter: policy.Never, Err: ErrQuota}
	case cost > limit-min(used, limit):
		midnight := a.Now().UTC().Truncate(day).Add(day)
		return &policy.RejectedError{Reason: policy.ReasonRate, RetryAfter: midnight.Sub(a.Now()), Err: ErrQuota}
	}
	return nil
}

// Leave implements [policy.Gate]. Only an attempt that never ran gives back what it
// took, and only into the day from which it came.
func (q *Quota) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	if o.Kind != policy.NotRun {
		return
	}
	for {
		state := q.state.Load()
		day, used := split(state)
		if day != a.Slot(slot).Word {
			return
		}
		if q.state.CompareAndSwap(state, day<<32|(used-uint64(a.Cost()))) {
			return
		}
	}
}

// endregion

// region snapshot

// Snapshot implements [policy.Snapshotter]: what is left shows up on every page and
// in every metric that shows rate limits.
func (q *Quota) Snapshot(now time.Time) policy.PolicySnapshot {
	_, used := on(q.state.Load(), dayOf(now))
	return policy.PolicySnapshot{Limiter: &policy.LimiterSnapshot{
		Tokens: float64(q.cfg.Limit) - float64(used),
		Burst:  float64(q.cfg.Limit),
		Rate:   float64(q.cfg.Limit) / day.Seconds(),
	}}
}

// endregion
