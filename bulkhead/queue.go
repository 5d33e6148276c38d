package bulkhead

// waiter is one call in the queue. Its channel is made for this wait and never used
// again: a channel out of a pool could carry the wake-up of an earlier wait, and
// could not cross from one synctest bubble into another.
type waiter struct {
	ready      chan struct{} // closed when a permit has been handed over
	granted    bool          // the same, for whoever holds the lock
	next, prev *waiter
}

// queue is the list of waiters, longest wait first. The zero value is empty. It is
// not safe for concurrent use.
type queue struct {
	head, tail *waiter
}

func (q *queue) empty() bool { return q.head == nil }

func (q *queue) push(w *waiter) {
	w.prev = q.tail
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
}

// pop takes the first waiter off. The queue must not be empty.
func (q *queue) pop() *waiter {
	w := q.head
	q.remove(w)
	return w
}

// remove takes w off, wherever in the queue it stands.
func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}
