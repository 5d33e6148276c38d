package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/parser"
)

// Load reads the sources, lays them over each other and returns what comes of it. The
// error joins everything that is wrong, each an [*Error] or the error of a source that
// could not be read. Nothing is made of the settings yet.
func Load(ctx context.Context, sources ...Source) (*Settings, error) {
	list, errs := read(ctx, sources)
	return settingsOf(list, errs, nil)
}

// content is what a source held when it was read.
type content struct {
	Content

	layer Layer
}

// read reads the sources, in the order in which they are laid over each other.
func read(ctx context.Context, sources []Source) (list []content, errs []error) {
	ordered := slices.Clone(sources)
	slices.SortStableFunc(ordered, func(a, b Source) int { return cmp.Compare(a.Layer(), b.Layer()) })
	for _, src := range ordered {
		c, err := src.Read(ctx)
		errs = append(errs, flatten(err)...)
		list = append(list, content{c, src.Layer()})
	}
	return list, errs
}

// settingsOf lays what was read over each other. Budgets that are there from before go on.
func settingsOf(list []content, errs []error, before []SharedBudget) (*Settings, error) {
	d := &decoder{words: vocabularyOf(list), errs: slices.Clone(errs)}
	var low *node
	var set []layered
	var waivers []waiver
	for _, c := range list {
		at := Origin{Layer: c.layer, Source: c.Name}
		for _, s := range c.Set {
			set = append(set, layered{s, Origin{Layer: at.Layer, Source: s.Name}})
		}
		var n *node
		switch {
		case c.Tree != nil:
			n = fromValue(c.Tree, at)
		case c.YAML != nil:
			var err error
			waivers = append(waivers, waiversIn(c.Name, c.YAML)...)
			n, err = parse(c.Name, c.YAML)
			d.errs = append(d.errs, flatten(err)...)
			if n == nil || n.kind != mappingNode {
				continue
			}
			n.inLayer(at.Layer)
		default:
			continue
		}
		low = over(low, d.normal(n))
	}
	if low == nil {
		low = newMapping(Origin{})
	}
	s := d.settings(low, d.overrides(low, set), before)
	if len(d.errs) > 0 {
		return nil, errors.Join(inOrder(d.errs)...)
	}
	s.waivers = waivers
	return s, nil
}

// inOrder sorts faults by where they stand, and leaves out what is there twice, such as
// faults of a template that several dependencies are like.
func inOrder(errs []error) []error {
	seen := map[string]bool{}
	var list []error
	for _, err := range errs {
		key := err.Error()
		if e, ok := err.(*Error); ok && e.Origin.Line > 0 { //nolint:errorlint // they are not wrapped
			key = e.Origin.String() + ": " + e.Problem
		}
		if !seen[key] {
			seen[key] = true
			list = append(list, err)
		}
	}
	place := func(err error) Origin {
		if e, ok := err.(*Error); ok { //nolint:errorlint // they are not wrapped
			return e.Origin
		}
		return Origin{}
	}
	slices.SortStableFunc(list, func(a, b error) int {
		x, y := place(a), place(b)
		return cmp.Or(cmp.Compare(x.Layer, y.Layer), cmp.Compare(x.Source, y.Source), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Column, y.Column))
	})
	return list
}

// inLayer notes the layer of a tree that was read as a file.
func (n *node) inLayer(l Layer) {
	if n.origin.Layer == l {
		return
	}
	n.origin.Layer = l
	for key, at := range n.names {
		at.Layer = l
		n.names[key] = at
		n.fields[key].inLayer(l)
	}
	for _, item := range n.items {
		item.inLayer(l)
	}
}

type layered struct {
	Setting
	at Origin
}

// overrides makes a tree of single settings. Names are found whatever the case of their
// letters, and with an underscore for any other sign, as variables have to write them.
func (d *decoder) overrides(low *node, set []layered) *node {
	root := newMapping(Origin{})
	deps := newMapping(Origin{})
	root.set(keyDependencies, Origin{}, deps)
	for _, s := range set {
		known := low.field(keyDependencies).names0()
		budgets := low.field(keyBudgets)
		if budgets != nil && !slices.Contains(known, keyBudgets) {
			known = append(slices.Clone(known), keyBudgets)
		}
		dep, rest, ok := d.find(s, s.Path, "dependency", known)
		if !ok {
			continue
		}
		if dep == keyBudgets && low.field(keyDependencies).field(dep) == nil {
			name, rest, ok := d.find(s, rest, "budget", budgets.names0())
			if ok {
				d.place(s, root.child(keyBudgets, s.at).child(name, s.at), budgetType, rest, "setting of "+join(dep, name))
			}
			continue
		}
		scratch := &decoder{words: d.words} // faults of the outline are reported elsewhere
		var chain []string
		base := scratch.like(low.field(keyDependencies).field(dep), dep, low.field(keyTemplates), &chain)
		policies := base.field(keyPolicies)
		instance, rest, ok := d.find(s, rest, "policy of "+dep, policies.names0())
		if !ok {
			continue
		}
		kind, _ := d.words.kindNamed(fmt.Sprint(policies.field(instance).field(keyKind).value()))
		if kind.spec == nil {
			d.fail(s.at, join(dep, instance), "the policy is off")
			continue
		}
		at := deps.child(dep, s.at).child(keyPolicies, s.at).child(instance, s.at)
		d.place(s, at, kind.spec, rest, "setting of "+join(dep, instance))
	}
	return root
}

// place puts a setting where the rest of its path leads, among the settings of a type.
func (d *decoder) place(s layered, at *node, t reflect.Type, rest, what string) {
	known := budgetSettings()
	if t != budgetType {
		known = fieldNames(t)
	}
	field, rest, ok := d.find(s, rest, what, known)
	if !ok {
		return
	}
	if rest == "" {
		at.set(field, s.at, scalarOf(s.Text, s.at))
		return
	}
	var inner reflect.Type
	if t != budgetType { // no setting of a budget has settings of its own
		f, _ := t.FieldByName(field)
		inner = f.Type
	}
	if inner == nil || inner != budgetType && inner.Kind() != reflect.Struct {
		d.fail(s.at, s.Path, "%s has no settings of its own", field)
		return
	}
	d.place(s, at.child(field, s.at), inner, rest, what)
}

// names0 lists the keys of a mapping, none for nil.
func (n *node) names0() []string {
	if n == nil {
		return nil
	}
	return n.keys
}

// child returns a mapping within a mapping, made if it is not there.
func (n *node) child(key string, at Origin) *node {
	if c := n.fields[key]; c != nil && c.kind == mappingNode {
		return c
	}
	c := newMapping(at)
	n.set(key, at, c)
	return c
}

// find splits the first name off a path: the longest of those known, since names may have
// dots.
func (d *decoder) find(s layered, path, what string, known []string) (name, rest string, ok bool) {
	plain := plainName(path)
	for _, k := range slices.SortedFunc(slices.Values(known), func(a, b string) int { return len(b) - len(a) }) {
		p := plainName(k)
		if plain == p || strings.HasPrefix(plain, p+".") {
			// Sign by sign the two are of one length.
			return k, strings.TrimPrefix(string([]rune(path)[utf8.RuneCountInString(p):]), "."), true
		}
	}
	first, _, _ := strings.Cut(path, ".")
	d.unknown(s.at, s.Path, what, first, known)
	return "", "", false
}

// plainName writes a name as a variable has to, with dots left in place.
func plainName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '_'
	}, s)
}

// scalarOf reads a value as the file would, and any other text as a text.
func scalarOf(s string, at Origin) *node {
	if outsized([]byte(s)) != "" {
		return newScalar(s, at)
	}
	file, err := parser.ParseBytes([]byte(s), 0)
	if err != nil || len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return newScalar(s, at)
	}
	r := reader{at: at, anchors: map[string]anchor{}}
	n := r.read(file.Docs[0].Body, 0)
	n.moveTo(at)
	if len(r.errs) > 0 {
		return newScalar(s, at)
	}
	return n
}

// moveTo gives all of a tree one origin.
func (n *node) moveTo(at Origin) {
	n.origin = at
	for key, f := range n.fields {
		n.names[key] = at
		f.moveTo(at)
	}
	for _, item := range n.items {
		item.moveTo(at)
	}
}
