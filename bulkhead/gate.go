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
		Name:   p.cfg.Name,
		Gate:   p,
		Place:  policy.PlaceBulkhead,
		Waits:  p.cfg.MaxWait > 0,
		Holds:  true,
		Shadow: p.cfg.Shadow,
	}, nil
}

// Peek reports a refusal that is sure: every permit is taken, and nobody may wait or
// the queue is full. It takes nothing.
func (p *Permits) Peek(*policy.Attempt) error {
	if p.counter.load().admits() {
		return nil
	}
	switch {
	case p.cfg.MaxWait == 0:
		return p.reject(policy.ReasonConcurrency)
	case p.counter.waiting.Load() >= int64(p.cfg.MaxWaiters):
		return p.reject(policy.ReasonWaiters)
	default:
		return nil
	}
}

// Enter takes a permit for the attempt, like [Permits.Acquire]. It decides at once,
// as if MaxWait were 0, when the attempt may not wait.
func (p *Permits) Enter(ctx context.Context, a *policy.Attempt, _ int) error {
	if p.counter.acquire() {
		return nil
	}
	if p.cfg.MaxWait == 0 || a.NoWait() {
		return p.reject(policy.ReasonConcurrency)
	}
	err := p.wait(ctx)
	a.Waited()
	return err
}

// Leave gives the attempt's permit back, however the attempt ended.
func (p *Permits) Leave(*policy.Attempt, int, policy.Outcome) { p.counter.release() }
