package otelx

import "github.com/breakwater-go/breakwater/policy"

func (r *reading) limiter(p *policy.PolicySnapshot) {
	l, name := p.Limiter, p.Name
	if l.Load != nil {
		r.load(name, l.Load)
		return // there are no tokens
	}
	if l.Keyed == nil { // a new key has all of its tokens, always
		r.add(table.tokens, l.Tokens, name)
		r.add(table.burst, l.Burst, name)
	}
	r.add(table.rate, l.Rate, name)
	if limiterWaits(p) {
		r.number(table.limiterWaiting, l.Waiting, name)
		r.number(table.limiterQueue, l.MaxWaiters, name)
		if len(l.Lanes) == 0 { // every lane has its own
			r.add(table.delay, seconds64(l.Delay), name)
		}
	}
	if k := l.Keyed; k != nil {
		r.number(table.limiterKeys, k.Keys, name)
		r.count(table.overflowed, k.Overflowed, name)
	}
	if f := l.Feedback; f != nil {
		r.add(table.drain, seconds64(f.Drain), name)
		r.count(table.pushbacks, f.Pushbacks, name)
		r.count(table.decreases, f.Decreases, name)
	}
	for i := range l.Lanes {
		r.lane(name, &l.Lanes[i])
	}
	for i := range l.Limits {
		r.part(name, &l.Limits[i])
	}
	if l.Shared != nil {
		r.shared(name, l.Shared)
	}
}

func (r *reading) lane(name string, l *policy.LaneSnapshot) {
	lane := label(l.Name)
	r.number(table.laneWaiting, l.Waiting, name, lane)
	r.add(table.laneDelay, seconds64(l.Delay), name, lane)
	r.count(table.laneAdmitted, l.Admitted, name, lane)
	r.count(table.laneRejected, sum(l.Rejected[:]), name, lane)
	r.count(table.laneBorrowed, l.Borrowed, name, lane)
}

// part describes one of several limits that are kept at once.
func (r *reading) part(name string, p *policy.PolicySnapshot) {
	part := label(p.Name)
	r.count(table.partRejected, sum(p.Rejected[:]), name, part)
	if l := p.Limiter; l != nil && l.Load == nil {
		if l.Keyed == nil {
			r.add(table.partTokens, l.Tokens, name, part)
		}
		r.add(table.partRate, l.Rate, name, part)
	}
}

// priorities names what LoadSnapshot.Shed counts, the lowest first.
var priorities = [len(policy.LoadSnapshot{}.Shed)]string{"low", "normal", "high", "critical"}

func (r *reading) load(name string, l *policy.LoadSnapshot) {
	r.add(table.overloaded, oneIf(l.Overloaded), name)
	r.add(table.cpu, l.CPU, name)
	r.add(table.queueDelay, seconds64(l.Delay), name)
	r.number(table.loadInFlight, l.InFlight, name)
	r.number(table.loadLimit, l.Limit, name)
	r.count(table.readings, l.Failed, name)
	for i, n := range l.Shed {
		r.count(table.shed, n, name, priorities[i])
	}
}

var sharedModes = policy.SharedModes()

func (r *reading) shared(name string, s *policy.SharedSnapshot) {
	for _, mode := range sharedModes {
		r.add(table.sharedMode, oneIf(s.Mode == mode), name, mode)
	}
	r.count(table.stoodIn, s.StoodIn, name)
	r.count(table.sharedErrors, s.Errors, name)
	r.count(table.roundTrips, s.RoundTrips, name)
	r.count(table.leaseHits, s.LeaseHits, name)
	r.number(table.leased, s.Leased, name)
	r.durations(table.sharedTime, s.Latency, name)
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
