package breaker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/draw"
	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// Breaker is a circuit breaker. Use [New], or hand a [Config] to [policy.New]. It
// is safe for concurrent use, and may stand in several pipelines at once, which
// then share its state.
//
// In the closed state a call that succeeds costs two atomic loads on its way in and
// out and one addition, to a counter that its processor has for itself; it takes no
// lock, unless it is the first in its bucket of the window. A call that is refused
// takes no lock. Failed and slow calls, and probes, take a lock for a moment.
//
// The rules are looked at by each failed or slow call, and by the call with which
// the window reaches MinCalls: only there can a threshold be crossed.
type Breaker struct {
	base time.Time // times are nanoseconds since; the window's buckets are aligned to it
	set  atomic.Pointer[settings]
	subs *policy.Subscribers

	// Of one of many breakers.
	key   string
	owner owner

	// phase is what calls read. It is replaced at each change of state, under mu.
	phase atomic.Pointer[phase]

	// While observing, a call that is refused runs all the same, and counts nothing.
	observeUntil atomic.Int64
	spared       atomic.Uint64

	mu sync.Mutex
	m  machine
}

// settings are replaced as a whole, under mu.
type settings struct {
	cfg   *Config // effective
	rules *rules
}

func (b *Breaker) config() *Config { return b.set.Load().cfg }
func (b *Breaker) rules() *rules   { return b.set.Load().rules }

// phase is one generation of the breaker as the calls see it. All but refuseUntil
// and what it points to is immutable. A call that was admitted under a generation
// counts in the window of that generation, so results that come late cannot reach a
// later one.
type phase struct {
	state State
	word  uint64 // the generation, in the upper half; see wordOf
	tally *tally // of the states that count calls
	first uint64 // the earliest generation that is counted there
	until int64  // when time ends the state, or forever
	ramp  *ramp  // recovering only

	// quick is the tally's window if a plain call needs no more than to be added to
	// it, with what makes a call plain at hand.
	quick     *window.Window
	slowAfter time.Duration

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
	cfg = cfg.effective()
	r := newRules(cfg)
	b := newBreaker(now, &cfg, &r, new(policy.Subscribers))
	if fn := cfg.OnStateChange; fn != nil {
		b.subs.Subscribe(func(e policy.Event) {
			fn(StateChange{Name: cfg.Name, Time: e.Time, StateChange: e.Change})
		})
	}
	return b, nil
}

// newBreaker takes an effective Config and its rules.
func newBreaker(now time.Time, cfg *Config, r *rules, subs *policy.Subscribers) *Breaker {
	b := &Breaker{base: now, subs: subs}
	b.set.Store(&settings{cfg, r})
	b.m = machine{
		rules: r,
		seed:  draw.Uint64(),
		state: Closed, gen: 1, first: 1, until: forever, why: WhyStart,
	}
	b.publishLocked()
	return b
}

// Config returns the settings in effect, with every default filled in. A rule that
// is off has the ratio [Off].
func (b *Breaker) Config() Config { return *b.config() }

// State returns the state. It needs no traffic to be right: an open breaker whose
// time has passed is half-open.
func (b *Breaker) State() State {
	if b.phase.Load().state == Closed {
		return Closed // which time alone does not end
	}
	m, _ := b.at(b.nanos(b.now()))
	return m.state
}

// Subscribe implements [policy.Emitter]: fn is told of each change of state that
// follows, as [Config.OnStateChange] is. The returned function ends that.
func (b *Breaker) Subscribe(fn func(policy.Event)) (cancel func()) { return b.subs.Subscribe(fn) }

// ghost is the word of a call that would have been refused. No generation has it but
// each 2^32nd.
const ghost = 0

// enter admits a call and returns the word that leave wants back, or refuses it. It
// is the whole of the breaker but for the clock.
func (b *Breaker) enter(now time.Time) (word uint64, refused *policy.RejectedError) {
	p := b.phase.Load()
	if p.state == Closed {
		return p.word, nil
	}
	ns := b.nanos(now)
	if word, refused = b.ask(p, ns); refused != nil && b.observes(ns) {
		b.spared.Add(1)
		return ghost, nil
	}
	return word, refused
}

// observes reports whether refusals have no effect.
func (b *Breaker) observes(ns int64) bool { return ns < b.observeUntil.Load() }

// ask is enter for a breaker that was not closed when it was last looked at.
func (b *Breaker) ask(p *phase, ns int64) (word uint64, refused *policy.RejectedError) {
	if until := p.refuseUntil.Load(); ns < until {
		return 0, p.refusal(until - ns)
	}
	if ns < p.until && p.state.counts() {
		return p.admit(b.rules(), ns)
	}
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	p = b.phase.Load()
	switch {
	case p.state.counts(): // by time alone, or by another call just now
		return p.admit(b.rules(), ns)
	case p.state == HalfOpen:
		if id, ok := b.m.admit(ns); ok {
			return p.word | uint64(id), nil
		}
	}
	return 0, p.refusal(p.until - ns)
}

// admit decides about a call in a state that counts calls.
func (p *phase) admit(r *rules, ns int64) (word uint64, refused *policy.RejectedError) {
	if p.ramp != nil && !p.ramp.admit(r, ns) {
		return 0, p.refusal(0)
	}
	return p.word, nil
}

// refusal makes the error of a call that is refused; left is the time until the state
// ends.
func (p *phase) refusal(left int64) *policy.RejectedError {
	re := &policy.RejectedError{Policy: kind, Err: ErrOpen}
	switch p.state {
	case Open:
		re.Reason, re.RetryAfter = policy.ReasonOpen, time.Duration(left)
	case ForcedOpen:
		re.Reason = policy.ReasonForced
		if p.until != forever {
			re.RetryAfter = time.Duration(left)
		}
	case Recovering:
		re.Reason = policy.ReasonRamp // the next call may be let through
	default:
		re.Reason = policy.ReasonProbes // a probe may end at any moment
	}
	return re
}

// covers reports whether a call that was admitted with the word counts in the tally of
// p, which there is.
func (p *phase) covers(word uint64) bool {
	if p.word == word {
		return true
	}
	gen, last := generationOf(word), generationOf(p.word)
	return uint32(word) == 0 && word != ghost && uint32(last-gen) <= uint32(last-p.first) //nolint:gosec // modulo 2^32, as generations are
}

// leave ends a call that enter admitted. It reports whether the outcome came too
// late to count: the state the call was admitted in has passed, or its time as a
// probe.
func (b *Breaker) leave(word uint64, stripe uint32, now time.Time, o policy.Outcome) (late bool) {
	p := b.phase.Load()
	if !p.plain(word, o) {
		return b.settle(p, word, stripe, now, o)
	}
	if p.quick.Add(now, stripe) {
		b.decide(p.tally, now, p.quick.Counts(now), 0)
	}
	return false
}

// plain reports whether the call counts as one that answered in time, in the phase
// that it was admitted in and that looks at nothing else.
func (p *phase) plain(word uint64, o policy.Outcome) bool {
	return p.word == word && p.quick != nil && o.Kind.IsAnswer() && o.Duration <= p.slowAfter
}

// settle is leave for a call that is not plain, or that was admitted under another
// phase than p.
func (b *Breaker) settle(p *phase, word uint64, stripe uint32, now time.Time, o policy.Outcome) (late bool) {
	c := b.rules().judge(o)
	if p.tally != nil && p.covers(word) {
		b.count(p.tally, stripe, now, c, o)
		return false
	}
	if word == ghost {
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
	ch, changed, known := b.m.settle(uint32(word), ns, c, o) //nolint:gosec // the lower half
	if changed {
		b.changedLocked(ch)
	}
	return !known && c.Calls > 0
}

// count adds a call that ended to the tally, and opens the breaker if that reaches a
// rule.
func (b *Breaker) count(t *tally, stripe uint32, now time.Time, c window.Counts, o policy.Outcome) {
	switch {
	case c == plain:
		if b.rules().consecutive > 0 {
			t.row.succeeded()
		}
		if t.add(now, stripe) {
			b.decide(t, now, t.counts(now), 0)
		}
	case c.Failures > 0:
		var row uint64
		if b.rules().consecutive > 0 {
			row = t.row.failed()
		}
		b.wish(t, now, o)
		b.decide(t, now, t.record(now, c), row)
	case c.Calls > 0:
		if o.Kind.IsAnswer() {
			t.row.succeeded()
		}
		b.decide(t, now, t.record(now, c), 0)
	}
}

// wish notes how long a failed call asked to be left alone.
func (b *Breaker) wish(t *tally, now time.Time, o policy.Outcome) {
	if o.Pushback > 0 {
		t.wish(addTime(b.nanos(now), int64(o.Pushback)))
	}
}

// amend counts a failure, or slowness, for a call that was left as a success before.
func (b *Breaker) amend(word uint64, now time.Time, o policy.Outcome) {
	c := window.Counts{Slow: 1}
	if o.Kind.IsFailure() {
		c = window.Counts{Failures: 1}
	}
	p := b.phase.Load()
	if t := p.tally; t != nil && p.covers(word) {
		if c.Failures == 0 {
			b.decide(t, now, t.amendSlow(now), 0)
			return
		}
		var row uint64
		if b.rules().consecutive > 0 {
			row = t.row.amended()
		}
		b.wish(t, now, o)
		b.decide(t, now, t.amend(now), row)
		return
	}
	if generationOf(p.word) != generationOf(word) {
		return
	}
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	if b.m.state == HalfOpen && generationOf(b.phase.Load().word) == generationOf(word) {
		if ch, changed := b.m.amend(ns, c, o); changed {
			b.changedLocked(ch)
		}
	}
}

// decide opens the breaker if it still counts calls in t, and the figures reach a
// rule.
func (b *Breaker) decide(t *tally, now time.Time, c window.Counts, row uint64) {
	because := b.rules().verdict(c, row)
	if because.why == "" {
		return
	}
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	if b.phase.Load().tally != t || b.m.state == ForcedClosed {
		return
	}
	if b.owner != nil && !b.owner.mayOpen() {
		return
	}
	b.m.notBefore = t.notBefore.Load()
	b.changedLocked(b.m.open(ns, because, c))
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
	if b.owner != nil {
		b.owner.changed(ch, b.m.state.forced() || b.m.observing)
	}
	b.subs.Queue(policy.Event{
		Kind:   policy.EventStateChange,
		Time:   b.base.Add(time.Duration(ch.at)),
		Policy: b.config().Name,
		Change: policy.StateChange{
			From: ch.from.String(), To: ch.to.String(), Why: ch.because.why, Generation: ch.gen, Key: b.key, Note: ch.note,
			Calls: ch.counts.Calls, Failures: ch.counts.Failures, Slow: ch.counts.Slow,
			Ratio: ch.because.figure, Threshold: ch.because.limit,
			RetryAfter: time.Duration(ch.ends),
		},
	})
}

// publishLocked makes the machine's state the one that calls see. It requires that
// b.mu is held.
func (b *Breaker) publishLocked() {
	m, old := &b.m, b.phase.Load()
	until := int64(0)
	if m.observing {
		until = m.observeUntil
	}
	b.observeUntil.Store(until)
	if old != nil && old.word == wordOf(m.gen) {
		return // only a command has begun or ended
	}
	p := &phase{state: m.state, word: wordOf(m.gen), first: m.first, until: m.until}
	switch {
	case !m.state.counts():
	case old != nil && old.tally != nil && old.first == m.first:
		p.tally = old.tally
	default:
		p.tally = newTally(b.base, b.config(), b.rules().minCalls)
	}
	if m.state == Recovering {
		p.ramp = &ramp{begin: m.since}
	}
	b.showLocked(p)
}

// showLocked makes p the phase that calls see. It requires that b.mu is held.
func (b *Breaker) showLocked(p *phase) {
	if r := b.rules(); p.tally != nil && r.consecutive == 0 {
		p.quick, p.slowAfter = p.tally.time, r.slowAfter
	}
	p.refuseUntil.Store(b.m.refuseUntil()) // before anyone sees it
	b.phase.Store(p)
}

// wordOf returns the word of a call that is no probe: the generation, in the upper
// half. A probe has the number of its lease in the lower half. A generation comes
// back after 2^32 changes of state, far beyond the life of a call.
func wordOf(gen uint64) uint64 { return gen << 32 }

// isProbe reports whether a word is that of a probe.
func isProbe(word uint64) bool { return uint32(word) != 0 } //nolint:gosec // the lower half

func generationOf(word uint64) uint64 { return word >> 32 }
