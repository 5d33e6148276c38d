package stale

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// entry is what is remembered of a key: a value, or an error in place of one. Times are
// since the cache was made.
type entry[T any] struct {
	value  T
	err    error // in place of a value
	loaded time.Duration
	fresh  time.Duration // for this long after loaded it is served as it is
	weight uint32

	// Of a value that is stale.
	loading atomic.Bool           // a load of the key runs
	retryAt atomic.Int64          // no load begins before
	failure atomic.Pointer[error] // of the last load
}

// usable reports whether the entry answers at all: a value up to its maximum age, an error
// as long as it is remembered.
func (e *entry[T]) usable(age, maxAge time.Duration) bool {
	if e.err != nil {
		return age < e.fresh
	}
	return age <= maxAge
}

// cause returns why the value is served although it is stale.
func (e *entry[T]) cause() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return ErrNotFresh
}

// failed notes that a load of the key has failed.
func (e *entry[T]) failed(err error, retryAt time.Duration) {
	e.failure.Store(&err)
	e.retryAt.Store(int64(retryAt))
}

// shortened returns d less a random share of it, of at most jitter.
func shortened(d time.Duration, jitter float64) time.Duration {
	if jitter == 0 {
		return d
	}
	return d - time.Duration(float64(d)*jitter*rand.Float64()) //nolint:gosec // nothing is secret about it
}
