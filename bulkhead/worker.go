package bulkhead

import (
	"context"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// worker is a goroutine of a pool, or rather its chair: should a function end the
// goroutine with [runtime.Goexit], another one sits down on it.
type worker struct {
	wake  chan *task // the next task, or nil: go home
	since time.Time  // when it became idle
	tell  bool       // the caller of the task it has just run is to be told
}

// work runs t and then, one after the other, what finish and others hand over.
func (w *Workers) work(self *worker, t *task) {
	home := false
	defer func() {
		if home {
			return
		}
		// The function ended the goroutine: all that follows a task is done here, and
		// by another goroutine.
		tell := self.tell // the chair is the other's as soon as that has begun
		next, stay := w.finish(self)
		if stay {
			go w.replace(self, next)
		}
		if tell {
			t.done <- struct{}{}
		}
	}()
	for t != nil {
		w.run(self, t)
		// The worker is free before the caller knows, so that a caller's next call
		// does not find it busy.
		next, stay := w.finish(self)
		if self.tell {
			t.done <- struct{}{} // and may be in use again from here on
		}
		if stay && next == nil {
			next = <-self.wake
		}
		t = next
	}
	home = true
}

// replace goes on where a goroutine ended.
func (w *Workers) replace(self *worker, next *task) {
	if next == nil {
		next = <-self.wake
	}
	w.work(self, next)
}

// running is how far a worker has come with a task.
type running struct {
	began    bool // the function was called
	returned bool // nothing panicked and nobody called runtime.Goexit
	start    time.Time
	err      error       // why the function was not called
	unwatch  func() bool // ends the watch on the attempt's own context
}

// run runs a task, or drops it. Whatever happens in it, what the caller is to get is
// decided when it ends, also by [runtime.Goexit].
func (w *Workers) run(self *worker, t *task) {
	var r running
	defer w.settle(self, t, &r)
	defer w.label(t.ctx)()
	if t.ctx.Err() != nil { // its caller may not have noticed yet
		r.returned = w.drop(t, &r)
		return
	}
	if r.err = t.job.Look(); r.err != nil {
		r.returned = true
		return
	}
	bound := t.job.Begin()
	if !t.state.CompareAndSwap(taskTaken, taskRunning) {
		r.returned = w.drop(t, &r)
		return
	}
	r.began, r.start = true, w.now()
	// Contexts do not compare, their channels do.
	if bound.Done() != t.ctx.Done() {
		r.unwatch = context.AfterFunc(bound, w.abandon(bound, t))
	}
	t.job.Run()
	r.returned = true
}

// drop notes that the caller's context has ended before the function began.
func (w *Workers) drop(t *task, r *running) bool {
	r.err = ended(t.ctx)
	w.expired.Add(1)
	return true
}

// settle decides what the caller of a task gets, and disposes of what it does not.
func (w *Workers) settle(self *worker, t *task, r *running) {
	var err error
	if !r.returned {
		if v := recover(); v != nil {
			err = &policy.PanicError{Value: v, Stack: debug.Stack()}
		} else {
			err = policy.ErrGoexit
		}
	}
	self.tell = true
	if !r.began {
		if err == nil {
			err = r.err
		}
		t.state.Store(taskOver)
		t.res = policy.RunResult{State: policy.RunRefused, Err: err}
		return
	}
	w.ran.Record(w.now().Sub(r.start))
	w.completed.Add(1)
	keep := r.unwatch != nil && !r.unwatch()
	if t.state.CompareAndSwap(taskRunning, taskOver) {
		t.res = policy.RunResult{State: policy.RunDone, Err: err}
		t.keep = keep
		return
	}
	self.tell = false
	w.late(t, err)
}

// late disposes of the result of a function whose caller has left. A panic ends here,
// for want of somebody to tell, and is counted.
func (w *Workers) late(t *task, err error) {
	defer func() {
		if recover() != nil {
			w.orphanPanics.Add(1)
		}
		w.orphans.Add(-1)
	}()
	if _, ok := err.(*policy.PanicError); ok { //nolint:errorlint // the pool's own
		w.orphanPanics.Add(1)
	}
	t.job.Late()
}

// abandoned counts a caller that leaves while its function runs.
func (w *Workers) abandoned() {
	w.left.Add(1)
	w.orphans.Add(1)
}

// labelName is the key of the pprof label with the pool's name.
const labelName = "pool"

// label puts the pool's name on the goroutine for profiles and goroutine dumps, next
// to the labels that the caller's context has, and returns what takes those off
// again. The function may change the labels, so this is done for every task.
func (w *Workers) label(ctx context.Context) func() {
	own := false
	pprof.ForLabels(ctx, func(string, string) bool { own = true; return false })
	if !own {
		pprof.SetGoroutineLabels(w.labels) //nolint:contextcheck // ctx has nothing to add
		return func() {}
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, w.labelSet))
	return func() { pprof.SetGoroutineLabels(w.labels) }
}
