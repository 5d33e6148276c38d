package ratelimit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Bundle is several live limits in one. Use [NewAll]. It is at once a [policy.Policy], a
// [policy.Gate] and a [Limiter]. All methods are safe for concurrent use.
//
// A call takes from every limit or from none. The limit that refused last is looked at
// first, so while it goes on refusing nothing is taken from the others at all. A refusal
// names the limit that has the longest to go: [errors.As] finds a [*PartError] in it.
// RetryAfter is the time after which all of them have the tokens, if nobody else comes.
//
// What a call is counted as (its key, its priority) is up to each limit. The methods of
// [Limiter] are for calls of which nothing is known; those of which something is have
// [Bundle.TakeFor] and [Bundle.RefundFor].
type Bundle struct {
	start time.Time
	cfg   All // effective
	parts []bundled
	lobby lobby

	warnings []string // of the limits
	hearers  []hearer // of the limits

	// hint is the limit that refused last, if it was not the first.
	hint atomic.Int32
}

// bundled is one of the limits.
type bundled struct {
	member

	limited, exceeds *PartError // what is found in refusals, made once
	refused          [policy.NumReasons]atomic.Uint64
}

// foreteller is a member that can tell when calls will be let in one after the other.
type foreteller interface {
	foresee(now time.Time, c *policy.Call, ahead, n int) (delay time.Duration, v verdict, part int)
}

// hearer is a member that has to be told how a call ended that it let in at a time.
type hearer interface {
	hear(now, taken time.Time, o policy.Outcome)
}

var (
	_ policy.Policy = All{}
	_ Limiter       = (*Bundle)(nil)
	_ host          = (*Bundle)(nil)
	_ foreteller    = (*Bucket)(nil)
)

// foresee implements [foreteller].
func (b *Bucket) foresee(now time.Time, _ *policy.Call, ahead, n int) (delay time.Duration, v verdict, part int) {
	delay, v = b.lookAfter(b.at(now), ahead, n)
	return delay, v, 0
}

// NewAll returns the live limits of a configuration. A name that is not empty takes the
// place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewAll(name string, cfg All) (*Bundle, error) {
	parts, err := cfg.build()
	if err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults(parts)
	b := &Bundle{start: time.Now(), cfg: cfg, parts: make([]bundled, len(parts))}
	for i := range parts {
		m := parts[i].Gate.(member)
		b.parts[i].member = m
		b.parts[i].limited = &PartError{Part: m.title(), Err: ErrLimited}
		b.parts[i].exceeds = &PartError{Part: m.title(), Err: ErrExceedsBurst}
		if h, ok := m.(hearer); ok && !parts[i].RefundsOnly {
			b.hearers = append(b.hearers, h)
		}
		for _, w := range parts[i].Warnings {
			b.warnings = append(b.warnings, m.title()+": "+w)
		}
	}
	b.lobby.init(b, cfg.MaxWait, cfg.MaxWaiters)
	return b, nil
}

// Take takes n tokens of every limit if they are there at the given time, and otherwise
// none. It then returns the time after which they will be there in all of them if nobody
// else takes any, [policy.Never] if never. It never waits. An n of zero or less takes
// nothing and is allowed.
func (b *Bundle) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	if n <= 0 {
		return 0, true
	}
	retryAfter, v, _ := b.try(now, &unknownCall, n)
	return retryAfter, v == taken
}

// unknownCall is a call of which nothing is known. It is only read.
var unknownCall policy.Call

// TakeFor is [Bundle.Take] for a call, which takes as many tokens as it costs, at least
// one. The call is only read, and not kept.
func (b *Bundle) TakeFor(now time.Time, c *policy.Call) (retryAfter time.Duration, ok bool) {
	retryAfter, v, _ := b.try(now, c, max(c.Cost, 1))
	return retryAfter, v == taken
}

// Refund gives n tokens back to every limit that were taken at the given time for a call
// which did not run: the time that Take was given, or at which Wait returned. An n of zero
// or less does nothing.
func (b *Bundle) Refund(taken time.Time, n int) {
	if n > 0 {
		b.giveBack(taken, &unknownCall, n, 0)
	}
}

// RefundFor gives back what [Bundle.TakeFor] took at the given time for a call that did
// not run.
func (b *Bundle) RefundFor(taken time.Time, c *policy.Call) {
	b.giveBack(taken, c, max(c.Cost, 1), 0)
}

// Wait takes n tokens of every limit for the call that ctx is about
// ([policy.WithCall]), waiting until all of them have them, for at most MaxWait among at
// most MaxWaiters. It returns nil when they are the caller's, and otherwise, with nothing
// taken:
//
//   - at once, a [*policy.RejectedError] that matches [ErrLimited]: MaxWait is zero
//     ([policy.ReasonRate]); MaxWaiters wait already ([policy.ReasonWaiters]); the wait
//     would be longer than MaxWait ([policy.ReasonWait]), or last until the deadline of
//     ctx ([policy.ReasonDeadline], which matches [context.DeadlineExceeded] too)
//   - at once, a [*policy.RejectedError] that matches [ErrExceedsBurst]
//     ([policy.ReasonCost]), when one of them can never hold n tokens
//   - the error of ctx, matching its cause, when it is done, before or during the wait;
//     this is no [policy.ErrRejected]
//   - during the wait, one of the first refusals, when tokens that were counted on were
//     taken by others
//
// Nothing is taken for those who wait: calls that take without waiting go first, and of
// two that wait with different keys the one that all limits would let in. Those with one
// key are let in in the order in which they came. An n of zero or less takes nothing.
func (b *Bundle) Wait(ctx context.Context, n int) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if n <= 0 {
		return nil
	}
	c := policy.CallFrom(ctx)
	_, _, err := b.lobby.take(ctx, time.Now(), &c, n)
	return err
}

// Reserve is [Bundle.Take] as a reservation: it reserves nothing ahead of time, since
// what one limit had reserved early would come on top of what it lets through when the
// others are ready.
func (b *Bundle) Reserve(now time.Time, n int) Reservation {
	delay, ok := b.Take(now, n)
	return Reservation{ok: ok, delay: delay}
}

// SetRate implements [Limiter]: it changes nothing and returns an error, as a bundle has
// no rate of its own. Change one of its limits.
func (b *Bundle) SetRate(rate Rate) error {
	f := faults{kind: allKind}
	f.add("Rate", rate, "want the rate of one of the limits to be changed: all together have none")
	return f.err()
}

// Config returns the effective configuration. Its Limits are the live limiters.
func (b *Bundle) Config() All {
	cfg := b.cfg
	cfg.Limits = append([]policy.Policy(nil), cfg.Limits...)
	cfg.MaxWait, cfg.MaxWaiters = b.lobby.bounds()
	return cfg
}

// try implements [host].
func (b *Bundle) try(now time.Time, c *policy.Call, n int) (delay time.Duration, v verdict, part int) {
	if hint := b.hint.Load(); hint > 0 {
		if _, v := b.parts[hint].lookFor(now, c, n); v != taken {
			return b.worst(now, c, n)
		}
	}
	for i := range b.parts {
		if delay, v = b.parts[i].takeFor(now, c, n); v == taken {
			continue
		}
		for j := i - 1; j >= 0; j-- {
			b.parts[j].undoFor(now, c, n)
		}
		if b.hint.Load() != int32(i) {
			b.hint.Store(int32(i))
		}
		if d, w, p := b.worst(now, c, n); w != taken {
			return d, w, p
		}
		return delay, v, i // the tokens have come just now
	}
	return 0, taken, 0
}

// worst returns how long it is until all limits have the tokens, and which of them is
// the last.
func (b *Bundle) worst(now time.Time, c *policy.Call, n int) (delay time.Duration, v verdict, part int) {
	for i := range b.parts {
		d, w := b.parts[i].lookFor(now, c, n)
		if w > v || w == v && d > delay { // never comes last
			delay, v, part = d, w, i
		}
	}
	return delay, v, part
}

// foresee implements [host], as far as the limits can.
func (b *Bundle) foresee(now time.Time, c *policy.Call, ahead, n int) (delay time.Duration, v verdict, part int) {
	for i := range b.parts {
		var d time.Duration
		var w verdict
		if f, ok := b.parts[i].member.(foreteller); ok {
			d, w, _ = f.foresee(now, c, ahead, n)
		} else {
			d, w = b.parts[i].lookFor(now, c, n)
		}
		if w > v || w == v && d > delay {
			delay, v, part = d, w, i
		}
	}
	return delay, v, part
}

// giveBack implements [host].
func (b *Bundle) giveBack(taken time.Time, c *policy.Call, n, _ int) {
	for i := range b.parts {
		b.parts[i].refundFor(taken, c, n)
	}
	b.lobby.look()
}

// refusal implements [host].
func (b *Bundle) refusal(err *policy.RejectedError, part int) error {
	p := &b.parts[part]
	p.refused[err.Reason].Add(1)
	err.Policy = b.cfg.Name
	switch err.Reason {
	case policy.ReasonRate:
		err.Err = p.limited
	case policy.ReasonCost:
		err.Err = p.exceeds
	default:
		err.Err = &PartError{Part: p.title(), Err: err.Err}
	}
	return err
}

func (b *Bundle) takeFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict) {
	delay, v, _ := b.try(now, c, n)
	return delay, v
}

func (b *Bundle) lookFor(now time.Time, c *policy.Call, n int) (time.Duration, verdict) {
	delay, v, _ := b.worst(now, c, n)
	return delay, v
}

func (b *Bundle) hear(now, taken time.Time, o policy.Outcome) {
	for _, h := range b.hearers {
		h.hear(now, taken, o)
	}
}

func (b *Bundle) undoFor(taken time.Time, c *policy.Call, n int) {
	for i := range b.parts {
		b.parts[i].undoFor(taken, c, n)
	}
	b.lobby.look()
}

func (b *Bundle) refundFor(taken time.Time, c *policy.Call, n int) { b.giveBack(taken, c, n, 0) }

func (b *Bundle) title() string { return b.cfg.Name }
