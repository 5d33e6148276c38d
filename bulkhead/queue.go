package bulkhead

import (
	"sync/atomic"

	"github.com/breakwater-go/breakwater/policy"
)

// band is a priority as the queues know it: band 0 goes first.
type band uint8

// bands is their number, one for each priority of package policy.
const bands = int(policy.PriorityCritical-policy.PriorityLow) + 1

// bandOf returns the band of a priority. One outside the known range counts as the
// nearest that is known.
func bandOf(p policy.Priority) band {
	return band(policy.PriorityCritical - min(max(p, policy.PriorityLow), policy.PriorityCritical))
}

// reserved reports whether calls of the band may use what is kept in reserve.
func (b band) reserved() bool { return b <= bandOf(policy.PriorityHigh) }

// entry is a place in a queue, part of what stands there.
type entry[T any] struct {
	of         T
	band       band
	next, prev *entry[T]
}

// queue holds entries by band, and within one by age. The zero value is empty. It is
// not safe for concurrent use, but its lengths may be read at any time.
type queue[T any] struct {
	head, tail [bands]*entry[T]
	n          [bands]atomic.Int32
	most       atomic.Int32 // entries there have been at once
}

// len returns the number of entries.
func (q *queue[T]) len() int {
	sum := 0
	for b := range q.n {
		sum += int(q.n[b].Load())
	}
	return sum
}

// lower reports whether an entry of a lower priority than b is there.
func (q *queue[T]) lower(b band) bool {
	for i := int(b) + 1; i < bands; i++ {
		if q.n[i].Load() > 0 {
			return true
		}
	}
	return false
}

// push puts e at the end of its band.
func (q *queue[T]) push(e *entry[T]) {
	b := e.band
	e.prev = q.tail[b]
	if e.prev == nil {
		q.head[b] = e
	} else {
		e.prev.next = e
	}
	q.tail[b] = e
	q.n[b].Add(1)
	if n := int32(q.len()); n > q.most.Load() { //nolint:gosec // bounded by the places in the queue
		q.most.Store(n)
	}
}

// remove takes e off, wherever in the queue it stands.
func (q *queue[T]) remove(e *entry[T]) {
	b := e.band
	if e.prev == nil {
		q.head[b] = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.tail[b] = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.next, e.prev = nil, nil
	q.n[b].Add(-1)
}

// first returns the oldest entry of the highest priority, nil when there is none.
func (q *queue[T]) first() *entry[T] {
	for b := range q.head {
		if q.head[b] != nil {
			return q.head[b]
		}
	}
	return nil
}

// newest returns the youngest entry of the highest priority, nil when there is none.
func (q *queue[T]) newest() *entry[T] {
	for b := range q.tail {
		if q.tail[b] != nil {
			return q.tail[b]
		}
	}
	return nil
}

// least returns the entry that has to make room for one of band b: the youngest of
// the lowest priority, if that is lower than b, else nil.
func (q *queue[T]) least(b band) *entry[T] {
	for i := bands - 1; i > int(b); i-- {
		if q.tail[i] != nil {
			return q.tail[i]
		}
	}
	return nil
}
