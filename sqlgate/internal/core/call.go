package core

import (
	"context"
	"errors"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Call is one call to a database, as its attempts and its pipeline see it.
type Call struct {
	Gate *Gate

	// Again says that what the call does may be done twice.
	Again bool

	call     policy.Call
	detached bool // attempts may go on when the call has returned
}

// NewCall returns the call that ctx describes. again says that it may be repeated in any case.
// hedge says that two attempts of it may run at the same time, if it may be repeated.
func (g *Gate) NewCall(ctx context.Context, query string, again, hedge bool) Call {
	c := Call{Gate: g, call: policy.CallFrom(ctx)}
	marked := c.call.Idempotent || (hedge && g.cfg.Idempotent != nil && g.cfg.Idempotent(query))
	c.Again = again || marked
	c.call.Idempotent = hedge && marked
	c.detached = g.p.Detaches(c.call)
	return c
}

// Policy returns what the pipeline is told.
func (c *Call) Policy() *policy.Call { return &c.call }

// Failed classifies an attempt that has ended with err, and sees to it that what may have
// happened is not done again.
func (c *Call) Failed(ctx context.Context, at *policy.Attempt, err error) {
	kind, pushback := c.Gate.Judge(ctx, err)
	if kind == policy.NotRun {
		return
	}
	again := c.Again || DidNotRun(err)
	if again && pushback == 0 && IsContention(err) {
		pushback = wish
	}
	c.Settle(at, kind, pushback, again)
}

// Unrun is Failed for an attempt that had no connection to run on.
func (c *Call) Unrun(ctx context.Context, at *policy.Attempt, err error) {
	at.Judging()
	if kind, pushback := c.Gate.Judge(ctx, err); kind != policy.NotRun {
		at.SetOutcome(kind, pushback)
	}
}

// Settle classifies an attempt that did not succeed, and says whether another may follow.
func (c *Call) Settle(at *policy.Attempt, kind policy.Kind, pushback time.Duration, again bool) {
	switch {
	case again:
	case c.detached: // somebody may be reading the call
		pushback = -1
	default:
		c.call.NoRetry = true
	}
	at.SetOutcome(kind, pushback)
}

// Judge classifies an error of an attempt that ran under ctx.
func (g *Gate) Judge(ctx context.Context, err error) (kind policy.Kind, pushback time.Duration) {
	return Judge{Pipeline: g.p, Classify: g.cfg.Classify}.Of(ctx, err)
}

// Judge says what errors mean to a pipeline.
type Judge struct {
	Pipeline *policy.Pipeline
	Classify func(err error) policy.Kind
}

// Of classifies an error of an attempt that ran under ctx.
func (j Judge) Of(ctx context.Context, err error) (kind policy.Kind, pushback time.Duration) {
	if err == nil {
		return policy.Success, 0
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return policy.Canceled, 0
	}
	if j.Classify != nil {
		if k := j.Classify(err); k > policy.NotRun && k < policy.NumKinds {
			return k, 0
		}
	}
	o := j.Pipeline.Classify(ctx, err)
	if o.Kind != policy.Failure {
		return o.Kind, o.Pushback
	}
	if k := KindOf(err); k != policy.NotRun {
		return k, 0
	}
	return policy.Failure, o.Pushback
}
