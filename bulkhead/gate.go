package bulkhead

import (
	"context"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Policy      = Semaphore{}
	_ policy.Policy      = (*Permits)(nil)
	_ policy.Gate        = (*Permits)(nil)
	_ policy.Snapshotter = (*Permits)(nil)
)

// BuildPolicy returns a part that shares these permits with every other pipeline
// that they are handed to. It never fails.
func (p *Permits) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:   kind,
		Name:   p.config().Name,
		Gate:   p,
		Place:  policy.PlaceBulkhead,
		Waits:  p.config().MaxWait > 0,
		Holds:  true,
		Shadow: p.config().Shadow,

		MaxWait: p.config().MaxWait,
	}, nil
}

// Peek reports a refusal that is sure: no permit is free, and nobody may wait or the
// queue is full of calls that matter as much. It takes nothing.
func (p *Permits) Peek(a *policy.Attempt) error {
	return p.counter.peek(bandOf(a.Call().Priority), p.config().MaxWait > 0, p.config().MaxWaiters, &p.door)
}

func (c *counter) peek(b band, waits bool, most int, d *door) error {
	switch {
	case c.load().room(c.keep(b)):
		return nil
	case !waits:
		return d.reject(policy.ReasonConcurrency, ErrFull)
	case c.queue.len() >= most && !c.queue.lower(b):
		return d.reject(policy.ReasonWaiters, ErrFull)
	default:
		return nil
	}
}

// Enter takes a permit for the attempt, like [Permits.Acquire], with the priority of
// its call. It decides at once, as if MaxWait were 0, when the attempt may not wait.
func (p *Permits) Enter(ctx context.Context, a *policy.Attempt, _ int) error {
	b := bandOf(a.Call().Priority)
	if p.counter.acquire(b) {
		return nil
	}
	if p.config().MaxWait == 0 || a.NoWait() {
		return p.door.reject(policy.ReasonConcurrency, ErrFull)
	}
	err := p.counter.wait(ctx, b, p.config().MaxWait, p.config().MaxWaiters, &p.door)
	a.Waited()
	return err
}

// Leave gives the attempt's permit back, however the attempt ended.
func (p *Permits) Leave(*policy.Attempt, int, policy.Outcome) { p.counter.release() }
