package config

import (
	"math"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/ratelimit"
	"github.com/breakwater-go/breakwater/retry"
)

// dependency is a dependency as the rules see it: what its policies have in common, under
// one name each.
type dependency struct {
	*Dependency

	rates    []rate
	rooms    []room
	breakers []circuit
	waits    []wait
	stores   []store
	retry    *retry.Config
	retryAt  *Policy
	timeouts policy.Timeouts
	timeAt   *Policy
}

// rate is a limit on calls per time.
type rate struct {
	at        *Policy
	path      string  // of the limit within its policy, with a dot at its end; empty for the policy itself
	perSecond float64 // +Inf for none
	burst     int
	burstPath string
	keyed     bool // for each key
	bucket    bool // what is not used is saved up
}

// room is a limit on calls at a time.
type room struct {
	at    *Policy
	field string
	limit int
	queue int
}

// wait is a place where calls may wait.
type wait struct {
	at         *Policy
	path       string // of the fields, as in rate
	max        time.Duration
	waiters    int     // as stated; 0 for the default
	perSecond  float64 // at which they leave; 0 when it is not known
	queueField string
}

// circuit is a breaker.
type circuit struct {
	at  *Policy
	cfg breaker.Config
}

func newDependency(dep *Dependency) *dependency {
	d := &dependency{Dependency: dep}
	for i := range dep.Policies {
		p := &dep.Policies[i]
		if p.about != nil {
			d.limits(p, *p.about)
			continue
		}
		d.limit(p, p.Spec, "")
		switch c := p.Spec.(type) {
		case bulkhead.Semaphore:
			d.rooms = append(d.rooms, room{p, "Limit", or(c.Limit, 100), c.MaxWaiters})
			d.wait(p, "", c.MaxWait, c.MaxWaiters, 0)
		case bulkhead.Adaptive:
			d.rooms = append(d.rooms, room{p, "Max", or(c.Max, 200), c.MaxWaiters})
			d.wait(p, "", c.MaxWait, c.MaxWaiters, 0)
		case bulkhead.Pool:
			workers := or(c.Workers, 100)
			queue := or(c.Queue, workers)
			d.rooms = append(d.rooms, room{p, "Workers", workers, max(queue, 0)})
		case breaker.Config:
			d.breakers = append(d.breakers, circuit{p, c})
		case breaker.Keyed:
			d.breakers = append(d.breakers, circuit{p, c.Config})
		case retry.Config:
			d.retry, d.retryAt = &c, p
		case policy.Timeouts:
			d.timeouts, d.timeAt = c, p
		}
	}
	return d
}

func or(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// limit notes the rate limits of a spec.
func (d *dependency) limit(p *Policy, spec policy.Policy, path string) {
	bucket := func(prefix string, r ratelimit.Rate, burst int, keyed, saves bool) float64 {
		per := perSecond(r)
		if burst == 0 {
			burst = int(min(math.Ceil(per), math.MaxInt32))
		}
		d.rates = append(d.rates, rate{p, path + prefix, per, burst, path + prefix + "Burst", keyed, saves})
		return per
	}
	window := func(limit int, length time.Duration) float64 {
		per := 0.0
		if length > 0 {
			per = float64(limit) / length.Seconds()
		}
		d.rates = append(d.rates, rate{p, path, per, limit, path + "Limit", false, false})
		return per
	}
	switch c := spec.(type) {
	case ratelimit.TokenBucket:
		bucket("", c.Rate, c.Burst, false, true)
	case ratelimit.Pacer:
		per := bucket("", c.Rate, or(c.Burst, 1), false, false)
		d.wait(p, path, c.MaxWait, c.MaxWaiters, per)
	case ratelimit.WarmUp:
		d.wait(p, path, c.MaxWait, c.MaxWaiters, perSecond(c.Rate))
	case ratelimit.FixedWindow:
		d.wait(p, path, c.MaxWait, c.MaxWaiters, window(c.Limit, c.Window))
	case ratelimit.SlidingWindow:
		d.wait(p, path, c.MaxWait, c.MaxWaiters, window(c.Limit, c.Window))
	case ratelimit.Keyed:
		bucket("", c.Rate, c.Burst, true, true)
		d.wait(p, path, c.MaxWait, c.MaxWaiters, 0)
	case ratelimit.Feedback:
		bucket("", c.Ceiling, c.Burst, false, true)
		d.wait(p, path, c.MaxWait, c.MaxWaiters, perSecond(c.Ceiling))
	case ratelimit.Lanes:
		for i, l := range c.Lanes {
			at := "Lanes[" + itoa(i) + "]."
			bucket(at, l.Rate, l.Burst, false, true)
			d.wait(p, path+at, l.MaxWait, l.MaxWaiters, perSecond(l.Rate))
		}
	case ratelimit.All:
		for i, l := range c.Limits {
			d.limit(p, l, path+"Limits["+itoa(i)+"].")
		}
		d.wait(p, path, c.MaxWait, c.MaxWaiters, 0)
	}
}

func (d *dependency) wait(p *Policy, path string, most time.Duration, waiters int, perSecond float64) {
	if most > 0 {
		d.waits = append(d.waits, wait{p, path, most, waiters, perSecond, "MaxWaiters"})
	}
}

// quota returns the rate at which calls leave for the dependency at most, from the limits
// that are not for keys; +Inf for no limit.
func (d *dependency) quota() (float64, *rate) {
	most, which := math.Inf(1), (*rate)(nil)
	lanes := map[*Policy]float64{}
	for i := range d.rates {
		r := &d.rates[i]
		if r.keyed {
			continue
		}
		per := r.perSecond
		if c, ok := r.at.Spec.(ratelimit.Lanes); ok {
			lanes[r.at] += per
			if per = lanes[r.at]; c.Total.Limit > 0 && c.Total.Window > 0 {
				per = min(per, float64(c.Total.Limit)/c.Total.Window.Seconds())
			}
			if which != nil && which.at == r.at { // the sum of the lanes so far
				most, which = per, r
				continue
			}
		}
		if per < most {
			most, which = per, r
		}
	}
	return most, which
}

// offered returns the calls per second that the policies see: as stated, or what a limit
// lets through. 0 is not known.
func (d *dependency) offered() float64 {
	if r := perSecond(d.Facts.Rate); r > 0 {
		return r
	}
	if most, _ := d.quota(); !math.IsInf(most, 1) {
		return most
	}
	return 0
}
