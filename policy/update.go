package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// A Reloader is a live policy that can go on under other settings, with all that it
// knows: tokens, windows, states, permits in flight.
type Reloader interface {
	// Reload looks at the spec of which the policy that is to take its place would be
	// made, such as a breaker.Config. It changes nothing yet: apply does, while calls go
	// on, and cannot fail. The error says what cannot be changed in place; a new policy
	// then starts afresh.
	Reload(next Policy) (apply func(), err error)
}

// Change says what an update has done with a policy.
type Change uint8

// The kinds of change.
const (
	ChangeKept    Change = iota // its settings are as they were
	ChangeResized               // it goes on under new settings, with all that it knows
	ChangeReset                 // a new one has taken its place and starts afresh
	ChangeAdded
	ChangeRemoved

	numChanges
)

var changeNames = [numChanges]string{"kept", "resized", "reset", "added", "removed"}

// String returns the change's name in lower case.
func (c Change) String() string {
	if c < numChanges {
		return changeNames[c]
	}
	return "unknown"
}

// Replacement is what an update does with one policy.
type Replacement struct {
	Policy string // name of the instance
	Kind   string
	Change Change
	Why    string // of a reset
}

// String reads like "breaker: reset (Window: ...)".
func (r Replacement) String() string {
	if r.Why == "" {
		return r.Policy + ": " + r.Change.String()
	}
	return fmt.Sprintf("%s: %s (%s)", r.Policy, r.Change, r.Why)
}

// ErrStale reports that a pipeline has been updated or closed since an [Update] was
// prepared.
var ErrStale = errors.New("policy: the pipeline has changed since the update was prepared")

// Update is a set of policies that is ready to take the place of the present ones.
type Update struct {
	// Replacements are what becomes of each policy, outermost first, removed ones last.
	Replacements []Replacement

	pipe    *Pipeline
	old, pl *plan
	applies []func()
	gone    []Closer
	done    bool // applied or discarded
}

// Prepare makes policies ready to replace those of the pipeline, without a change to it
// yet: so several pipelines can be looked at before any is changed. The error joins
// everything that is wrong, as that of [New] does.
//
// A policy takes the place of the one of its name and kind. One whose settings are the
// same is kept, live object and all. Others go on under the new settings where they can
// ([Reloader]). Where they cannot, a new one starts afresh. Observers and tracers stay as
// they are, whether they are listed or not.
//
// An update that is not applied is to be discarded ([Update.Discard]): it has made policies
// that are not in use yet. On an error there is nothing to be discarded.
func (p *Pipeline) Prepare(policies ...Policy) (*Update, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%s: %w", p.name, ErrClosed)
	}
	parts, err := p.build(policies)
	u := &Update{pipe: p, old: p.plan.Load()}
	for i := range parts {
		u.match(&parts[i])
	}
	pl, aerr := p.assemble(parts)
	if err = errors.Join(err, aerr); err != nil {
		discard(parts, p.heldLocked())
		return nil, err
	}
	u.pl = pl
	u.report()
	pl.carry(u.old)
	return u, nil
}

// Apply makes the policies those of the pipeline, from the next attempt on. Attempts that
// have entered leave through the policies that they entered, and calls that have begun
// end under them. What is replaced is closed by the next update or with the pipeline, so
// that no call is refused for having been on its way to it; functions that then still run
// on a pool end by themselves. The only error is [ErrStale]; there is nothing to be discarded
// then.
func (u *Update) Apply() error {
	p := u.pipe
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.plan.Load() != u.old || u.done {
		return u.staleLocked()
	}
	u.done = true
	for _, apply := range u.applies {
		apply()
	}
	p.plan.Store(u.pl)
	for _, cancel := range p.cancels {
		cancel()
	}
	p.cancels = nil
	if len(p.observers) > 0 {
		p.cancels = p.subscribe(u.pl, p.observe)
	}
	if ws := p.watchers.Load(); ws != nil {
		for _, s := range *ws {
			for _, cancel := range s.cancels {
				cancel()
			}
			s.cancels = p.subscribe(u.pl, s.to.OnEvent)
		}
	}
	for _, c := range p.retired {
		closeNow(c)
	}
	p.retired = u.gone
	return nil
}

// closeNow closes c, and does not wait for what it still runs.
//
//nolint:contextcheck,nolintlint // whoever calls it has nothing to wait for; found by linters of other packages only
func closeNow(c Closer) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(ctx)
}

// live returns what of a part is alive: the object that keeps its state.
func (p *Part) live() any {
	switch {
	case p.Gate != nil:
		return p.Gate
	case p.Runner != nil:
		return p.Runner
	case p.Retry != nil:
		return p.Retry
	case p.Hedge != nil:
		return p.Hedge
	case p.Fallback != nil:
		return p.Fallback
	default:
		return nil
	}
}

// goOn puts the live object of an earlier part into this one. What was made for this one
// is closed, since nobody will use it.
func (p *Part) goOn(old *Part) {
	if c, ok := p.live().(Closer); ok && !same(c, old.live()) && !p.lent() && p.made(c) {
		closeNow(c)
	}
	p.Gate, p.Runner, p.Retry, p.Calls, p.Hedge, p.Budget = old.Gate, old.Runner, old.Retry, old.Calls, old.Hedge, old.Budget
	p.Fallback = old.Fallback
	if p.Guard == nil || alike(old.spec, p.spec) {
		p.Guard = old.Guard
	}
}

// match finds the present policy that a part takes the place of, and lets it go on if it
// can.
func (u *Update) match(part *Part) {
	if part.Observer != nil || part.Tracer != nil || part.Classify != nil || part.Foreign != nil {
		return
	}
	r := Replacement{Policy: part.Name, Kind: part.Kind, Change: ChangeAdded}
	defer func() { u.Replacements = append(u.Replacements, r) }()
	i := slices.IndexFunc(u.old.parts, func(p Part) bool { return p.Name == part.Name })
	if i < 0 {
		return
	}
	old := &u.old.parts[i]
	now, next := old.live(), part.live()
	switch {
	case old.Kind != part.Kind:
		r.Change, r.Why = ChangeReset, "it was a "+old.Kind
	case now == nil:
		if r.Change = ChangeResized; alike(old.spec, part.spec) {
			r.Change = ChangeKept
		}
	case same(now, next), alike(old.spec, part.spec):
		r.Change = ChangeKept
		part.goOn(old)
		part.Shadow = old.Shadow // it may have been switched by hand
	default:
		reloader, ok := now.(Reloader)
		if !ok {
			r.Change, r.Why = ChangeReset, "its settings have changed"
			return
		}
		apply, err := reloader.Reload(part.spec)
		if err != nil {
			r.Change, r.Why = ChangeReset, err.Error()
			return
		}
		r.Change = ChangeResized
		u.applies = append(u.applies, apply)
		part.goOn(old)
	}
}

// same reports whether two live objects are one.
func same(a, b any) bool {
	// By the values: one that can be compared by its type may hold one that cannot.
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// report completes the list of what becomes of each policy, in the order of the plan.
func (u *Update) report() {
	var list []Replacement
	for _, part := range u.pl.parts {
		for _, r := range u.Replacements {
			if r.Policy == part.Name && r.Kind == part.Kind {
				list = append(list, r)
			}
		}
	}
	for i := range u.old.parts {
		old := &u.old.parts[i]
		if !slices.ContainsFunc(u.pl.parts, func(p Part) bool { return p.Name == old.Name }) {
			list = append(list, Replacement{Policy: old.Name, Kind: old.Kind, Change: ChangeRemoved})
		}
	}
	u.Replacements = list
	for _, c := range u.old.closers {
		if !slices.ContainsFunc(u.pl.closers, func(other Closer) bool { return same(c, other) }) {
			u.gone = append(u.gone, c)
		}
	}
}

// carry takes over the counts of an earlier plan, which must not fall, and what was
// switched by hand.
func (pl *plan) carry(old *plan) {
	for i := range pl.gates {
		g := &pl.gates[i]
		j := slices.IndexFunc(old.gates, func(o planGate) bool { return o.name == g.name && o.kind == g.kind })
		if j < 0 {
			continue
		}
		g.rejected, g.other = old.gates[j].rejected, old.gates[j].other
		if g.shadow != old.gates[j].shadow {
			g.rejected, g.other = g.other, g.rejected
		}
	}
	if pl.runner != nil && pl.runnerName == old.runnerName {
		pl.runnerRejected = old.runnerRejected
	}
	if pl.retry != nil && old.retry != nil && pl.retryStats.name == old.retryStats.name {
		pl.retryStats = old.retryStats
	}
	if pl.hedge != nil && old.hedge != nil && pl.hedgeStats.name == old.hedgeStats.name {
		pl.hedgeStats = old.hedgeStats
	}
	for i := range pl.fallbacks {
		for _, o := range old.fallbacks {
			if o.name == pl.fallbacks[i].name {
				pl.fallbacks[i].counts = o.counts
			}
		}
	}
	for i := range pl.mappers {
		for _, o := range old.mappers {
			if o.name == pl.mappers[i].name {
				pl.mappers[i].mapped = o.mapped
			}
		}
	}
}
