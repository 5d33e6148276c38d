package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
)

// fallbackHead is what the pipeline knows about a fallback of any type.
type fallbackHead struct {
	name        string
	afterCancel bool
	guard       *Pipeline // of one gate, which admits the answers; nil for none
	counts      *fallbackCounts
}

type planFallback struct {
	fallbackHead

	fb Fallback[any]
}

// fallbackCounts counts what a fallback did.
type fallbackCounts struct{ served, failed, rejected atomic.Uint64 }

func (c *fallbackCounts) addTo(s *FallbackSnapshot) {
	s.Served, s.Failed, s.Rejected = c.served.Load(), c.failed.Load(), c.rejected.Load()
}

// headOf makes the head of a fallback from its part.
func headOf(dependency string, part Part, counts *fallbackCounts) (fallbackHead, error) {
	guard, err := guardOf(dependency, part)
	return fallbackHead{name: part.Name, afterCancel: part.AfterCancel, guard: guard, counts: counts}, err
}

// guardOf makes a pipeline of the gate that admits a fallback's answers. What it
// refuses is refused in the fallback's name.
func guardOf(dependency string, part Part) (*Pipeline, error) {
	if part.Guard == nil {
		return nil, nil
	}
	g := Part{Kind: part.Kind, Gate: part.Guard}
	if pol, ok := part.Guard.(Policy); ok { // it says more about itself
		if what := isNil(pol); what != "" {
			return nil, &ConfigError{Dependency: dependency, Policy: part.Name, Field: "Gate", Want: "want a gate, not a nil " + what}
		}
		own, err := pol.BuildPolicy()
		if err != nil {
			return nil, errors.Join(inPipeline(err, dependency, part.Name)...)
		}
		if own.Gate != nil {
			g = own
		}
	}
	g.Name = part.Name
	return New(dependency, partFunc(func() Part { return g }))
}

// addTo describes the fallback.
func (h *fallbackHead) addTo(s *FallbackSnapshot) {
	h.counts.addTo(s)
	if h.guard != nil {
		s.Guard = &h.guard.Snapshot().Policies[0]
	}
}

// answer asks a fallback for its value. It reports refused when the guard did not let
// it. A panic counts as a failed answer, and passes on.
func answer[T any](s *callState, fb Fallback[T], h *fallbackHead, f FailedCall) (ans Answer[T], refused bool, err error) {
	ctx := s.outer
	if f.Canceled {
		ctx = context.WithoutCancel(ctx)
	}
	returned := false
	defer func() {
		if !returned {
			h.counts.failed.Add(1)
		}
	}()
	if h.guard != nil {
		admit := ctx
		if ctx.Err() != nil { // the caller's deadline has ended the call, and does not end its answer
			admit = context.WithoutCancel(ctx)
		}
		permit, err := h.guard.Enter(admit)
		if err != nil {
			returned = true
			return ans, errors.Is(err, ErrRejected), err
		}
		defer permit.Release()
		ans, err = fb.Answer(ctx, f)
		returned = true
		permit.Leave(err)
		return ans, false, err
	}
	ans, err = fb.Answer(ctx, f)
	returned = true
	return ans, false, err
}

// failure describes the call to a fallback.
func (s *callState) failure(err error) FailedCall {
	if err == nil {
		err = &AnswerError{Dependency: s.p.name, Kind: s.out.Kind, Code: s.out.Code}
	}
	gone := s.out.Kind == Canceled || errors.Is(s.outer.Err(), context.Canceled) || (s.ran == 0 && s.outer.Err() != nil)
	return FailedCall{Dependency: s.p.name, Attempts: s.ran, Outcome: s.out, Err: err, Canceled: gone}
}

// answered counts and reports what a fallback did.
func (s *callState) answered(h *fallbackHead, refused bool, err error) {
	switch {
	case err == nil:
		h.counts.served.Add(1)
	case refused:
		h.counts.rejected.Add(1)
	default:
		h.counts.failed.Add(1)
	}
	if s.p.watched() || s.span != nil {
		e := Event{
			Kind: EventFallback, Time: time.Now(), Dependency: s.p.name, Policy: h.name,
			Attempt: s.attempts, Outcome: s.out.Kind, Err: err,
		}
		if re, ok := errors.AsType[*RejectedError](err); ok && refused {
			e.Reason, e.RetryAfter = re.Reason, re.RetryAfter
		}
		s.p.emit(e)
		if s.span != nil {
			notify(s.span.Event, e)
		}
	}
}

// unanswered adds the error of a fallback to that of the call, which is nil when a
// value was classified as something other than a success.
func unanswered(f FailedCall, err, ferr error) error {
	if err == nil {
		err = f.Err
	}
	return &unansweredError{call: err, fallback: ferr}
}

// planMapper replaces the errors of calls.
type planMapper struct {
	name   string
	fn     func(FailedCall) error
	mapped *atomic.Uint64
}

// mapped lets the mappers of the pipeline replace the error that the caller gets.
func (s *callState) mapped(f FailedCall, err error) error {
	if err == nil || f.Canceled {
		return err
	}
	for i := range s.plan.mappers {
		m := &s.plan.mappers[i]
		f.Err = err
		if to := m.fn(f); to != nil {
			m.mapped.Add(1)
			err = &mappedError{to: to, from: err}
		}
	}
	return err
}

// mappedError reads like the error that it was mapped to, and matches that and the
// original.
type mappedError struct{ to, from error }

func (e *mappedError) Error() string   { return e.to.Error() }
func (e *mappedError) Unwrap() []error { return []error{e.to, e.from} }

// fallbackLister is a fallback that stands for several, which are asked in its place.
type fallbackLister[T any] interface {
	Fallbacks() []Fallback[T]
}

// flattened replaces lists of fallbacks by what is in them.
func flattened[T any](fallbacks []Fallback[T]) []Fallback[T] {
	flat := make([]Fallback[T], 0, len(fallbacks))
	for _, fb := range fallbacks {
		if l, ok := fb.(fallbackLister[T]); ok && isNil(fb) == "" {
			flat = append(flat, flattened(l.Fallbacks())...)
		} else {
			flat = append(flat, fb)
		}
	}
	return flat
}

// typedState is what a pipeline knows of a typed handle's fallbacks of one name.
type typedState struct {
	kind  string
	owner any           // the one that describes itself; nil when none does
	head  *fallbackHead // of the last handle
}

// adopt makes a pipeline know the fallback of a typed handle, and returns its head.
// Handles come and go; what they did is counted by the fallback's name.
func (p *Pipeline) adopt(fb any, part Part) (fallbackHead, error) {
	if p == nil {
		return fallbackHead{name: part.Name, counts: new(fallbackCounts)}, nil
	}
	h, err := headOf(p.name, part, new(fallbackCounts))
	if err != nil {
		return h, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pl := p.plan.Load()
	for i := range pl.fallbacks {
		if pl.fallbacks[i].name == part.Name {
			h.counts = pl.fallbacks[i].counts
			return h, nil
		}
	}
	if p.typed == nil {
		p.typed = make(map[string]*typedState)
	}
	st := p.typed[part.Name]
	if st == nil {
		st = &typedState{kind: part.Kind}
		p.typed[part.Name] = st
	} else {
		h.counts = st.head.counts
	}
	switch fb.(type) {
	case Snapshotter, Closer:
		if st.owner != nil && reflect.ValueOf(fb).Comparable() && st.owner != fb {
			return h, &ConfigError{
				Dependency: p.name, Policy: part.Kind, Field: "Name", Value: fmt.Sprintf("%q", part.Name),
				Want: "another of this name belongs to the pipeline; set Name to tell them apart",
			}
		}
		st.owner = fb
	}
	st.head = &h
	return h, nil
}

// typedParts describes the fallbacks of typed handles, which come before those of the
// pipeline.
func (p *Pipeline) typedParts(now time.Time) []PolicySnapshot {
	p.mu.Lock()
	states := make([]typedState, 0, len(p.typed))
	for _, name := range slices.Sorted(maps.Keys(p.typed)) {
		states = append(states, *p.typed[name])
	}
	p.mu.Unlock()
	list := make([]PolicySnapshot, 0, len(states))
	for _, st := range states {
		ps := PolicySnapshot{}
		if s, ok := st.owner.(Snapshotter); ok {
			ps = s.Snapshot(now)
		}
		ps.Name, ps.Kind = st.head.name, st.kind
		list = append(list, withFallback(ps, st.head))
	}
	return list
}

// withFallback adds to the state of a fallback what the pipeline knows.
func withFallback(ps PolicySnapshot, h *fallbackHead) PolicySnapshot {
	if ps.Fallback == nil {
		ps.Fallback = &FallbackSnapshot{}
	}
	h.addTo(ps.Fallback)
	return ps
}

// closeTyped closes what the fallbacks of typed handles hold.
func (p *Pipeline) closeTyped(ctx context.Context) error {
	p.mu.Lock()
	var closers []Closer
	for _, name := range slices.Sorted(maps.Keys(p.typed)) {
		st := p.typed[name]
		if c, ok := st.owner.(Closer); ok {
			closers = append(closers, c)
		}
		if g := st.head.guard; g != nil { // its gate; the guard itself goes on, as fallbacks do
			closers = append(closers, g.plan.Load().closers...)
		}
	}
	p.mu.Unlock()
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close(ctx))
	}
	return errors.Join(errs...)
}

// policyLister is a policy that stands for several, such as a chain of fallbacks.
type policyLister interface {
	Policies() []Policy
}

// expanded replaces policies that stand for several by those. [Ordered], which does not
// nest, is left to say so.
func expanded(policies []Policy) []Policy {
	flat := make([]Policy, 0, len(policies))
	for _, pol := range policies {
		l, ok := pol.(policyLister)
		if _, isOrdered := pol.(orderedPolicies); !ok || isOrdered || isNil(pol) != "" {
			flat = append(flat, pol)
			continue
		}
		flat = append(flat, expanded(l.Policies())...)
	}
	return flat
}
