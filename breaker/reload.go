package breaker

import (
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Reloader = (*Breaker)(nil)
	_ policy.Reloader = (*KeyedBreaker)(nil)
	_ policy.Reloader = (*Throttler)(nil)
)

// Reload implements [policy.Reloader]. The breaker keeps its state, with the time at which
// it ends, its probes in flight, the growth of its open time, and commands; from the next
// decision on the new settings hold. Its window stays, too, also in another shape: a
// longer one has not yet seen all that it could, a shorter one forgets at once. Only a
// window of time that becomes one of LastCalls, or the other way, begins empty.
// OnStateChange stays as it was.
func (b *Breaker) Reload(next policy.Policy) (apply func(), err error) {
	cfg, ok := next.(Config)
	if !ok {
		return nil, fmt.Errorf("breaker: it would become a %T", next)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.effective()
	return func() {
		old := b.config()
		cfg.Name, cfg.OnStateChange = old.Name, old.OnStateChange
		r := newRules(cfg)
		b.reload(&settings{&cfg, &r})
	}, nil
}

func (b *Breaker) reload(next *settings) {
	now := b.now()
	ns := b.nanos(now)
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	old, cfg := b.config(), next.cfg
	b.set.Store(next)
	b.m.rules = next.rules
	was := b.phase.Load()
	p := &phase{state: was.state, word: was.word, first: was.first, until: was.until, tally: was.tally, ramp: was.ramp}
	if p.tally != nil && (cfg.Window != old.Window || cfg.Buckets != old.Buckets || cfg.LastCalls != old.LastCalls || cfg.MinCalls != old.MinCalls) {
		p.tally = p.tally.refit(now, b.base, cfg, next.rules.minCalls)
	}
	b.showLocked(p)
}

// Reload implements [policy.Reloader]: the breaker of each key goes on as [Breaker.Reload]
// has it. Fewer MaxKeys forget the keys that were used least recently; a smaller
// MaxOpenShare closes nothing that is open. OnStateChange stays as it was.
func (k *KeyedBreaker) Reload(next policy.Policy) (apply func(), err error) {
	cfg, ok := next.(Keyed)
	if !ok {
		return nil, fmt.Errorf("breaker: it would become a %T", next)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.effective()
	return func() { k.reload(cfg) }, nil
}

func (k *KeyedBreaker) reload(cfg Keyed) {
	k.reloading.Lock()
	defer k.reloading.Unlock()
	old := k.set.Load()
	cfg.Name, cfg.OnStateChange = old.cfg.Name, old.cfg.OnStateChange
	set := newKeyedSettings(cfg)
	// Whoever is new from here on has the new settings; all who are not are in the table.
	k.set.Store(set)
	k.table.resize(cfg)
	for _, e := range k.table.all() {
		e.b.reload(set.one)
	}
}

// Reload implements [policy.Reloader]: everything can change, and the throttle goes on with
// what it has counted, also in a window of another shape.
func (t *Throttler) Reload(next policy.Policy) (apply func(), err error) {
	cfg, ok := next.(Throttle)
	if !ok {
		return nil, fmt.Errorf("breaker: it would become a %T", next)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.effective()
	return func() { t.reload(cfg) }, nil
}

func (t *Throttler) reload(cfg Throttle) {
	now := t.base.Add(time.Since(t.base))
	t.mu.Lock()
	old := t.set.Load()
	cfg.Name = old.cfg.Name
	win := old.win
	if cfg.Window != old.cfg.Window || cfg.Buckets != old.cfg.Buckets || cfg.MinCalls != old.cfg.MinCalls {
		win = old.win.Refit(now, cfg.Window, cfg.Buckets, uint64(cfg.MinCalls)) //nolint:gosec // validated
	}
	t.set.Store(newThrottleSettings(cfg, win))
	t.mu.Unlock()
	t.look(now)
}
