package bulkhead

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// AdaptivePermits is a live [Adaptive]: permits whose number follows what the
// dependency can do. It stands in pipelines as a gate.
//
// The estimate is that of failsafe-go's adaptive limiter: it compares the latency of
// the last seconds with that of the last while, lowers the limit when it rises and
// raises it when it does not, by about one step a second, and watches whether more
// concurrency still brings more throughput. Calls that succeeded, ended with a
// permanent error or timed out count; those that failed otherwise, which may be fast
// because they failed, and those that were cancelled do not.
//
// Around it stand a floor, a ceiling, and a brake with a base of its own: see
// docs/reference/bulkhead.md. Everything else (priorities, waits, the reserve) is as
// in [Permits].
//
// It costs more than a fixed limit: the estimate takes a lock and allocates for each
// call. All methods are safe for concurrent use.
type AdaptivePermits struct {
	counter counter
	set     atomic.Pointer[adaptiveSettings] // replaced as a whole, under mu
	door    door
	base    time.Time

	// What is seen in the present period. The one who moves next on judges it.
	next              atomic.Int64 // when the period may end, since base
	calls, busy, took atomic.Int64
	pressed           atomic.Bool

	rebased atomic.Uint64
	mu      sync.Mutex
	guard   guard
}

// adaptiveSettings are settings with the estimator that was made for them.
type adaptiveSettings struct {
	cfg       Adaptive // effective values
	estimator estimator
}

const (
	// periodLength is that of the estimate.
	periodLength = time.Second

	// periodCalls is the least number of calls that a mean is taken of, unless
	// periodLongest has passed.
	periodCalls   = 10
	periodLongest = 10 * time.Second
)

// NewAdaptive returns live permits with a limit that is found at run time. The name
// goes into errors and snapshots; empty means cfg.Name, and if that is empty too,
// "adaptive". The error, if any, is that of [Adaptive.Validate].
func NewAdaptive(name string, cfg Adaptive) (*AdaptivePermits, error) {
	if name != "" {
		cfg.Name = name
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p := &AdaptivePermits{
		door: door{name: cfg.Name}, base: time.Now(),
		guard: newGuard(cfg.Min, cfg.Max, max(cfg.Tolerance, 0)),
	}
	p.set.Store(&adaptiveSettings{cfg, newEstimator(cfg.Min, cfg.Max, cfg.Initial, cfg.Initial)})
	p.counter.init(cfg.Initial, cfg.Reserve)
	p.next.Store(int64(periodLength))
	return p, nil
}

// Limit returns the number of permits as it is now.
func (p *AdaptivePermits) Limit() int { return int(p.counter.load().limit()) }

// InFlight returns the number of permits that are taken. It is above the limit after
// that has sunk, until enough of them are given back.
func (p *AdaptivePermits) InFlight() int { return int(p.counter.load().inFlight()) }

// Config returns the effective configuration.
func (p *AdaptivePermits) Config() Adaptive { return *p.config() }

func (p *AdaptivePermits) config() *Adaptive { return &p.set.Load().cfg }

// Rebase forgets what was learned and starts again from Initial: after a change of
// the dependency, say, that makes old latencies meaningless.
func (p *AdaptivePermits) Rebase() {
	p.mu.Lock()
	defer p.mu.Unlock()
	cfg := p.Config()
	p.set.Store(&adaptiveSettings{cfg, newEstimator(cfg.Min, cfg.Max, cfg.Initial, cfg.Initial)})
	p.guard = newGuard(cfg.Min, cfg.Max, max(cfg.Tolerance, 0))
	p.calls.Store(0)
	p.took.Store(0)
	p.busy.Store(0)
	p.pressed.Store(false)
	p.rebased.Add(1)
	p.counter.setLimit(cfg.Initial)
}

// observe notes how a call ended, and ends the period if it is time.
func (p *AdaptivePermits) observe(now time.Time, o policy.Outcome) {
	switch {
	case counts(o.Kind):
		p.calls.Add(1)
		p.took.Add(int64(o.Duration))
	case o.Kind == policy.Busy:
		p.busy.Add(1)
	}
	at, next := int64(now.Sub(p.base)), p.next.Load()
	if at < next || (p.calls.Load()+p.busy.Load() < periodCalls && at < next+int64(periodLongest-periodLength)) {
		return
	}
	if p.next.CompareAndSwap(next, at+int64(periodLength)) {
		p.judge()
	}
}

// judge ends a period.
func (p *AdaptivePermits) judge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	took, calls := p.took.Swap(0), p.calls.Swap(0)
	seen := period{calls: int(calls), busy: int(p.busy.Swap(0)), pressed: p.pressed.Swap(false), limit: p.set.Load().estimator.limit()}
	if calls > 0 {
		seen.mean = time.Duration(took / calls)
	}
	if p.guard.judge(seen) {
		p.rebased.Add(1)
	}
	if n := p.guard.limit(seen.limit); n != p.Limit() {
		p.counter.setLimit(n)
	}
}

// counts reports whether the duration of a call that ended like this says how fast
// the dependency is.
func counts(k policy.Kind) bool { return k.IsAnswer() || k == policy.Timeout }

var (
	_ policy.Policy      = Adaptive{}
	_ policy.Policy      = (*AdaptivePermits)(nil)
	_ policy.Gate        = (*AdaptivePermits)(nil)
	_ policy.Snapshotter = (*AdaptivePermits)(nil)
)

// BuildPolicy returns a part that shares these permits with every other pipeline that
// they are handed to. It never fails.
func (p *AdaptivePermits) BuildPolicy() (policy.Part, error) {
	cfg := p.config()
	return policy.Part{
		Kind: adaptiveKind, Name: cfg.Name, Gate: p, Place: policy.PlaceBulkhead,
		Waits: cfg.MaxWait > 0, Holds: true, Shadow: cfg.Shadow,
	}, nil
}

// Peek reports a refusal that is sure, like [Permits.Peek].
func (p *AdaptivePermits) Peek(a *policy.Attempt) error {
	cfg := p.config()
	err := p.counter.peek(bandOf(a.Call().Priority), cfg.MaxWait > 0, cfg.MaxWaiters, &p.door)
	if err != nil {
		p.pressed.Store(true)
	}
	return err
}

// Enter takes a permit for the attempt, like [Permits.Enter].
func (p *AdaptivePermits) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	b := bandOf(a.Call().Priority)
	if !p.counter.acquire(b) {
		p.pressed.Store(true)
		cfg := p.config()
		if cfg.MaxWait == 0 || a.NoWait() {
			return p.door.reject(policy.ReasonConcurrency, ErrFull)
		}
		err := p.counter.wait(ctx, b, cfg.MaxWait, cfg.MaxWaiters, &p.door)
		a.Waited()
		if err != nil {
			return err
		}
	}
	a.Slot(slot).Ref = p.set.Load().estimator.begin()
	return nil
}

// Leave gives the attempt's permit back, and learns from how the attempt ended.
func (p *AdaptivePermits) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	endEstimate(a.Slot(slot).Ref, counts(o.Kind))
	p.observe(a.Now(), o)
	p.counter.release()
}

// Snapshot returns the state as it is now; the time makes no difference to it.
func (p *AdaptivePermits) Snapshot(time.Time) policy.PolicySnapshot {
	cfg := p.config()
	b := p.counter.snapshot()
	b.MaxWaiters = cfg.MaxWaiters
	if cfg.MaxWait > 0 {
		b.Wait = latency(&p.door.wait)
	}
	b.MinLimit, b.MaxLimit, b.Rebased = cfg.Min, cfg.Max, p.rebased.Load()
	return policy.PolicySnapshot{
		Name: cfg.Name, Kind: adaptiveKind, Shadow: cfg.Shadow, Rejected: p.door.rejected(), Bulkhead: b,
	}
}
