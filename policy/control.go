package policy

import (
	"slices"
	"time"
)

// What a live policy offers to be changed by hand while it runs. A dashboard, or a
// command of an operator, reaches it through [Pipeline.Controls].

// A Commander is a breaker that takes commands. Each replaces the one before, takes a
// note of who gave it and why, and ends by itself after the given time, or, where that
// is not positive, with Release.
type Commander interface {
	ForceOpen(note string, length time.Duration)
	ForceClosed(note string, length time.Duration)
	Observe(note string, length time.Duration)
	Release(note string)
	Reset()
}

// A KeyedCommander is a breaker for each key.
type KeyedCommander interface {
	// Commander returns the breaker of a key, and false for a key that is not known.
	Commander(key string) (Commander, bool)
}

// A Tunable is a policy some of whose numbers can be changed while it runs.
type Tunable interface {
	// Settings lists the numbers that can be changed, as they are now.
	Settings() []Setting

	// Tune sets numbers by their names; the others stay. It sets all or none: what is
	// wrong is reported as joined [*ConfigError].
	Tune(values map[string]float64) error
}

// A Setting is a number of a [Tunable].
type Setting struct {
	Name  string  // of the field of the Config it comes from, such as "Limit"
	Value float64 // as it is now
	Least float64 // the smallest value allowed
	Most  float64 // the largest
	Whole bool    // only whole numbers are allowed
	Unit  string  // such as "per second"; empty for a plain number
}

// Control is what can be changed of one policy of a pipeline. A field is nil where the
// policy does not offer it.
type Control struct {
	Name, Kind string
	Shadow     bool // it only watches
	Gate       bool // Pipeline.SetShadow can change that

	Commander Commander
	Keyed     KeyedCommander
	Tunable   Tunable
}

// Controls lists what can be changed of each policy, outermost first.
func (p *Pipeline) Controls() []Control {
	if p == nil {
		return nil
	}
	var list []Control
	for _, part := range p.plan.Load().parts {
		c := Control{Name: part.Name, Kind: part.Kind, Shadow: part.Shadow, Gate: part.Gate != nil}
		var v any
		switch {
		case part.Gate != nil:
			v = part.Gate
		case part.Runner != nil:
			v = part.Runner
		case part.Retry != nil:
			v = part.Retry
		default:
			continue
		}
		c.Commander, _ = v.(Commander)
		c.Keyed, _ = v.(KeyedCommander)
		c.Tunable, _ = v.(Tunable)
		list = append(list, c)
	}
	return list
}

// SetShadow makes a gate watch only, or enforce what it decides, from the next attempt
// on; those that have entered leave as they entered. The gate keeps its state: tokens,
// permits in flight, what a breaker has counted. Refusals are counted apart for each of
// the two modes. A gate that is shared enforces for other pipelines as before. An
// unknown name, and that of a policy which is no gate, is a [*ConfigError].
func (p *Pipeline) SetShadow(policy string, shadow bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.plan.Load()
	i := slices.IndexFunc(old.gates, func(g planGate) bool { return g.name == policy })
	if i < 0 {
		return &ConfigError{Dependency: p.name, Policy: policy, Field: "Shadow", Value: shadow, Want: "want the name of a gate of this pipeline"}
	}
	if old.gates[i].shadow == shadow {
		return nil
	}
	pl := *old
	pl.gates, pl.parts = slices.Clone(old.gates), slices.Clone(old.parts)
	g := &pl.gates[i]
	g.shadow = shadow
	g.rejected, g.other = g.other, g.rejected
	pl.waits = false
	for j := range pl.parts {
		part := &pl.parts[j]
		if part.Gate != nil && part.Name == policy {
			part.Shadow = shadow
		}
		if part.Gate != nil || part.Runner != nil {
			pl.waits = pl.waits || part.Waits && !part.Shadow
		}
	}
	p.plan.Store(&pl)
	return nil
}
