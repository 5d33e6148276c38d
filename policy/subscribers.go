package policy

import (
	"slices"
	"sync"
)

// Subscribers delivers events to listeners, each event once to each listener, in
// the order of [Subscribers.Queue], one at a time and outside the owner's lock. The
// zero value is ready to use.
//
// The owner queues an event while it holds its own lock, which fixes the order, and
// calls [Subscribers.Flush] after giving the lock back. A listener may call the
// owner again: events it causes are delivered after the ones before them. A panic
// in a listener is caught and dropped.
type Subscribers struct {
	mu       sync.Mutex
	fns      []*func(Event) // replaced, never changed in place
	queue    []Event
	flushing bool
}

// Subscribe adds a listener and returns a function that removes it.
func (s *Subscribers) Subscribe(fn func(Event)) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &fn
	s.fns = append(slices.Clip(s.fns), p)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fns = slices.DeleteFunc(slices.Clone(s.fns), func(q *func(Event)) bool { return q == p })
	}
}

// Queue adds an event to those that the next Flush delivers.
func (s *Subscribers) Queue(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.fns) > 0 {
		s.queue = append(s.queue, e)
	}
}

// Flush delivers what is queued. It must be called without the owner's lock. When
// another goroutine is delivering already, that one delivers these too, and Flush
// returns at once.
func (s *Subscribers) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flushing {
		return
	}
	s.flushing = true
	defer func() { s.flushing = false }() // also when a listener ends its goroutine
	for len(s.queue) > 0 {
		e, fns := s.queue[0], s.fns
		s.queue = s.queue[1:]
		s.deliver(fns, e)
	}
	s.queue = nil
}

// deliver calls the listeners without the lock, which it requires and returns with.
func (s *Subscribers) deliver(fns []*func(Event), e Event) {
	s.mu.Unlock()
	defer s.mu.Lock()
	for _, fn := range fns {
		notify(*fn, e)
	}
}

// notify calls fn and drops a panic in it: a listener must not harm the call that
// it was told about.
func notify[E any](fn func(E), e E) {
	defer func() { _ = recover() }()
	fn(e)
}
