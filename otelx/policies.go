package otelx

import (
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Modes of a gate, a label of gate_info.
const (
	modeEnforce = "enforce"
	modeShadow  = "shadow"  // by its configuration
	modeObserve = "observe" // by command
)

// policy hands out what one policy says. What a policy cannot do has no series: which
// ones there are depends on its settings, not on its traffic.
func (c *Collector) policy(e emitter, p *policy.PolicySnapshot) {
	c.rejections(e, p)
	if p.Breaker != nil {
		c.breaker(e, p.Name, p.Breaker)
	}
	if p.Bulkhead != nil {
		c.bulkhead(e, p)
	}
	if p.Limiter != nil {
		c.limiter(e, p.Name, p.Limiter)
	}
	if r := p.Retry; r != nil {
		for stop := policy.StopNone + 1; stop < policy.NumStops; stop++ {
			e.counter(c.d.stops, r.Stopped[stop], p.Name, stop.String())
		}
		if r.HasBudget {
			e.gauge(c.d.budgetRemaining, r.BudgetRemaining, p.Name)
		}
	}
	if f := p.Fallback; f != nil {
		e.counter(c.d.fallbacks, f.Served, p.Name, "served")
		e.counter(c.d.fallbacks, f.Failed, p.Name, "failed")
	}
}

// rejections hands out the refusals of a gate: those that happened, and at zero the
// ones that its kind is made to give, so that a rate over the first of them is right.
func (c *Collector) rejections(e emitter, p *policy.PolicySnapshot) {
	if p.Retry != nil || p.Fallback != nil || p.Timeouts != nil {
		return // not a gate
	}
	desc, mode := c.d.rejections, modeEnforce
	switch {
	case p.Shadow:
		desc, mode = c.d.shadowRejections, modeShadow
	case p.Breaker != nil && p.Breaker.Observing:
		mode = modeObserve
	}
	expected := expectedReasons(p)
	for r := range policy.NumReasons {
		if n := p.Rejected[r]; n > 0 || expected&(1<<r) != 0 {
			e.counter(desc, n, p.Name, r.String())
		}
	}
	e.gauge(c.d.gateInfo, 1, p.Name, label(p.Kind), mode)
}

// expectedReasons returns, as bits, the reasons for which a gate of this kind
// refuses in the ordinary course of things.
func expectedReasons(p *policy.PolicySnapshot) uint32 {
	const queue = 1<<policy.ReasonWaiters | 1<<policy.ReasonWait
	switch {
	case p.Breaker != nil && p.Breaker.MaxProbes == 0:
		return 1 << policy.ReasonOpen // a throttle
	case p.Breaker != nil:
		return 1<<policy.ReasonOpen | 1<<policy.ReasonProbes
	case p.Bulkhead != nil && p.Bulkhead.MaxWaiters > 0 && !p.Shadow: // in shadow mode nobody waits
		return queue
	case p.Bulkhead != nil:
		return 1 << policy.ReasonConcurrency
	case p.Limiter != nil && len(p.Limiter.Lanes) > 0:
		return 1<<policy.ReasonRate | queue // each lane has its own way
	case p.Limiter != nil && p.Limiter.MaxWaiters > 0 && !p.Shadow:
		return queue
	case p.Limiter != nil && p.Limiter.Load == nil:
		return 1 << policy.ReasonRate
	}
	return 0
}

var breakerStates = policy.BreakerStates()

func (c *Collector) breaker(e emitter, name string, b *policy.BreakerSnapshot) {
	for _, state := range breakerStates {
		e.gauge(c.d.state, oneIf(b.State == state), name, state)
	}
	e.gauge(c.d.share, b.Share, name)
	e.counter(c.d.opened, b.Opened, name)
	if b.MaxProbes > 0 { // a throttle never says when
		e.gauge(c.d.retryAfter, seconds64(b.RetryAfter), name)
	}
	e.gauge(c.d.windowCalls, float64(b.Calls), name)
	e.gauge(c.d.failureRatio, b.FailureRatio, name)
	if b.SlowThreshold > 0 {
		e.gauge(c.d.slowRatio, b.SlowRatio, name)
	}
	if b.ConsecutiveThreshold > 0 {
		e.gauge(c.d.consecutive, float64(b.Consecutive), name)
	}
	if b.Observing || b.Spared > 0 { // the command comes first, so the counter begins at zero
		e.counter(c.d.spared, b.Spared, name)
	}
	if b.MaxKeys > 0 {
		e.gauge(c.d.breakerKeys, float64(b.Keys), name)
		e.gauge(c.d.openKeys, float64(b.OpenKeys), name)
		e.counter(c.d.evicted, b.Evicted, name)
		e.counter(c.d.capped, b.Capped, name)
	}
}

// poolKind is the kind of a bulkhead that has workers. The snapshot of one that has not
// begun to work looks like a semaphore's.
const poolKind = "pool"

func (c *Collector) bulkhead(e emitter, p *policy.PolicySnapshot) {
	b, name := p.Bulkhead, p.Name
	e.gauge(c.d.inFlight, float64(b.InFlight), name)
	e.gauge(c.d.limit, float64(b.Limit), name)
	e.gauge(c.d.highWater, float64(b.HighWater), name)
	if b.MaxWaiters > 0 && !p.Shadow {
		e.gauge(c.d.waiting, float64(b.Waiting), name)
		e.summary(c.d.wait, b.Wait, name)
	}
	if b.MaxLimit > 0 {
		e.counter(c.d.rebased, b.Rebased, name)
	}
	if p.Kind != poolKind {
		return
	}
	e.gauge(c.d.workers, float64(b.Workers), name)
	e.gauge(c.d.orphans, float64(b.Orphans), name)
	e.gauge(c.d.shedding, oneIf(b.Overloaded), name)
	e.counter(c.d.left, b.Abandoned, name)
	e.counter(c.d.expired, b.Expired, name)
	e.counter(c.d.callerRan, b.CallerRan, name)
	e.counter(c.d.orphanPanics, b.OrphanPanics, name)
	e.summary(c.d.run, b.Run, name)
}

func (c *Collector) limiter(e emitter, name string, l *policy.LimiterSnapshot) {
	if l.Load != nil {
		c.load(e, name, l.Load)
		return // there are no tokens
	}
	if l.Keyed == nil { // a new key has all of its tokens, always
		e.gauge(c.d.tokens, l.Tokens, name)
	}
	e.gauge(c.d.rate, l.Rate, name)
	if l.MaxWaiters > 0 {
		e.gauge(c.d.limiterWaiting, float64(l.Waiting), name)
		if len(l.Lanes) == 0 { // every lane has its own
			e.gauge(c.d.delay, seconds64(l.Delay), name)
		}
	}
	if k := l.Keyed; k != nil {
		e.gauge(c.d.limiterKeys, float64(k.Keys), name)
		e.counter(c.d.overflowed, k.Overflowed, name)
	}
	if f := l.Feedback; f != nil {
		e.gauge(c.d.drain, seconds64(f.Drain), name)
		e.counter(c.d.pushbacks, f.Pushbacks, name)
		e.counter(c.d.decreases, f.Decreases, name)
	}
	for i := range l.Lanes {
		c.lane(e, name, &l.Lanes[i])
	}
}

func (c *Collector) lane(e emitter, name string, l *policy.LaneSnapshot) {
	var rejected uint64
	for _, n := range l.Rejected {
		rejected += n
	}
	lane := label(l.Name)
	e.gauge(c.d.laneWaiting, float64(l.Waiting), name, lane)
	e.counter(c.d.laneAdmitted, l.Admitted, name, lane)
	e.counter(c.d.laneRejected, rejected, name, lane)
	e.counter(c.d.laneBorrowed, l.Borrowed, name, lane)
}

// priorities names what LoadSnapshot.Shed counts, the lowest first.
var priorities = [len(policy.LoadSnapshot{}.Shed)]string{"low", "normal", "high", "critical"}

func (c *Collector) load(e emitter, name string, l *policy.LoadSnapshot) {
	e.gauge(c.d.overloaded, oneIf(l.Overloaded), name)
	e.gauge(c.d.cpu, l.CPU, name)
	e.gauge(c.d.queueDelay, seconds64(l.Delay), name)
	e.gauge(c.d.loadInFlight, float64(l.InFlight), name)
	e.gauge(c.d.loadLimit, float64(l.Limit), name)
	e.counter(c.d.readings, l.Failed, name)
	for i, n := range l.Shed {
		e.counter(c.d.shed, n, name, priorities[i])
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds64(d time.Duration) float64 { return max(d, 0).Seconds() }
