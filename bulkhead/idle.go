package bulkhead

import "time"

// goneLocked accounts for n workers that go home. It requires that w.mu is held.
func (w *Workers) goneLocked(n int) {
	w.workers -= int32(n) //nolint:gosec // at most w.workers
	if w.closing.Load() && w.workers == 0 {
		close(w.drained)
	}
}

// dismissLocked sends the n workers home that have been idle for longest. It requires
// that w.mu is held.
func (w *Workers) dismissLocked(n int) {
	if n <= 0 {
		return
	}
	for _, self := range w.idle[:n] {
		self.wake <- nil
	}
	rest := copy(w.idle, w.idle[n:])
	clear(w.idle[rest:])
	w.idle = w.idle[:rest]
	w.goneLocked(n)
}

// surplusLocked returns how many idle workers need not stay. It requires that w.mu is
// held.
func (w *Workers) surplusLocked() int {
	return min(int(w.workers)-w.config().MinWorkers, len(w.idle))
}

// reapLaterLocked has the reaper look when the worker that has been idle for longest
// has been so for long enough. It requires that w.mu is held.
func (w *Workers) reapLaterLocked() {
	if w.reaping || w.surplusLocked() <= 0 {
		return
	}
	w.reaping = true
	d := w.config().IdleTimeout - w.now().Sub(w.idle[0].since)
	if w.reaper == nil {
		w.reaper = time.AfterFunc(d, w.reap)
	} else {
		w.reaper.Reset(d)
	}
}

// reap sends workers home that have been idle for too long.
func (w *Workers) reap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reaping = false
	now, n := w.now(), 0
	for surplus := w.surplusLocked(); n < surplus && now.Sub(w.idle[n].since) >= w.config().IdleTimeout; {
		n++
	}
	w.dismissLocked(n)
	w.reapLaterLocked()
}
