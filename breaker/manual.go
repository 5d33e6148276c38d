package breaker

import "time"

// Commands by hand. Each replaces the one before; each takes a note of who gave it and
// why, which is in the event and in the snapshot.

// ForceOpen refuses every call, with [policy.ReasonForced], for the given time or,
// if that is not positive, until [Breaker.Release]. Afterwards the breaker is
// half-open: nothing is known of a dependency that was kept from calls.
//
// [policy.ReasonForced]: https://pkg.go.dev/github.com/breakwater-go/breakwater/policy#ReasonForced
func (b *Breaker) ForceOpen(note string, length time.Duration) {
	b.force(b.now(), ForcedOpen, note, length)
}

// ForceClosed lets every call through, for the given time or, if that is not
// positive, until [Breaker.Release]. Calls are counted meanwhile, and nothing follows
// from it. Afterwards the breaker is closed with what it has counted, so the next
// failure opens it if the dependency has been failing all along.
func (b *Breaker) ForceClosed(note string, length time.Duration) {
	b.force(b.now(), ForcedClosed, note, length)
}

func (b *Breaker) force(now time.Time, s State, note string, length time.Duration) {
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	b.changedLocked(b.m.force(s, ns, lengthOf(length), note))
}

// Observe makes the breaker watch only, like [Config.Shadow], for the given time or,
// if that is not positive, until [Breaker.Release]: its state changes as ever, and
// calls that it would refuse run, count nothing, and are counted as spared. A forced
// state ends first, as by Release.
func (b *Breaker) Observe(note string, length time.Duration) { b.observe(b.now(), note, length) }

func (b *Breaker) observe(now time.Time, note string, length time.Duration) {
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	if b.m.state.forced() {
		b.releaseLocked(ns, note)
	}
	b.changedLocked(b.m.observe(ns, lengthOf(length), note))
}

// Release ends the command in force; without one it does nothing.
func (b *Breaker) Release(note string) { b.release(b.now(), note) }

func (b *Breaker) release(now time.Time, note string) {
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	b.releaseLocked(ns, note)
}

// releaseLocked requires that b.mu is held.
func (b *Breaker) releaseLocked(ns int64, note string) {
	if ch, changed := b.m.release(ns, WhyReleased, note); changed {
		b.changedLocked(ch)
	}
}

// Reset closes the breaker, whatever its state, and forgets all calls and how often it
// has opened. Results of calls that were admitted in another state are ignored; in the
// closed state, calls in flight count. It ends a forced state; observing goes on.
func (b *Breaker) Reset() { b.reset(b.now()) }

func (b *Breaker) reset(now time.Time) {
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	if b.m.state == Closed {
		b.m.row = 0
		b.phase.Load().tally.reset(now)
		return
	}
	b.changedLocked(b.m.reset(ns))
}

// lengthOf returns the length of a command in nanoseconds.
func lengthOf(d time.Duration) int64 {
	if d <= 0 {
		return forever
	}
	return int64(d)
}
