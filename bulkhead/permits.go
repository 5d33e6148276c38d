package bulkhead

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
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
// Waiters are served by priority (policy.WithPriority), and within one first come,
// first served. While somebody waits, a permit that is given back goes straight to
// the first of them; a newcomer of the same priority queues behind, or is refused
// where it may not wait. This costs some throughput, since the permit idles until its
// new holder is scheduled, and nobody of equal priority is overtaken. A wait is
// bounded by MaxWait, whatever comes past.
//
// All methods are safe for concurrent use. Permits are counted, not owned: see
// [Permits.Release].
type Permits struct {
	counter counter
	cfg     atomic.Pointer[Semaphore] // effective values; Limit as it was in the beginning
	door    door

	tuning sync.Mutex // held while settings change, so that they fit each other
}

func (p *Permits) config() *Semaphore { return p.cfg.Load() }

// door keeps the books of those who did not get a permit at once.
type door struct {
	name    string // of the policy
	refused [policy.NumReasons]atomic.Uint64
	wait    hist.Histogram
}

// reject counts and returns a refusal. It is a new one each time, because the
// pipeline completes it.
func (d *door) reject(reason policy.Reason, sentinel error) error {
	d.refused[reason].Add(1)
	return &policy.RejectedError{Policy: d.name, Reason: reason, Err: sentinel}
}

// rejected returns the number of refusals by reason.
func (d *door) rejected() (counts [policy.NumReasons]uint64) {
	for r := range d.refused {
		counts[r] = d.refused[r].Load()
	}
	return counts
}

// latency reads a histogram.
func latency(h *hist.Histogram) policy.Latency {
	l := policy.Latency{Counts: make([]uint64, hist.Buckets)}
	l.Sum = h.AddTo(l.Counts)
	return l
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
	cfg = cfg.withDefaults()
	p := new(Permits)
	p.cfg.Store(&cfg)
	p.door.name = p.config().Name
	p.counter.init(p.config().Limit, p.config().Reserve)
	return p, nil
}

// TryAcquire takes a permit if one is free and nobody waits for one, and reports
// whether it did. It never waits, and asks with ordinary priority: the reserve is out
// of its reach. Each success is followed by one [Permits.Release].
func (p *Permits) TryAcquire() bool { return p.counter.acquire(bandOf(policy.PriorityNormal)) }

// Acquire takes a permit, waiting for one as MaxWait and MaxWaiters allow, with the
// priority that ctx says. Each success is followed by one [Permits.Release]. On an
// error nothing is taken:
//
//   - the error of ctx, with its cause, if it is done before or during the wait; a
//     permit that was handed over in that moment goes to the next waiter
//   - a [*policy.RejectedError] that matches [ErrFull], with reason concurrency
//     (every permit is taken and MaxWait is 0), waiters (MaxWaiters wait already, or
//     one of higher priority took the place) or wait (MaxWait has passed)
func (p *Permits) Acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	b := bandOf(policy.PriorityNormal)
	if p.counter.reserve.Load() == 0 && p.counter.acquire(b) {
		return nil // nobody asked about priority: it makes no difference
	}
	b = bandOf(policy.CallFrom(ctx).Priority)
	if p.counter.acquire(b) {
		return nil
	}
	if p.config().MaxWait == 0 {
		return p.door.reject(policy.ReasonConcurrency, ErrFull)
	}
	return p.counter.wait(ctx, b, p.config().MaxWait, p.config().MaxWaiters, &p.door)
}

// wait takes a permit, queueing for it for at most longest behind at most others.
func (c *counter) wait(ctx context.Context, b band, longest time.Duration, most int, d *door) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	w, ok := c.enqueue(b, most)
	if !ok {
		return d.reject(policy.ReasonWaiters, ErrFull)
	}
	if w == nil {
		return nil
	}
	start := time.Now()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	var state waitState
	select {
	case <-w.ready:
		state = w.state
	case <-ctx.Done():
		state = c.leave(w)
	case <-timer.C:
		state = c.leave(w) // a permit that came in this moment is used
	}
	d.wait.Record(time.Since(start))
	// More than one case may have been ready, and select picks any of them: the
	// context is asked whichever it was.
	switch {
	case ctx.Err() != nil:
		if state == granted {
			c.release()
		}
		return ended(ctx)
	case state == ousted:
		return d.reject(policy.ReasonWaiters, ErrFull)
	case state == waits:
		return d.reject(policy.ReasonWait, ErrFull)
	}
	return nil
}

// ended returns the error of a context that is done, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == context.Canceled || cause == context.DeadlineExceeded { //nolint:errorlint // the plain ones say nothing new
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
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

// SetLimit changes the number of permits, above Reserve and up to 2,147,483,647;
// anything else is a [*policy.ConfigError] and changes nothing.
//
// Raising it lets waiters in at once, in their order. Lowering it takes no permit
// from those who hold one: nobody is let in until fewer than the new limit are in
// flight. MaxWaiters stays as it was, also where it came from Limit.
func (p *Permits) SetLimit(limit int) error {
	p.tuning.Lock()
	defer p.tuning.Unlock()
	switch {
	case limit < 1 || limit > maxLimit:
		return &policy.ConfigError{Policy: p.config().Name, Field: "Limit", Value: limit, Want: "want 1 to 2147483647"}
	case limit <= p.config().Reserve:
		return &policy.ConfigError{Policy: p.config().Name, Field: "Limit", Value: limit, Want: fmt.Sprintf("want more than Reserve (%d): ordinary calls would get none", p.config().Reserve)}
	}
	p.counter.setLimit(limit)
	return nil
}

// Config returns the effective configuration: defaults filled in, and the limit as
// it is now.
func (p *Permits) Config() Semaphore {
	cfg := *p.config()
	cfg.Limit = int(p.counter.load().limit())
	return cfg
}

// Snapshot returns the state as it is now; the time makes no difference to it.
func (p *Permits) Snapshot(time.Time) policy.PolicySnapshot {
	b := p.counter.snapshot()
	b.MaxWaiters = p.config().MaxWaiters
	if p.config().MaxWait > 0 {
		b.Wait = latency(&p.door.wait)
	}
	return policy.PolicySnapshot{
		Name:     p.config().Name,
		Kind:     kind,
		Shadow:   p.config().Shadow,
		Rejected: p.door.rejected(),
		Bulkhead: b,
	}
}

// snapshot describes the permits.
func (c *counter) snapshot() *policy.BulkheadSnapshot {
	w := c.load()
	n := int(w.inFlight())
	return &policy.BulkheadSnapshot{
		InFlight: n,
		Limit:    int(w.limit()),
		Reserve:  int(c.reserve.Load()),
		Waiting:  c.queue.len(),

		MostWaiting: int(c.queue.most.Load()),
		// A permit is counted in flight a moment before it is in the mark.
		HighWater: max(n, int(c.high.Load())),
	}
}
