package ratelimit

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// LaneSet is live [Lanes]. Use [NewLaneSet]. It is a [policy.Policy], a [policy.Gate]
// and a [Limiter]: in a pipeline it puts each call into the lane that [WithLane] or the
// call's priority says, and by hand it is the lane of normal priority. [LaneSet.Lane]
// returns one lane, which is all of this too, for pipelines or callers of one kind. All
// methods are safe for concurrent use.
//
// A refusal names the lane: [errors.As] finds a [*PartError] in it.
//
// # How it counts
//
// Each lane is a token bucket, and the limit over all of them a sliding window. A call
// takes from all that concern it or from none, so everything is under one lock, which is
// held for some hundred nanoseconds; that is made for quotas, not for millions of calls
// per second.
//
// The first waiter of each lane is let in as soon as it can be, that of an earlier lane
// first; those behind it follow in the order in which they came. When that will be
// depends on the other lanes, so a wait that was begun can end in a refusal.
type LaneSet struct {
	start  time.Time
	cfg    Lanes // effective; the limits as they were in the beginning
	lanes  []*Lane
	byBand [int(policy.PriorityCritical-policy.PriorityLow) + 1]*Lane // by priority

	mu    sync.Mutex
	total books // of the limit over all lanes, nil for none; always open

	// timer lets waiters in, at the time armed; never when it is not set.
	timer *time.Timer
	armed int64
}

var _ Limiter = (*LaneSet)(nil)

// NewLaneSet returns the live lanes of a configuration. A name that is not empty takes
// the place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewLaneSet(name string, cfg Lanes) (*LaneSet, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults()
	s := &LaneSet{start: time.Now(), cfg: cfg, armed: never}
	switch t := cfg.Total; {
	case t == (SlidingWindow{}):
	case t.Approximate:
		s.total = newCounterBooks(int64(t.Limit), int64(t.Window))
		s.total.open()
	default:
		s.total = newLogBooks(int64(t.Limit), int64(t.Window))
		s.total.open()
	}
	for _, c := range cfg.Lanes {
		s.lanes = append(s.lanes, newLane(s, c))
	}
	for _, l := range s.lanes {
		l.meet(s.lanes)
	}
	for i := range s.byBand {
		s.byBand[i] = s.choose(policy.PriorityLow + policy.Priority(i))
	}
	return s, nil
}

// choose returns the lane for calls of a priority.
func (s *LaneSet) choose(p policy.Priority) *Lane {
	var best, lowest *Lane
	for _, l := range s.lanes {
		if lowest == nil || l.cfg.Priority < lowest.cfg.Priority {
			lowest = l
		}
		if l.cfg.Priority <= p && (best == nil || l.cfg.Priority > best.cfg.Priority) {
			best = l
		}
	}
	if best == nil {
		return lowest
	}
	return best
}

// Lane returns the lane of that name, nil if there is none.
func (s *LaneSet) Lane(name string) *Lane {
	for _, l := range s.lanes {
		if l.cfg.Name == name {
			return l
		}
	}
	return nil
}

// of returns the lane for calls of a priority. One outside the known range counts as
// the nearest that is known.
func (s *LaneSet) of(p policy.Priority) *Lane {
	return s.byBand[min(max(p, policy.PriorityLow), policy.PriorityCritical)-policy.PriorityLow]
}

// from returns the lane of a call.
func (s *LaneSet) from(ctx context.Context, c *policy.Call) *Lane {
	if name, ok := ctx.Value(laneKey{}).(string); ok {
		if l := s.Lane(name); l != nil {
			return l
		}
	}
	return s.of(c.Priority)
}

// at returns t as the lanes keep time.
func (s *LaneSet) at(t time.Time) int64 { return int64(t.Sub(s.start)) }

func (s *LaneSet) now() int64 { return int64(time.Since(s.start)) }

// Take is [Lane.Take] on the lane of normal priority.
func (s *LaneSet) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	return s.of(policy.PriorityNormal).Take(now, n)
}

// Wait is [Lane.Wait] on the lane that [WithLane] says, or the priority of ctx.
func (s *LaneSet) Wait(ctx context.Context, n int) error {
	c := policy.CallFrom(ctx)
	return s.from(ctx, &c).Wait(ctx, n)
}

// Reserve is [Lane.Reserve] on the lane of normal priority.
func (s *LaneSet) Reserve(now time.Time, n int) Reservation {
	return s.of(policy.PriorityNormal).Reserve(now, n)
}

// Refund is [Lane.Refund] on the lane of normal priority.
func (s *LaneSet) Refund(taken time.Time, n int) {
	s.of(policy.PriorityNormal).Refund(taken, n)
}

// SetRate implements [Limiter]: it makes the rates of the lanes add up to the given
// one, and changes each by the same factor. Bursts and the limit over all lanes stay as
// they are. The rate must be finite; a lane whose rate is infinite stays as it is.
func (s *LaneSet) SetRate(rate Rate) error {
	f := faults{kind: lanesKind}
	f.rate("Rate", rate)
	if rate.unlimited() {
		f.add("Rate", rate, "want a finite rate: each lane is to have its share")
	}
	if err := f.err(); err != nil {
		return err
	}
	at := s.now()
	s.lock(at)
	defer s.mu.Unlock()
	sum := 0.0
	for _, l := range s.lanes {
		if r := l.purse.s.rate; !r.unlimited() {
			sum += r.perSecond()
		}
	}
	for _, l := range s.lanes {
		r := l.purse.s.rate
		if r.unlimited() {
			continue
		}
		r.Tokens *= rate.perSecond() / sum
		if math.IsInf(r.Tokens, 0) || r.Tokens == 0 {
			continue // beyond what a number can say
		}
		l.purse.setLimit(at, r, int(l.purse.s.burst))
	}
	s.dispatchLocked(at)
	return nil
}

// SetTotal changes the limit over all lanes, from now on. The window cannot become
// exact or approximate, or begin or cease to be. An invalid limit changes nothing and is
// reported as joined [*policy.ConfigError]. See [Sliding.SetLimit] for what becomes of
// what was taken.
func (s *LaneSet) SetTotal(limit int, window time.Duration) error {
	f := faults{kind: lanesKind}
	if s.total == nil {
		f.add("Total", nil, "want lanes that were made with a Total")
	} else {
		own := faults{kind: lanesKind}
		own.sliding(limit, window, s.cfg.Total.Approximate)
		f.inside("Total", own.err())
	}
	if err := f.err(); err != nil {
		return err
	}
	at := s.now()
	s.lock(at)
	defer s.mu.Unlock()
	switch t := s.total.(type) {
	case *counterBooks:
		t.setLimit(at, int64(limit), int64(window))
	case *logBooks:
		t.setLimit(at, int64(limit), int64(window))
	}
	s.total.rewind()
	s.dispatchLocked(at)
	return nil
}

// Config returns the effective configuration, with the limits as they are now.
func (s *LaneSet) Config() Lanes {
	cfg := s.cfg
	cfg.Lanes = slices.Clone(cfg.Lanes)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.lanes {
		c := &cfg.Lanes[i]
		c.Rate, c.Burst = l.purse.s.rate, int(l.purse.s.burst)
		c.Initial = min(c.Initial, c.Burst)
		c.MaxWait, c.MaxWaiters = time.Duration(l.maxWait.Load()), int(l.maxWaiters.Load())
		c.LendAbove = min(c.LendAbove, c.Burst)
		if l.yieldTo != nil {
			c.YieldBelow = int(min(l.below, l.yieldTo.purse.s.burst))
		}
	}
	switch t := s.total.(type) {
	case *counterBooks:
		c := t.state.Load()
		cfg.Total.Limit, cfg.Total.Window = int(c.limit), time.Duration(c.window)
	case *logBooks:
		cfg.Total.Limit, cfg.Total.Window = int(t.limit.Load()), time.Duration(t.window)
	}
	return cfg
}

// BuildPolicy implements [policy.Policy]: pipelines that are given the same LaneSet, or
// lanes of it, share the quota.
func (s *LaneSet) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:        lanesKind,
		Name:        s.cfg.Name,
		Gate:        s,
		Place:       policy.PlaceRateLimit,
		Waits:       slices.ContainsFunc(s.lanes, func(l *Lane) bool { return l.maxWait.Load() > 0 }),
		RefundsOnly: true,
		Shadow:      s.cfg.Shadow,
	}, nil
}

// Peek implements [policy.Gate]. Which lane the call is for is said by its context,
// which a Peek does not see: it reports a refusal if every lane would refuse.
func (s *LaneSet) Peek(a *policy.Attempt) error {
	at, n := s.at(a.Now()), int64(a.Cost())
	s.lock(at)
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		if _, _, sure := l.doomedLocked(at, n); !sure {
			return nil
		}
	}
	l := s.of(a.Call().Priority)
	cause, retryAfter, _ := l.doomedLocked(at, n)
	return l.refuseLocked(cause, retryAfter)
}

// Enter implements [policy.Gate], on the lane of the call.
func (s *LaneSet) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	return s.from(ctx, a.Call()).Enter(ctx, a, slot)
}

// Leave implements [policy.Gate]: an attempt that never ran gives back what it took.
func (s *LaneSet) Leave(a *policy.Attempt, slot int, o policy.Outcome) { leaveLane(a, slot, o) }

// Snapshot implements [policy.Snapshotter].
func (s *LaneSet) Snapshot(now time.Time) policy.PolicySnapshot {
	at := s.at(now)
	snapshot := &policy.LimiterSnapshot{Delay: policy.Never}
	s.lock(at)
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		lane := l.snapshotLocked(at)
		snapshot.Tokens += lane.Tokens
		snapshot.Burst += lane.Burst
		snapshot.Rate += lane.Rate
		snapshot.Waiting += lane.Waiting
		snapshot.MaxWaiters += lane.MaxWaiters
		snapshot.Delay = min(snapshot.Delay, lane.Delay)
		snapshot.Lanes = append(snapshot.Lanes, lane)
	}
	if s.total != nil {
		var total policy.LimiterSnapshot
		s.total.describe(at, &total)
		snapshot.Tokens = min(snapshot.Tokens, total.Tokens)
		snapshot.Burst = min(snapshot.Burst, total.Burst)
		snapshot.Rate = min(snapshot.Rate, total.Rate)
	}
	return policy.PolicySnapshot{Name: s.cfg.Name, Kind: lanesKind, Shadow: s.cfg.Shadow, Limiter: snapshot}
}

func (s *LaneSet) takeFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict) {
	return s.of(c.Priority).takeFor(now, c, n)
}

func (s *LaneSet) lookFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict) {
	return s.of(c.Priority).lookFor(now, c, n)
}

func (s *LaneSet) refundFor(taken time.Time, c *policy.Call, n int) {
	s.of(c.Priority).refundFor(taken, c, n)
}

func (s *LaneSet) undoFor(taken time.Time, c *policy.Call, n int) {
	s.of(c.Priority).undoFor(taken, c, n)
}

func (s *LaneSet) title() string { return s.cfg.Name }
