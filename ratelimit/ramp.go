package ratelimit

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Ramp is a live [WarmUp]. Use [NewRamp]. It is at once a [policy.Policy], a
// [policy.Gate] and a [Limiter] to be used by hand: [Ramp.Allow] answers whether a call
// may run now, [Ramp.Take] also when, [Ramp.Wait] waits for its turn within the bounds
// of the WarmUp. All methods are safe for concurrent use.
//
// # How it counts
//
// The idea is that of Guava's SmoothWarmingUp and of Sentinel's warm-up controllers; the
// rule is simpler. Tokens arrive at the present rate, as in a token bucket of Burst.
// While they do the rate rises; while the bucket is full it falls. Both are straight
// lines in time, so the tokens of a stretch are a trapezoid, and the time until there
// are enough is the root of a quadratic equation. Figures are float64: what rounding
// adds up to is below a token in 10^15.
//
// Tokens and warmth have to be changed together, so taking a token is done under a
// lock, which is held for some ten nanoseconds. Refusing a call takes none while nobody
// waits: when the next has its turn was noted.
type Ramp struct {
	line

	cfg   WarmUp // effective; Rate and Burst as they were in the beginning
	ramps rampBooks
}

var _ Limiter = (*Ramp)(nil)

// NewRamp returns the live limit of a configuration, cold. A name that is not empty
// takes the place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewRamp(name string, cfg WarmUp) (*Ramp, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults()
	r := &Ramp{
		cfg:  cfg,
		line: line{kind: warmUpKind, name: cfg.Name, shadow: cfg.Shadow, warnings: cfg.warnings()},
	}
	r.bound(cfg.MaxWait, cfg.MaxWaiters)
	r.init(r, &r.ramps)
	s := newSlope(cfg)
	r.ramps.slope.Store(s)
	r.ramps.present.tokens = s.burst
	r.ramps.future = r.ramps.present
	return r, nil
}

// Config returns the effective configuration, with the limit as it is now.
func (r *Ramp) Config() WarmUp {
	cfg := r.ramps.slope.Load().cfg
	cfg.MaxWait, cfg.MaxWaiters = r.bounds()
	return cfg
}

// SetLimit changes rate and burst, from now on. A burst of zero means 1. An invalid
// limit changes nothing and is reported as joined [*policy.ConfigError].
//
// It stays as warm as it is. What is left of the burst stays, if it fits, and what is
// owed is not forgiven. Waiters get their turns anew, and are refused at once if these
// now come too late for them. Reservations keep the times that were promised.
// MaxWaiters stays as it is, also where it came from the rate.
func (r *Ramp) SetLimit(rate Rate, burst int) error {
	f := faults{kind: warmUpKind}
	f.rate("Rate", rate)
	f.burst(burst)
	if err := f.err(); err != nil {
		return err
	}
	r.change(func(at int64) { r.ramps.setLimit(at, rate, max(burst, 1)) })
	return nil
}

// SetRate implements [Limiter]: it is [Ramp.SetLimit] with the burst as it is.
func (r *Ramp) SetRate(rate Rate) error {
	f := faults{kind: warmUpKind}
	f.rate("Rate", rate)
	if err := f.err(); err != nil {
		return err
	}
	r.change(func(at int64) { r.ramps.setLimit(at, rate, r.Config().Burst) })
	return nil
}

// slope is the shape of a limit that warms up. Rates are in tokens per nanosecond,
// times in nanoseconds. Products are rounded by a conversion before they are added to
// anything, so that every platform gets the same figures.
type slope struct {
	cfg        WarmUp
	cold, warm float64 // rates
	rise       float64 // by which the rate rises per nanosecond
	period     float64
	burst      float64
	most       int64
	unlimited  bool

	changed int64   // since when it is what it is
	before  float64 // the highest rate until then
}

func newSlope(cfg WarmUp) *slope {
	s := &slope{
		cfg: cfg, period: float64(cfg.Period), burst: float64(cfg.Burst), most: maxBurst,
		unlimited: cfg.Rate.unlimited(), changed: math.MinInt64,
	}
	if s.unlimited {
		return s
	}
	// As no time is shorter than a nanosecond, more than a burst in one is the same
	// as a burst.
	s.warm = min(cfg.Rate.Tokens/float64(cfg.Rate.Per), s.burst)
	s.cold = s.warm / cfg.ColdFactor
	s.rise = (s.warm - s.cold) / s.period
	s.most = int64(max(1, min(s.warm*float64(maxDelay), maxBurst)))
	return s
}

// rate returns the rate at a warmth, which is a time from 0 to period.
func (s *slope) rate(warmth float64) float64 { return s.cold + float64(s.rise*warmth) }

// gain returns how many tokens arrive in a time that begins at a warmth.
func (s *slope) gain(warmth, t float64) float64 {
	rising := min(t, s.period-warmth)
	gain := float64(s.rate(warmth)*rising) + float64(float64(s.rise*rising)*rising)/2
	return gain + float64(s.warm*(t-rising))
}

// span returns how long it takes from a warmth until that many tokens have arrived.
func (s *slope) span(warmth, tokens float64) float64 {
	if tokens <= 0 {
		return 0
	}
	rising := s.period - warmth
	if g := s.gain(warmth, rising); tokens >= g {
		return rising + (tokens-g)/s.warm
	}
	r := s.rate(warmth)
	return 2 * tokens / (r + math.Sqrt(float64(r*r)+2*float64(s.rise*tokens)))
}

// glow is the state of a limit that warms up, at a time.
type glow struct {
	at     int64
	tokens float64 // at most burst; below 0 is owed
	warmth float64 // from 0 to period
	wanted bool    // a call was refused since the last was let in
}

// at returns g as it is at a later time, if nothing happens until then.
func (s *slope) at(g glow, at int64) glow {
	if at <= g.at || s.unlimited {
		return g
	}
	t := float64(at) - float64(g.at) // the difference may be more than an int64 holds
	if exact := at - g.at; exact > 0 {
		t = float64(exact)
	}
	busy := s.span(g.warmth, s.burst-g.tokens)
	if t < busy {
		return glow{at, min(g.tokens+s.gain(g.warmth, t), s.burst), min(g.warmth+t, s.period), g.wanted}
	}
	warmth, idle := min(g.warmth+busy, s.period), t-busy
	if g.wanted {
		// Who was refused just before the bucket was full comes again later. What it
		// leaves unused meanwhile is not for want of calls.
		again := min(idle, 1/s.rate(warmth))
		warmth, idle = min(warmth+again, s.period), idle-again
	}
	return glow{at, s.burst, max(warmth-idle, 0), g.wanted && idle == 0}
}

// when returns the first time, not before at, at which there is a token; or never.
func (s *slope) when(g glow, at int64) int64 {
	at = max(at, g.at)
	if s.unlimited || s.at(g, at).tokens >= 1 {
		return at
	}
	span := math.Ceil(s.span(g.warmth, 1-g.tokens))
	if span >= float64(never-max(g.at, 0)) {
		return never
	}
	// The root is rounded: look at what is there at the time itself. There was none
	// at the time asked for.
	when := max(g.at+int64(span), at+1)
	for s.at(g, when).tokens < 1 {
		when++
	}
	for when-1 > at && s.at(g, when-1).tokens >= 1 {
		when--
	}
	return when
}

// use returns g after n tokens have been taken at a given time.
func (s *slope) use(g glow, at, n int64) glow {
	if s.unlimited {
		return g
	}
	g = s.at(g, at)
	g.tokens -= float64(n)
	g.wanted = false
	return g
}

// keep is use at a time that was promised. Such a time is rounded up to a nanosecond,
// and what arrives in that does not overflow: it was for a moment within it.
func (s *slope) keep(g glow, at, n int64) glow {
	if at <= g.at || s.unlimited {
		return s.use(g, at, n)
	}
	g = s.at(g, at-1)
	g.tokens += s.gain(g.warmth, 1) - float64(n)
	g.at, g.warmth, g.wanted = at, min(g.warmth+1, s.period), false
	return g
}

// rampBooks is the algorithm of a [Ramp].
type rampBooks struct {
	slope atomic.Pointer[slope] // changes under line.mu

	// shut is a time before which nobody has a turn, or 0 when that is not known. It
	// is 0 while the books are open.
	shut atomic.Int64

	// wanted says that a call was refused since the books were closed.
	wanted atomic.Bool

	// The rest is under line.mu.
	present, future, marked glow
}

func (b *rampBooks) try(at, n int64) (time.Duration, verdict) { return b.look(at, n) }

func (b *rampBooks) look(at, n int64) (time.Duration, verdict) {
	if n > b.slope.Load().most {
		return policy.Never, tooBig
	}
	if shut := b.shut.Load(); at < shut {
		if !b.wanted.Load() {
			b.wanted.Store(true)
		}
		return delayFrom(at, shut), short
	}
	return 0, busy
}

func (b *rampBooks) giveBack(int64, int64, int64) bool { return false }

func (b *rampBooks) open() {
	b.shut.Store(0)
	if b.wanted.Load() {
		b.wanted.Store(false)
		b.present.wanted = true
		b.future.wanted = true
	}
}

func (b *rampBooks) close() {
	if b.present.tokens < 1 {
		if when := b.next(b.present.at, 1); when > b.present.at {
			b.shut.Store(when)
		}
	}
}

func (b *rampBooks) rebase(int64) bool { return false }

func (b *rampBooks) most() int64 { return b.slope.Load().most }

func (b *rampBooks) next(at, _ int64) int64 {
	now := max(at, b.present.at)
	if when := b.slope.Load().when(b.future, now); when > now {
		return when
	}
	return at
}

func (b *rampBooks) book(when, n int64, exact bool) {
	if s := b.slope.Load(); exact {
		b.future = s.use(b.future, when, n)
	} else {
		b.future = s.keep(b.future, when, n)
	}
}

func (b *rampBooks) settle(when, n int64) { b.present = b.slope.Load().keep(b.present, when, n) }
func (b *rampBooks) spend(at, n int64)    { b.present = b.slope.Load().use(b.present, at, n) }
func (b *rampBooks) mark()                { b.marked = b.future }
func (b *rampBooks) back()                { b.future = b.marked }
func (b *rampBooks) rewind()              { b.future = b.present }

// refund gives back what is left of the tokens after what has arrived since. See
// state.toGiveBack.
func (b *rampBooks) refund(at, taken, n int64) {
	s := b.slope.Load()
	back := float64(n) - float64(s.warm*float64(span(max(taken, s.changed), at)))
	if taken < s.changed {
		back -= float64(s.before * float64(span(taken, min(s.changed, at))))
	}
	if back > 0 && !s.unlimited {
		b.present.tokens = min(b.present.tokens+back, s.burst)
	}
}

func (b *rampBooks) setLimit(at int64, rate Rate, burst int) {
	old := b.slope.Load()
	cfg := old.cfg
	cfg.Rate, cfg.Burst = rate, burst
	s := newSlope(cfg)
	s.changed, s.before = at, max(old.warm, old.before)
	if old.unlimited {
		s.before = math.Inf(1)
	}
	b.present = old.at(b.present, at)
	b.present.tokens = min(b.present.tokens, s.burst)
	if s.unlimited {
		b.present.tokens = s.burst
	}
	b.future = b.present
	b.slope.Store(s)
}

func (b *rampBooks) describe(at int64, snapshot *policy.LimiterSnapshot) {
	s := b.slope.Load()
	g := s.at(b.present, at)
	snapshot.Tokens, snapshot.Burst = g.tokens, s.burst
	snapshot.Warmth = g.warmth / s.period
	snapshot.Rate = s.rate(g.warmth) * 1e9
	if s.unlimited {
		snapshot.Rate = math.Inf(1)
	}
}
