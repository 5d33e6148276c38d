package ratelimit

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

const (
	gainUnit = 1024
	maxGain  = gainUnit << 20
)

// Shedder sheds load while the process is overloaded. Use [NewSystem]. It is at once a
// [policy.Policy] and a [policy.Gate], and can be used by hand: [Shedder.Acquire] and
// [Shedder.Release]. All methods are safe for concurrent use.
//
// # How it decides
//
// Every call is let in until a reading of CPU use or of the queue delay reaches its bound.
// From then on a call is let in as long as no more are in flight than the highest
// throughput times the shortest latency of the last seconds (Window). While readings are
// below their bounds that limit is raised, to twice as much in a second, and with the next
// one that is not it is what it was: so the load stays about where the bounds are, and a
// flood that was held back does not break in. When that has gone on for CoolDown without
// a call being refused, every call is let in again.
//
// Of the places within the limit as many are kept free for calls of a higher priority as those
// that came of late, refused ones included, would take up, less those that are in flight.
// So those of higher priority go first, and nothing is kept free for calls that do not
// come. Calls of [policy.PriorityCritical] are let in up to twice the limit: a health check
// that fails for overload makes things worse.
//
// Calls write to a few counters that they share, and take a lock once in a fiftieth of
// Window.
type Shedder struct {
	start time.Time
	set   atomic.Pointer[systemSettings] // replaced as a whole, under reloading
	load  workload

	nextSample atomic.Int64
	shedUntil  atomic.Int64
	gain       atomic.Int64 // of the limit, in 1024ths, while load is shed
	late       atomic.Bool  // the last sign of overload was the delay
	failed     atomic.Uint64
	shed       [priorities]atomic.Uint64

	mu         sync.Mutex // held by the one who takes readings
	lastSample int64
	cpu, delay average

	reloading sync.Mutex

	// What Snapshot shows of these: a reading must not keep it waiting.
	shownCPU, shownDelay atomic.Uint64
}

// systemSettings are settings with what reads the delay, which may be nil.
type systemSettings struct {
	cfg       System // effective
	readDelay func() (time.Duration, error)
}

func (s *Shedder) config() *System { return &s.set.Load().cfg }

// settings returns what is to be used of a configuration. The delay of the scheduler goes
// on to be read by the one who does.
func (s *Shedder) settings(cfg System, old *systemSettings) *systemSettings {
	set := &systemSettings{cfg: cfg, readDelay: cfg.Delay}
	switch {
	case cfg.Delay != nil || cfg.MaxDelay <= 0:
	case old != nil && old.cfg.Delay == nil && old.readDelay != nil:
		set.readDelay = old.readDelay
	default:
		d := &schedulerDelay{}
		set.readDelay = d.read
		// What happened before is not in the first reading.
		if _, err := d.read(); err != nil {
			s.failed.Add(1)
		}
	}
	return set
}

var (
	_ policy.Policy      = System{}
	_ policy.Policy      = (*Shedder)(nil)
	_ policy.Gate        = (*Shedder)(nil)
	_ policy.Snapshotter = (*Shedder)(nil)
)

// NewSystem returns the live form of a configuration. A name that is not empty takes the
// place of cfg.Name. The error joins every fault as a [*policy.ConfigError].
func NewSystem(name string, cfg System) (*Shedder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.withDefaults()
	s := &Shedder{start: time.Now()}
	s.set.Store(s.settings(cfg, nil))
	s.load.init(cfg.Window)
	s.gain.Store(gainUnit)
	s.nextSample.Store(int64(cfg.Sample))
	return s, nil
}

// at returns t as nanoseconds since the start.
func (s *Shedder) at(t time.Time) int64 { return int64(t.Sub(s.start)) }

// Acquire lets a call of the given priority in, or refuses it at once with a
// [*policy.RejectedError] that matches [ErrOverloaded] ([policy.ReasonConcurrency]). A
// call that was let in is told about with [Shedder.Release] when it has ended.
func (s *Shedder) Acquire(now time.Time, p policy.Priority) error {
	if err := s.acquire(s.at(now), rank(p)); err != nil {
		return err
	}
	return nil
}

// Release tells that a call which [Shedder.Acquire] let in has ended, and how long it
// took; a negative time means that this says nothing, because the call was not run or was
// broken off.
func (s *Shedder) Release(now time.Time, p policy.Priority, took time.Duration) {
	s.release(s.at(now), rank(p), took)
}

func (s *Shedder) acquire(at int64, rank int) *policy.RejectedError {
	if at >= s.nextSample.Load() {
		s.sample(at)
	}
	// Counted first and taken back if need be: so no two calls take the same place.
	s.load.came[rank].Add(1)
	until := s.shedUntil.Load()
	if at >= until || s.load.total() <= s.room(rank) {
		return nil
	}
	s.load.gone[rank].Add(1)
	return s.refusal(at, rank)
}

// refusal counts a call that is shed, and returns its error.
func (s *Shedder) refusal(at int64, rank int) *policy.RejectedError {
	s.shed[rank].Add(1)
	cfg := s.config()
	// Calls are held back, so it is not over. Most of them find that noted already.
	coolDown := int64(cfg.CoolDown)
	if until := s.shedUntil.Load(); until-at < coolDown-coolDown/8 {
		s.shedUntil.CompareAndSwap(until, at+coolDown)
	}
	err := errNoCPU
	if s.late.Load() {
		err = errLateCPU
	}
	return &policy.RejectedError{Policy: cfg.Name, Reason: policy.ReasonConcurrency, RetryAfter: cfg.CoolDown, Err: err}
}

// room returns how many calls may be in flight, with the one that asks.
func (s *Shedder) room(rank int) int64 {
	limit := s.limit()
	if rank == priorities-1 {
		return 2 * limit
	}
	return limit - s.load.reserve(rank)
}

// limit returns the limit on calls in flight.
func (s *Shedder) limit() int64 {
	return max(s.load.limit.Load(), int64(s.config().MinInFlight)) * s.gain.Load() / gainUnit
}

func (s *Shedder) release(at int64, rank int, took time.Duration) {
	s.load.gone[rank].Add(1)
	if took >= 0 {
		s.load.end(at, took)
	}
}

// sample takes readings, unless somebody else does.
func (s *Shedder) sample(at int64) {
	next, set := s.nextSample.Load(), s.set.Load()
	cfg := &set.cfg
	if at < next || !s.nextSample.CompareAndSwap(next, at+int64(cfg.Sample)) {
		return
	}
	// A reading that takes longer than Sample must not meet the next one.
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.load.turn(at)
	over := time.Duration(max(at-s.lastSample, 0))
	s.lastSample = at
	overloaded := false
	if cfg.CPU == nil {
		s.cpu = average{}
		s.shownCPU.Store(0)
	} else {
		share, err := cfg.CPU()
		if err != nil || math.IsNaN(share) || math.IsInf(share, 0) {
			s.failed.Add(1)
		} else {
			s.cpu.add(max(share, 0), over)
			s.shownCPU.Store(math.Float64bits(s.cpu.value))
			if s.cpu.value >= cfg.MaxCPU {
				overloaded = true
				s.late.Store(false)
			}
		}
	}
	if set.readDelay == nil {
		s.delay = average{}
		s.shownDelay.Store(0)
	} else {
		delay, err := set.readDelay()
		if err != nil {
			s.failed.Add(1)
		} else {
			s.delay.add(max(float64(delay), 0), over)
			s.shownDelay.Store(math.Float64bits(s.delay.value))
			if s.delay.value >= float64(cfg.MaxDelay) {
				overloaded = true
				s.late.Store(true)
			}
		}
	}
	switch {
	case overloaded:
		s.gain.Store(gainUnit)
		s.shedUntil.Store(at + int64(cfg.CoolDown))
	case at < s.shedUntil.Load():
		raised := float64(s.gain.Load()) * math.Exp2(over.Seconds())
		s.gain.Store(int64(min(raised, maxGain)))
	}
}

// Config returns the effective configuration.
func (s *Shedder) Config() System { return *s.config() }

// BuildPolicy implements [policy.Policy]: pipelines that are given the same Shedder count
// their calls together.
func (s *Shedder) BuildPolicy() (policy.Part, error) {
	cfg := s.config()
	return policy.Part{
		Kind:   systemKind,
		Name:   cfg.Name,
		Gate:   s,
		Place:  policy.PlaceRateLimit,
		Holds:  true,
		Shadow: cfg.Shadow,
	}, nil
}

// Peek implements [policy.Gate]: it reports that load is being shed and there is no place
// for a call of this priority.
func (s *Shedder) Peek(a *policy.Attempt) error {
	at, until := int64(a.Since(s.start)), s.shedUntil.Load()
	if r := rank(a.Call().Priority); at < until && s.load.total() >= s.room(r) {
		s.load.came[r].Add(1)
		s.load.gone[r].Add(1)
		return s.refusal(at, r)
	}
	return nil
}

// Enter implements [policy.Gate]. It never waits.
func (s *Shedder) Enter(_ context.Context, a *policy.Attempt, slot int) error {
	r := rank(a.Call().Priority)
	if err := s.acquire(int64(a.Since(s.start)), r); err != nil {
		return err
	}
	a.Slot(slot).Word = uint64(r) //nolint:gosec // 0 to 3
	return nil
}

// Leave implements [policy.Gate]. An attempt whose caller has given up is not counted as
// work that was done.
func (s *Shedder) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	took := o.Duration
	if o.Kind == policy.NotRun || o.Kind == policy.Canceled {
		took = -1
	}
	s.release(int64(a.Since(s.start)), int(a.Slot(slot).Word), took) //nolint:gosec // 0 to 3
}

// Snapshot implements [policy.Snapshotter].
func (s *Shedder) Snapshot(now time.Time) policy.PolicySnapshot {
	at := s.at(now)
	l := &policy.LoadSnapshot{
		Overloaded: at < s.shedUntil.Load(),
		Failed:     s.failed.Load(),
		InFlight:   int(s.load.total()),
		CPU:        math.Float64frombits(s.shownCPU.Load()),
		Delay:      time.Duration(math.Float64frombits(s.shownDelay.Load())),
	}
	s.load.mu.Lock()
	s.load.turnLocked(at)
	l.Throughput, l.MinLatency = s.load.throughput, time.Duration(s.load.shortest*float64(time.Second))
	s.load.mu.Unlock()
	if limit := s.load.limit.Load(); limit > 0 {
		l.Limit = int(min(s.limit(), math.MaxInt32))
	}
	for i := range s.shed {
		l.Shed[i] = s.shed[i].Load()
	}
	cfg := s.config()
	return policy.PolicySnapshot{Name: cfg.Name, Kind: systemKind, Shadow: cfg.Shadow, Limiter: &policy.LimiterSnapshot{Load: l}}
}
