package ratelimit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	// The rate is put on the curve this often while it rises, within these bounds.
	curveSteps = 100
	minStep    = 10 * time.Millisecond
	maxStep    = time.Second
)

// Governor is a live limit that follows what the dependency says. Use [NewFeedback]. It
// is at once a [policy.Policy], a [policy.Gate] and a [Limiter]; used by hand, it is told
// by [Governor.Throttled] when the dependency objects. All methods are safe for
// concurrent use.
//
// # How it counts
//
// It is a [Bucket] whose rate changes. When the dependency objects, the rate falls by a
// factor and the bucket is emptied; until the time that the dependency asked for nothing
// arrives in it. From then on the rate rises along a curve that depends on time alone,
// in steps that stay below it. So in any stretch of time no more is let in than the
// bucket held at its beginning and the curve gives. Multiplicative decrease with additive
// increase is due to Chiu and Jain (1989); the cubic curve, and that the rate falls from
// what was really asked for, is how the adaptive retry mode of the AWS SDKs does it.
//
// A call that is let in costs no more than with a Bucket, but for one more counter.
type Governor struct {
	bucket *Bucket
	lobby  lobby
	passed throughput

	next    atomic.Int64 // when the rate has to be put on the curve again, never when it is at its end
	emptied atomic.Int64 // when the bucket was last emptied

	pushbacks, falls atomic.Uint64

	mu    sync.Mutex
	cfg   Feedback // effective
	given Rate     // the Floor that was asked for, which may be none
	curve curve
	fell  int64 // when the rate last fell
	drain int64 // until when nothing is let in
}

var (
	_ policy.Policy = Feedback{}
	_ Limiter       = (*Governor)(nil)
	_ host          = (*Governor)(nil)
)

// NewFeedback returns the live limit of a configuration. A name that is not empty takes
// the place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewFeedback(name string, cfg Feedback) (*Governor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	given := cfg.Floor
	cfg = cfg.withDefaults()
	b, err := New(cfg.Name, TokenBucket{Rate: cfg.Ceiling, Burst: cfg.Burst})
	if err != nil {
		return nil, err
	}
	g := &Governor{bucket: b, cfg: cfg, given: given, curve: newCurve(cfg), fell: unknown}
	g.next.Store(never)
	g.emptied.Store(unknown)
	g.lobby.init(g, cfg.MaxWait, cfg.MaxWaiters)
	g.lobby.oneLine = true
	return g, nil
}

// Allow takes one token if there is one, and reports whether it did. It reads the clock
// and never waits.
func (g *Governor) Allow() bool {
	_, ok := g.Take(time.Now(), 1)
	return ok
}

// Take takes n tokens if they are there at the given time, and otherwise none. It then
// returns the time after which they will be there if nobody else takes any and the rate
// stays as it is. It is [policy.Never] if n exceeds the burst. Take never waits. An n of
// zero or less takes nothing and is allowed.
func (g *Governor) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	retryAfter, v := g.take(g.bucket.at(now), n)
	return retryAfter, v == taken
}

func (g *Governor) take(at int64, n int) (time.Duration, verdict) {
	if at >= g.next.Load() {
		g.advance(at)
	}
	delay, v := g.bucket.take(at, n)
	if v == taken && n > 0 {
		g.passed.add(at, int64(n))
	}
	return delay, v
}

// advance puts the rate on the curve. When somebody is at it already, it leaves it to
// that one.
func (g *Governor) advance(at int64) {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if at >= g.next.Load() {
		g.setRateLocked(at, g.curve.at(at))
	}
}

// setRateLocked sets the rate of the bucket, from a time on. It requires that g.mu is
// held, as do all whose names end so.
func (g *Governor) setRateLocked(at int64, rate float64) {
	g.bucket.setLimit(at, g.exactLocked(rate), int64(g.cfg.Burst))
	g.armLocked(at, rate)
}

// exactLocked returns a rate per second as a Rate, at the bounds as they were given.
func (g *Governor) exactLocked(rate float64) Rate {
	switch {
	case rate >= g.curve.ceiling:
		return g.cfg.Ceiling
	case rate <= g.curve.floor:
		return g.cfg.Floor
	}
	return PerSecond(rate)
}

// armLocked says when the rate is to be put on the curve next.
func (g *Governor) armLocked(at int64, rate float64) {
	if rate >= g.curve.ceiling {
		g.next.Store(never)
		return
	}
	step := min(max(g.cfg.RecoverIn/curveSteps, minStep), maxStep)
	g.next.Store(at + int64(step))
}

// Throttled tells that the dependency objected to a call: at the given time, to one that
// was let in at the time taken. retryAfter is the time that it asked for, zero if it did
// not.
func (g *Governor) Throttled(now, taken time.Time, retryAfter time.Duration) {
	g.object(g.bucket.at(now), g.bucket.at(taken), retryAfter)
}

func (g *Governor) object(at, let int64, pushback time.Duration) {
	g.pushbacks.Add(1)
	if !g.objected(at, let, pushback) {
		return
	}
	// Those who wait count on a rate that is no more.
	g.lobby.look()
}

// objected lowers the rate and empties the bucket, and reports whether it did.
func (g *Governor) objected(at, let int64, pushback time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	until := at
	if pushback > 0 && g.cfg.MaxDrain > 0 {
		until += int64(min(pushback, g.cfg.MaxDrain))
	}
	again := let <= g.fell // it was under way when the rate fell
	if again && until <= g.drain {
		return false
	}
	g.drain = max(g.drain, until)
	if again {
		g.curve.began = g.drain
	} else {
		rate := g.curve.at(at)
		if passed := g.passed.rate(at); passed > 0 {
			rate = min(rate, passed)
		}
		g.curve = g.curve.fall(rate, g.drain)
		g.fell = at
		g.falls.Add(1)
	}
	g.emptied.Store(at)
	g.bucket.drain(at, g.drain, g.exactLocked(g.curve.low))
	g.armLocked(g.drain, g.curve.low)
	return true
}

// drain empties the bucket and lets nothing arrive until the given time, and from then on
// at another rate.
func (b *Bucket) drain(at, until int64, rate Rate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state.Load()
	b.closeLocked(s, at)
	b.ledger.settled = max(b.ledger.settled, until)
	b.openLocked(&state{meter: newMeter(rate, s.burst, 0), rate: rate}, 0)
}

// Refund gives back n tokens that were taken at the given time for a call which did not
// run: the time that Take was given, or at which Wait returned. What was taken before the
// bucket was last emptied is lost. It never raises the balance above the burst. An n of
// zero or less does nothing.
func (g *Governor) Refund(taken time.Time, n int) { g.refund(g.bucket.at(taken), n) }

func (g *Governor) refund(at int64, n int) { g.giveBackAt(g.bucket.now(), at, n) }

func (g *Governor) giveBackAt(at, taken int64, n int) {
	if n > 0 && taken > g.emptied.Load() {
		g.bucket.giveBack(at, taken, n)
		g.lobby.look()
	}
}

// Wait takes n tokens, waiting for them for at most MaxWait among at most MaxWaiters, in
// the order in which callers came. Whoever takes tokens without waiting goes first. It
// returns what [Buckets.Wait] returns; a wait that was begun is refused when the rate
// falls so far that it would become too long.
func (g *Governor) Wait(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if n <= 0 {
		return nil
	}
	_, _, err := g.lobby.take(ctx, time.Now(), &unknownCall, n)
	return err
}

// Reserve is [Governor.Take] as a reservation: it reserves nothing ahead of time, since
// nobody knows the rate of the future.
func (g *Governor) Reserve(now time.Time, n int) Reservation {
	delay, ok := g.Take(now, n)
	return Reservation{ok: ok, delay: delay}
}

// SetRate implements [Limiter]: it changes the ceiling, and a floor that was not set with
// it. See [Governor.SetRange].
func (g *Governor) SetRate(rate Rate) error {
	g.mu.Lock()
	floor := g.given
	g.mu.Unlock()
	return g.SetRange(floor, rate)
}

// SetRange changes floor and ceiling, from now on. A zero floor means what it does in
// [Feedback]. An invalid one changes nothing and is reported as joined
// [*policy.ConfigError]. A rate outside the new bounds becomes the nearest within; one
// that was at the ceiling stays there; else it goes on rising from where it is.
func (g *Governor) SetRange(floor, ceiling Rate) error {
	defer g.lobby.look()
	g.mu.Lock()
	defer g.mu.Unlock()
	cfg := g.cfg
	cfg.Floor, cfg.Ceiling = floor, ceiling
	if err := cfg.Validate(); err != nil {
		return err
	}
	g.given = floor
	g.setRangeLocked(g.bucket.now(), cfg.withDefaults())
	return nil
}

func (g *Governor) setRangeLocked(at int64, cfg Feedback) {
	c := g.curve
	rate := c.at(at)
	full := rate >= c.ceiling
	g.cfg = cfg
	c.floor, c.ceiling = cfg.Floor.perSecond(), cfg.Ceiling.perSecond()
	if full || rate >= c.ceiling {
		rate = c.ceiling
		c.low, c.high, c.began = rate, rate, at
	} else if rate < c.floor {
		rate = c.floor
		c.low, c.began = rate, max(at, g.drain)
		c.high = max(c.high, rate/c.decrease)
	}
	g.curve = c
	g.setRateLocked(at, rate)
	if g.drain > at {
		g.armLocked(g.drain, rate)
	}
}

// Config returns the effective configuration.
func (g *Governor) Config() Feedback {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cfg
}

// try implements [host].
func (g *Governor) try(now time.Time, _ *policy.Call, n int) (delay time.Duration, v verdict, part int) {
	delay, v = g.take(g.bucket.at(now), n)
	return delay, v, 0
}

// foresee implements [host], at the present rate.
func (g *Governor) foresee(now time.Time, c *policy.Call, ahead, n int) (delay time.Duration, v verdict, part int) {
	return g.bucket.foresee(now, c, ahead, n)
}

// giveBack implements [host].
func (g *Governor) giveBack(taken time.Time, _ *policy.Call, n, _ int) { g.Refund(taken, n) }

// refusal implements [host].
func (g *Governor) refusal(err *policy.RejectedError, _ int) error {
	err.Policy = g.bucket.name
	return err
}

func (g *Governor) takeFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return g.take(g.bucket.at(now), n)
}

func (g *Governor) lookFor(now time.Time, _ *policy.Call, n int) (time.Duration, verdict) {
	return g.bucket.look(g.bucket.at(now), n)
}

func (g *Governor) hear(now, taken time.Time, o policy.Outcome) {
	if o.Kind == policy.Throttled || o.Kind == policy.Busy {
		g.Throttled(now, taken, o.Pushback)
	}
}

func (g *Governor) refundFor(taken time.Time, _ *policy.Call, n int) { g.Refund(taken, n) }

func (g *Governor) undoFor(taken time.Time, _ *policy.Call, n int) {
	at := g.bucket.at(taken)
	g.giveBackAt(at, at, n)
}

func (g *Governor) title() string { return g.bucket.name }
