package ratelimit

import (
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Sliding is a live [SlidingWindow]. Use [NewSliding]. It is at once a [policy.Policy],
// a [policy.Gate] and a [Limiter] to be used by hand: [Sliding.Allow] answers whether a
// call may run now, [Sliding.Take] also when, [Sliding.Wait] waits for it within the
// bounds of the SlidingWindow. All methods are safe for concurrent use.
//
// # How it counts
//
// Exactly: it remembers the time of every call of the last window, those at one instant
// together. To take a token is to look at the oldest and to add one, under a lock that
// is held for some ten nanoseconds. Refusing what costs one token takes no lock while
// nobody waits: when the next comes free was noted.
//
// Approximately ([SlidingWindow].Approximate): it counts the calls of the present window
// and of the one before, as Cloudflare does ("How we built rate limiting capable of
// scaling to millions of domains", 2017). Taking a token is one compare-and-swap,
// without a lock; the first call of a new window makes its counter, which is the only
// allocation.
//
// A time that goes back counts as the latest at which a token was taken, or as the
// beginning of that window.
type Sliding struct {
	line

	cfg     SlidingWindow // effective; Limit and Window as they were in the beginning
	log     *logBooks     // one of these two
	counter *counterBooks
}

var _ Limiter = (*Sliding)(nil)

// NewSliding returns the live limit of a configuration. A name that is not empty takes
// the place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewSliding(name string, cfg SlidingWindow) (*Sliding, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults()
	s := &Sliding{
		cfg:  cfg,
		line: line{kind: slidingKind, name: cfg.Name, shadow: cfg.Shadow, warnings: cfg.warnings()},
	}
	s.bound(cfg.MaxWait, cfg.MaxWaiters)
	if cfg.Approximate {
		s.counter = newCounterBooks(int64(cfg.Limit), int64(cfg.Window))
		s.init(s, s.counter)
	} else {
		s.log = newLogBooks(int64(cfg.Limit), int64(cfg.Window))
		s.init(s, s.log)
	}
	return s, nil
}

// limit returns the limit and the window as they are now.
func (s *Sliding) limit() (limit, window int64) {
	if s.counter != nil {
		c := s.counter.state.Load()
		return c.limit, c.window
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.limit.Load(), s.log.window
}

// Config returns the effective configuration, with the limit as it is now.
func (s *Sliding) Config() SlidingWindow {
	cfg := s.cfg
	limit, window := s.limit()
	cfg.Limit, cfg.Window = int(limit), time.Duration(window)
	cfg.MaxWait, cfg.MaxWaiters = s.bounds()
	return cfg
}

// SetLimit changes limit and window, from now on. An invalid one changes nothing and is
// reported as joined [*policy.ConfigError].
//
// What was taken stays taken, and counts for as long as the new window is. Of a longer
// window the part before the old one is not known, and counts as empty. An approximate
// limit takes, where the window changes, all that it reckons with as taken just now.
// Reservations keep the times that were promised; waiters get theirs anew, and are
// refused at once if they would come too late.
func (s *Sliding) SetLimit(limit int, window time.Duration) error {
	f := faults{kind: slidingKind}
	f.sliding(limit, window, s.cfg.Approximate)
	if err := f.err(); err != nil {
		return err
	}
	s.change(func(at int64) { s.setLimit(at, int64(limit), int64(window)) })
	return nil
}

// SetRate implements [Limiter]: the window stays as it is, and the limit becomes what
// comes at that rate in one, rounded down, but at least 1 and at most what it can be.
func (s *Sliding) SetRate(rate Rate) error {
	f := faults{kind: slidingKind}
	f.rate("Rate", rate)
	if err := f.err(); err != nil {
		return err
	}
	_, window := s.limit()
	limit := int64(limitAt(rate, time.Duration(window)))
	if s.log != nil {
		limit = min(limit, maxLog)
	}
	s.change(func(at int64) { s.setLimit(at, limit, window) })
	return nil
}

// setLimit requires that the line is locked.
func (s *Sliding) setLimit(at, limit, window int64) {
	if s.counter != nil {
		s.counter.setLimit(at, limit, window)
		return
	}
	s.log.setLimit(at, limit, window)
}

// counterState is a window and the one before. All but used is immutable.
type counterState struct {
	used atomic.Int64 // tokens taken from this window, or locked

	limit, window int64
	start         int64 // of this window
	before        int64 // tokens taken from the window before
}

// counts is what counterState says, as figures to work with.
type counts struct{ start, before, used int64 }

// counterBooks is the algorithm of an approximate [Sliding].
type counterBooks struct {
	// state is replaced, and its used locked and unlocked, under line.mu.
	state atomic.Pointer[counterState]

	// While the books are open the figures are here, without and with what is booked.
	// These are under line.mu.
	opened                  bool
	present, future, marked counts
}

func newCounterBooks(limit, window int64) *counterBooks {
	b := &counterBooks{}
	b.state.Store(&counterState{limit: limit, window: window})
	return b
}

// weight returns how much of what was taken from the window before still counts at a
// time of this one: the part of it that is less than a window ago, rounded up.
func (s *counterState) weight(before, elapsed int64) int64 {
	if before == 0 {
		return 0
	}
	return mulDivUp(before, s.window-elapsed, s.window)
}

// decay returns the time after the beginning of a window at which no more than a given
// number of those taken from the window before still count.
func (s *counterState) decay(before, left int64) int64 {
	if before <= left {
		return 0
	}
	return s.window - mulDiv(left, s.window, before)
}

func (b *counterBooks) try(at, n int64) (time.Duration, verdict) {
	s := b.state.Load()
	if n > s.limit {
		return policy.Never, tooBig
	}
	elapsed := int64(0)
	if at > s.start {
		if elapsed = at - s.start; elapsed >= s.window {
			return 0, busy
		}
	}
	left := s.limit - s.weight(s.before, elapsed) - n
	for {
		used := s.used.Load()
		if used == locked {
			return 0, busy
		}
		if used > left {
			return delayFrom(at, s.when(counts{s.start, s.before, used}, at, n)), short
		}
		if s.used.CompareAndSwap(used, used+n) {
			return 0, taken
		}
	}
}

func (b *counterBooks) look(at, n int64) (time.Duration, verdict) {
	s := b.state.Load()
	used := s.used.Load()
	switch {
	case n > s.limit:
		return policy.Never, tooBig
	case used == locked:
		return 0, busy
	}
	c := counts{s.start, s.before, used}
	if when := s.when(c, max(at, s.start), n); when > max(at, s.start) {
		return delayFrom(at, when), short
	}
	return 0, taken
}

// at returns the counts as they are at a later time.
func (c counts) at(at, window int64) counts {
	if at <= c.start || at-c.start < window {
		return c
	}
	passed := (at - c.start) / window
	if passed > 1 {
		c.used = 0
	}
	return counts{start: c.start + passed*window, before: c.used}
}

// when returns the first time, not before at, at which n tokens can be taken, at most
// the limit.
func (s *counterState) when(c counts, at, n int64) int64 {
	c = c.at(at, s.window)
	left := s.limit - n - c.used
	if left < 0 { // not in this window
		c = counts{start: addSat(c.start, s.window), before: c.used}
		left = s.limit - n
	}
	return max(at, addSat(c.start, s.decay(c.before, left)))
}

func (b *counterBooks) giveBack(_, taken, n int64) bool {
	s := b.state.Load()
	if taken < s.start || taken-s.start >= s.window {
		return false
	}
	for {
		used := s.used.Load()
		if used == locked {
			return false
		}
		if s.used.CompareAndSwap(used, max(used-n, 0)) {
			return true
		}
	}
}

func (b *counterBooks) open() {
	if !b.opened {
		b.opened = true
		s := b.state.Load()
		b.present = counts{s.start, s.before, s.used.Swap(locked)}
		b.future = b.present
	}
}

func (b *counterBooks) close() {
	if !b.opened {
		return
	}
	b.opened = false
	s := b.state.Load()
	if s.start != b.present.start || s.before != b.present.before {
		s = &counterState{limit: s.limit, window: s.window, start: b.present.start, before: b.present.before}
		s.used.Store(b.present.used)
		b.state.Store(s)
		return
	}
	s.used.Store(b.present.used)
}

func (b *counterBooks) rebase(int64) bool { return false }

func (b *counterBooks) most() int64 { return b.state.Load().limit }

func (b *counterBooks) next(at, n int64) int64 {
	s, now := b.state.Load(), max(at, b.present.start)
	if when := s.when(b.future, now, n); when > now {
		return when
	}
	return at
}

// use returns the counts after n tokens have been taken at a given time.
func (s *counterState) use(c counts, when, n int64) counts {
	c = c.at(when, s.window)
	c.used += n
	return c
}

func (b *counterBooks) book(when, n int64, _ bool) { b.future = b.state.Load().use(b.future, when, n) }

func (b *counterBooks) settle(when, n int64) { b.present = b.state.Load().use(b.present, when, n) }

func (b *counterBooks) spend(at, n int64) { b.present = b.state.Load().use(b.present, at, n) }
func (b *counterBooks) mark()             { b.marked = b.future }
func (b *counterBooks) back()             { b.future = b.marked }
func (b *counterBooks) rewind()           { b.future = b.present }

func (b *counterBooks) refund(_, taken, n int64) {
	s, c := b.state.Load(), &b.present
	switch {
	case taken >= addSat(c.start, s.window): // nothing has been
	case taken >= c.start:
		c.used = max(c.used-n, 0)
	case taken >= c.start-s.window:
		c.before = max(c.before-n, 0)
	}
}

func (b *counterBooks) setLimit(at, limit, window int64) {
	old := b.state.Load()
	if window != old.window {
		at = max(at, b.present.start)
		c := b.present.at(at, old.window)
		b.present = counts{start: at, used: c.used + old.weight(c.before, at-c.start)}
		b.future = b.present
	}
	s := &counterState{limit: limit, window: window, start: b.present.start, before: b.present.before}
	s.used.Store(locked)
	b.state.Store(s)
}

func (b *counterBooks) describe(at int64, snapshot *policy.LimiterSnapshot) {
	s := b.state.Load()
	at = max(at, b.present.start)
	c := b.present.at(at, s.window)
	snapshot.Tokens = float64(s.limit - c.used - s.weight(c.before, at-c.start))
	snapshot.Burst = float64(s.limit)
	snapshot.Rate = windowRate(int(s.limit), time.Duration(s.window)).perSecond()
}
