package breaker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// Breaker is a circuit breaker. Use [New], or hand a [Config] to [policy.New]. It
// is safe for concurrent use, and may stand in several pipelines at once, which
// then share its state.
//
// In the closed state a call that succeeds costs two atomic loads on its way in and
// out and one addition; it takes no lock, unless it is the first in its bucket of
// the window. A call that is refused takes no lock. Failed and slow calls, and
// probes, take a lock for a moment.
//
// The rules are looked at by each failed or slow call, and by the call with which
// the window reaches MinCalls: only there can a threshold be crossed.
type Breaker struct {
	base  time.Time // times are nanoseconds since; the window's buckets are aligned to it
	cfg   Config    // effective
	rules rules
	subs  policy.Subscribers

	// phase is what calls read. It is replaced at each change of state, under mu.
	phase atomic.Pointer[phase]

	mu sync.Mutex
	m  machine
}

// phase is one generation of the breaker as the calls see it. All but refuseUntil
// is immutable. A call that was admitted under a generation counts in the window of
// that generation, so results that come late cannot reach a later one.
type phase struct {
	state State
	word  uint64         // the generation, in the upper half; see wordOf
	win   *window.Window // closed only

	// refuseUntil mirrors machine.refuseUntil. It lets refusals, the busiest
	// moment there is, do without the lock.
	refuseUntil atomic.Int64
}

// New returns a closed breaker. An empty name is replaced by that of the Config, or
// "breaker". It returns all faults of the Config, as joined [*policy.ConfigError].
// Later changes of cfg have no effect.
func New(name string, cfg Config) (*Breaker, error) {
	return newAt(time.Now(), name, cfg)
}

func newAt(now time.Time, name string, cfg Config) (*Breaker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	b := &Breaker{base: now, cfg: cfg.effective()}
	b.rules = newRules(b.cfg)
	b.m = machine{rules: &b.rules, state: Closed, gen: 1, why: WhyStart}
	b.publishLocked()
	if fn := b.cfg.OnStateChange; fn != nil {
		b.subs.Subscribe(func(e policy.Event) {
			fn(StateChange{Name: b.cfg.Name, Time: e.Time, StateChange: e.Change})
		})
	}
	return b, nil
}

// Config returns the settings in effect, with every default filled in. A rule that
// is off has the ratio [Off].
func (b *Breaker) Config() Config { return b.cfg }

// State returns the state. It needs no traffic to be right: an open breaker whose
// OpenFor has passed is half-open.
func (b *Breaker) State() State {
	if b.phase.Load().state == Closed {
		return Closed // which time alone does not end
	}
	m, _ := b.at(b.nanos(time.Now()))
	return m.state
}

// Reset closes the breaker, whatever its state, and forgets all calls. Results of
// calls that were admitted in another state are ignored; in the closed state, calls
// in flight count.
func (b *Breaker) Reset() { b.reset(time.Now()) }

func (b *Breaker) reset(now time.Time) {
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	if b.m.state == Closed {
		b.phase.Load().win.Reset(now)
		return
	}
	b.changedLocked(b.m.enter(Closed, ns, WhyReset, window.Counts{}))
}

// Subscribe implements [policy.Emitter]: fn is told of each change of state that
// follows, as [Config.OnStateChange] is. The returned function ends that.
func (b *Breaker) Subscribe(fn func(policy.Event)) (cancel func()) { return b.subs.Subscribe(fn) }

// Snapshot implements [policy.Snapshotter]. The figures are those of the window;
// while half-open, of the probes that have ended; while open, those that opened the
// breaker. Refusals are counted by the pipelines the breaker is in, not here.
func (b *Breaker) Snapshot(now time.Time) policy.PolicySnapshot {
	ns := b.nanos(now)
	m, p := b.at(ns)
	c := m.counts
	if p.state == Closed {
		c = p.win.Counts(now)
	}
	s := &policy.BreakerSnapshot{
		State:            m.state.String(),
		Since:            b.base.Add(time.Duration(m.since)),
		Generation:       m.gen,
		Why:              m.why,
		Calls:            c.Calls,
		Failures:         c.Failures,
		Slow:             c.Slow,
		FailureRatio:     share(c.Failures, c.Calls),
		SlowRatio:        share(c.Slow, c.Calls),
		FailureThreshold: b.rules.failureAt,
		SlowThreshold:    b.rules.slowAt,
		MinCalls:         b.rules.minCalls,
		ProbesInFlight:   len(m.leases),
		MaxProbes:        b.rules.probes,
		Opened:           m.opened,
	}
	if m.state == Open {
		s.RetryAfter = time.Duration(m.until - ns)
	}
	return policy.PolicySnapshot{Name: b.cfg.Name, Kind: kind, Shadow: b.cfg.Shadow, Breaker: s}
}

// at returns the machine as it is at ns, with what time alone has changed since the
// phase, which is the one of the last call. Nothing is changed: ns may be a time to
// come.
func (b *Breaker) at(ns int64) (machine, *phase) {
	b.mu.Lock()
	m, p := b.m.peek(), b.phase.Load()
	b.mu.Unlock()
	for {
		if _, moved := m.tick(ns); !moved {
			return m, p
		}
	}
}

// enter admits a call and returns the word that leave wants back, or refuses it. It
// is the whole of the breaker but for the clock.
func (b *Breaker) enter(now time.Time) (word uint64, refused *policy.RejectedError) {
	p := b.phase.Load()
	if p.state == Closed {
		return p.word, nil
	}
	ns := b.nanos(now)
	if until := p.refuseUntil.Load(); ns < until {
		return 0, p.refusal(until - ns)
	}
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	p = b.phase.Load()
	switch p.state {
	case Closed: // by time alone, or by another call just now
		return p.word, nil
	case HalfOpen:
		if id, ok := b.m.admit(ns); ok {
			return p.word | uint64(id), nil
		}
	case Open:
	}
	return 0, p.refusal(b.m.refuseUntil() - ns)
}

// refusal returns the error of a call that comes so many nanoseconds too early.
func (p *phase) refusal(left int64) *policy.RejectedError {
	if p.state == HalfOpen {
		// A probe may end at any moment, so when to come again is not known.
		return &policy.RejectedError{Policy: kind, Reason: policy.ReasonProbes, Err: ErrOpen}
	}
	return &policy.RejectedError{
		Policy: kind, Reason: policy.ReasonOpen, RetryAfter: time.Duration(left), Err: ErrOpen,
	}
}

// leave ends a call that enter admitted. It reports whether the outcome came too
// late to count: the state the call was admitted in has passed, or its time as a
// probe.
func (b *Breaker) leave(word uint64, stripe uint32, now time.Time, o policy.Outcome) (late bool) {
	c := b.rules.judge(o)
	p := b.phase.Load()
	if p.state == Closed && p.word == word {
		switch c {
		case plain:
			if p.win.Add(now, stripe) {
				b.decide(p, now, p.win.Counts(now))
			}
		case window.Counts{}:
		default:
			b.decide(p, now, p.win.Record(now, c))
		}
		return false
	}
	if generationOf(p.word) != generationOf(word) {
		return c.Calls > 0
	}
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns) // the probe may have run out of time, unnoticed until now
	if generationOf(b.phase.Load().word) != generationOf(word) {
		return c.Calls > 0
	}
	ch, changed, known := b.m.settle(uint32(word), ns, c) //nolint:gosec // the lower half
	if changed {
		b.changedLocked(ch)
	}
	return !known && c.Calls > 0
}

// amend counts a failure for a call that was left as a success before.
func (b *Breaker) amend(word uint64, now time.Time) {
	p := b.phase.Load()
	if generationOf(p.word) != generationOf(word) {
		return
	}
	if p.state == Closed {
		b.decide(p, now, p.win.Amend(now))
		return
	}
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	if generationOf(b.phase.Load().word) == generationOf(word) {
		if ch, changed := b.m.amend(ns); changed {
			b.changedLocked(ch)
		}
	}
}

// decide opens the breaker if it is still in the phase that the figures are of, and
// they reach a rule.
func (b *Breaker) decide(p *phase, now time.Time, c window.Counts) {
	if !b.rules.tripped(c) {
		return
	}
	b.mu.Lock()
	defer b.unlock()
	if b.phase.Load() == p {
		b.changedLocked(b.m.trip(b.nanos(now), c))
	}
}

// unlock gives b.mu back and delivers what was queued under it.
func (b *Breaker) unlock() {
	b.phase.Load().refuseUntil.Store(b.m.refuseUntil())
	b.mu.Unlock()
	b.subs.Flush()
}

// now reads the clock, with its monotonic part, at half the cost of [time.Now].
func (b *Breaker) now() time.Time { return b.base.Add(time.Since(b.base)) }

// nanos returns the time since the breaker's birth, never negative.
func (b *Breaker) nanos(now time.Time) int64 { return max(int64(now.Sub(b.base)), 0) }

// tickLocked makes all changes that time alone has brought about. It requires that
// b.mu is held.
func (b *Breaker) tickLocked(ns int64) {
	for {
		ch, ok := b.m.tick(ns)
		if !ok {
			return
		}
		b.changedLocked(ch)
	}
}

// changedLocked makes a change visible and queues its event, which is delivered
// after the lock is given back. It requires that b.mu is held.
func (b *Breaker) changedLocked(ch change) {
	b.publishLocked()
	b.subs.Queue(policy.Event{
		Kind:   policy.EventStateChange,
		Time:   b.base.Add(time.Duration(ch.at)),
		Policy: b.cfg.Name,
		Change: policy.StateChange{
			From: ch.from.String(), To: ch.to.String(), Why: ch.why, Generation: ch.gen,
			Calls: ch.counts.Calls, Failures: ch.counts.Failures, Slow: ch.counts.Slow,
			Ratio: ch.ratio, Threshold: ch.threshold,
			RetryAfter: time.Duration(ch.retryAfter),
		},
	})
}

// publishLocked replaces the phase. It requires that b.mu is held.
func (b *Breaker) publishLocked() {
	p := &phase{state: b.m.state, word: wordOf(b.m.gen)}
	if p.state == Closed {
		p.win = window.New(b.base, b.cfg.Window, b.cfg.Buckets).Watch(b.rules.minCalls)
	}
	p.refuseUntil.Store(b.m.refuseUntil()) // before anyone sees it
	b.phase.Store(p)
}

// wordOf returns the word of a call that is no probe: the generation, in the upper
// half. A probe has the number of its lease in the lower half. A generation comes
// back after 2^32 changes of state, far beyond the life of a call.
func wordOf(gen uint64) uint64 { return gen << 32 }

func generationOf(word uint64) uint64 { return word >> 32 }
