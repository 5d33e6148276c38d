package ratelimit

import (
	"errors"
	"fmt"

	"github.com/breakwater-go/breakwater/internal/reload"
	"github.com/breakwater-go/breakwater/policy"
)

// What every limiter does when it gets new settings: what was taken stays taken, so that
// no change grants anything, and what is there stays, cut to a smaller burst. What was
// checked when the part was built cannot fail when it is applied.

var (
	_ policy.Reloader = (*Bucket)(nil)
	_ policy.Reloader = (*Pace)(nil)
	_ policy.Reloader = (*Ramp)(nil)
	_ policy.Reloader = (*Window)(nil)
	_ policy.Reloader = (*Sliding)(nil)
	_ policy.Reloader = (*Buckets)(nil)
	_ policy.Reloader = (*Governor)(nil)
	_ policy.Reloader = (*Shedder)(nil)
	_ policy.Reloader = (*LaneSet)(nil)
	_ policy.Reloader = (*Bundle)(nil)
)

// become returns next as the configuration of the kind that a limiter was made of.
func become[C any](next policy.Policy) (C, error) {
	cfg, ok := next.(C)
	if !ok {
		return cfg, fmt.Errorf("it would become a %T", next)
	}
	return cfg, nil
}

// effective is become for a valid configuration, with its defaults filled in.
func effective[C interface {
	Validate() error
	withDefaults() C
}](next policy.Policy) (C, error) {
	cfg, err := become[C](next)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return cfg, err
	}
	return cfg.withDefaults(), nil
}

// Reload implements [policy.Reloader]: everything can change, and the tokens stay. Initial
// has no effect.
func (b *Bucket) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := effective[TokenBucket](next)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = b.SetLimit(cfg.Rate, cfg.Burst)
		b.maxWaiters.Store(int64(cfg.MaxWaiters))
	}, nil
}

// Reload implements [policy.Reloader]: everything can change, and what was let in stays
// counted.
func (p *Pace) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := effective[Pacer](next)
	if err != nil {
		return nil, err
	}
	return func() {
		p.bound(cfg.MaxWait, cfg.MaxWaiters)
		_ = p.SetLimit(cfg.Rate, cfg.Burst)
	}, nil
}

// Reload implements [policy.Reloader]: everything can change but ColdFactor, Period and
// Pacing, and it stays as warm as it is.
func (r *Ramp) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := effective[WarmUp](next)
	if err != nil {
		return nil, err
	}
	if err := reload.Fixed(r.Config(), cfg, "Name", "Shadow", "Rate", "Burst", "MaxWait", "MaxWaiters"); err != nil {
		return nil, fmt.Errorf("%w: how warm it is means something else then", err)
	}
	return func() {
		r.bound(cfg.MaxWait, cfg.MaxWaiters)
		_ = r.SetLimit(cfg.Rate, cfg.Burst)
	}, nil
}

// Reload implements [policy.Reloader]: everything can change, and what the window holds
// stays.
func (w *Window) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := effective[FixedWindow](next)
	if err != nil {
		return nil, err
	}
	return func() {
		w.bound(cfg.MaxWait, cfg.MaxWaiters)
		_ = w.SetLimit(cfg.Limit, cfg.Window)
	}, nil
}

// Reload implements [policy.Reloader]: everything can change but Approximate, and what the
// window holds stays.
func (s *Sliding) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := effective[SlidingWindow](next)
	if err != nil {
		return nil, err
	}
	if err := reload.Fixed(s.Config(), cfg, "Name", "Shadow", "Limit", "Window", "MaxWait", "MaxWaiters"); err != nil {
		return nil, fmt.Errorf("%w: a counter does not know when each call was", err)
	}
	return func() {
		s.bound(cfg.MaxWait, cfg.MaxWaiters)
		_ = s.SetLimit(cfg.Limit, cfg.Window)
	}, nil
}

// Reload implements [policy.Reloader]: everything can change, and every key keeps its
// balance. What is no exception any more gets the limit of all. Of more keys than MaxKeys
// allows now none is forgotten before its time; until enough have been, new ones share the
// Overflow.
func (b *Buckets) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := become[Keyed](next)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return nil, err
	}
	follows := cfg.Overflow == (Limit{})
	cfg = cfg.withDefaults()
	return func() {
		now := b.Config()
		b.max.Store(int64(cfg.MaxKeys))
		b.ttl.Store(int64(cfg.TTL))
		b.lobby.bound(cfg.MaxWait, cfg.MaxWaiters)
		_ = b.SetLimit(cfg.Rate, cfg.Burst)
		_ = b.overflow.SetLimit(cfg.Overflow.Rate, cfg.Overflow.Burst)
		b.follows.Store(follows)
		for key, l := range cfg.Exceptions {
			if l != now.Exceptions[key] {
				_ = b.SetException(key, l)
			}
		}
		for key := range now.Exceptions {
			if _, ok := cfg.Exceptions[key]; !ok {
				b.RemoveException(key)
			}
		}
	}, nil
}

// Reload implements [policy.Reloader]: everything can change, and the rate stays where it is
// between Ceiling and Floor. With another Decrease, Recovery or RecoverIn it goes on rising
// from there.
func (g *Governor) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := become[Feedback](next)
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return nil, err
	}
	given := cfg.Floor
	cfg = cfg.withDefaults()
	return func() {
		defer g.lobby.look()
		g.lobby.bound(cfg.MaxWait, cfg.MaxWaiters)
		g.mu.Lock()
		defer g.mu.Unlock()
		cfg.Name = g.cfg.Name
		at := g.bucket.now()
		if now := newCurve(g.cfg); now.reshaped(newCurve(cfg)) {
			g.curve = g.curve.reshape(newCurve(cfg), at, g.drain)
		}
		g.given = given
		g.setRangeLocked(at, cfg)
	}, nil
}

// Reload implements [policy.Reloader]: everything can change. Calls in flight stay counted,
// and so does what is known of the load; another Window holds from the next fiftieth of the
// present one on. A shedding that goes on ends by the CoolDown with which it was seen last.
func (s *Shedder) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := effective[System](next)
	if err != nil {
		return nil, err
	}
	return func() {
		s.reloading.Lock()
		defer s.reloading.Unlock()
		old := s.set.Load()
		cfg.Name = old.cfg.Name
		s.set.Store(s.settings(cfg, old))
		s.load.resize(cfg.Window)
		if at := s.nextSample.Load() - int64(old.cfg.Sample) + int64(cfg.Sample); cfg.Sample < old.cfg.Sample {
			s.nextSample.Store(at)
		}
	}, nil
}

// Reload implements [policy.Reloader]: the rates, bursts and waits of the lanes and the limit
// over all can change. Lanes cannot come or go in place, and neither can what they lend and
// yield to each other.
func (s *LaneSet) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := become[Lanes](next)
	if err != nil {
		return nil, err
	}
	fresh, err := NewLaneSet("", cfg) // for the defaults
	if err != nil {
		return nil, err
	}
	now, cfg := s.Config(), fresh.Config()
	if len(now.Lanes) != len(cfg.Lanes) || (now.Total.Limit == 0) != (cfg.Total.Limit == 0) {
		return nil, errors.New("lanes, and a limit over all, cannot come or go in place: nobody can say whose the tokens in between are")
	}
	for i := range now.Lanes {
		if err := reload.Fixed(now.Lanes[i], cfg.Lanes[i], "Rate", "Burst", "Initial", "MaxWait", "MaxWaiters"); err != nil {
			return nil, fmt.Errorf("lane %s: %w", now.Lanes[i].Name, err)
		}
	}
	if err := reload.Fixed(now.Total, cfg.Total, "Limit", "Window"); err != nil {
		return nil, fmt.Errorf("the limit over all: %w", err)
	}
	return func() {
		for i, lane := range cfg.Lanes {
			s.lanes[i].maxWait.Store(int64(lane.MaxWait))
			s.lanes[i].maxWaiters.Store(int64(lane.MaxWaiters))
			_ = s.lanes[i].SetLimit(lane.Rate, lane.Burst)
		}
		if cfg.Total.Limit > 0 {
			_ = s.SetTotal(cfg.Total.Limit, cfg.Total.Window)
		}
	}, nil
}

// Reload implements [policy.Reloader]: each of the limits goes on as it does by itself, and
// the waits can change. Limits cannot come or go in place.
func (b *Bundle) Reload(next policy.Policy) (apply func(), err error) {
	cfg, err := become[All](next)
	if err != nil {
		return nil, err
	}
	parts, err := cfg.build()
	if err != nil {
		return nil, err
	}
	eff := cfg.withDefaults(parts)
	if err := reload.Fixed(b.cfg, eff, "Name", "Shadow", "Limits", "MaxWait", "MaxWaiters"); err != nil {
		return nil, err
	}
	if len(parts) != len(b.parts) {
		return nil, errors.New("limits cannot come or go in place: nobody can say whose the tokens in between are")
	}
	var applies []func()
	for i := range parts {
		m, ok := parts[i].Gate.(member)
		if !ok || m.title() != b.parts[i].title() {
			return nil, errors.New("limits cannot come or go in place: nobody can say whose the tokens in between are")
		}
		if parts[i].Gate == b.parts[i].member.(policy.Gate) {
			continue
		}
		r, ok := b.parts[i].member.(policy.Reloader)
		if !ok {
			return nil, fmt.Errorf("%s cannot be changed in place", m.title())
		}
		one, err := r.Reload(cfg.Limits[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.title(), err)
		}
		applies = append(applies, one)
	}
	return func() {
		b.lobby.bound(eff.MaxWait, eff.MaxWaiters)
		for _, one := range applies {
			one()
		}
	}, nil
}
