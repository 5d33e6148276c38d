package breaker

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// KeyedBreaker is a breaker for each key, see [Keyed]. Use [NewKeyed], or hand a [Keyed]
// to [policy.New]. It is safe for concurrent use, and may stand in several pipelines at
// once, which then share its state.
//
// Besides what a [Breaker] costs, a call pays for a hash of its key. It takes a lock
// that all keys share when its key is new, and about once in 1/64 of TTL or in MaxKeys/4
// new keys. There are no goroutines: keys that are not used leave when others are.
//
// A key costs about 1 KiB, and a cache line more for each processor.
type KeyedBreaker struct {
	base   time.Time
	set    atomic.Pointer[keyedSettings]
	subs   policy.Subscribers
	table  *keyTable
	create func(key string, ns int64) *Breaker

	reloading sync.Mutex // held while the settings are replaced, and for nothing else
}

// keyedSettings are replaced as a whole.
type keyedSettings struct {
	cfg Keyed // effective
	one *settings
}

func newKeyedSettings(cfg Keyed) *keyedSettings {
	s := &keyedSettings{cfg: cfg}
	r := newRules(cfg.Config)
	s.one = &settings{&s.cfg.Config, &r}
	return s
}

// owner is who a breaker answers to that is one of many.
type owner interface {
	// mayOpen reports whether the breaker may leave the states that let calls
	// through. If so, it does at once.
	mayOpen() bool

	// changed is told of each change, and whether a command is in force.
	changed(ch change, command bool)
}

// NewKeyed returns a keyed breaker that knows no key. An empty name is replaced by that
// of the Keyed, or "keyed_breaker". It returns all faults of the Keyed, as joined
// [*policy.ConfigError]. Later changes of cfg have no effect.
func NewKeyed(name string, cfg Keyed) (*KeyedBreaker, error) {
	return newKeyedAt(time.Now(), name, cfg)
}

func newKeyedAt(now time.Time, name string, cfg Keyed) (*KeyedBreaker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if name != "" {
		cfg.Name = name
	}
	cfg = cfg.effective()
	k := &KeyedBreaker{base: now, table: newKeyTable(cfg)}
	k.set.Store(newKeyedSettings(cfg))
	k.create = func(key string, ns int64) *Breaker {
		one := k.set.Load().one
		b := newBreaker(k.base, one.cfg, one.rules, &k.subs)
		b.key, b.m.since = key, ns
		return b
	}
	if fn := cfg.OnStateChange; fn != nil {
		k.subs.Subscribe(func(e policy.Event) {
			fn(StateChange{Name: cfg.Name, Time: e.Time, StateChange: e.Change})
		})
	}
	return k, nil
}

// Config returns the settings in effect, with every default filled in.
func (k *KeyedBreaker) Config() Keyed { return k.set.Load().cfg }

// Get returns the breaker of a key, which it makes if the key is new: for commands by
// hand, and for use without a pipeline. It must not be kept: a key that is forgotten
// gets another breaker when it comes again.
func (k *KeyedBreaker) Get(key string) *Breaker { return k.get(key, k.now()) }

func (k *KeyedBreaker) get(key string, now time.Time) *Breaker {
	return k.table.get(key, k.nanos(now), k.create).b
}

// Remove forgets a key, such as that of a host that was taken out of service, and
// reports whether it was known.
func (k *KeyedBreaker) Remove(key string) bool { return k.table.remove(key) }

// All returns the keys and the state of each at the given time: first those that are
// not closed, then the others, each by the time of their last use, roughly.
func (k *KeyedBreaker) All(now time.Time) iter.Seq2[string, policy.BreakerSnapshot] {
	return func(yield func(string, policy.BreakerSnapshot) bool) {
		for _, e := range k.table.all() {
			if !yield(e.key, e.b.snapshot(now)) {
				return
			}
		}
	}
}

// Subscribe implements [policy.Emitter]: fn is told of each change of state that
// follows, of every key, as [Config.OnStateChange] is. The returned function ends
// that.
func (k *KeyedBreaker) Subscribe(fn func(policy.Event)) (cancel func()) { return k.subs.Subscribe(fn) }

// BuildPolicy implements [policy.Policy]: all pipelines that are given the breakers
// share their state.
func (k *KeyedBreaker) BuildPolicy() (policy.Part, error) {
	cfg := k.Config()
	return policy.Part{
		Kind:     keyedKind,
		Name:     cfg.Name,
		Gate:     k,
		Place:    policy.PlaceBreaker,
		Shadow:   cfg.Shadow,
		Warnings: cfg.warnings(),
	}, nil
}

// Peek implements [policy.Gate].
func (k *KeyedBreaker) Peek(a *policy.Attempt) error {
	if e := k.table.find(a.Call().Key); e != nil {
		return e.b.Peek(a)
	}
	return nil
}

// Enter implements [policy.Gate]. Its refusals are those of [Breaker.Enter].
func (k *KeyedBreaker) Enter(ctx context.Context, a *policy.Attempt, slot int) error {
	b := k.get(a.Call().Key, a.Now())
	if err := b.Enter(ctx, a, slot); err != nil {
		return err
	}
	a.Slot(slot).Ref = b // the key may be forgotten meanwhile
	return nil
}

// Leave implements [policy.Gate].
func (k *KeyedBreaker) Leave(a *policy.Attempt, slot int, o policy.Outcome) {
	if b, ok := a.Slot(slot).Ref.(*Breaker); ok {
		b.Leave(a, slot, o)
	}
}

// Amend implements [policy.Amender].
func (k *KeyedBreaker) Amend(a *policy.Attempt, slot int, o policy.Outcome) {
	if e := k.table.find(a.Call().Key); e != nil {
		e.b.Amend(a, slot, o)
	}
}

// Recheck implements [policy.Rechecker], like [Breaker.Recheck].
func (k *KeyedBreaker) Recheck(a *policy.Attempt, slot int) error {
	if b, ok := a.Slot(slot).Ref.(*Breaker); ok {
		return b.Recheck(a, slot)
	}
	return nil
}

// badness orders the states for [KeyedBreaker.Snapshot].
var badness = map[string]int{
	ForcedOpen.String(): 5, Open.String(): 4, HalfOpen.String(): 3, Recovering.String(): 2, ForcedClosed.String(): 1,
}

// Snapshot implements [policy.Snapshotter]. Calls, Failures, Slow, ProbesInFlight and
// Share (as a mean) are those of all keys together. State, Since, Why and Note are of
// the key that is worst off, and of those the one that has been for longest; RetryAfter
// is the shortest among them. Keys that only watch are not among these. Generation rises
// with each change of any key.
func (k *KeyedBreaker) Snapshot(now time.Time) policy.PolicySnapshot {
	es := k.table.all()
	set := k.set.Load()
	rules := set.one.rules
	s := policy.BreakerSnapshot{
		State:                Closed.String(),
		Since:                k.base,
		Why:                  WhyStart,
		FailureThreshold:     rules.failureAt,
		SlowThreshold:        rules.slowAt,
		CountThreshold:       rules.count,
		ConsecutiveThreshold: rules.consecutive,
		MinCalls:             rules.minCalls,
		MaxProbes:            rules.probes,
		Share:                1,
		Keys:                 len(es),
		MaxKeys:              set.cfg.MaxKeys,
	}
	var shares float64
	var sum window.Counts
	for _, e := range es {
		one := e.b.snapshot(now)
		sum.Calls += one.Calls
		sum.Failures += one.Failures
		sum.Slow += one.Slow
		shares += one.Share
		s.Consecutive = max(s.Consecutive, one.Consecutive)
		s.ProbesInFlight += one.ProbesInFlight
		s.Spared += one.Spared
		switch one.State {
		case Open.String(), HalfOpen.String(), ForcedOpen.String():
			s.OpenKeys++
		}
		switch have, is := badness[s.State], badness[one.State]; {
		case one.Observing:
		case is > have:
			s.State, s.Since, s.Why, s.Note, s.RetryAfter = one.State, one.Since, one.Why, one.Note, one.RetryAfter
		case is == have && is > 0:
			if one.Since.Before(s.Since) {
				s.Since, s.Why, s.Note = one.Since, one.Why, one.Note
			}
			if one.RetryAfter > 0 && (s.RetryAfter == 0 || one.RetryAfter < s.RetryAfter) {
				s.RetryAfter = one.RetryAfter
			}
		}
	}
	if len(es) > 0 {
		s.Share = shares / float64(len(es))
	}
	s.Calls, s.Failures, s.Slow = sum.Calls, sum.Failures, sum.Slow
	s.FailureRatio, s.SlowRatio = share(sum.Failures, sum.Calls), share(sum.Slow, sum.Calls)
	t := k.table
	t.mu.Lock()
	defer t.mu.Unlock()
	s.MaxOpenKeys = t.maxOpenLocked()
	s.Generation, s.Opened = t.changes+1, t.opened
	s.Evicted, s.Capped = t.evicted, t.capped
	s.Spared += t.spared
	return policy.PolicySnapshot{Name: set.cfg.Name, Kind: keyedKind, Shadow: set.cfg.Shadow, Breaker: &s}
}

// now reads the clock, with its monotonic part.
func (k *KeyedBreaker) now() time.Time { return k.base.Add(time.Since(k.base)) }

// nanos returns the time since the birth of the whole, never negative.
func (k *KeyedBreaker) nanos(now time.Time) int64 { return max(int64(now.Sub(k.base)), 0) }
