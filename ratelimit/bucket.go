package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Bucket is a live token bucket. Use [New]. It is at once a [policy.Policy], a
// [policy.Gate] and a limiter to be used by hand: [Bucket.Allow] answers whether a
// call may run now, [Bucket.Take] also when, [Bucket.Wait] waits for it. All methods
// are safe for concurrent use.
//
// # How it counts
//
// Two figures only rise: the tokens that have arrived since a time of origin, which
// follow from the clock alone, and the tokens used. Their difference is the balance;
// what it has above the burst has overflowed, which the next one to take writes off.
// So the state is one integer, and a call is one multiplication and one
// compare-and-swap. Both figures count a small fraction of a token, chosen so that
// whole ones arrive each nanosecond: nothing is rounded, so nothing adds up.
//
// Taking what is there waits for nobody, and a refusal takes nothing. A lock is taken
// by a Reserve or Wait that reaches into the future, by SetLimit, and when the figures
// have grown so large that a new origin is needed (after half an hour at the least,
// after decades at common rates). By all others it is only taken while a reservation
// is outstanding that was made before another one was cancelled, tokens were refunded
// or the limit was changed.
//
// # Time
//
// Times are those of [time.Now], with their monotonic part, or at least of one clock.
// A time that goes back never adds tokens; one before New counts as the moment of New.
// However long the pause, no more than the burst is stored. Times from 292 years after
// New on are not told apart.
type Bucket struct {
	start time.Time // times are kept as nanoseconds since then
	state atomic.Pointer[state]

	// ahead says that there are promises.
	ahead atomic.Bool

	name       string
	shadow     bool
	initial    int
	maxWaiters atomic.Int64

	// mu guards the ledger, and who replaces or locks the state. It is not held by
	// those who take what is there.
	mu     sync.Mutex
	ledger ledger

	// waiters are those in Wait, in the order in which they came. They change under
	// mu, and so does waiting, their number.
	waiters []*bucketWaiter
	waiting atomic.Int32
}

// New returns the live bucket of a configuration. A name that is not empty takes the
// place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func New(name string, cfg TokenBucket) (*Bucket, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults()
	b := &Bucket{start: time.Now(), name: cfg.Name, shadow: cfg.Shadow, initial: cfg.Initial}
	b.maxWaiters.Store(int64(cfg.MaxWaiters))
	s := &state{meter: newMeter(cfg.Rate, int64(cfg.Burst), 0), rate: cfg.Rate}
	if initial := int64(max(cfg.Initial, 0)); s.unlimited {
		s.used.Store(-s.full)
	} else {
		s.used.Store(-s.units(initial))
	}
	b.state.Store(s)
	return b, nil
}

// at returns t as the bucket keeps time.
func (b *Bucket) at(t time.Time) int64 { return int64(t.Sub(b.start)) }

// now reads the clock, at half the cost of [time.Now].
func (b *Bucket) now() int64 { return int64(time.Since(b.start)) }

// Allow takes one token if there is one, and reports whether it did. It reads the
// clock and never waits.
func (b *Bucket) Allow() bool { return b.AllowN(1) }

// AllowN takes n tokens if they are there, and reports whether it did; otherwise it
// takes none. It reads the clock and never waits. An n of zero or less takes nothing
// and is allowed.
func (b *Bucket) AllowN(n int) bool {
	_, v := b.take(b.now(), n)
	return v == taken
}

// Take takes n tokens if they are there at the given time, and otherwise none. It
// then returns the time after which they will be there if nobody else takes any:
// exactly, to the nanosecond, so that trying again after just that time succeeds. It
// is [policy.Never] if n exceeds the burst, or the time 292 years. Take never waits.
// An n of zero or less takes nothing and is allowed.
func (b *Bucket) Take(now time.Time, n int) (retryAfter time.Duration, ok bool) {
	retryAfter, v := b.take(b.at(now), n)
	return retryAfter, v == taken
}

func (b *Bucket) take(at int64, n int) (time.Duration, verdict) {
	if n <= 0 {
		return 0, taken
	}
	for {
		s := b.state.Load()
		if int64(n) > s.burst {
			return policy.Never, tooBig
		}
		if s.unlimited {
			return 0, taken
		}
		elapsed := s.elapsed(at)
		if elapsed > s.horizon {
			b.move(s, at)
			continue
		}
		arrived := s.granted(elapsed)
		cost := int64(n) * s.unit
		for {
			used := s.used.Load()
			if used == locked {
				return b.claim(at, n, 0)
			}
			// With promises outstanding nothing overflows: their tokens are used,
			// and have yet to arrive.
			after := max(used, arrived-s.full) + cost
			if after > arrived {
				return delayFrom(at, s.crossingAt(after)), short
			}
			if s.used.CompareAndSwap(used, after) {
				return 0, taken
			}
		}
	}
}

// look is take, taking nothing. n must be above 0.
func (b *Bucket) look(at int64, n int) (time.Duration, verdict) {
	s := b.state.Load()
	used := s.used.Load()
	var books *ledger
	if used == locked {
		s, books, used = b.books(at)
	}
	if int64(n) > s.burst {
		return policy.Never, tooBig
	}
	cost := int64(n) * s.unit
	if books != nil {
		if when := books.earliest(s, cost); when > books.settled {
			return delayFrom(at, when), short
		}
		return 0, taken
	}
	arrived := s.arrived(at)
	if after := max(used, arrived-s.full) + cost; after > arrived {
		return delayFrom(at, s.crossingAt(after)), short
	}
	return 0, taken
}

// delayFrom returns the time from at until when, [policy.Never] when that is too long.
func delayFrom(at, when int64) time.Duration {
	// The difference overflows when at is long before the start.
	if d := time.Duration(when - at); d >= 0 && when != never {
		return d
	}
	return policy.Never
}

// Refund gives back n tokens that were taken at the given time for a call which did not
// run: the time that Take was given, or that of a reservation, or at which Wait returned.
// What has arrived since is lost, as in a full bucket it would have been: no more calls
// run for it than if that one had not been. So give them back soon. An n of zero or less
// does nothing.
func (b *Bucket) Refund(taken time.Time, n int) { b.giveBack(b.now(), b.at(taken), n) }

func (b *Bucket) giveBack(at, taken int64, n int) {
	if n > 0 && !b.refund(at, taken, n) {
		b.refundLocked(at, taken, n, promise{})
	}
}

// refund gives tokens back, unless that has to be done under the lock.
func (b *Bucket) refund(at, taken int64, n int) bool {
	for {
		s := b.state.Load()
		units := s.toGiveBack(at, taken, int64(n))
		if units <= 0 {
			return true
		}
		// The order matters: whoever makes a promise sets ahead before used.
		used := s.used.Load()
		if used == locked || b.ahead.Load() {
			return false
		}
		if s.used.CompareAndSwap(used, max(used-units, -s.full)) {
			return true
		}
	}
}

// Tokens returns the number of tokens that can be taken at the given time. It is
// negative while more are reserved than have arrived, and the burst at an infinite
// rate.
func (b *Bucket) Tokens(now time.Time) float64 {
	s, free := b.free(b.at(now))
	return float64(free) / float64(s.unit)
}

// free returns the units that can be taken, and the state they refer to.
func (b *Bucket) free(at int64) (*state, int64) {
	s := b.state.Load()
	if used := s.used.Load(); used != locked {
		arrived := s.arrived(at)
		return s, min(arrived-used, s.full)
	}
	s, books, used := b.books(at)
	if books == nil {
		return s, min(s.arrived(at)-used, s.full)
	}
	return s, books.free(s)
}

// Config returns the effective configuration, with the limit as it is now.
func (b *Bucket) Config() TokenBucket {
	s := b.state.Load()
	burst := int(s.burst)
	return TokenBucket{Name: b.name, Rate: s.rate, Burst: burst, Initial: min(b.initial, burst), MaxWaiters: int(b.maxWaiters.Load()), Shadow: b.shadow}
}

// Snapshot implements [policy.Snapshotter].
func (b *Bucket) Snapshot(now time.Time) policy.PolicySnapshot {
	at := b.at(now)
	s, free := b.free(at)
	delay, _ := b.look(at, 1)
	return policy.PolicySnapshot{
		Name: b.name, Kind: kind, Shadow: b.shadow,
		Limiter: &policy.LimiterSnapshot{
			Tokens:  float64(free) / float64(s.unit),
			Burst:   float64(s.burst),
			Rate:    s.rate.perSecond(),
			Waiting: int(b.waiting.Load()), MaxWaiters: int(b.maxWaiters.Load()),
			Delay: delay,
		},
	}
}
