package window

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// stripes count plain calls without a lock. Each processor has a counter of its own,
// on a cache line of its own: a counter that all of them add to would cost each call
// a transfer of its line, several times what the rest of the call costs.
type stripes struct {
	cells []cell
	mask  uint32

	// armed says that a call which reaches mark has to be told so: the window holds
	// calls that failed or were slow, and less than mark calls. It is written rarely,
	// so that reading it costs next to nothing.
	armed atomic.Bool
}

type cell struct {
	n atomic.Uint64
	_ [cacheLine - 8]byte
}

const cacheLine = 64

func newStripes() stripes {
	n := 1
	for n < runtime.GOMAXPROCS(0) {
		n <<= 1
	}
	return stripes{cells: make([]cell, n), mask: uint32(n - 1)} //nolint:gosec // a small power of two
}

func (s *stripes) add(stripe uint32) { s.cells[stripe&s.mask].n.Add(1) }

// load returns the number of calls that were added.
func (s *stripes) load() (n uint64) {
	for i := range s.cells {
		n += s.cells[i].n.Load()
	}
	return n
}

// take returns the number of calls that were added and begins again at zero.
func (s *stripes) take() (n uint64) {
	for i := range s.cells {
		n += s.cells[i].n.Swap(0)
	}
	return n
}

// arm sets armed, writing to its line only if that changes it.
func (s *stripes) arm(v bool) {
	if s.armed.Load() != v {
		s.armed.Store(v)
	}
}

// The pool keeps what is put into it on the processor that put it.
var (
	numbers    = sync.Pool{New: func() any { n := nextNumber.Add(1); return &n }}
	nextNumber atomic.Uint32
)

// Stripe returns a number for [Window.Add] and [Last.Add] that goroutines on one
// processor mostly share, and goroutines on different ones mostly do not.
func Stripe() uint32 {
	p := numbers.Get().(*uint32) // the pool holds nothing else
	n := *p
	numbers.Put(p)
	return n
}
