package policy

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Registry holds the pipelines of a process, one per dependency. The zero value is
// ready to use. All methods are safe for concurrent use.
type Registry struct {
	mu        sync.RWMutex
	pipelines map[string]*Pipeline
	common    []Policy
	watchers  map[*registryWatch]struct{}
	derived   []bool // which numbers derived pipelines have, from 1
	closed    bool

	config    configState
	observers []Observer // of the registry itself, from Use
}

// ErrDuplicate reports a second pipeline under one name.
var ErrDuplicate = errors.New("policy: the registry has a pipeline of this name already")

// Use adds policies, such as observers and tracers, to every pipeline that New
// builds from now on. Observers among them are also told of what concerns the registry
// itself: [EventConfig].
func (r *Registry) Use(policies ...Policy) {
	var observers []Observer
	for _, pol := range policies {
		if isNil(pol) == "" {
			if part, err := pol.BuildPolicy(); err == nil && part.Observer != nil {
				observers = append(observers, part.Observer)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.common = append(r.common, policies...)
	r.observers = append(r.observers, observers...)
}

// New builds a pipeline like the function [New] and keeps it under its name. A name
// that is taken is an error that matches [ErrDuplicate]: two sets of policies for
// one dependency would each see half of its calls.
func (r *Registry) New(name string, policies ...Policy) (*Pipeline, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("%s: %w", name, ErrClosed)
	}
	if _, ok := r.pipelines[name]; ok {
		return nil, fmt.Errorf("%s: %w", name, ErrDuplicate)
	}
	p, err := New(name, slices.Concat(policies, r.common)...)
	if err != nil {
		return nil, err
	}
	if p.derived > 0 {
		p.derived = r.numberLocked()
	}
	if r.pipelines == nil {
		r.pipelines = make(map[string]*Pipeline)
	}
	r.pipelines[name] = p
	for w := range r.watchers {
		w.cancels = append(w.cancels, p.Watch(w.to))
	}
	return p, nil
}

// Prepare is [Pipeline.Prepare] for the pipeline of that name, with the policies of Use
// beside those given.
func (r *Registry) Prepare(name string, policies ...Policy) (*Update, error) {
	r.mu.RLock()
	p, ok := r.pipelines[name]
	common := r.common
	r.mu.RUnlock()
	if !ok {
		return nil, &ConfigError{Dependency: name, Field: "name", Value: name, Want: "want the name of a pipeline of the registry"}
	}
	return p.Prepare(slices.Concat(policies, common)...)
}

// Remove takes a pipeline out of the registry and closes it ([Pipeline.Close]); who still
// has it is refused. The name is free again at once: a pipeline that New builds under it
// knows nothing of the one before. A name that is not there is no error.
func (r *Registry) Remove(ctx context.Context, name string) error {
	return r.Unregister(name).Close(ctx)
}

// Unregister takes a pipeline out of the registry without closing it: nobody finds it by its
// name any more, and that is free for another. The caller closes it, for instance later. It
// returns nil when there is none.
func (r *Registry) Unregister(name string) *Pipeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pipelines[name]
	delete(r.pipelines, name)
	if p != nil && p.derived > 0 {
		r.derived[p.derived-1] = false
	}
	return p
}

// numberLocked gives a derived pipeline the smallest number that is free.
func (r *Registry) numberLocked() int {
	i := slices.Index(r.derived, false)
	if i < 0 {
		i = len(r.derived)
		r.derived = append(r.derived, false)
	}
	r.derived[i] = true
	return i + 1
}

// Get returns the pipeline of that name.
func (r *Registry) Get(name string) (*Pipeline, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, ok := r.pipelines[name]
	return p, ok
}

// All returns the pipelines in the order of their names, as they are at the time of
// the call.
func (r *Registry) All() iter.Seq[*Pipeline] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := slices.Sorted(maps.Keys(r.pipelines))
	list := make([]*Pipeline, len(names))
	for i, n := range names {
		list[i] = r.pipelines[n]
	}
	return slices.Values(list)
}

// Snapshot returns the state of every pipeline, in the order of their names.
func (r *Registry) Snapshot() []Snapshot {
	var snaps []Snapshot
	for p := range r.All() {
		snaps = append(snaps, p.Snapshot())
	}
	return snaps
}

// Ready reports whether every breaker lets all calls through, and in a sentence for
// each which one does not and why. Breakers that only watch, and those an operator
// holds closed, do. It is meant for a status page; a readiness probe that takes an
// instance out of service because one dependency is away makes an outage of it.
func (r *Registry) Ready() (ok bool, why string) {
	var notes []string
	for _, s := range r.Snapshot() {
		for _, p := range s.Policies {
			b := p.Breaker
			if b == nil || p.Shadow || b.Observing || b.State == "closed" || b.State == "forced_closed" {
				continue
			}
			note := fmt.Sprintf("%s: %s is %s for %s", s.Dependency, p.Name, b.State, s.Time.Sub(b.Since).Round(time.Millisecond))
			if b.Why != "" {
				note += " because of " + b.Why
			}
			if b.Note != "" {
				note += fmt.Sprintf(" (%s)", b.Note)
			}
			if b.Keys > 0 {
				note += fmt.Sprintf("; %d of %d keys are open", b.OpenKeys, b.Keys)
			}
			switch {
			case b.RetryAfter <= 0:
			case b.State == "forced_open":
				note += fmt.Sprintf("; that ends in %s", b.RetryAfter.Round(time.Millisecond))
			default:
				note += fmt.Sprintf("; next probe in %s", b.RetryAfter.Round(time.Millisecond))
			}
			notes = append(notes, note)
		}
	}
	return len(notes) == 0, strings.Join(notes, "\n")
}

// Close closes the registry and each of its pipelines ([Pipeline.Close]): no new
// pipelines and no new calls; then policies give back what they hold. It returns all
// errors, joined, and may be called again.
func (r *Registry) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for p := range r.All() {
		p.shut.Store(true)
	}
	var errs []error
	for p := range r.All() {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}
