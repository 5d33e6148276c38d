// Package draw is where policies draw what they leave to chance: jitter, and who is let
// through. It is that of [math/rand/v2], unless a simulation has seeded it to come to the
// same figures each time.
package draw

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// seeded is the source of a simulation.
type seeded struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

var simulation atomic.Pointer[seeded]

// Seed makes all draws follow from seed until stop is called. It is for programs and tests
// in which nothing else draws: the sequence is one for the whole process.
func Seed(seed uint64) (stop func()) {
	s := &seeded{rnd: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // not for secrets
	before := simulation.Swap(s)
	return func() { simulation.CompareAndSwap(s, before) }
}

// Uint64 returns an evenly distributed number.
func Uint64() uint64 {
	if s := simulation.Load(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.rnd.Uint64()
	}
	return rand.Uint64() //nolint:gosec // not for secrets
}

// Uint64N returns an evenly distributed number in [0, n). n must not be 0.
func Uint64N(n uint64) uint64 {
	if s := simulation.Load(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.rnd.Uint64N(n)
	}
	return rand.Uint64N(n) //nolint:gosec // not for secrets
}

// Float64 returns an evenly distributed number in [0, 1).
func Float64() float64 {
	if s := simulation.Load(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.rnd.Float64()
	}
	return rand.Float64() //nolint:gosec // not for secrets
}
