package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// busy is the verdict of what takes no lock when the lock has to be asked.
const busy verdict = 1 << 7

// books is an algorithm: what of a limit is taken, and when there is more of it. Times
// are nanoseconds since line.start.
//
// It knows a present, which only moves on, and a future that is booked beyond it, in
// order of time: tokens that somebody reserved or waits for. The future can be thrown
// away and booked anew, so a gap in it closes without any arithmetic backwards.
//
// The first three methods may be called at any time. They answer busy, or false, while
// the books are open and whenever only the lock can tell. All others require line.mu.
type books interface {
	// try takes n tokens if they are there, and else says when they would be.
	try(at, n int64) (time.Duration, verdict)

	// look is try, taking nothing.
	look(at, n int64) (time.Duration, verdict)

	// giveBack is refund.
	giveBack(at, taken, n int64) bool

	// open keeps the methods above off the figures; close, with nothing booked, lets
	// them at it again. Both do nothing the second time.
	open()
	close()

	// rebase begins to count anew when the figures have grown large, with nothing
	// booked before at. It reports whether it did: what was booked then has to be
	// booked again.
	rebase(at int64) bool

	// most returns the largest cost that can ever be let in.
	most() int64

	// next returns the first time, not before at, at which n tokens can be booked, or
	// never. at is not before the last booking, and n at most most. Where the present
	// is later than at, it counts in place of it.
	next(at, n int64) int64

	// book books n tokens for a time that next returned, or that was promised before
	// the limit changed. A time that next returned for being asked for is exact;
	// others are rounded up to a nanosecond.
	book(when, n int64, exact bool)

	// mark and back forget what was booked in between.
	mark()
	back()

	// rewind forgets all that is booked.
	rewind()

	// settle moves the first booking into the present.
	settle(when, n int64)

	// spend takes n tokens from the present, with nothing booked before at.
	spend(at, n int64)

	// refund gives n tokens back to the present that were taken at the given time by
	// a call which did not run. What is booked then has to be booked again. No more
	// is let through for it than if that call had not been.
	refund(at, taken, n int64)

	// describe fills in Tokens, those that are booked included, Burst, Rate and what
	// else the algorithm knows.
	describe(at int64, s *policy.LimiterSnapshot)
}

// line is what limiters are made of that let their callers stand in line. It is
// embedded in them and supplies most of their methods.
//
// Its queue is in order of time. Reservations stay at the time that was promised.
// Waiters, who were promised nothing but an end, move up when one ahead of them gives
// up or a call that did not run gives its tokens back; nobody who comes later gets in
// front of them. While the queue is empty the books are closed, and whoever takes what
// is there takes no lock (where the algorithm can do without).
type line struct {
	self       Limiter // what line is embedded in
	start      time.Time
	kind, name string
	shadow     bool
	maxWait    atomic.Int64 // a time.Duration
	maxWaiters atomic.Int64
	warnings   []string
	books      books

	waiting atomic.Int32 // changes under mu

	mu          sync.Mutex
	opened      bool
	stale       bool // a waiter may be able to move up
	first, last *place
	reserved    int // places that are reservations

	// timer lets in the first waiter, at the time armed; never when it is not set.
	timer *time.Timer
	armed int64
}

// place is a place in the queue.
type place struct {
	next, prev *place
	when, n    int64

	// Of a waiter. Its channel is made for this wait and closed when that is over; a
	// waiter whom the change of a limit made wait for too long is late.
	ready chan struct{}
	limit int64 // the latest time at which it still wants to be let in
	late  bool
}

func (p *place) waits() bool { return p.ready != nil }

// init makes the line of a limiter ready for use.
func (l *line) init(self Limiter, b books) {
	l.self, l.books = self, b
	l.start = time.Now()
	l.armed = never
}

// at returns t as the limiter keeps time.
func (l *line) at(t time.Time) int64 { return int64(t.Sub(l.start)) }

// now reads the clock, at half the cost of [time.Now].
func (l *line) now() int64 { return int64(time.Since(l.start)) }

// lock takes mu, opens the books and brings them to the given time.
func (l *line) lock(at int64) {
	l.mu.Lock()
	if !l.opened {
		l.opened = true
		l.books.open()
	}
	l.settleLocked(at)
	if (l.first == nil || l.first.when > at) && l.books.rebase(at) {
		l.rebookLocked()
	}
}

// unlock closes the books if nobody is in the queue, and gives up mu.
func (l *line) unlock() {
	if l.first == nil {
		l.opened = false
		l.books.close()
	}
	l.armLocked()
	l.mu.Unlock()
}

// settleLocked lets in those whose time has come. It requires that l.mu is held, as do
// all whose names end so.
func (l *line) settleLocked(at int64) {
	if l.stale {
		l.rebuildLocked()
	}
	for p := l.first; p != nil && p.when <= at; p = l.first {
		// The time may have been given by a caller who looks ahead: a waiter is let
		// in when the clock says so.
		if p.waits() && p.when > l.now() {
			return
		}
		l.books.settle(p.when, p.n)
		l.removeLocked(p)
		if p.waits() {
			close(p.ready)
		}
	}
	if l.first == nil {
		l.books.rewind()
	}
}

// findLocked returns the first time at which a newcomer can have n tokens, and the
// place that it then stands before, nil for the end. It overtakes no waiter and keeps
// no reservation from its time. It leaves the future in disorder when there are
// reservations: rebookLocked follows.
func (l *line) findLocked(at, n int64) (when int64, before *place) {
	if l.first == nil {
		return l.books.next(at, n), nil
	}
	if l.last.waits() {
		return l.books.next(max(at, l.last.when), n), nil
	}
	// Reservations stay where they are, so there may be room before and between
	// those that no waiter stands behind.
	p := l.last
	for p.prev != nil && !p.prev.waits() {
		p = p.prev
	}
	l.books.rewind()
	for q := l.first; q != p; q = q.next {
		l.books.book(q.when, q.n, false)
	}
	for ; p != nil; p = p.next {
		from := at
		if p.prev != nil {
			from = max(at, p.prev.when)
		}
		l.books.mark()
		if when := l.books.next(from, n); when < p.when {
			l.books.book(when, n, when == at)
			if l.fitLocked(p) {
				return when, p
			}
			l.books.back()
		}
		l.books.book(p.when, p.n, false)
	}
	return l.books.next(max(at, l.last.when), n), nil
}

// fitLocked books p and what comes after it, and reports whether all have their times.
func (l *line) fitLocked(p *place) bool {
	for ; p != nil; p = p.next {
		if p.n > l.books.most() || l.books.next(p.when, p.n) != p.when {
			return false
		}
		l.books.book(p.when, p.n, false)
	}
	return true
}

// rebookLocked books the queue anew, at the times it has.
func (l *line) rebookLocked() {
	l.books.rewind()
	for p := l.first; p != nil; p = p.next {
		l.books.book(p.when, p.n, false)
	}
}

// rebuildLocked lets waiters move up, or back when a limit was lowered. Those who
// would be let in later than they can wait are late.
func (l *line) rebuildLocked() {
	l.stale = false
	now := l.now()
	if l.reserved == 0 {
		p := l.first
		l.first, l.last = nil, nil
		l.books.rewind()
		for p != nil {
			next := p.next
			l.moveLocked(p, now)
			p = next
		}
		return
	}
	var waiters []*place
	for p := l.first; p != nil; p = p.next {
		if p.waits() {
			waiters = append(waiters, p)
		}
	}
	for _, p := range waiters {
		l.unlinkLocked(p)
	}
	l.rebookLocked()
	for _, p := range waiters {
		l.moveLocked(p, now)
	}
}

// moveLocked puts a waiter who is not in the queue where it belongs.
func (l *line) moveLocked(p *place, now int64) {
	var before *place
	if p.n > l.books.most() {
		p.when = never
	} else {
		p.when, before = l.findLocked(now, p.n)
	}
	if p.when > p.limit {
		p.late = true
		l.waiting.Add(-1)
		close(p.ready)
	} else {
		l.linkLocked(p, before)
	}
	l.bookedLocked(p, before)
}

// bookedLocked books p, for which findLocked was asked, if it is in the queue now.
func (l *line) bookedLocked(p, before *place) {
	switch {
	case l.reserved > 0:
		l.rebookLocked()
	case before == nil && p == l.last:
		l.books.book(p.when, p.n, false)
	}
}

// addLocked puts a new place into the queue and books it.
func (l *line) addLocked(p, before *place) {
	l.linkLocked(p, before)
	if p.waits() {
		l.waiting.Add(1)
	} else {
		l.reserved++
	}
	l.bookedLocked(p, before)
}

// removeLocked takes a place out of the queue. It stays booked.
func (l *line) removeLocked(p *place) {
	l.unlinkLocked(p)
	if p.waits() {
		l.waiting.Add(-1)
	} else {
		l.reserved--
	}
}

// linkLocked puts p before another place, or at the end.
func (l *line) linkLocked(p, before *place) {
	p.next = before
	if before == nil {
		p.prev, l.last = l.last, p
	} else {
		p.prev, before.prev = before.prev, p
	}
	if p.prev == nil {
		l.first = p
	} else {
		p.prev.next = p
	}
}

// unlinkLocked takes p out.
func (l *line) unlinkLocked(p *place) {
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
}

// bound sets how long calls may wait, and how many of them.
func (l *line) bound(wait time.Duration, waiters int) {
	l.maxWait.Store(int64(wait))
	l.maxWaiters.Store(int64(waiters))
}

func (l *line) longest() time.Duration { return time.Duration(l.maxWait.Load()) }

// bounds returns what bound has set.
func (l *line) bounds() (wait time.Duration, waiters int) {
	return l.longest(), int(l.maxWaiters.Load())
}
