package main

import (
	"errors"
	"time"
)

// baseLatency is how long the dependency takes for a call when it is idle.
const baseLatency = 20 * time.Millisecond

// longestQueue is how much work the dependency takes on; what comes on top it sends away.
const longestQueue = 2 * time.Second

var (
	errDown = errors.New("connection refused")
	errFull = errors.New("the queue is full")
)

// dependency serves calls one after the other, so many per second. It works on each to its
// end, also when nobody waits for the answer any more, as servers do.
type dependency struct {
	world *world
	free  time.Duration // when it has worked off what it has taken on
}

// serve takes on a call and returns when it will be answered.
func (d *dependency) serve(now time.Duration) (time.Duration, error) {
	d.world.mu.Lock()
	defer d.world.mu.Unlock()
	rate := d.world.capacity(max(now, d.free))
	if d.world.capacity(now) == 0 || rate == 0 {
		return 0, errDown
	}
	if d.free-now > longestQueue {
		return 0, errFull
	}
	d.free = max(d.free, now) + time.Duration(float64(time.Second)/rate)
	return d.free + baseLatency, nil
}
