package bulkhead

import (
	"fmt"

	"github.com/breakwater-go/breakwater/internal/reload"
	"github.com/breakwater-go/breakwater/policy"
)

// Reload implements [policy.Reloader]. Permits in flight and waiters stay; Limit, MaxWait,
// MaxWaiters and Shadow can change. Those who wait do so for as long as they were promised.
// Reserve cannot be changed in place.
func (p *Permits) Reload(next policy.Policy) (apply func(), err error) {
	cfg, ok := next.(Semaphore)
	if !ok {
		return nil, fmt.Errorf("it would become a %T", next)
	}
	cfg = cfg.withDefaults()
	cfg.Name = p.config().Name
	if err := reload.Fixed(*p.config(), cfg, "Limit", "MaxWait", "MaxWaiters", "Shadow"); err != nil {
		return nil, err
	}
	return func() {
		p.cfg.Store(&cfg)
		_ = p.SetLimit(cfg.Limit) // was checked when the part was built
	}, nil
}

// Reload implements [policy.Reloader]. What runs, and what is in the queue, stays. Workers
// can change; the others cannot be changed in place.
func (w *Workers) Reload(next policy.Policy) (apply func(), err error) {
	cfg, ok := next.(Pool)
	if !ok {
		return nil, fmt.Errorf("it would become a %T", next)
	}
	cfg = cfg.withDefaults()
	cfg.Name = w.cfg.Name
	if err := reload.Fixed(w.cfg, cfg, "Workers"); err != nil {
		return nil, err
	}
	return func() { _ = w.SetLimit(cfg.Workers) }, nil // was checked when the part was built
}
