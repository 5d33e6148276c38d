package otelx

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// point is one value of a metric. Which labels it has, its family says; the dependency
// is that of the reading.
type point struct {
	of     *family
	rank   int8 // that of the family, unless something is said of this one
	labels [maxLabels]string
	value  float64
	dist   policy.Latency // of a distribution
}

// maxLabels is the largest number of labels beside the dependency.
const maxLabels = 3

// reading is what there is to say about one dependency; about the whole registry, when
// it has no name.
type reading struct {
	dependency string
	points     []point
	omitted    int // series that were left out
}

// add adds a value. One that is no number, of a gate that somebody else has written, is
// left out: it would be the highest and the lowest of all.
func (r *reading) add(f *family, v float64, labels ...string) {
	if math.IsNaN(v) {
		return
	}
	p := point{of: f, rank: f.rank, value: v}
	copy(p.labels[:], labels)
	r.points = append(r.points, p)
}

func (r *reading) count(f *family, n uint64, labels ...string) { r.add(f, float64(n), labels...) }

func (r *reading) number(f *family, n int, labels ...string) { r.add(f, float64(n), labels...) }

func (r *reading) durations(f *family, l policy.Latency, labels ...string) {
	p := point{of: f, rank: f.rank, dist: l}
	copy(p.labels[:], labels)
	r.points = append(r.points, p)
}

// Modes of a gate, a label of gate_info.
const (
	modeEnforce = "enforce"
	modeShadow  = "shadow"  // by its configuration
	modeObserve = "observe" // by command
)

// closedKind is the kind of the entry that a pipeline has for itself once it is closed.
// A policy may have taken its name.
const closedKind = "pipeline"

// read says what a snapshot does.
func read(s *policy.Snapshot) reading {
	r := reading{dependency: s.Dependency, points: make([]point, 0, 96)}
	for k := range policy.NumKinds {
		r.count(table.calls, s.Calls[k], k.String())
		r.count(table.attempts, s.Attempts[k], k.String())
	}
	r.count(table.retries, s.Retries)
	r.count(table.panics, s.Panics)
	r.count(table.discarded, s.Discarded)
	r.count(table.abandoned, s.Abandoned)
	r.durations(table.duration, s.Latency)
	r.durations(table.callDuration, s.CallLatency)
	for i := range s.Policies {
		p := &s.Policies[i]
		if p.Kind == closedKind && slices.ContainsFunc(s.Policies[:i], func(o policy.PolicySnapshot) bool { return o.Name == p.Name }) {
			continue // two series of one name would make the whole scrape fail
		}
		r.policy(p)
	}
	return r
}

// policy says what one policy does. What a policy cannot do has no series: which ones
// there are depends on its settings, not on its traffic, so that none goes away when
// another comes.
func (r *reading) policy(p *policy.PolicySnapshot) {
	r.rejections(p)
	if p.Breaker != nil {
		r.breaker(p.Name, p.Breaker)
	}
	if p.Bulkhead != nil {
		r.bulkhead(p)
	}
	if p.Limiter != nil {
		r.limiter(p)
	}
	if p.Retry != nil {
		r.retry(p.Name, p.Retry)
	}
	if p.Hedge != nil {
		r.hedge(p.Name, p.Hedge)
	}
	if p.Fallback != nil {
		r.fallback(p.Name, p.Fallback)
	}
}

// rejections says what a gate refused: what happened, and at zero what its kind is made
// to refuse, so that a rate over the first of them is right.
func (r *reading) rejections(p *policy.PolicySnapshot) {
	if p.Retry != nil || p.Hedge != nil || p.Fallback != nil || p.Timeouts != nil {
		return // not a gate
	}
	f, mode := table.rejections, modeEnforce
	switch {
	case p.Shadow:
		f, mode = table.shadowRejections, modeShadow
	case p.Breaker != nil && p.Breaker.Observing:
		mode = modeObserve
	}
	expected := expectedReasons(p)
	for reason := range policy.NumReasons {
		if n := p.Rejected[reason]; n > 0 || expected&(1<<reason) != 0 {
			r.count(f, n, p.Name, reason.String())
		}
	}
	r.add(table.gateInfo, 1, p.Name, label(p.Kind), mode)
}

// expectedReasons returns, as bits, the reasons for which a gate of this kind may refuse.
func expectedReasons(p *policy.PolicySnapshot) uint32 {
	const queue = 1<<policy.ReasonWaiters | 1<<policy.ReasonWait
	switch {
	case p.Breaker != nil && p.Breaker.MaxProbes == 0:
		return 1 << policy.ReasonThrottle
	case p.Breaker != nil:
		return 1<<policy.ReasonOpen | 1<<policy.ReasonProbes | 1<<policy.ReasonForced | 1<<policy.ReasonRamp
	case p.Bulkhead != nil && p.Bulkhead.MaxWaiters > 0 && !p.Shadow: // in shadow mode nobody waits
		return queue
	case p.Bulkhead != nil:
		return 1 << policy.ReasonConcurrency
	case p.Limiter != nil && p.Limiter.Load != nil:
		return 1 << policy.ReasonConcurrency
	case p.Limiter != nil:
		return limiterReasons(p)
	}
	return 0
}

func limiterReasons(p *policy.PolicySnapshot) uint32 {
	const queue = 1<<policy.ReasonWaiters | 1<<policy.ReasonWait | 1<<policy.ReasonDeadline
	reasons := uint32(1 << policy.ReasonCost)
	if p.Limiter.Shared != nil {
		reasons |= 1 << policy.ReasonUnavailable
	}
	switch {
	case len(p.Limiter.Lanes) > 0: // each has its own way
		return reasons | 1<<policy.ReasonRate | queue
	case limiterWaits(p):
		return reasons | queue
	}
	return reasons | 1<<policy.ReasonRate
}

// limiterWaits reports whether calls may wait for a limiter. One that lets only those
// wait who use it by hand has waiters too, and no calls among them.
func limiterWaits(p *policy.PolicySnapshot) bool {
	return p.Limiter.MaxWaiters > 0 && p.Waits && !p.Shadow
}

var breakerStates = policy.BreakerStates()

// throttling is the state that only throttles have.
const throttling = "throttling"

func (r *reading) breaker(name string, b *policy.BreakerSnapshot) {
	for _, state := range breakerStates {
		switch throttle := b.MaxProbes == 0; {
		case b.State == state:
		case throttle && state != "closed" && state != throttling, !throttle && state == throttling:
			continue // it has no such state
		}
		r.add(table.state, oneIf(b.State == state), name, state)
	}
	r.add(table.share, b.Share, name)
	r.count(table.opened, b.Opened, name)
	if b.MaxProbes > 0 { // a throttle never says when, and takes no commands
		r.add(table.retryAfter, seconds64(b.RetryAfter), name)
		r.count(table.spared, b.Spared, name)
	}
	r.count(table.windowCalls, b.Calls, name)
	r.add(table.failureRatio, b.FailureRatio, name)
	if b.SlowThreshold > 0 {
		r.add(table.slowRatio, b.SlowRatio, name)
	}
	if b.ConsecutiveThreshold > 0 {
		r.count(table.consecutive, b.Consecutive, name)
	}
	if b.MaxKeys > 0 {
		r.number(table.breakerKeys, b.Keys, name)
		r.number(table.openKeys, b.OpenKeys, name)
		r.count(table.evicted, b.Evicted, name)
		r.count(table.capped, b.Capped, name)
	}
}

// poolKind is the kind of a bulkhead that has workers. The snapshot of one that has not
// begun to work looks like a semaphore's.
const poolKind = "pool"

// connectionsKind is that of a pool of connections, which times what is done on them.
const connectionsKind = "connections"

func (r *reading) bulkhead(p *policy.PolicySnapshot) {
	b, name := p.Bulkhead, p.Name
	r.number(table.inFlight, b.InFlight, name)
	r.number(table.limit, b.Limit, name)
	r.number(table.highWater, b.HighWater, name)
	if b.MaxWaiters > 0 && !p.Shadow {
		r.number(table.waiting, b.Waiting, name)
		r.number(table.queueLimit, b.MaxWaiters, name)
		r.number(table.mostWaiting, b.MostWaiting, name)
		r.durations(table.wait, b.Wait, name)
	}
	if b.MaxLimit > 0 {
		r.count(table.rebased, b.Rebased, name)
	}
	if p.Kind == connectionsKind {
		r.durations(table.run, b.Run, name)
		r.points[len(r.points)-1].rank = plain // there is no other time of the statements alone
	}
	if p.Kind != poolKind {
		return
	}
	r.number(table.workers, b.Workers, name)
	r.number(table.orphans, b.Orphans, name)
	r.add(table.shedding, oneIf(b.Overloaded), name)
	r.count(table.left, b.Abandoned, name)
	r.count(table.expired, b.Expired, name)
	r.count(table.callerRan, b.CallerRan, name)
	r.count(table.orphanPanics, b.OrphanPanics, name)
	r.durations(table.run, b.Run, name)
}

// stopRank returns what a stop matters: no other metric tells of a budget that is used
// up, and some stops are only what settings or callers want.
func stopRank(stop policy.Stop) int8 {
	switch stop {
	case policy.StopBudget:
		return vital
	case policy.StopMaxDuration, policy.StopCall:
		return detail
	default:
		return plain
	}
}

func (r *reading) retry(name string, s *policy.RetrySnapshot) {
	for stop := policy.StopNone + 1; stop < policy.NumStops; stop++ {
		r.count(table.stops, s.Stopped[stop], name, stop.String())
		r.points[len(r.points)-1].rank = stopRank(stop)
	}
	if s.HasBudget {
		r.add(table.budgetRemaining, s.BudgetRemaining, name)
	}
}

func (r *reading) hedge(name string, h *policy.HedgeSnapshot) {
	r.count(table.hedges, h.Started, name)
	r.count(table.hedgesWon, h.Won, name)
	r.count(table.hedgesSuppressed, h.Suppressed, name)
	r.count(table.hedgesShut, h.Refused, name)
	r.add(table.hedgeDelay, seconds64(h.Delay), name)
	if h.HasBudget {
		r.add(table.hedgeBudget, h.BudgetRemaining, name)
	}
}

func (r *reading) fallback(name string, f *policy.FallbackSnapshot) {
	r.count(table.fallbacks, f.Served, name, "served")
	r.count(table.fallbacks, f.Failed, name, "failed")
	if f.Guard != nil || f.Rejected > 0 {
		r.count(table.fallbacks, f.Rejected, name, "rejected")
	}
	if f.Mapped > 0 {
		r.count(table.fallbacks, f.Mapped, name, "mapped")
	}
	if g := f.Guard; g != nil {
		guard := *g
		guard.Name = name
		r.policy(&guard)
	}
	if s := f.Stale; s != nil {
		r.add(table.staleAge, seconds64(s.OldestAge), name)
		r.count(table.lookups, s.Hits, name, "hit")
		r.count(table.lookups, s.Stale, name, "stale")
		r.count(table.lookups, s.Negative, name, "negative")
		r.count(table.lookups, s.Misses, name, "miss")
		r.count(table.loads, s.Loads, name)
		r.count(table.loadFailures, s.Failures, name)
		r.number(table.entries, s.Entries, name)
		r.count(table.cacheEvicted, s.Evicted, name)
	}
	if d := f.Defer; d != nil {
		r.count(table.deferred, d.Accepted, name, "accepted")
		r.count(table.deferred, d.Refused, name, "refused")
		r.count(table.deferred, d.Unconfirmed, name, "unconfirmed")
		r.number(table.deferring, d.InFlight, name)
		r.add(table.deferConnected, oneIf(d.Connected), name)
		r.count(table.reconnect, d.Reconnects, name)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func seconds64(d time.Duration) float64 { return max(d, 0).Seconds() }

// label makes a name usable as the value of a label. Names of dependencies and policies
// are, since policy.New has checked them; kinds and names of lanes may be anything.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
