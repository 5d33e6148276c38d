package ratelimit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// curve is the rate of a [Governor] over time, per second, since it last fell. It is
// immutable.
type curve struct {
	floor, ceiling float64
	decrease       float64
	over           float64 // RecoverIn, in seconds
	additive       bool

	low, high float64 // the rate it fell to, and that from which it fell; both the ceiling at the start
	began     int64   // when it began to rise
}

// newCurve returns the curve of an effective configuration, at the ceiling.
func newCurve(cfg Feedback) curve {
	c := curve{
		floor: cfg.Floor.perSecond(), ceiling: cfg.Ceiling.perSecond(), decrease: cfg.Decrease,
		over: cfg.RecoverIn.Seconds(), additive: cfg.Recovery == RecoverAdditive,
	}
	c.low, c.high = c.ceiling, c.ceiling
	return c
}

// fall returns the curve after the dependency objected at a rate, to rise again from a
// given time.
func (c curve) fall(rate float64, began int64) curve {
	c.low = min(max(rate*c.decrease, c.floor), c.ceiling)
	// At the floor too, there must be something to rise to.
	c.high = min(max(rate, c.low/c.decrease), math.MaxFloat64)
	c.began = began
	return c
}

// reshaped reports whether two curves rise or fall in different ways.
func (c curve) reshaped(o curve) bool {
	return c.decrease != o.decrease || c.over != o.over || c.additive != o.additive
}

// reshape returns the curve in the shape of another one, from the rate at a time on. Until
// drain nothing rises.
func (c curve) reshape(o curve, at, drain int64) curve {
	c.low = c.at(at)
	c.began = max(at, drain)
	c.decrease, c.over, c.additive = o.decrease, o.over, o.additive
	c.high = min(max(c.high, c.low/c.decrease), math.MaxFloat64)
	return c
}

// at returns the rate at a time.
func (c curve) at(at int64) float64 {
	if at <= c.began {
		return c.low
	}
	t := time.Duration(at-c.began).Seconds() / c.over
	var rate float64
	if c.additive {
		rate = c.low + c.ceiling*(1-c.decrease)*t
	} else {
		rate = c.high + (c.high-c.low)*(t-1)*(t-1)*(t-1)
	}
	return min(max(rate, c.low), c.ceiling)
}

// throughput measures the rate of what is let in: that of the current second, and of the
// one before for the part of it that is less than a second ago.
type throughput struct {
	second    atomic.Int64
	now, last atomic.Int64

	mu sync.Mutex // held by the one who begins a new second
}

// add counts n tokens. Some may count in the next second when it begins just then.
func (p *throughput) add(at, n int64) {
	if second := at / int64(time.Second); second > p.second.Load() {
		p.turn(second)
	}
	p.now.Add(n)
}

func (p *throughput) turn(second int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch before := p.second.Load(); {
	case second <= before:
		return
	case second == before+1:
		p.last.Store(p.now.Swap(0))
	default:
		p.last.Store(0)
		p.now.Store(0)
	}
	p.second.Store(second)
}

// rate returns the tokens per second. A time before the current second counts as its
// beginning.
func (p *throughput) rate(at int64) float64 {
	before := p.second.Load()
	at = max(at, before*int64(time.Second))
	now, last := p.now.Load(), p.last.Load()
	switch at/int64(time.Second) - before {
	case 0:
	case 1:
		now, last = 0, now
	default:
		return 0
	}
	part := float64(at%int64(time.Second)) / float64(time.Second)
	return float64(now) + float64(last)*(1-part)
}
