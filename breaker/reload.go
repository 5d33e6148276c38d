package breaker

import (
	"fmt"

	"github.com/breakwater-go/breakwater/policy"
)

// Reload implements [policy.Reloader]. The breaker keeps its state, with the time at which
// it ends, its probes in flight, the growth of its open time, and commands; from the next
// decision on the new settings hold. Its window stays, too, unless Window, Buckets,
// LastCalls or MinCalls have changed: then it begins empty. OnStateChange stays as it was.
func (b *Breaker) Reload(next policy.Policy) (apply func(), err error) {
	cfg, ok := next.(Config)
	if !ok {
		return nil, fmt.Errorf("breaker: it would become a %T", next)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.effective()
	return func() { b.reload(cfg) }, nil
}

func (b *Breaker) reload(cfg Config) {
	r := newRules(cfg)
	ns := b.nanos(b.now())
	b.mu.Lock()
	defer b.unlock()
	b.tickLocked(ns)
	old := b.config()
	cfg.Name, cfg.OnStateChange = old.Name, old.OnStateChange
	b.set.Store(&settings{&cfg, &r})
	b.m.rules = &r
	was := b.phase.Load()
	p := &phase{state: was.state, word: was.word, first: was.first, until: was.until, tally: was.tally, ramp: was.ramp}
	if p.tally != nil && (cfg.Window != old.Window || cfg.Buckets != old.Buckets || cfg.LastCalls != old.LastCalls || cfg.MinCalls != old.MinCalls) {
		p.tally = newTally(b.base, &cfg, r.minCalls)
	}
	b.showLocked(p)
}
