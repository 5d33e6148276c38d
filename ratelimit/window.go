package ratelimit

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Window is a live [FixedWindow]. Use [NewWindow]. It is at once a [policy.Policy], a
// [policy.Gate] and a [Limiter] to be used by hand: [Window.Allow] answers whether a
// call may run now, [Window.Take] also when, [Window.Wait] waits for it within the
// bounds of the FixedWindow. All methods are safe for concurrent use.
//
// # How it counts
//
// All tokens of all windows stand in one row: window k has those from k*Limit up to
// (k+1)*Limit. One figure says up to where they are used; a window that begins moves it
// to its own first token. So the state is one integer, as a [Bucket]'s is, and a token
// is taken by one compare-and-swap, without a lock. The queue of those who wait is under
// one.
//
// A time that goes back counts as the latest window from which a token was taken.
type Window struct {
	line

	cfg   FixedWindow // effective; Limit and Window as they were in the beginning
	fixed windowBooks
}

var _ Limiter = (*Window)(nil)

// NewWindow returns the live limit of a configuration. A name that is not empty takes
// the place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewWindow(name string, cfg FixedWindow) (*Window, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults()
	w := &Window{
		cfg:  cfg,
		line: line{kind: fixedKind, name: cfg.Name, shadow: cfg.Shadow},
	}
	w.bound(cfg.MaxWait, cfg.MaxWaiters)
	w.init(w, &w.fixed)
	end := int64(cfg.Window)
	if cfg.AlignToClock {
		end = w.toClock(0, end)
	}
	w.fixed.state.Store(newWindowState(int64(cfg.Limit), int64(cfg.Window), end-int64(cfg.Window), end))
	return w, nil
}

// toClock returns the next whole multiple of the window, by the clock as it was when
// the line was made.
func (l *line) toClock(at, window int64) int64 {
	wall := l.start.UnixNano() + at
	return at + window - (wall%window+window)%window
}

// Config returns the effective configuration, with the limit as it is now.
func (w *Window) Config() FixedWindow {
	cfg, s := w.cfg, w.fixed.state.Load()
	cfg.Limit, cfg.Window = int(s.limit), time.Duration(s.window)
	cfg.MaxWait, cfg.MaxWaiters = w.bounds()
	return cfg
}

// SetLimit changes limit and window, from now on. An invalid one changes nothing and is
// reported as joined [*policy.ConfigError].
//
// What was taken from the present window stays taken: it has what the new limit is more
// than that. It ends when a window of the new length would that began when it did, but
// a shorter one no sooner than a new window from now would, or, with AlignToClock, at the
// next multiple. Reservations keep the times that were promised; waiters get theirs
// anew, and are refused at once if they would come too late.
func (w *Window) SetLimit(limit int, window time.Duration) error {
	f := faults{kind: fixedKind}
	f.window(limit, window)
	if err := f.err(); err != nil {
		return err
	}
	w.change(func(at int64) { w.setLimit(at, int64(limit), int64(window)) })
	return nil
}

// SetRate implements [Limiter]: the window stays as it is, and the limit becomes what
// comes at that rate in one, rounded down, but at least 1.
func (w *Window) SetRate(rate Rate) error {
	f := faults{kind: fixedKind}
	f.rate("Rate", rate)
	if err := f.err(); err != nil {
		return err
	}
	w.change(func(at int64) {
		window := w.fixed.state.Load().window
		w.setLimit(at, int64(limitAt(rate, time.Duration(window))), window)
	})
	return nil
}

// setLimit requires that the line is locked.
func (w *Window) setLimit(at, limit, window int64) {
	b := &w.fixed
	s := b.state.Load()
	k := max(s.index(at), s.reached(b.present))
	begin, end := s.begin(k), s.begin(k+1)
	switch {
	case w.cfg.AlignToClock:
		if window != s.window {
			end = w.toClock(max(at, begin), window)
		}
	case window > s.window:
		if end = begin + window; end < begin {
			end = never
		}
	case window < s.window:
		end = min(end, max(at, begin)+window)
	}
	used, over := b.in(s, k)
	used += over
	b.replace(s.next(k, limit, window, end), min(used, limit))
	b.over.Store(max(used-limit, 0))
}

// windowBooks is the algorithm of a [Window].
type windowBooks struct {
	// state is replaced, and its used locked and unlocked, under line.mu.
	state atomic.Pointer[windowState]

	// While the books are open the figure is here, without and with what is booked.
	// These are under line.mu.
	opened                  bool
	present, future, marked int64

	// over is what was taken from window overIn beyond its limit: by promises, or
	// before the limit was lowered. It is in no other figure. It changes under
	// line.mu.
	over   atomic.Int64
	overIn int64
}

// windowState is the figures since window 0. All but used is immutable.
type windowState struct {
	used atomic.Int64 // up to where tokens are used, or locked

	limit, window int64
	first, second int64 // when window 0 and window 1 begin
	since         int64 // what was taken before was from windows that are gone
	last          int64 // the last window before the figures grow too large
}

func newWindowState(limit, window, first, second int64) *windowState {
	return &windowState{limit: limit, window: window, first: first, second: second, since: math.MinInt64, last: maxUnits/limit - 1}
}

// next returns the state whose window 0 is window k of this one.
func (s *windowState) next(k, limit, window, second int64) *windowState {
	n := newWindowState(limit, window, s.begin(k), second)
	if n.since = s.since; k > 0 {
		n.since = n.first
	}
	return n
}

// index returns the window of a time, at least 0.
func (s *windowState) index(at int64) int64 {
	if at < s.second {
		return 0
	}
	return 1 + (at-s.second)/s.window
}

// begin returns when a window begins, or never.
func (s *windowState) begin(k int64) int64 {
	switch {
	case k == 0:
		return s.first
	case k-1 > (never-1-max(s.second, 0))/s.window:
		return never
	}
	return s.second + (k-1)*s.window
}

// reached returns the window of the last token used, 0 when none is.
func (s *windowState) reached(used int64) int64 { return max(used-1, 0) / s.limit }

// place returns where in the row n tokens can be had from window k on, and the window
// that this is in.
func (s *windowState) place(used, k, n int64) (pos, in int64) {
	pos = max(used, k*s.limit)
	in = pos / s.limit
	if end := (in + 1) * s.limit; pos+n > end {
		return end, in + 1
	}
	return pos, in
}

// ask returns where in the row n tokens can be had now, or when they can be had. Nothing
// is booked.
func (s *windowState) ask(used, at, k, n int64) (pos, when int64) {
	if used > (k+1)*s.limit { // somebody saw a later time
		k = s.reached(used)
	}
	pos, in := s.place(used, k, n)
	if in == k {
		return pos, at
	}
	return pos, s.begin(in)
}

func (b *windowBooks) try(at, n int64) (time.Duration, verdict) {
	s := b.state.Load()
	if n > s.limit {
		return policy.Never, tooBig
	}
	k := s.index(at)
	if k > s.last {
		return 0, busy
	}
	begin := k * s.limit
	end := begin + s.limit
	for {
		used := s.used.Load()
		if used == locked {
			return 0, busy
		}
		// Nearly always, and with nothing to divide.
		if pos := max(used, begin); pos+n <= end {
			if s.used.CompareAndSwap(used, pos+n) {
				return 0, taken
			}
			continue
		}
		pos, when := s.ask(used, at, k, n)
		if when > at {
			return delayFrom(at, when), short
		}
		if s.used.CompareAndSwap(used, pos+n) {
			return 0, taken
		}
	}
}

func (b *windowBooks) look(at, n int64) (time.Duration, verdict) {
	s := b.state.Load()
	k, used := s.index(at), s.used.Load()
	switch {
	case n > s.limit:
		return policy.Never, tooBig
	case used == locked || k > s.last:
		return 0, busy
	}
	if _, when := s.ask(used, at, k, n); when > at {
		return delayFrom(at, when), short
	}
	return 0, taken
}

// remaining returns what is used after a call that did not run gave n tokens back: a
// window takes back what is its own.
func (s *windowState) remaining(used, taken, n int64) int64 {
	if k := s.reached(used); taken >= s.since && s.index(taken) == k {
		return max(used-n, k*s.limit)
	}
	return used
}

func (b *windowBooks) giveBack(_, taken, n int64) bool {
	s := b.state.Load()
	for {
		used := s.used.Load()
		if used == locked || b.over.Load() > 0 {
			return false
		}
		if s.used.CompareAndSwap(used, s.remaining(used, taken, n)) {
			return true
		}
	}
}

func (b *windowBooks) open() {
	if !b.opened {
		b.opened = true
		b.present = b.state.Load().used.Swap(locked)
		b.future = b.present
	}
}

func (b *windowBooks) close() {
	if b.opened {
		b.opened = false
		b.state.Load().used.Store(b.present)
	}
}

func (b *windowBooks) rebase(at int64) bool {
	s := b.state.Load()
	k := max(s.index(at), s.reached(b.present))
	if k <= s.last {
		return false
	}
	used, over := b.in(s, k)
	b.replace(s.next(k, s.limit, s.window, s.begin(k+1)), used)
	b.over.Store(over)
	return true
}

// in returns how many tokens are used of a window, at least the one of the last token
// used, and how many beyond its limit.
func (b *windowBooks) in(s *windowState, k int64) (used, over int64) {
	if k > s.reached(b.present) {
		return 0, 0
	}
	if k == b.overIn {
		over = b.over.Load()
	}
	return max(b.present-k*s.limit, 0), over
}

// replace makes s the state, in its window 0.
func (b *windowBooks) replace(s *windowState, used int64) {
	s.used.Store(locked)
	b.state.Store(s)
	b.present, b.future = used, used
	b.over.Store(0)
	b.overIn = 0
}

func (b *windowBooks) most() int64 { return b.state.Load().limit }

func (b *windowBooks) next(at, n int64) int64 {
	s := b.state.Load()
	k := max(s.index(at), s.reached(b.present))
	if k > s.last {
		return never
	}
	_, in := s.place(b.future, k, n)
	switch {
	case in == k:
		return at
	case in > s.last:
		return never
	}
	return s.begin(in)
}

// use returns what is used after n tokens have been taken at a given time, and how many
// of them are more than the window has: it may have been promised more than the limit
// is now.
func (s *windowState) use(used, when, n int64) (after, over int64) {
	k := min(max(s.index(when), s.reached(used)), s.last)
	pos, end := max(used, k*s.limit), (k+1)*s.limit
	over = max(pos+n-end, 0)
	return pos + n - over, over
}

func (b *windowBooks) book(when, n int64, _ bool) {
	b.future, _ = b.state.Load().use(b.future, when, n)
}
func (b *windowBooks) spend(at, n int64) { b.settle(at, n) }

func (b *windowBooks) settle(when, n int64) {
	s := b.state.Load()
	present, over := s.use(b.present, when, n)
	b.present = present
	if k := s.reached(b.present); k != b.overIn {
		b.overIn = k
		b.over.Store(0)
	}
	b.over.Add(over)
}

func (b *windowBooks) mark()   { b.marked = b.future }
func (b *windowBooks) back()   { b.future = b.marked }
func (b *windowBooks) rewind() { b.future = b.present }

func (b *windowBooks) refund(_, taken, n int64) {
	s := b.state.Load()
	if k := s.reached(b.present); k == b.overIn && taken >= s.since && k == s.index(taken) {
		over := min(n, b.over.Load())
		b.over.Add(-over)
		n -= over
	}
	b.present = s.remaining(b.present, taken, n)
}

func (b *windowBooks) describe(at int64, snapshot *policy.LimiterSnapshot) {
	s := b.state.Load()
	k := max(s.index(at), s.reached(b.present))
	used, over := b.in(s, k)
	snapshot.Tokens = float64(s.limit - used - over)
	snapshot.Burst = float64(s.limit)
	snapshot.Rate = windowRate(int(s.limit), time.Duration(s.window)).perSecond()
}
