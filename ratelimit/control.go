package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
)

var (
	_ policy.Tunable = (*Bucket)(nil)
	_ policy.Tunable = (*Pace)(nil)
	_ policy.Tunable = (*Ramp)(nil)
	_ policy.Tunable = (*Window)(nil)
	_ policy.Tunable = (*Sliding)(nil)
	_ policy.Tunable = (*Buckets)(nil)
	_ policy.Tunable = (*Governor)(nil)
	_ policy.Tunable = (*LaneSet)(nil)
	_ policy.Tunable = (*Bundle)(nil)
)

// leastRate is the lowest rate that is set by hand, in tokens per second: about three
// a year.
const leastRate = 1e-7

func rateSetting(name string, r Rate) policy.Setting {
	return policy.Setting{Name: name, Value: r.perSecond(), Least: leastRate, Most: maxBurst, Unit: "per second"}
}

func countSetting(name string, n int, unit string) policy.Setting {
	return policy.Setting{Name: name, Value: float64(n), Least: 1, Most: maxBurst, Whole: true, Unit: unit}
}

// atRate returns r with another number of tokens per second, over the same time.
func atRate(r Rate, perSecond float64) Rate {
	if r.perSecond() == perSecond {
		return r
	}
	return Rate{Tokens: perSecond * r.Per.Seconds(), Per: r.Per}
}

// tuned checks values against the settings there are and fills in the others, so that
// one that is wrong changes nothing.
func tuned(policyName string, settings []policy.Setting, values map[string]float64) (map[string]float64, error) {
	all := make(map[string]float64, len(settings))
	var names []string
	for _, s := range settings {
		all[s.Name] = s.Value
		names = append(names, s.Name)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		i := slices.Index(names, name)
		if i < 0 {
			errs = append(errs, &policy.ConfigError{Policy: policyName, Field: name, Value: v, Want: "want one of " + strings.Join(names, ", ")})
			continue
		}
		s := settings[i]
		switch {
		case v == s.Value: // as it is, also an infinite rate
		case !(v >= s.Least && v <= s.Most): // written so that NaN fails
			errs = append(errs, &policy.ConfigError{Policy: policyName, Field: name, Value: v, Want: fmt.Sprintf("want %g to %g", s.Least, s.Most)})
		case s.Whole && v != math.Trunc(v):
			errs = append(errs, &policy.ConfigError{Policy: policyName, Field: name, Value: v, Want: "want a whole number"})
		}
		all[name] = v
	}
	return all, errors.Join(errs...)
}

// tuneLimit is Tune for a limit of a rate and a burst.
func tuneLimit(policyName string, settings []policy.Setting, r Rate, values map[string]float64, set func(Rate, int) error) error {
	all, err := tuned(policyName, settings, values)
	if err != nil || len(values) == 0 {
		return err
	}
	if _, ok := values["Rate"]; ok {
		r = atRate(r, all["Rate"])
	}
	return set(r, int(all["Burst"]))
}

// Settings implements [policy.Tunable]: Rate and Burst can be changed.
func (b *Bucket) Settings() []policy.Setting {
	c := b.Config()
	return []policy.Setting{rateSetting("Rate", c.Rate), countSetting("Burst", c.Burst, "tokens")}
}

// Tune implements [policy.Tunable], by [Bucket.SetLimit].
func (b *Bucket) Tune(values map[string]float64) error {
	return tuneLimit(b.name, b.Settings(), b.Config().Rate, values, b.SetLimit)
}

// Settings implements [policy.Tunable]: Rate and Burst can be changed.
func (p *Pace) Settings() []policy.Setting {
	c := p.Config()
	return []policy.Setting{rateSetting("Rate", c.Rate), countSetting("Burst", c.Burst, "calls")}
}

// Tune implements [policy.Tunable], by [Pace.SetLimit].
func (p *Pace) Tune(values map[string]float64) error {
	c := p.Config()
	return tuneLimit(c.Name, p.Settings(), c.Rate, values, p.SetLimit)
}

// Settings implements [policy.Tunable]: Rate and Burst can be changed.
func (r *Ramp) Settings() []policy.Setting {
	c := r.Config()
	return []policy.Setting{rateSetting("Rate", c.Rate), countSetting("Burst", c.Burst, "calls")}
}

// Tune implements [policy.Tunable], by [Ramp.SetLimit].
func (r *Ramp) Tune(values map[string]float64) error {
	c := r.Config()
	return tuneLimit(c.Name, r.Settings(), c.Rate, values, r.SetLimit)
}

// Settings implements [policy.Tunable]: Rate and Burst of the keys that have no limit
// of their own can be changed.
func (b *Buckets) Settings() []policy.Setting {
	l := b.limit.Load()
	return []policy.Setting{rateSetting("Rate", l.Rate), countSetting("Burst", l.Burst, "tokens")}
}

// Tune implements [policy.Tunable], by [Buckets.SetLimit].
func (b *Buckets) Tune(values map[string]float64) error {
	return tuneLimit(b.name, b.Settings(), b.limit.Load().Rate, values, b.SetLimit)
}

// Settings implements [policy.Tunable]: the Limit can be changed.
func (w *Window) Settings() []policy.Setting {
	c := w.Config()
	return []policy.Setting{countSetting("Limit", c.Limit, "calls in "+c.Window.String())}
}

// Tune implements [policy.Tunable], by [Window.SetLimit].
func (w *Window) Tune(values map[string]float64) error {
	c := w.Config()
	all, err := tuned(c.Name, w.Settings(), values)
	if err != nil || len(values) == 0 {
		return err
	}
	return w.SetLimit(int(all["Limit"]), c.Window)
}

// Settings implements [policy.Tunable]: the Limit can be changed.
func (s *Sliding) Settings() []policy.Setting {
	return []policy.Setting{slidingSetting("Limit", s.Config())}
}

func slidingSetting(name string, c SlidingWindow) policy.Setting {
	set := countSetting(name, c.Limit, "calls in "+c.Window.String())
	if !c.Approximate {
		set.Most = maxLog
	}
	return set
}

// Tune implements [policy.Tunable], by [Sliding.SetLimit].
func (s *Sliding) Tune(values map[string]float64) error {
	c := s.Config()
	all, err := tuned(c.Name, s.Settings(), values)
	if err != nil || len(values) == 0 {
		return err
	}
	return s.SetLimit(int(all["Limit"]), c.Window)
}

// Settings implements [policy.Tunable]: Floor and Ceiling can be changed.
func (g *Governor) Settings() []policy.Setting {
	c := g.Config()
	return []policy.Setting{rateSetting("Floor", c.Floor), rateSetting("Ceiling", c.Ceiling)}
}

// Tune implements [policy.Tunable], by [Governor.SetRange].
func (g *Governor) Tune(values map[string]float64) error {
	c := g.Config()
	all, err := tuned(c.Name, g.Settings(), values)
	if err != nil || len(values) == 0 {
		return err
	}
	return g.SetRange(atRate(c.Floor, all["Floor"]), atRate(c.Ceiling, all["Ceiling"]))
}

// Settings implements [policy.Tunable]: Rate and Burst of each lane can be changed, as
// "realtime.Rate", and the limit over all of them, if there is one, as "Total.Limit".
func (s *LaneSet) Settings() []policy.Setting {
	c := s.Config()
	var list []policy.Setting
	for _, l := range c.Lanes {
		list = append(list, rateSetting(l.Name+".Rate", l.Rate), countSetting(l.Name+".Burst", l.Burst, "tokens"))
	}
	if c.Total.Limit > 0 {
		list = append(list, slidingSetting("Total.Limit", c.Total))
	}
	return list
}

// Tune implements [policy.Tunable], by [Lane.SetLimit] and [LaneSet.SetTotal].
func (s *LaneSet) Tune(values map[string]float64) error {
	c := s.Config()
	all, err := tuned(c.Name, s.Settings(), values)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range c.Lanes {
		_, rate := values[l.Name+".Rate"]
		if _, burst := values[l.Name+".Burst"]; rate || burst {
			errs = append(errs, s.Lane(l.Name).SetLimit(atRate(l.Rate, all[l.Name+".Rate"]), int(all[l.Name+".Burst"])))
		}
	}
	if limit, ok := values["Total.Limit"]; ok {
		errs = append(errs, s.SetTotal(int(limit), c.Total.Window))
	}
	return errors.Join(errs...)
}

// Settings implements [policy.Tunable]: what can be changed of each limit, by its name,
// as "account.Rate".
func (b *Bundle) Settings() []policy.Setting {
	var list []policy.Setting
	for i := range b.parts {
		t, ok := b.parts[i].member.(policy.Tunable)
		if !ok {
			continue
		}
		for _, s := range t.Settings() {
			s.Name = b.parts[i].limited.Part + "." + s.Name
			list = append(list, s)
		}
	}
	return list
}

// Tune implements [policy.Tunable], by the limits' own.
func (b *Bundle) Tune(values map[string]float64) error {
	if _, err := tuned(b.cfg.Name, b.Settings(), values); err != nil {
		return err
	}
	var errs []error
	for i := range b.parts {
		t, ok := b.parts[i].member.(policy.Tunable)
		if !ok {
			continue
		}
		own := map[string]float64{}
		for name, v := range values {
			if rest, ok := strings.CutPrefix(name, b.parts[i].limited.Part+"."); ok {
				own[rest] = v
			}
		}
		if len(own) > 0 {
			errs = append(errs, t.Tune(own))
		}
	}
	return errors.Join(errs...)
}
