package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/breakwater-go/breakwater/policy"
)

// Settings are the effective settings of all dependencies.
type Settings struct {
	// Dependencies are in the order in which they were first named.
	Dependencies []Dependency

	// Budgets are those of the section budgets, in the order in which they were first
	// named.
	Budgets []SharedBudget

	waivers []waiver
}

// Dependency holds the policies of one dependency.
type Dependency struct {
	Name   string
	Origin Origin

	// Like is the chain of templates and profiles that it is made of, nearest first.
	Like []string

	// Ordered says that the gates stand in the order of Policies, as with
	// [policy.Ordered].
	Ordered  bool
	Policies []Policy

	Facts Facts

	facts *node // where they stand
}

// Policy is one policy of a dependency.
type Policy struct {
	Kind   string // such as "breaker"
	Name   string // of the instance
	Origin Origin

	// Spec is the configuration of the policy, such as a breaker.Config, without its
	// defaults.
	Spec policy.Policy

	// Values are the settings that were made, in the order of their paths.
	Values []Value

	node  *node
	about *About // of a kind that another package adds; nil for others
}

// Value is a setting that was made somewhere.
type Value struct {
	Path   string // within the policy, such as Budget.Ratio
	Text   string // as it was written
	Origin Origin
}

// Specs lists the policies as [policy.New] takes them.
func (d Dependency) Specs() []policy.Policy {
	var list []policy.Policy
	for _, p := range d.Policies {
		list = append(list, p.Spec)
	}
	if d.Ordered && len(list) > 0 {
		return []policy.Policy{policy.Ordered(list...)}
	}
	return list
}

// Keys of the file.
const (
	keyBudgets      = "budgets"
	keyDefaults     = "defaults"
	keyTemplates    = "templates"
	keyDependencies = "dependencies"
	keyLike         = "like"
	keyOrdered      = "ordered"
	keyPolicies     = "policies"
	keyFacts        = "facts"
	keyName         = "Name"

	// keyKind holds the kind of a policy in a tree in which policies are found by
	// their instance names. No setting can have this name.
	keyKind = "\x00kind"
)

// normal checks the outline of a tree and returns it with every list of policies turned
// into a mapping from instance names to settings, so that other layers can reach them.
func (d *decoder) normal(n *node) *node {
	out := newMapping(n.origin)
	known := []string{keyBudgets, keyDefaults, keyTemplates, keyDependencies}
	for _, key := range n.keys {
		v := n.fields[key]
		if !slices.Contains(known, key) {
			d.unknown(n.names[key], "", "section", key, known)
			continue
		}
		if v.kind != mappingNode {
			if v.kind != scalarNode || v.scalar != nil {
				d.fail(v.origin, key, "%s: want a mapping", v.what())
			}
			continue
		}
		section := newMapping(v.origin)
		for _, name := range v.keys {
			switch key {
			case keyBudgets:
				section.set(name, v.names[name], v.fields[name])
			case keyDefaults:
				if _, ok := d.words.kindNamed(name); !ok {
					d.unknown(v.names[name], join(key, name), "kind of policy", name, d.words.kindNames())
					continue
				}
				section.set(name, v.names[name], v.fields[name])
			default:
				section.set(name, v.names[name], d.outline(v.fields[name], name))
			}
		}
		out.set(key, n.names[key], section)
	}
	return out
}

// outline normalises a dependency or a template.
func (d *decoder) outline(n *node, path string) *node {
	out := newMapping(n.origin)
	if n.kind == scalarNode && n.scalar == nil {
		return out
	}
	if n.kind != mappingNode {
		d.fail(n.origin, path, "%s: want a mapping with %s and %s", n.what(), keyLike, keyPolicies)
		return out
	}
	known := []string{keyLike, keyOrdered, keyFacts, keyPolicies}
	for _, key := range n.keys {
		v := n.fields[key]
		switch key {
		case keyLike:
			if _, ok := v.scalar.(string); !ok || v.kind != scalarNode {
				d.fail(v.origin, join(path, key), "%s: want the name of a template or profile", v.what())
				continue
			}
		case keyOrdered:
			if _, ok := v.scalar.(bool); !ok || v.kind != scalarNode {
				d.fail(v.origin, join(path, key), "%s: want true or false", v.what())
				continue
			}
		case keyFacts:
			if v.kind != mappingNode {
				d.fail(v.origin, join(path, key), "%s: want a mapping of %s", v.what(), strings.Join(fieldNames(reflect.TypeFor[Facts]()), ", "))
				continue
			}
		case keyPolicies:
			v = d.byName(v, path)
		default:
			d.unknown(n.names[key], join(path, key), "setting", key, known)
			continue
		}
		out.set(key, n.names[key], v)
	}
	return out
}

// byName turns a list of policies, each a mapping from its kind to its settings, into a
// mapping from instance names.
func (d *decoder) byName(n *node, path string) *node {
	out := newMapping(n.origin)
	if n.kind == scalarNode && n.scalar == nil {
		return out
	}
	if n.kind != listNode {
		d.fail(n.origin, join(path, keyPolicies), "%s: want a list, such as \"- breaker: {OpenFor: 5s}\"", n.what())
		return out
	}
	for _, item := range n.items {
		kind, settings, at, ok := d.single(item, path)
		if !ok {
			continue
		}
		name := kind.name
		if v := settings.field(keyName); v != nil {
			if s, ok := v.scalar.(string); ok && s != "" {
				name = s
			}
		}
		if out.fields[name] != nil {
			d.fail(at, join(path, name), "the name is used twice, first in line %d: set Name to tell the policies apart", out.names[name].Line)
			continue
		}
		if _, off := specialOf(settings); off {
			out.set(name, at, settings)
			continue
		}
		if settings.kind == scalarNode && settings.scalar == nil {
			settings = newMapping(settings.origin)
		}
		if settings.kind != mappingNode {
			d.fail(settings.origin, join(path, name), "%s: want a mapping of settings, or off", settings.what())
			continue
		}
		tagged := newMapping(settings.origin)
		tagged.set(keyKind, at, newScalar(kind.name, at))
		out.set(name, at, over(tagged, settings))
	}
	return out
}

// single takes an entry of a list of policies apart.
func (d *decoder) single(item *node, path string) (kind kindOf, settings *node, at Origin, ok bool) {
	if s, isText := item.scalar.(string); isText && item.kind == scalarNode { // "- breaker" alone
		if kind, ok = d.words.kindNamed(s); ok {
			return kind, newMapping(item.origin), item.origin, true
		}
		d.unknown(item.origin, path, "kind of policy", s, d.words.kindNames())
		return kind, nil, at, false
	}
	if item.kind != mappingNode || len(item.keys) != 1 {
		d.fail(item.origin, path, "%s: want one policy, as its kind and its settings, such as \"breaker: {OpenFor: 5s}\"", item.what())
		return kind, nil, at, false
	}
	name := item.keys[0]
	at = item.names[name]
	if kind, ok = d.words.kindNamed(name); !ok {
		d.unknown(at, path, "kind of policy", name, d.words.kindNames())
		return kind, nil, at, false
	}
	return kind, item.fields[name], at, true
}

// entry makes a policy of an entry of a list within a policy.
func (d *decoder) entry(item *node, path string) policy.Policy {
	kind, settings, _, ok := d.single(item, path)
	if !ok {
		return nil
	}
	if settings.kind == scalarNode && settings.scalar == nil {
		settings = newMapping(settings.origin)
	}
	before := len(d.errs)
	v := d.read(kind, settings, path)
	if kind.added == nil {
		return d.spec(v)
	}
	return d.make(kind, v, settings, path, d.errs[before:])
}

// read fills the configuration of a policy from its settings.
func (d *decoder) read(kind kindOf, settings *node, path string) reflect.Value {
	v := reflect.New(kind.spec).Elem()
	d.fields(v, settings, path, []string{keyKind})
	return v
}

// spec returns the configuration of a policy of this package as what it is.
func (*decoder) spec(v reflect.Value) policy.Policy {
	p, _ := reflect.TypeAssert[policy.Policy](v) // every kind is one
	return p
}

// make lets another package make a policy of its settings.
func (d *decoder) make(kind kindOf, v reflect.Value, settings *node, path string, unread []error) policy.Policy {
	p, err := kind.added.Make(d.dependency, v.Interface())
	d.locate(err, settings, path, unread)
	if err == nil && p == nil {
		d.fail(settings.origin, path, "the program has made no policy of it")
	}
	return p
}

// settings makes the effective settings of the merged trees: files and what is below
// them, and what is above them, which can only change what is there.
func (d *decoder) settings(low, high *node, before []SharedBudget) *Settings {
	s := &Settings{Budgets: d.budgets(over(low.field(keyBudgets), high.field(keyBudgets)), before)}
	defaults, templates := low.field(keyDefaults), low.field(keyTemplates)
	deps := low.field(keyDependencies)
	if deps == nil {
		deps = newMapping(low.origin)
	}
	d.templates(templates, defaults)
	for _, name := range deps.keys {
		d.dependency = name
		dep := Dependency{Name: name, Origin: deps.names[name]}
		base := d.like(deps.fields[name], name, templates, &dep.Like)
		if o, ok := base.field(keyOrdered).value().(bool); ok {
			dep.Ordered = o
		}
		if dep.facts = base.field(keyFacts); dep.facts != nil {
			d.fields(reflect.ValueOf(&dep.Facts).Elem(), dep.facts, join(name, keyFacts), nil)
		}
		policies := base.field(keyPolicies)
		if policies == nil {
			policies = newMapping(deps.fields[name].origin)
		}
		above := high.field(keyDependencies).field(name).field(keyPolicies)
		if above != nil {
			for _, instance := range above.keys {
				if policies.fields[instance] == nil {
					d.unknown(above.names[instance], join(name, instance), "policy", instance, policies.keys)
				}
			}
		}
		for _, instance := range policies.keys {
			if p, ok := d.policy(name, instance, policies, above, defaults); ok {
				dep.Policies = append(dep.Policies, p)
			}
		}
		s.Dependencies = append(s.Dependencies, dep)
	}
	if above := high.field(keyDependencies); above != nil {
		for _, name := range above.keys {
			if deps.fields[name] == nil {
				d.unknown(above.names[name], name, "dependency", name, deps.keys)
			}
		}
	}
	return s
}

// templates reads all templates and defaults, those that nothing is like, too: a
// misspelt setting should not wait for its first use.
func (d *decoder) templates(templates, defaults *node) {
	for _, name := range defaults.names0() {
		if kind, ok := d.words.kindNamed(name); ok {
			d.read(kind, defaults.fields[name], join(keyDefaults, name))
		}
	}
	for _, name := range templates.names0() {
		var chain []string
		d.like(templates.fields[name], name, templates, &chain)
		policies := templates.fields[name].field(keyPolicies)
		for _, instance := range policies.names0() {
			own := policies.fields[instance]
			if kind, ok := d.words.kindNamed(fmt.Sprint(own.field(keyKind).value())); ok {
				d.read(kind, own, join(name, instance))
			}
		}
	}
}

// value returns the scalar of a node, nil when it has none.
func (n *node) value() any {
	if n == nil {
		return nil
	}
	return n.scalar
}

// policy makes one policy of a dependency.
func (d *decoder) policy(dependency, instance string, policies, above, defaults *node) (Policy, bool) {
	own := over(policies.fields[instance], above.field(instance))
	if _, off := specialOf(own); off {
		return Policy{}, false
	}
	path := join(dependency, instance)
	name, _ := own.field(keyKind).value().(string)
	kind, ok := d.words.kindNamed(name)
	if !ok {
		d.fail(own.origin, path, "%s: want a mapping of settings, or off", own.what())
		return Policy{}, false
	}
	own = over(defaults.field(kind.name), own)
	before := len(d.errs)
	p := Policy{Kind: kind.name, Name: instance, Origin: policies.names[instance], node: own}
	p.Values = values(own, "")
	read := d.read(kind, own, path)
	unread := d.errs[before:]
	if kind.added == nil {
		p.Spec = d.spec(read)
		if v, ok := p.Spec.(interface{ Validate() error }); ok {
			d.locate(v.Validate(), own, path, unread)
		}
		return p, true
	}
	p.Spec = d.make(kind, read, own, path, unread)
	if kind.added.About != nil {
		about := kind.added.About(read.Interface())
		p.about = &about
	}
	return p, true
}

// locate notes what a policy has found in its own settings. Each fault gets the place of
// the setting it is about. A setting that could not be read is known to be wrong.
func (d *decoder) locate(err error, n *node, path string, unread []error) {
	known := map[string]bool{}
	for _, err := range unread {
		if e, ok := err.(*Error); ok { //nolint:errorlint // they are not wrapped
			known[e.Path] = true
		}
	}
	for _, err := range flatten(err) {
		fault := &Error{Origin: n.origin, Path: path, Problem: err.Error(), Err: err}
		if ce, ok := errors.AsType[*policy.ConfigError](err); ok {
			at := n.at(ce.Field)
			for field := ce.Field; at == nil; at = n.at(field) { // the nearest that was made
				i := strings.LastIndexAny(field, ".[")
				if i < 0 {
					at = n
					break
				}
				field = field[:i]
			}
			fault.Origin, fault.Path = at.origin, join(path, ce.Field)
			fault.Problem = ce.Want
			if ce.Value != nil {
				fault.Problem = fmt.Sprintf("%v: %s", ce.Value, ce.Want)
			}
		}
		if !known[fault.Path] && !d.full() {
			d.errs = append(d.errs, fault)
		}
	}
}

// flatten takes joined errors apart.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []error
		for _, e := range joined.Unwrap() {
			list = append(list, flatten(e)...)
		}
		return list
	}
	return []error{err}
}

// values lists the settings of a mapping.
func values(n *node, path string) (list []Value) {
	for _, key := range slices.Sorted(slices.Values(n.keys)) {
		if key == keyKind {
			continue
		}
		switch v := n.fields[key]; v.kind {
		case mappingNode:
			list = append(list, values(v, join(path, key))...)
		case listNode:
			for i, item := range v.items {
				at := fmt.Sprintf("%s[%d]", join(path, key), i)
				if item.kind == mappingNode {
					list = append(list, values(item, at)...)
				} else {
					list = append(list, Value{Path: at, Text: written(item.scalar), Origin: item.origin})
				}
			}
		default:
			list = append(list, Value{Path: join(path, key), Text: written(v.scalar), Origin: v.origin})
		}
	}
	return list
}

// written writes a scalar as a file would.
func written(v any) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(v)
}

// maxLike is how long a chain of templates may be.
const maxLike = 16

// like lays a dependency or template over those that it is like.
func (d *decoder) like(n *node, path string, templates *node, chain *[]string) *node {
	like := n.field(keyLike)
	name, ok := like.value().(string)
	if !ok {
		return n
	}
	if slices.Contains(*chain, name) {
		d.fail(like.origin, join(path, keyLike), "%s is like itself: %s", name, strings.Join(append(*chain, name), ", "))
		return n
	}
	base := templates.field(name)
	if base == nil {
		known := slices.Sorted(maps.Keys(profiles()))
		if base = profiles()[name]; base == nil {
			if templates != nil {
				known = append(slices.Clone(templates.keys), known...)
			}
			d.unknown(like.origin, join(path, keyLike), "template or profile", name, known)
			return n
		}
	}
	if len(*chain) == maxLike {
		d.fail(like.origin, join(path, keyLike), "%s is like another that is like another, %d times: want fewer", (*chain)[0], maxLike)
		return n
	}
	*chain = append(*chain, name)
	return over(d.like(base, name, templates, chain), n)
}
