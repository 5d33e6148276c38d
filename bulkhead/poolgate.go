package bulkhead

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Policy      = Pool{}
	_ policy.Policy      = (*Workers)(nil)
	_ policy.Runner      = (*Workers)(nil)
	_ policy.Snapshotter = (*Workers)(nil)
	_ policy.Closer      = (*Workers)(nil)
)

// BuildPolicy returns a part that shares these workers with every other pipeline that
// they are handed to. The workers are closed with the last of these pipelines. It
// never fails.
func (w *Workers) BuildPolicy() (policy.Part, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenants++
	cfg := w.config()
	part := policy.Part{
		Kind:   poolKind,
		Name:   cfg.Name,
		Runner: &tenant{Workers: w},
		Waits:  cfg.places() > 0,
	}
	if cfg.WhenFull == CallerRuns {
		part.Warnings = append(part.Warnings, "CallerRuns runs calls on their callers' goroutines when the queue is full, so a dependency that hangs holds them; Abort refuses instead")
	}
	return part, nil
}

// tenant is a pipeline's share in a pool.
type tenant struct {
	*Workers

	closed atomic.Bool
}

// Close closes the pool if this was its last tenant.
func (t *tenant) Close(ctx context.Context) error {
	t.mu.Lock()
	if t.closed.CompareAndSwap(false, true) {
		t.tenants--
	}
	last := t.tenants == 0
	t.mu.Unlock()
	if !last {
		return nil
	}
	return t.Workers.Close(ctx)
}

// Unused gives the share back and leaves the pool open: no pipeline was made of it.
func (t *tenant) Unused() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.CompareAndSwap(false, true) {
		t.tenants--
	}
}

// Snapshot returns the state as it is at the given time.
func (w *Workers) Snapshot(now time.Time) policy.PolicySnapshot {
	b := &policy.BulkheadSnapshot{
		MaxWaiters:   w.config().places(),
		Orphans:      int(max(w.orphans.Load(), 0)), // a function may end before its caller has counted itself
		Run:          latency(&w.ran),
		Completed:    w.completed.Load(),
		Abandoned:    w.left.Load(),
		Expired:      w.expired.Load(),
		CallerRan:    w.callerRan.Load(),
		OrphanPanics: w.orphanPanics.Load(),
	}
	if w.config().places() > 0 {
		b.Wait = latency(&w.door.wait)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b.InFlight = int(w.busy.Load())
	b.Limit = int(w.limit.Load())
	b.Waiting = w.queue.len()
	b.MostWaiting = int(w.queue.most.Load())
	b.HighWater = int(w.high)
	b.Workers = int(w.workers)
	b.Idle = len(w.idle)
	b.Overloaded = w.overloadedLocked(now)
	return policy.PolicySnapshot{
		Name:     w.config().Name,
		Kind:     poolKind,
		Rejected: w.door.rejected(),
		Bulkhead: b,
	}
}
