package bulkhead

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// task is a call on its way through a pool. Three parties know it: its caller, the
// worker that has it and, if the attempt has a timeout of its own, the watch on that.
//
// Its state says whose it is. Whoever moves it out of taskRunning decides what the
// caller gets: the worker (the function has ended) or one of the others (the caller
// leaves). A message on done follows each decision but one, that which the caller
// itself makes; it is the last that the sender does with the task, so whoever
// received it may use the task again.
type task struct {
	entry[*task]

	ctx   context.Context //nolint:containedctx // a task is a call under way
	job   policy.Task
	since time.Time // when it was queued
	state atomic.Uint32

	done  chan struct{} // with room for the one message
	timer *time.Timer   // of the wait in the queue; made when first needed

	// Written before the message on done.
	res  policy.RunResult
	keep bool // the watch may still look at the task, so it must not be used again
}

const (
	taskQueued  = iota // moves on under Workers.mu only
	taskTaken          // a worker has it, and asks the gates again
	taskLeaving        // the same, and the caller wants to leave
	taskRunning
	taskLeft // the caller has left, and the function runs on
	taskOver // the caller gets what the worker, or the pool, says
)

// settle tells the caller what became of a task that does not run.
func (t *task) settle(err error) {
	t.state.Store(taskOver)
	t.res = policy.RunResult{State: policy.RunRefused, Err: err}
	t.done <- struct{}{}
}

// arm starts the timer of the wait in the queue.
func (t *task) arm(d time.Duration) <-chan time.Time {
	if t.timer == nil {
		t.timer = time.NewTimer(d)
	} else {
		t.timer.Reset(d)
	}
	return t.timer.C
}

// await waits for a task that was handed in. longest bounds the time in the queue;
// zero means that it does not stand there.
func (w *Workers) await(t *task, longest time.Duration) policy.RunResult {
	var expiry <-chan time.Time
	if longest > 0 {
		expiry = t.arm(longest)
	}
	for {
		select {
		case <-t.done:
			return w.result(t)
		case <-t.ctx.Done():
			return w.leave(t)
		case <-expiry:
			if w.withdraw(t) {
				w.recycle(t)
				return w.refused(policy.ReasonWait, ErrFull)
			}
			expiry = nil // a worker was faster
		}
	}
}

// result takes what the caller gets out of a task whose message was received.
func (w *Workers) result(t *task) policy.RunResult {
	res := t.res
	if !t.keep {
		w.recycle(t)
	}
	if pe, ok := res.Err.(*policy.PanicError); ok && res.State == policy.RunRefused { //nolint:errorlint // the pool's own
		panic(pe) //nolint:forbidigo // a gate panicked when it was asked again: it goes on in the caller
	}
	return res
}

// leave ends the wait of a caller whose context has ended.
func (w *Workers) leave(t *task) policy.RunResult {
	if w.withdraw(t) {
		w.expired.Add(1)
		err := ended(t.ctx)
		w.recycle(t)
		return policy.RunResult{State: policy.RunRefused, Err: err}
	}
	for {
		switch state := t.state.Load(); {
		case state == taskTaken && t.state.CompareAndSwap(taskTaken, taskLeaving):
			// The worker is asking the gates, which use the attempt: that takes no
			// time, and then it sees that it need not begin.
		case state == taskRunning && t.state.CompareAndSwap(taskRunning, taskLeft):
			w.abandoned()
			return policy.RunResult{State: policy.RunAbandoned, Err: ended(t.ctx)}
		case state == taskTaken || state == taskRunning:
			continue // it has just moved on
		}
		<-t.done
		return w.result(t)
	}
}

// withdraw takes a task out of the queue and reports whether it stood there.
func (w *Workers) withdraw(t *task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.state.Load() != taskQueued {
		return false
	}
	w.dequeueLocked(t, w.now())
	return true
}

// abandon returns what is called when the context that the attempt runs under ends.
func (w *Workers) abandon(bound context.Context, t *task) func() {
	return func() {
		if t.state.CompareAndSwap(taskRunning, taskLeft) {
			w.abandoned()
			t.res = policy.RunResult{State: policy.RunAbandoned, Err: ended(bound)}
			t.keep = true
			t.done <- struct{}{}
		}
	}
}

// recycle keeps a task that nobody knows any more for another call. The tasks are of
// this pool only, so their channels never cross from one synctest bubble to another.
func (w *Workers) recycle(t *task) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.ctx, t.job, t.res = nil, nil, policy.RunResult{}
	w.tasks.Put(t)
}
