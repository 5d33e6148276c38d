package ratelimit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Lane is one lane of a [LaneSet]. Use [LaneSet.Lane]. It is at once a [policy.Policy],
// a [policy.Gate] and a [Limiter] to be used by hand. All methods are safe for
// concurrent use.
type Lane struct {
	set     *LaneSet
	cfg     LaneConfig
	name    string // instance name
	errs    [laneCauses]error
	yieldTo *Lane
	below   int64
	lenders []*Lane
	grants  []laneGrant // by where the tokens come from: this lane, lenders; and whether below the floor

	maxWait, maxWaiters atomic.Int64 // a change holds for those who come

	// The rest is under set.mu.
	purse       purse
	floor       *purse // nil for none
	first, last *laneWaiter
	waiting     int
	queued      int64 // tokens that those who wait are to get

	admitted, yielded, borrowed uint64
	rejected                    [policy.NumReasons]uint64

	// recent are the last calls whose tokens were not simply the lane's own, in a
	// ring: who gives tokens back by hand does not know where they came from.
	recent [4]struct {
		when, n int64
		grant   *laneGrant
	}
	turn uint8
}

// laneGrant says where the tokens of a call came from. There is one of each kind, made
// once, so that an attempt can refer to it.
type laneGrant struct {
	lane, from *Lane
	floor      bool // the lane had to yield, and was let in by its floor
}

var _ Limiter = (*Lane)(nil)

func newLane(s *LaneSet, c LaneConfig) *Lane {
	l := &Lane{set: s, cfg: c, name: s.cfg.Name + "." + c.Name, errs: laneErrors(c.Name)}
	l.maxWait.Store(int64(c.MaxWait))
	l.maxWaiters.Store(int64(c.MaxWaiters))
	l.purse = newPurse(c.Rate, c.Burst, max(c.Initial, 0))
	if c.YieldTo != "" && c.Floor.Tokens > 0 {
		floor := newPurse(c.Floor, 1, 1)
		l.floor = &floor
	}
	return l
}

// meet makes the lane know the others.
func (l *Lane) meet(lanes []*Lane) {
	l.yieldTo, l.below = l.set.Lane(l.cfg.YieldTo), int64(l.cfg.YieldBelow)
	l.grants = []laneGrant{{l, l, false}, {l, l, true}}
	for _, o := range lanes {
		if o != l && o.cfg.LendAbove > 0 {
			l.lenders = append(l.lenders, o)
			l.grants = append(l.grants, laneGrant{l, o, false}, laneGrant{l, o, true})
		}
	}
}

// at returns t as the lanes keep time.
func (l *Lane) at(t time.Time) int64 { return l.set.at(t) }

// Allow takes one token if there is one, and reports whether it did. It reads the
// clock and never waits.
func (l *Lane) Allow() bool { return l.AllowN(1) }

// AllowN takes n tokens if they are there, and reports whether it did; otherwise it
// takes none. It reads the clock and never waits. An n of zero or less takes nothing
// and is allowed.
func (l *Lane) AllowN(n int) bool {
	_, v := l.take(l.set.now(), n)
	return v == taken
}

// Take takes n tokens if they are there at the given time, and otherwise none. It then
// returns the time after which they will be there if nothing is taken from any lane
// meanwhile. It is [policy.Never] if n exceeds a burst or the limit over all lanes. Take
// never waits, and overtakes nobody who does in this lane. An n of zero or less takes
// nothing and is allowed.
func (l *Lane) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	retryAfter, v := l.take(l.at(now), n)
	return retryAfter, v == taken
}

func (l *Lane) take(at int64, n int) (time.Duration, verdict) {
	if n <= 0 {
		return 0, taken
	}
	l.set.lock(at)
	defer l.set.mu.Unlock()
	a := l.takeLocked(at, int64(n))
	if a.when <= at {
		return 0, taken
	}
	l.rejected[laneReasons[a.cause]]++
	if a.cause == laneTooBig {
		return policy.Never, tooBig
	}
	return delayFrom(at, a.when), short
}

// Reserve takes n tokens if they are there. It makes no promise about the future, which
// depends on the other lanes: a Reservation that is not OK says when it is worth another
// try. An n of zero or less takes nothing and is OK at once.
func (l *Lane) Reserve(now time.Time, n int) Reservation {
	delay, v := l.take(l.at(now), n)
	return Reservation{ok: v == taken, delay: delay}
}

// Refund gives back n tokens that were taken from this lane at the given time for a call
// which did not run: the time that Take was given, or about which Wait returned. See
// [Bucket.Refund]. What another lane has lent goes back to it, if it was taken of late.
func (l *Lane) Refund(taken time.Time, n int) {
	if n > 0 {
		l.refund(l.set.now(), l.at(taken), int64(n), nil)
	}
}

// refund gives tokens back to where they came from, as far as that is known.
func (l *Lane) refund(at, taken, n int64, g *laneGrant) {
	l.set.lock(at)
	defer l.set.mu.Unlock()
	if g == nil {
		g = l.grantOfLocked(taken, n)
	}
	g.from.purse.give(at, taken, n)
	if g.floor {
		l.floor.give(at, taken, n)
	}
	if t := l.set.total; t != nil {
		t.refund(at, taken, n)
		t.rewind()
	}
	l.set.dispatchLocked(l.set.now())
}

// SetLimit changes rate and burst of the lane, from now on. A burst of zero means what
// arrives in one second, rounded up. An invalid limit changes nothing and is reported as
// joined [*policy.ConfigError].
//
// What is there stays, as far as it fits, and what is owed is not forgiven, so that no
// change grants a token. Waiters go on waiting, within the MaxWait they began with.
func (l *Lane) SetLimit(rate Rate, burst int) error {
	cfg := TokenBucket{Rate: rate, Burst: burst}
	f := faults{kind: lanesKind}
	f.inside("", cfg.Validate())
	if err := f.err(); err != nil {
		return err
	}
	l.setLimit(rate, cfg.burst())
	return nil
}

// SetRate implements [Limiter]: it is [Lane.SetLimit] with the burst as it is.
func (l *Lane) SetRate(rate Rate) error {
	f := faults{kind: lanesKind}
	f.rate("Rate", rate)
	if err := f.err(); err != nil {
		return err
	}
	l.setLimit(rate, 0)
	return nil
}

// setLimit changes the limit; a burst of zero leaves it as it is.
func (l *Lane) setLimit(rate Rate, burst int) {
	at := l.set.now()
	l.set.lock(at)
	defer l.set.mu.Unlock()
	if burst == 0 {
		burst = int(l.purse.s.burst)
	}
	l.purse.setLimit(at, rate, burst)
	l.set.dispatchLocked(at)
}

// BuildPolicy implements [policy.Policy]: pipelines that are given lanes of the same
// [LaneSet] share the quota.
func (l *Lane) BuildPolicy() (policy.Part, error) {
	return policy.Part{
		Kind:        lanesKind,
		Name:        l.name,
		Gate:        l,
		Place:       policy.PlaceRateLimit,
		Waits:       l.maxWait.Load() > 0,
		RefundsOnly: true,
		Shadow:      l.set.cfg.Shadow,
	}, nil
}

// Peek implements [policy.Gate]: it reports a refusal that is sure, and takes nothing.
func (l *Lane) Peek(a *policy.Attempt) error {
	at := l.at(a.Now())
	l.set.lock(at)
	defer l.set.mu.Unlock()
	if cause, retryAfter, sure := l.doomedLocked(at, int64(a.Cost())); sure {
		return l.refuseLocked(cause, retryAfter)
	}
	return nil
}

// Enter implements [policy.Gate]: it takes the tokens that the call costs, waiting for
// them as [Lane.Wait] does, or refuses at once where the attempt must not wait.
func (l *Lane) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	at := l.at(a.Now())
	g, when, err := l.enter(ctx, at, int64(a.Cost()), a.NoWait())
	if err != nil {
		return err
	}
	if when > at {
		a.Waited()
	}
	sl := a.Slot(slot)
	sl.Word, sl.Ref = uint64(when), g //nolint:gosec // the same bits come back in Leave
	return nil
}

// Leave implements [policy.Gate]: an attempt that never ran gives back what it took.
func (l *Lane) Leave(a *policy.Attempt, slot int, o policy.Outcome) { leaveLane(a, slot, o) }

func leaveLane(a *policy.Attempt, slot int, o policy.Outcome) {
	sl := a.Slot(slot)
	if g, ok := sl.Ref.(*laneGrant); ok && o.Kind == policy.NotRun {
		g.lane.refund(g.lane.set.now(), int64(sl.Word), int64(a.Cost()), g) //nolint:gosec // see Enter
	}
}

// Wait takes n tokens, standing in line for them for at most MaxWait and behind at most
// MaxWaiters. It returns nil when they are the caller's, and otherwise, with nothing
// taken, what [Pace.Wait] does, with one difference: since other lanes may get in
// between, a wait that was begun can end in a refusal after MaxWait ([policy.ReasonWait]).
func (l *Lane) Wait(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if n <= 0 {
		return nil
	}
	_, _, err := l.enter(ctx, l.set.now(), int64(n), false)
	return err
}

// Snapshot implements [policy.Snapshotter].
func (l *Lane) Snapshot(now time.Time) policy.PolicySnapshot {
	at := l.at(now)
	l.set.lock(at)
	defer l.set.mu.Unlock()
	s := l.snapshotLocked(at)
	return policy.PolicySnapshot{
		Name: l.name, Kind: lanesKind, Shadow: l.set.cfg.Shadow,
		Limiter: &policy.LimiterSnapshot{
			Tokens: s.Tokens, Burst: s.Burst, Rate: s.Rate,
			Waiting: s.Waiting, MaxWaiters: s.MaxWaiters,
			Delay: s.Delay,
			Lanes: []policy.LaneSnapshot{s},
		},
	}
}

func (l *Lane) snapshotLocked(at int64) policy.LaneSnapshot {
	return policy.LaneSnapshot{
		Name:   l.cfg.Name,
		Tokens: l.purse.tokens(at), Burst: float64(l.purse.s.burst), Rate: l.purse.s.rate.perSecond(),
		Waiting: l.waiting, MaxWaiters: int(l.maxWaiters.Load()),
		Delay:    delayFrom(at, l.answerLocked(at, 1).when),
		Admitted: l.admitted, Rejected: l.rejected, Yielded: l.yielded, Borrowed: l.borrowed,
	}
}

func (l *Lane) takeFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return l.take(l.at(now), n)
}

func (l *Lane) lookFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	at := l.at(now)
	l.set.lock(at)
	defer l.set.mu.Unlock()
	a := l.answerLocked(at, int64(n))
	switch {
	case a.when <= at:
		return 0, taken
	case a.cause == laneTooBig:
		return policy.Never, tooBig
	}
	return delayFrom(at, a.when), short
}

func (l *Lane) refundFor(taken time.Time, _ *policy.Call, n int) { l.Refund(taken, n) }

func (l *Lane) undoFor(taken time.Time, _ *policy.Call, n int) {
	l.refund(l.at(taken), l.at(taken), int64(n), nil)
}

func (l *Lane) title() string { return l.name }

// errors of a lane beside those of other limiters. All match ErrLimited.
var (
	errYields = &limitedError{"ratelimit: it makes way for another lane", nil}
	errTotal  = &limitedError{"ratelimit: the limit over all lanes is used up", nil}
)

// laneCause is one of the causes of a refusal.
type laneCause uint8

const (
	laneLimited laneCause = iota
	laneYields
	laneTotal
	laneTooBig
	laneWaiters
	laneTooFar
	laneDeadline
	laneCauses
)

// laneErrors returns the errors of a lane, made once.
func laneErrors(name string) (errs [laneCauses]error) {
	for cause, err := range map[laneCause]error{
		laneLimited: ErrLimited, laneYields: errYields, laneTotal: errTotal, laneTooBig: ErrExceedsBurst,
		laneWaiters: errWaiters, laneTooFar: errTooFar, laneDeadline: errDeadline,
	} {
		errs[cause] = &PartError{Part: name, Err: err}
	}
	return errs
}

var laneReasons = [laneCauses]policy.Reason{
	laneLimited: policy.ReasonRate, laneYields: policy.ReasonRate, laneTotal: policy.ReasonRate, laneTooBig: policy.ReasonCost,
	laneWaiters: policy.ReasonWaiters, laneTooFar: policy.ReasonWait, laneDeadline: policy.ReasonDeadline,
}
