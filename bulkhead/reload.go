package bulkhead

import (
	"fmt"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Reloader = (*Permits)(nil)
	_ policy.Reloader = (*Workers)(nil)
	_ policy.Reloader = (*AdaptivePermits)(nil)
)

// become returns next as a valid configuration of the kind that a live policy was made of.
func become[C interface {
	policy.Policy
	Validate() error
}](next policy.Policy) (cfg C, err error) {
	cfg, ok := next.(C)
	if !ok {
		return cfg, fmt.Errorf("it would become a %T", next)
	}
	return cfg, cfg.Validate()
}

// Reload implements [policy.Reloader]: everything can change. Permits in flight and waiters
// stay, and those who wait do so for as long as they were promised. A larger Reserve takes
// no permit from an ordinary call that has one.
func (p *Permits) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := become[Semaphore](next)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return func() {
		p.tuning.Lock()
		defer p.tuning.Unlock()
		cfg.Name = p.config().Name
		p.cfg.Store(&cfg)
		p.counter.resize(cfg.Limit, cfg.Reserve)
	}, nil
}

// Reload implements [policy.Reloader]: everything can change. What runs, and what is in the
// queue, stays: also what a shorter queue would have had no place for. Those who wait do so
// for as long as they were promised, unless CoDel sheds them.
func (w *Workers) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := become[Pool](next)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		cfg.Name = w.config().Name
		w.cfg.Store(&cfg)
		w.standing.cfg = cfg.CoDel
		w.setLimitLocked(cfg.Workers)
		if w.reaping && w.reaper.Stop() { // by the new time
			w.reaping = false
		}
		w.reapLaterLocked()
	}, nil
}

// Reload implements [policy.Reloader]: everything can change. The limit stays where it is,
// as far as the new bounds allow, and so does the latency without contention that it is
// judged by; with other bounds the trend of the last seconds is learned anew. Permits in
// flight and waiters stay.
func (p *AdaptivePermits) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := become[Adaptive](next)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return func() { p.reload(cfg) }, nil
}

func (p *AdaptivePermits) reload(cfg Adaptive) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.set.Load()
	cfg.Name = old.cfg.Name
	set := &adaptiveSettings{cfg, old.estimator}
	limit := min(max(p.Limit(), cfg.Min), cfg.Max)
	if cfg.Min != old.cfg.Min || cfg.Max != old.cfg.Max || cfg.Initial != old.cfg.Initial {
		set.estimator = newEstimator(cfg.Min, cfg.Max, limit, cfg.Initial)
	}
	p.set.Store(set)
	p.guard.resize(cfg.Min, cfg.Max, max(cfg.Tolerance, 0))
	p.counter.resize(limit, cfg.Reserve)
}
