package window

import (
	"sync"
	"time"
)

// Last counts the last n calls, exactly. Use [NewLast]. It is safe for concurrent use.
// Time has no part in it, but its methods take one so that it can stand for a
// [Window].
//
// It remembers calls that failed or were slow, by their place in the order of calls;
// what lies between is plain. So a plain call is only a number that rises, which needs
// no lock, and its size is O(n) at worst and next to nothing while all is well.
//
// Calls that end together have no order: whichever it gives them, it keeps.
type Last struct {
	size uint64
	mark uint64
	live stripes // all plain calls since the beginning

	_ [cacheLine]byte

	mu     sync.Mutex
	others uint64 // with live, the number of all calls; it may be below zero, modulo 2^64
	marked queue
	sum    Counts // over marked; its Calls are not used
}

// NewLast returns a window of the last n calls, at least 1.
func NewLast(n int) *Last {
	return &Last{size: uint64(max(n, 1)), live: newStripes()}
}

// Watch makes [Last.Add] report when the window reaches mark calls, see
// [Window.Watch]. A mark above the window's size is never reached.
func (l *Last) Watch(mark uint64) *Last {
	if mark <= l.size {
		l.mark = mark
	}
	return l
}

// Refit returns a window of another size or mark that holds the last of the calls which
// this one holds, for use in its place, like [Window.Refit].
func (l *Last) Refit(n int, mark uint64) *Last {
	to := NewLast(n).Watch(mark)
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.callsLocked()
	l.forgetLocked(calls)
	held := min(calls, l.size) // a window that grows holds no more than was remembered
	to.others = held
	for i := range l.marked.len() {
		m := l.marked.at(i)
		to.marked.insert(i, newMarked(held-(calls-m.place()), m.counts()))
		to.sum.add(m.counts())
	}
	to.forgetLocked(held)
	to.live.arm(held < to.mark && !to.sum.plain())
	return to
}

// Add counts a plain call, like [Window.Add]. It takes no lock unless the window is
// about to reach its mark.
func (l *Last) Add(_ time.Time, stripe uint32) (reached bool) {
	l.live.add(stripe)
	return l.live.armed.Load() && l.look()
}

func (l *Last) look() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, reached := l.totalLocked()
	return reached
}

// Record adds d, which is one call, and returns the figures with it.
func (l *Last) Record(_ time.Time, d Counts) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recordLocked(d)
}

// Amend makes a plain call that was counted before a failed one, like
// [Window.Amend].
func (l *Last) Amend(time.Time) Counts { return l.amend(markFailed, Counts{Failures: 1}) }

// AmendSlow makes a call that was counted before a slow one, like [Window.AmendSlow].
func (l *Last) AmendSlow(time.Time) Counts { return l.amend(markSlow, Counts{Slow: 1}) }

// amend marks the newest call that is not marked so.
func (l *Last) amend(as marked, d Counts) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.callsLocked()
	l.forgetLocked(n)
	i := l.marked.len() - 1
	for place := n; place > n-min(n, l.size); place-- {
		switch {
		case i < 0 || l.marked.at(i).place() != place:
			l.marked.insert(i+1, newMarked(place, d))
		case l.marked.at(i)&as == 0:
			l.marked.set(i, l.marked.at(i)|as)
		default:
			i--
			continue
		}
		l.sum.add(d)
		return l.figuresLocked(n)
	}
	d.Calls = 1
	return l.recordLocked(d)
}

// Counts returns the figures.
func (l *Last) Counts(time.Time) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.callsLocked()
	l.forgetLocked(n)
	return Counts{Calls: min(n, l.size), Failures: l.sum.Failures, Slow: l.sum.Slow}
}

// Reset forgets all calls. Calls in flight count on either side of it.
func (l *Last) Reset(time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others -= l.callsLocked()
	l.marked = queue{}
	l.sum = Counts{}
	l.live.arm(false)
}

// callsLocked returns the number of all calls, which is the place of the newest. It
// requires that l.mu is held.
func (l *Last) callsLocked() uint64 { return l.others + l.live.load() }

// recordLocked requires that l.mu is held.
func (l *Last) recordLocked(d Counts) Counts {
	l.others++
	n := l.callsLocked()
	l.marked.insert(l.marked.len(), newMarked(n, d))
	l.sum.add(d)
	return l.figuresLocked(n)
}

// figuresLocked returns the figures of a window in which n calls have been counted,
// and the plain calls after them. It requires that l.mu is held.
func (l *Last) figuresLocked(n uint64) Counts {
	l.live.arm(n < l.mark && !l.sum.plain())
	c, _ := l.totalLocked()
	return c
}

// totalLocked returns the figures, and whether the mark has been reached since armed
// was set: that is told once. It requires that l.mu is held.
func (l *Last) totalLocked() (c Counts, reached bool) {
	n := l.callsLocked()
	l.forgetLocked(n)
	if reached = n >= l.mark && l.live.armed.Load(); reached {
		l.live.armed.Store(false)
	}
	return Counts{Calls: min(n, l.size), Failures: l.sum.Failures, Slow: l.sum.Slow}, reached
}

// forgetLocked drops what has left the window when the newest call has place n. It
// requires that l.mu is held.
func (l *Last) forgetLocked(n uint64) {
	for l.marked.len() > 0 && l.marked.at(0).place()+l.size <= n {
		l.sum.sub(l.marked.pop().counts())
	}
}

// marked is a call that failed or was slow: its place in the order of calls, counted
// from 1, above two bits that say which.
type marked uint64

const (
	markFailed marked = 1 << iota
	markSlow
	markBits = iota
)

func newMarked(place uint64, d Counts) marked {
	m := marked(place << markBits)
	if d.Failures > 0 {
		m |= markFailed
	}
	if d.Slow > 0 {
		m |= markSlow
	}
	return m
}

func (m marked) place() uint64 { return uint64(m >> markBits) }

// counts returns what the call adds to the figures besides itself.
func (m marked) counts() Counts {
	return Counts{Failures: uint64(m & markFailed), Slow: uint64(m & markSlow / markSlow)}
}

// queue is a double-ended queue of marked calls. It grows as it needs to.
type queue struct {
	ring []marked // its length is a power of two
	head int
	size int
}

func (q *queue) len() int            { return q.size }
func (q *queue) index(i int) int     { return (q.head + i) & (len(q.ring) - 1) }
func (q *queue) at(i int) marked     { return q.ring[q.index(i)] }
func (q *queue) set(i int, m marked) { q.ring[q.index(i)] = m }

// pop removes the first element, which must be there.
func (q *queue) pop() marked {
	m := q.ring[q.head]
	q.head = q.index(1)
	q.size--
	return m
}

// insert puts m in place i, and moves up what is there and behind it.
func (q *queue) insert(i int, m marked) {
	if q.size == len(q.ring) {
		grown := make([]marked, max(2*q.size, 16))
		n := copy(grown, q.ring[q.head:])
		copy(grown[n:], q.ring[:q.head])
		q.ring, q.head = grown, 0
	}
	q.size++
	for j := q.size - 1; j > i; j-- {
		q.set(j, q.at(j-1))
	}
	q.set(i, m)
}
