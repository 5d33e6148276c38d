package bulkhead

import (
	"context"
	"fmt"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/hist"
	"github.com/breakwater-go/breakwater/policy"
)

// Workers is a live [Pool]: goroutines, the functions that run on them and those that
// wait. It stands innermost in pipelines, as what the attempts run on:
//
//	inventory, err := policy.New("inventory", bulkhead.Pool{Name: "inventory", Workers: 200, Queue: 1000})
//
// What it is for, and a semaphore is not, is a function that does not heed its
// context. Its caller stops waiting when the context ends, and gets the context's
// error; the function keeps its worker until it returns. So a hung dependency takes
// as many goroutines as the pool has, and no caller. The price is the hand-off: see
// docs/reference/bulkhead.md for what it costs.
//
// A function that panics does so in its caller: as *policy.PanicError, which holds
// the value and the worker's stack. One that calls [runtime.Goexit] ends its worker,
// which is replaced, and its caller gets policy.ErrGoexit.
//
// Values in the caller's context reach the function; goroutine-local state of the
// caller (locked threads, the goroutine's own stack in profiles) does not, except
// pprof labels that the context has.
//
// No goroutine is started before the first call. All methods are safe for concurrent
// use. Live workers that pipelines share are closed with the last of these.
type Workers struct {
	cfg      atomic.Pointer[Pool] // effective values; Workers as it was in the beginning; changes under mu
	base     time.Time
	labelSet pprof.LabelSet
	labels   context.Context //nolint:containedctx // carries the labels of a worker without a task
	tasks    sync.Pool       // of this pool's tasks only, see recycle
	door     door
	ran      hist.Histogram

	completed, left, expired, callerRan, orphanPanics atomic.Uint64
	orphans                                           atomic.Int64

	// Written under mu, read by all.
	limit, busy atomic.Int32 // most functions at a time, and functions now
	closing     atomic.Bool
	queue       queue[*task]

	mu       sync.Mutex
	high     int32
	workers  int32     // goroutines: busy and idle ones
	idle     []*worker // the one that was busy last comes last
	standing standing
	reaper   *time.Timer
	reaping  bool          // the reaper will look
	drained  chan struct{} // closed when the pool is closing and the last worker has gone
	tenants  int           // pipelines that share the pool
}

// NewPool returns live workers. The name goes into errors, snapshots and pprof
// labels; empty means cfg.Name, and if that is empty too, "pool". The error, if any,
// is that of [Pool.Validate].
func NewPool(name string, cfg Pool) (*Workers, error) {
	if name != "" {
		cfg.Name = name
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	w := &Workers{
		base:     time.Now(),
		labelSet: pprof.Labels(labelName, cfg.Name),
		door:     door{name: cfg.Name},
		standing: standing{cfg: cfg.CoDel},
		drained:  make(chan struct{}),
	}
	w.cfg.Store(&cfg)
	w.labels = pprof.WithLabels(context.Background(), w.labelSet)
	w.tasks.New = func() any { return &task{done: make(chan struct{}, 1)} }
	w.limit.Store(int32(cfg.Workers)) //nolint:gosec // was checked: 1 to maxLimit
	return w, nil
}

func (w *Workers) config() *Pool { return w.cfg.Load() }

// places returns how many calls may stand in the queue.
func (c Pool) places() int { return max(c.Queue, 0) }

// now reads the clock, with its monotonic part, at half the cost of [time.Now].
func (w *Workers) now() time.Time { return w.base.Add(time.Since(w.base)) }

// Peek reports a refusal that is sure: the pool is closed, or every worker is busy and
// the queue is full of calls that matter as much. It takes nothing.
func (w *Workers) Peek(a *policy.Attempt) error {
	cfg := w.config()
	switch {
	case w.closing.Load():
		return w.refused(policy.ReasonClosed, policy.ErrClosed).Err
	case cfg.WhenFull == CallerRuns, cfg.CoDel.Target > 0, // there is always a way, or room once stale calls are shed
		w.busy.Load() < w.limit.Load(),
		w.queue.len() < cfg.places(),
		w.queue.lower(bandOf(a.Call().Priority)):
		return nil
	default:
		return w.full().Err
	}
}

// Run has a worker run the task and waits for it, as [policy.Runner] says. The error
// of a refused task is that of its context, if this ended before the function began,
// or a [*policy.RejectedError] that matches
//
//   - [ErrFull], with reason concurrency (every worker is busy and there is no
//     queue), waiters (the queue is full, or one of higher priority took the place)
//     or wait (MaxWait has passed, or the Target of CoDel in an overloaded queue)
//   - [policy.ErrClosed], with reason closed, after [Workers.Close]
func (w *Workers) Run(ctx context.Context, a *policy.Attempt, job policy.Task) policy.RunResult {
	t := w.tasks.Get().(*task) // the pool holds nothing else
	t.ctx, t.job = ctx, job
	t.of, t.band = t, bandOf(a.Call().Priority)
	longest, fate := w.submit(t) //nolint:contextcheck // the task has it
	switch fate {
	case handedIn:
		return w.await(t, longest)
	case shut:
		w.recycle(t)
		return w.refused(policy.ReasonClosed, policy.ErrClosed)
	default:
		w.recycle(t)
		if w.config().WhenFull == CallerRuns {
			w.callerRan.Add(1)
			job.Begin()
			job.Run()
			return policy.RunResult{State: policy.RunDone}
		}
		return w.full()
	}
}

// fate is what becomes of a task that is handed in.
type fate uint8

const (
	handedIn fate = iota
	shut          // the pool is closed
	noRoom
)

// submit hands a task to a worker (0, handedIn) or puts it in the queue, and says how
// long it may stand there.
func (w *Workers) submit(t *task) (longest time.Duration, f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing.Load() {
		return 0, shut
	}
	if w.busy.Load() < w.limit.Load() {
		w.startLocked(t)
		return 0, handedIn
	}
	cfg := w.config()
	if cfg.places() == 0 {
		return 0, noRoom
	}
	now := w.now()
	longest = cfg.MaxWait
	if w.overloadedLocked(now) {
		w.shedLocked(now)
		longest = cfg.CoDel.Target
	}
	if w.queue.len() == 0 {
		w.standing.filled(now)
		longest = cfg.MaxWait
	}
	if w.queue.len() >= cfg.places() {
		out := w.queue.least(t.band)
		if out == nil {
			return 0, noRoom
		}
		w.refuseLocked(out.of, now, policy.ReasonWaiters, ErrFull)
	}
	t.since = now
	t.state.Store(taskQueued)
	w.queue.push(&t.entry)
	return longest, handedIn
}

// startLocked gives a task to an idle worker, or to a new one. It requires that w.mu
// is held and that fewer functions run than may.
func (w *Workers) startLocked(t *task) {
	t.state.Store(taskTaken)
	w.high = max(w.high, w.busy.Add(1))
	if n := len(w.idle); n > 0 {
		self := w.idle[n-1]
		w.idle = w.idle[:n-1]
		self.wake <- t // has room: an idle worker was handed nothing yet
		return
	}
	w.workers++
	go w.work(&worker{wake: make(chan *task, 1)}, t)
}

// finish ends a worker's task. It returns the next one, or nil: then the worker stays
// and waits for one, or goes home.
func (w *Workers) finish(self *worker) (next *task, stay bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	busy := w.busy.Add(-1)
	if busy < w.limit.Load() {
		if next = w.nextLocked(); next != nil {
			next.state.Store(taskTaken)
			w.busy.Add(1)
			return next, true
		}
	}
	if w.closing.Load() || w.workers > w.limit.Load() {
		w.goneLocked(1)
		return nil, false
	}
	self.since = w.now()
	w.idle = append(w.idle, self)
	w.reapLaterLocked()
	return nil, true
}

// nextLocked takes the next task out of the queue: the oldest of the highest
// priority, or the youngest of it while the queue is overloaded. It requires that
// w.mu is held.
func (w *Workers) nextLocked() *task {
	if w.queue.len() == 0 {
		return nil
	}
	now := w.now()
	e := w.queue.first()
	if w.overloadedLocked(now) {
		w.shedLocked(now)
		e = w.queue.newest()
	}
	if e == nil {
		return nil
	}
	w.dequeueLocked(e.of, now)
	return e.of
}

// overloadedLocked reports whether the queue has not been empty for too long. It
// requires that w.mu is held.
func (w *Workers) overloadedLocked(now time.Time) bool {
	return w.queue.len() > 0 && w.standing.overloaded(now)
}

// shedLocked refuses every task that has waited too long for an overloaded queue. It
// requires that w.mu is held.
func (w *Workers) shedLocked(now time.Time) {
	for b := range w.queue.head {
		for e := w.queue.head[b]; e != nil && w.standing.stale(e.of.since, now); e = w.queue.head[b] {
			w.refuseLocked(e.of, now, policy.ReasonWait, ErrFull)
		}
	}
}

// refuseLocked takes a task out of the queue and refuses it. It requires that w.mu is
// held.
func (w *Workers) refuseLocked(t *task, now time.Time, reason policy.Reason, sentinel error) {
	w.dequeueLocked(t, now)
	t.settle(w.refused(reason, sentinel).Err)
}

// dequeueLocked takes a task out of the queue. It requires that w.mu is held.
func (w *Workers) dequeueLocked(t *task, now time.Time) {
	w.queue.remove(&t.entry)
	t.state.Store(taskTaken)
	w.door.wait.Record(now.Sub(t.since))
}

// full refuses a call for want of room.
func (w *Workers) full() policy.RunResult {
	if w.config().places() == 0 {
		return w.refused(policy.ReasonConcurrency, ErrFull)
	}
	return w.refused(policy.ReasonWaiters, ErrFull)
}

// refused counts and returns a refusal.
func (w *Workers) refused(reason policy.Reason, sentinel error) policy.RunResult {
	return policy.RunResult{State: policy.RunRefused, Err: w.door.reject(reason, sentinel)}
}

// InFlight returns the number of functions that run on workers, also of those whose
// callers have left. It is above the limit after [Workers.SetLimit] has lowered it,
// until enough of them have returned.
func (w *Workers) InFlight() int { return int(w.busy.Load()) }

// SetLimit changes the number of functions that may run at the same time, at least
// MinWorkers and 1, at most 2,147,483,647; anything else is a [*policy.ConfigError]
// and changes nothing.
//
// Raising it takes calls out of the queue at once, in their order. Lowering it ends
// nothing that runs: workers that are too many go home when their functions return.
// Queue stays as it was, also where it came from Workers.
func (w *Workers) SetLimit(workers int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	cfg := w.config()
	switch {
	case workers < 1 || workers > maxLimit:
		return &policy.ConfigError{Policy: cfg.Name, Field: "Workers", Value: workers, Want: "want 1 to 2147483647"}
	case workers < cfg.MinWorkers:
		return &policy.ConfigError{Policy: cfg.Name, Field: "Workers", Value: workers, Want: fmt.Sprintf("want at least MinWorkers (%d)", cfg.MinWorkers)}
	}
	w.setLimitLocked(workers)
	return nil
}

// setLimitLocked requires that w.mu is held.
func (w *Workers) setLimitLocked(workers int) {
	w.limit.Store(int32(workers)) //nolint:gosec // was checked: 1 to maxLimit
	for w.busy.Load() < w.limit.Load() {
		t := w.nextLocked()
		if t == nil {
			break
		}
		w.startLocked(t)
	}
	w.dismissLocked(min(int(w.workers)-workers, len(w.idle)))
}

// Config returns the effective configuration: defaults filled in, and Workers as it
// is now.
func (w *Workers) Config() Pool {
	cfg := *w.config()
	cfg.Workers = int(w.limit.Load())
	return cfg
}

// Close closes the pool: further calls are refused, those in the queue still run, and
// Close returns when the last function has returned. If ctx ends before that, the
// calls that are still in the queue are refused with reason closed, and Close returns
// the error of ctx, saying how many functions still run; nothing can stop those, and
// their workers go home when they return. Either way every call ran or its caller
// gets an error. Close may be called again, to wait for longer.
func (w *Workers) Close(ctx context.Context) error {
	w.mu.Lock()
	if !w.closing.Load() {
		w.closing.Store(true)
		if w.reaper != nil {
			w.reaper.Stop()
		}
		if w.workers == 0 {
			close(w.drained)
		}
		w.dismissLocked(len(w.idle))
	}
	w.mu.Unlock()
	select {
	case <-w.drained:
		return nil
	default:
	}
	select {
	case <-w.drained:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for e := w.queue.first(); e != nil; e = w.queue.first() {
		w.refuseLocked(e.of, now, policy.ReasonClosed, policy.ErrClosed)
	}
	if w.workers == 0 {
		return nil
	}
	return fmt.Errorf("bulkhead: pool %s: functions still running: %d: %w", w.config().Name, w.busy.Load(), ended(ctx))
}
