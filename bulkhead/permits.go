package bulkhead

import (
	"context"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Permits is a live [Semaphore]: a number of permits, those who hold them and those
// who wait. It stands in pipelines as a gate, and can be used by hand:
//
//	if err := permits.Acquire(ctx); err != nil {
//		return err
//	}
//	defer permits.Release()
//
// Taking a permit that is free and giving it back is one atomic step each, without a
// lock and without allocation. Only those who wait, and those who give a permit back
// while somebody waits, take a lock, and never across a wait.
//
// Waiters are served first come, first served. While somebody waits, a permit that
// is given back goes straight to the first of them; a newcomer queues behind, or is
// refused where it may not wait. This costs some throughput, since the permit idles
// until its new holder is scheduled, and bounds the wait of everybody: nobody
// starves.
//
// All methods are safe for concurrent use. Permits are counted, not owned: see
// [Permits.Release].
type Permits struct {
	counter counter
	cfg     Semaphore // effective values; Limit as it was in the beginning
}

// New returns live permits. The name goes into errors and snapshots; empty means
// cfg.Name, and if that is empty too, "bulkhead". The error, if any, is that of
// [Semaphore.Validate].
func New(name string, cfg Semaphore) (*Permits, error) {
	if name != "" {
		cfg.Name = name
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Permits{cfg: cfg.withDefaults()}
	p.counter.init(p.cfg.Limit)
	return p, nil
}

// TryAcquire takes a permit if one is free and nobody waits for one, and reports
// whether it did. It never waits. Each success is followed by one [Permits.Release].
func (p *Permits) TryAcquire() bool { return p.counter.acquire() }

// Acquire takes a permit, waiting for one as MaxWait and MaxWaiters allow. Each
// success is followed by one [Permits.Release]. On an error nothing is taken:
//
//   - the error of ctx, if it is done before or during the wait; a permit that was
//     handed over in that moment goes to the next waiter
//   - a [*policy.RejectedError] that matches [ErrFull], with reason concurrency
//     (every permit is taken and MaxWait is 0), waiters (MaxWaiters wait already) or
//     wait (MaxWait has passed)
func (p *Permits) Acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.counter.acquire() {
		return nil
	}
	if p.cfg.MaxWait == 0 {
		return p.reject(policy.ReasonConcurrency)
	}
	return p.wait(ctx)
}

// wait queues for a permit.
func (p *Permits) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w, ok := p.counter.enqueue(p.cfg.MaxWaiters)
	if !ok {
		return p.reject(policy.ReasonWaiters)
	}
	if w == nil {
		return nil
	}
	timer := time.NewTimer(p.cfg.MaxWait)
	defer timer.Stop()

	granted := true
	select {
	case <-w.ready:
	case <-ctx.Done():
		granted = p.counter.leave(w)
	case <-timer.C:
		granted = p.counter.leave(w) // a permit that came in this moment is used
	}
	// More than one case may have been ready, and select picks any of them: the
	// context is asked whichever it was.
	if err := ctx.Err(); err != nil {
		if granted {
			p.counter.release()
		}
		return err
	}
	if !granted {
		return p.reject(policy.ReasonWait)
	}
	return nil
}

// Release gives one permit back. It is for those who acquired one, once.
//
// Permits have no owner, so a Release too many cannot be told from a right one: it
// gives back a permit that somebody else still holds, and one call more than Limit
// can run meanwhile. It does no other harm: with no permit in flight it does
// nothing, so permits never become more than Limit. In a pipeline it cannot happen.
func (p *Permits) Release() { p.counter.release() }

// InFlight returns the number of permits that are taken. It is above the limit after
// [Permits.SetLimit] has lowered it, until enough of them are given back.
func (p *Permits) InFlight() int { return int(p.counter.load().inFlight()) }

// SetLimit changes the number of permits, from 1 to 2,147,483,647; anything else is
// a [*policy.ConfigError] and changes nothing.
//
// Raising it lets waiters in at once, in their order. Lowering it takes no permit
// from those who hold one: nobody is let in until fewer than the new limit are in
// flight. MaxWaiters stays as it was, also where it came from Limit.
func (p *Permits) SetLimit(limit int) error {
	if limit < 1 || limit > maxLimit {
		return &policy.ConfigError{Policy: p.cfg.Name, Field: "Limit", Value: limit, Want: "want 1 to 2147483647"}
	}
	p.counter.setLimit(limit)
	return nil
}

// Config returns the effective configuration: defaults filled in, and the limit as
// it is now.
func (p *Permits) Config() Semaphore {
	cfg := p.cfg
	cfg.Limit = int(p.counter.load().limit())
	return cfg
}

// Snapshot returns the state as it is now; the time makes no difference to it.
func (p *Permits) Snapshot(time.Time) policy.PolicySnapshot {
	w := p.counter.load()
	n := int(w.inFlight())
	return policy.PolicySnapshot{
		Name:   p.cfg.Name,
		Kind:   kind,
		Shadow: p.cfg.Shadow,
		Bulkhead: &policy.BulkheadSnapshot{
			InFlight:   n,
			Limit:      int(w.limit()),
			Waiting:    int(p.counter.waiting.Load()),
			MaxWaiters: p.cfg.MaxWaiters,
			// A permit is counted in flight a moment before it is in the mark.
			HighWater: max(n, int(p.counter.high.Load())),
		},
	}
}

// reject returns a refusal. It is a new one each time, because the pipeline
// completes it.
func (p *Permits) reject(reason policy.Reason) error {
	return &policy.RejectedError{Policy: p.cfg.Name, Reason: reason, Err: ErrFull}
}
