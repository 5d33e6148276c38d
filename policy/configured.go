package policy

import (
	"slices"
	"strconv"
	"time"
)

// ConfigSnapshot says which configuration a [Registry] runs, if it was told.
type ConfigSnapshot struct {
	Version   uint64    // of the configuration in force: 1 for the first that was applied; 0 while there is none
	Name      string    // what whoever loads configurations calls it, such as a revision; no label for metrics
	Since     time.Time // when it was applied
	Applied   uint64    // configurations that took effect
	Refused   uint64    // configurations that did not: they were invalid, or could not be read
	LastError error     // of the last one that was loaded, if it was refused
	RefusedAt time.Time // when it was
}

// configState is what a registry knows of its configurations, under its lock.
type configState struct{ snap ConfigSnapshot }

// ConfigApplied tells the registry that a configuration has taken effect, for
// [Registry.Config] and for its observers ([EventConfig]). It changes nothing by itself:
// it is called by whoever loads configurations.
func (r *Registry) ConfigApplied(name string) { r.applied(name, "applied") }

func (r *Registry) applied(name, why string) {
	now := time.Now()
	r.mu.Lock()
	c := &r.config.snap
	from := c.Version
	c.Version, c.Name, c.Since = from+1, name, now
	c.Applied++
	if why == "applied" {
		c.LastError, c.RefusedAt = nil, time.Time{}
	}
	observers := slices.Clone(r.observers)
	r.mu.Unlock()
	tell(observers, Event{Kind: EventConfig, Time: now, Change: configChange(from, from+1, why, name)})
}

// ConfigAdjusted tells the registry that the configuration in force is another one, though
// none was loaded: something was set by hand, say. It counts as applied, and what is wrong
// with what was loaded last is wrong still.
func (r *Registry) ConfigAdjusted(name string) { r.applied(name, "adjusted") }

// ConfigRefused tells the registry that a configuration was not applied, and why; the
// one before it stays in force.
func (r *Registry) ConfigRefused(name string, err error) {
	now := time.Now()
	r.mu.Lock()
	c := &r.config.snap
	c.Refused++
	c.LastError, c.RefusedAt = err, now
	version := c.Version
	observers := slices.Clone(r.observers)
	r.mu.Unlock()
	tell(observers, Event{Kind: EventConfig, Time: now, Err: err, Change: configChange(version, version, "refused", name)})
}

// Config says which configuration the registry runs.
func (r *Registry) Config() ConfigSnapshot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.config.snap
}

func configChange(from, to uint64, why, name string) StateChange {
	return StateChange{
		From: strconv.FormatUint(from, 10), To: strconv.FormatUint(to, 10), Why: why, Note: name, Generation: to,
	}
}

func tell(observers []Observer, e Event) {
	for _, o := range observers {
		notify(o.OnEvent, e)
	}
}
