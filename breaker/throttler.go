package breaker

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/draw"
	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// Throttler refuses a share of the calls, see [Throttle]. Use [NewThrottle], or hand a
// [Throttle] to [policy.New]. It is safe for concurrent use, and may stand in several
// pipelines at once, which then share what it has counted.
//
// While every call of low priority is let through, a call that is accepted takes no
// lock but for the first in each bucket of the window. While some are refused, each
// takes one for a moment, as does a call that is not accepted.
type Throttler struct {
	base   time.Time
	chance func() float64                   // in [0, 1)
	set    atomic.Pointer[throttleSettings] // replaced as a whole, under mu

	// What calls read: the probability of a refusal for each priority, as bits of a
	// float64, and the time from which calls have left the window since.
	reject [priorities]atomic.Uint64
	stale  atomic.Int64

	_ [64]byte // keeps what is written often off the line of what is read always

	mu     sync.Mutex // held while the above is computed
	since  time.Time  // when it began to refuse normal calls, or ended
	flips  uint64     // how often that has changed
	opened uint64
}

// throttleSettings are the settings of a throttle, and what follows from them.
type throttleSettings struct {
	cfg   Throttle // effective
	ks    [priorities]float64
	win   *window.Window // Failures are requests that were not accepted
	width int64          // of a bucket, in nanoseconds
}

func newThrottleSettings(cfg Throttle, win *window.Window) *throttleSettings {
	s := &throttleSettings{cfg: cfg, win: win, width: int64(cfg.Window) / int64(cfg.Buckets)}
	for i, factor := range [priorities]float64{0.5, 1, 2, 4} {
		s.ks[i] = 1 + (cfg.K-1)*factor
	}
	return s
}

// priorities is the number of values of [policy.Priority].
const priorities = int(policy.PriorityCritical-policy.PriorityLow) + 1

// NewThrottle returns a throttle that has counted nothing. An empty name is replaced by
// that of the Throttle, or "throttle". It returns all faults of the Throttle, as joined
// [*policy.ConfigError]. Later changes of cfg have no effect.
func NewThrottle(name string, cfg Throttle) (*Throttler, error) {
	return newThrottleAt(time.Now(), name, cfg)
}

func newThrottleAt(now time.Time, name string, cfg Throttle) (*Throttler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.effective()
	t := &Throttler{base: now, since: now, chance: draw.Float64}
	win := window.New(now, cfg.Window, cfg.Buckets).Watch(uint64(cfg.MinCalls)) //nolint:gosec // validated
	t.set.Store(newThrottleSettings(cfg, win))
	t.stale.Store(forever) // there is nothing to leave the window
	return t, nil
}

// Config returns the settings in effect, with every default filled in.
func (t *Throttler) Config() Throttle { return t.set.Load().cfg }

// BuildPolicy implements [policy.Policy]: all pipelines that are given the throttle
// share what it has counted.
func (t *Throttler) BuildPolicy() (policy.Part, error) {
	cfg := t.Config()
	return policy.Part{
		Kind:     throttleKind,
		Name:     cfg.Name,
		Gate:     t,
		Place:    policy.PlaceBreaker,
		Shadow:   cfg.Shadow,
		Warnings: cfg.warnings(),
	}, nil
}

// Peek implements [policy.Gate]. What is left to chance cannot be foretold.
func (t *Throttler) Peek(*policy.Attempt) error { return nil }

// Enter implements [policy.Gate]. It does not wait. A refusal is a
// [*policy.RejectedError] with [ErrThrottled] and the reason [policy.ReasonThrottle]; it
// has no RetryAfter, for the next call may be let through.
func (t *Throttler) Enter(_ context.Context, a *policy.Attempt, _ int) error {
	if t.enter(a.Now(), a.Call().Priority) {
		return nil
	}
	return &policy.RejectedError{Policy: throttleKind, Reason: policy.ReasonThrottle, Err: ErrThrottled}
}

// Leave implements [policy.Gate].
func (t *Throttler) Leave(a *policy.Attempt, _ int, o policy.Outcome) {
	t.leave(a.Stripe(), a.Now(), o)
}

// Amend implements [policy.Amender].
func (t *Throttler) Amend(a *policy.Attempt, _ int, o policy.Outcome) {
	if o.Kind.IsFailure() {
		t.set.Load().win.Amend(a.Now())
		t.look(a.Now())
	}
}

// enter reports whether a call is let through.
func (t *Throttler) enter(now time.Time, p policy.Priority) bool {
	if t.nanos(now) >= t.stale.Load() {
		t.look(now)
	}
	i := min(max(int(p-policy.PriorityLow), 0), priorities-1)
	chance := math.Float64frombits(t.reject[i].Load())
	if chance == 0 || t.chance() >= chance {
		return true
	}
	if set := t.set.Load(); !set.cfg.IgnoreRefusals {
		set.win.Record(now, window.Counts{Calls: 1, Failures: 1})
		t.look(now)
	}
	return false
}

// leave counts a call that enter has let through.
func (t *Throttler) leave(stripe uint32, now time.Time, o policy.Outcome) {
	switch {
	case o.Kind.IsAnswer():
		// An accepted request changes a probability that is not zero, of which that
		// of the lowest priority is the largest; or it is the one with which the
		// window holds enough of them.
		if t.set.Load().win.Add(now, stripe) || t.reject[0].Load() != 0 {
			t.look(now)
		}
	case o.Kind.IsFailure() || o.Kind == policy.Throttled:
		t.set.Load().win.Record(now, window.Counts{Calls: 1, Failures: 1})
		t.look(now)
	}
}

// look computes the probabilities anew.
func (t *Throttler) look(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.set.Load()
	c := set.win.Counts(now)
	for i := range t.reject {
		t.reject[i].Store(math.Float64bits(set.rejection(c, i)))
	}
	stale := int64(forever)
	if bucket := t.nanos(now) / set.width; c.Failures > 0 && bucket < forever/set.width {
		stale = (bucket + 1) * set.width
	}
	t.stale.Store(stale)
	if rejects := t.reject[normal].Load() != 0; rejects != (t.flips%2 == 1) {
		t.flips++
		t.since = now
		if rejects {
			t.opened++
		}
	}
}

const normal = int(policy.PriorityNormal - policy.PriorityLow)

// rejection returns the probability with which a call of the ith priority is refused.
func (s *throttleSettings) rejection(c window.Counts, i int) float64 {
	if c.Calls < uint64(s.cfg.MinCalls) { //nolint:gosec // validated
		return 0
	}
	requests, accepts := float64(c.Calls), float64(c.Calls-c.Failures)
	return min(max((requests-s.ks[i]*accepts)/(requests+1), 0), s.cfg.MaxRejection)
}

// nanos returns the time since the throttle's birth, never negative.
func (t *Throttler) nanos(now time.Time) int64 { return max(int64(now.Sub(t.base)), 0) }

// Snapshot implements [policy.Snapshotter]. Calls are the requests in the window and
// Failures those that were not accepted; Share and State are those of calls of normal
// priority, as they are at the time that is asked about. Since and Generation are what
// the last call has found.
func (t *Throttler) Snapshot(now time.Time) policy.PolicySnapshot {
	t.mu.Lock()
	since, flips, opened := t.since, t.flips, t.opened
	t.mu.Unlock()
	set := t.set.Load()
	cfg, c := &set.cfg, set.win.Counts(now)
	rejection := set.rejection(c, normal)
	s := &policy.BreakerSnapshot{
		State:            Closed.String(),
		Since:            since,
		Generation:       flips + 1,
		Share:            1 - rejection,
		Calls:            c.Calls,
		Failures:         c.Failures,
		FailureRatio:     share(c.Failures, c.Calls),
		FailureThreshold: 1 - 1/cfg.K,
		MinCalls:         uint64(cfg.MinCalls), //nolint:gosec // validated
		Opened:           opened,
	}
	switch {
	case rejection > 0:
		s.State, s.Why = throttling, WhyThrottled
	case flips > 0:
		s.Why = WhyAccepted
	default:
		s.Why = WhyStart
	}
	return policy.PolicySnapshot{Name: cfg.Name, Kind: throttleKind, Shadow: cfg.Shadow, Breaker: s}
}
