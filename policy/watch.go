package policy

import (
	"context"
	"slices"
)

// A Watcher is an [Observer] that may come and go while calls are made, see
// [Pipeline.Watch]. What goes for OnEvent goes for OnAttempt: it runs on the goroutine
// of the call, outside locks, is called concurrently, and must return quickly. A panic
// in it is caught and dropped.
type Watcher interface {
	Observer

	// OnAttempt is told of each attempt that was refused or did not succeed, with the
	// context it ran under, which must not be kept.
	OnAttempt(ctx context.Context, e AttemptEnd)
}

// AttemptEnd is how an attempt ended that did not succeed.
type AttemptEnd struct {
	Dependency string  // name of the pipeline
	Number     int     // of the attempt, from 1
	Outcome    Outcome // [NotRun] when it was refused
	Err        error   // a [*RejectedError] when it was refused; nil for an answer that was classified, and for a panic
}

// watch is a subscription to one pipeline.
type watch struct {
	to      Watcher
	cancels []func() // at the gates that emit
}

// Watch tells w of everything but plain successes from now on. The returned function
// ends that, as does [Pipeline.Close]; events that are being delivered may still
// arrive. Calls that succeed at once do not notice a watcher.
func (p *Pipeline) Watch(w Watcher) (cancel func()) {
	if p == nil {
		return func() {}
	}
	s := &watch{to: w}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return func() {}
	}
	s.cancels = p.subscribe(p.plan.Load(), w.OnEvent) // the emitters catch panics
	list := []*watch{s}
	if old := p.watchers.Load(); old != nil {
		list = append(slices.Clip(*old), s)
	}
	p.watchers.Store(&list)
	return func() { p.unwatch(s) }
}

func (p *Pipeline) unwatch(s *watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range s.cancels {
		cancel()
	}
	s.cancels = nil
	old := p.watchers.Load()
	if old == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(*old), func(o *watch) bool { return o == s })
	if len(list) == 0 {
		p.watchers.Store(nil)
		return
	}
	p.watchers.Store(&list)
}

// unwatchAll ends every subscription.
func (p *Pipeline) unwatchAll() {
	if ws := p.watchers.Load(); ws != nil {
		for _, s := range *ws {
			p.unwatch(s)
		}
	}
}

// tellEnd tells the watchers of an attempt that did not succeed.
func (a *Attempt) tellEnd(o Outcome, err error) {
	ws := a.pipe.watchers.Load()
	if ws == nil {
		return
	}
	e := AttemptEnd{Dependency: a.pipe.name, Number: a.number, Outcome: o, Err: err}
	for _, w := range *ws {
		tellWatcher(w.to, a.ctx, e)
	}
}

func tellWatcher(w Watcher, ctx context.Context, e AttemptEnd) { //nolint:revive // the context is the attempt's, not this call's
	defer func() { _ = recover() }()
	w.OnAttempt(ctx, e)
}

// registryWatch is a subscription to every pipeline of a registry.
type registryWatch struct {
	to      Watcher
	cancels []func()
}

// Watch is [Pipeline.Watch] for every pipeline of the registry, those that are yet to
// come included.
func (r *Registry) Watch(w Watcher) (cancel func()) {
	s := &registryWatch{to: w}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchers == nil {
		r.watchers = make(map[*registryWatch]struct{})
	}
	r.watchers[s] = struct{}{}
	for _, p := range r.pipelines {
		s.cancels = append(s.cancels, p.Watch(w))
	}
	return func() {
		r.mu.Lock()
		delete(r.watchers, s)
		cancels := s.cancels
		s.cancels = nil
		r.mu.Unlock()
		for _, cancel := range cancels {
			cancel()
		}
	}
}
