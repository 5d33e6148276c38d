package policy

import (
	"fmt"
	"reflect"
	"slices"
)

// Discard closes what Prepare has made for an update that is not to be applied: workers,
// connections, watchers. What goes on from before, and live objects that were handed over,
// are left alone. Apply then reports [ErrStale]. After Apply it does nothing.
func (u *Update) Discard() {
	u.pipe.mu.Lock()
	defer u.pipe.mu.Unlock()
	u.discardLocked()
}

// discardLocked requires that the mutex of the pipeline is held.
func (u *Update) discardLocked() {
	if u.done {
		return
	}
	u.done = true
	discard(u.pl.parts, u.pipe.heldLocked())
}

// staleLocked requires that the mutex of the pipeline is held.
func (u *Update) staleLocked() error {
	u.discardLocked()
	return fmt.Errorf("%s: %w", u.pipe.name, ErrStale)
}

// heldLocked returns what the pipeline itself has to close. It requires that its mutex is
// held.
func (p *Pipeline) heldLocked() []Closer { return slices.Concat(p.retired, p.plan.Load().closers) }

// discard closes what was made for parts of which no pipeline is made after all. What is
// held elsewhere stays.
func discard(parts []Part, held []Closer) {
	for i := range parts {
		c, ok := closerOf(parts[i])
		if !ok || slices.ContainsFunc(held, func(h Closer) bool { return same(c, h) }) {
			continue
		}
		share, shared := c.(interface{ Unused() })
		switch {
		case shared && reflect.ValueOf(parts[i].spec).Kind() == reflect.Pointer:
			share.Unused() // of a live object that was handed over: it stays open for others
		case parts[i].made(c):
			closeNow(c)
		}
	}
}

// made reports whether a live object was made of the spec of the part, and not handed over
// in it.
func (p *Part) made(live Closer) bool {
	var spec any = p.spec
	for {
		if slices.ContainsFunc(identities(live), func(o reflect.Value) bool { return refersTo(reflect.ValueOf(spec), o) }) {
			return false
		}
		w, ok := spec.(interface{ Unwrap() Policy })
		if !ok {
			return true
		}
		spec = w.Unwrap()
	}
}

// lent reports whether a part belongs to whoever has handed it over, who closes it: one that
// a configuration refers to by a name may stand in several pipelines, and come back.
func (p *Part) lent() bool {
	_, ok := p.spec.(interface{ Lent() })
	return ok
}

// identities returns the pointers that a live object is known by: its own, or those that it
// is a view of.
func identities(live any) (list []reflect.Value) {
	v := reflect.ValueOf(live)
	switch v.Kind() {
	case reflect.Pointer:
		return []reflect.Value{v}
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.Kind() == reflect.Pointer && !f.IsNil() {
				list = append(list, f)
			}
		}
	default:
	}
	return list
}

// refersTo reports whether a spec is a live object or has it in it. It does not follow
// pointers: what is behind them is alive, and for others to read.
func refersTo(v, live reflect.Value) bool {
	if !v.IsValid() {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer:
		return v.Type() == live.Type() && v.Pointer() == live.Pointer()
	case reflect.Interface:
		return refersTo(v.Elem(), live)
	case reflect.Struct:
		for _, f := range v.Fields() {
			if refersTo(f, live) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if refersTo(v.Index(i), live) {
				return true
			}
		}
	default:
	}
	return false
}
