package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Origin says where a value comes from.
type Origin struct {
	Layer  Layer
	Source string // the file, the variable, the flag or whatever else names it
	Line   int    // in the source, from 1; 0 when it has no lines
	Column int    // in the line, from 1
}

// String returns the origin as compilers write it, such as breakwater.yaml:12:7.
func (o Origin) String() string {
	switch {
	case o.Line > 0:
		return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
	case o.Source != "":
		return o.Source
	default:
		return o.Layer.String()
	}
}

// node is a value of a configuration, with where it comes from: a mapping, a list or a
// scalar.
type node struct {
	kind   nodeKind
	origin Origin

	keys   []string // of a mapping, in the order of the source
	fields map[string]*node
	names  map[string]Origin // where the keys themselves stand
	items  []*node           // of a list
	scalar any               // string, bool, int64, uint64, float64, or nil
}

type nodeKind uint8

const (
	scalarNode nodeKind = iota
	mappingNode
	listNode
)

func newMapping(o Origin) *node {
	return &node{kind: mappingNode, origin: o, fields: map[string]*node{}, names: map[string]Origin{}}
}

func newScalar(v any, o Origin) *node { return &node{origin: o, scalar: v} }

// set gives a mapping a field. The key stands at its own origin.
func (n *node) set(key string, at Origin, v *node) {
	if _, ok := n.fields[key]; !ok {
		n.keys = append(n.keys, key)
	}
	n.fields[key], n.names[key] = v, at
}

// field returns a field of a mapping, nil when there is none.
func (n *node) field(key string) *node {
	if n == nil {
		return nil
	}
	return n.fields[key]
}

// at returns the node at the end of a path such as Lanes[1].Rate, nil when there is none.
// The items of a list of policies are their settings.
func (n *node) at(path string) *node {
	for name := range strings.SplitSeq(path, ".") {
		name, index, list := strings.Cut(name, "[")
		if n = n.field(name); n == nil || !list {
			if n == nil {
				return nil
			}
			continue
		}
		i, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
		if err != nil || i < 0 || i >= len(n.items) {
			return nil
		}
		n = n.items[i]
		if len(n.keys) == 1 && !isField(n.keys[0]) {
			n = n.fields[n.keys[0]] // a policy, under its kind
		}
	}
	return n
}

// isField reports whether a key is the name of a setting, which begin in upper case.
func isField(key string) bool { return key != "" && key[0] >= 'A' && key[0] <= 'Z' }

// what names the kind of a node in an error.
func (n *node) what() string {
	switch n.kind {
	case mappingNode:
		return "a mapping"
	case listNode:
		return "a list"
	default:
		switch n.scalar.(type) {
		case nil:
			return "nothing"
		case string:
			return fmt.Sprintf("%q", n.scalar)
		default:
			return fmt.Sprint(n.scalar)
		}
	}
}

// over returns low with high laid over it: mappings are joined field by field, and
// anything else of high takes the place of what low has. Neither is changed.
func over(low, high *node) *node {
	switch {
	case low == nil:
		return high
	case high == nil:
		return low
	case low.kind != mappingNode || high.kind != mappingNode:
		return high
	}
	out := newMapping(high.origin)
	for _, key := range low.keys {
		out.set(key, low.names[key], low.fields[key])
	}
	for _, key := range high.keys {
		out.set(key, high.names[key], over(low.fields[key], high.fields[key]))
	}
	return out
}

// fromValue makes a node of what a parser of maps has returned.
func fromValue(v any, o Origin) *node {
	switch v := v.(type) {
	case map[string]any:
		n := newMapping(o)
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys) // a map has no order of its own
		for _, key := range keys {
			n.set(key, o, fromValue(v[key], o))
		}
		return n
	case []any:
		n := &node{kind: listNode, origin: o}
		for _, item := range v {
			n.items = append(n.items, fromValue(item, o))
		}
		return n
	case int:
		return newScalar(int64(v), o)
	case nil, string, bool, int64, uint64, float64:
		return newScalar(v, o)
	default:
		return newScalar(fmt.Sprint(v), o)
	}
}

// plain returns what a node says, as parsers of maps do.
func (n *node) plain() any {
	switch n.kind {
	case mappingNode:
		m := make(map[string]any, len(n.keys))
		for _, key := range n.keys {
			m[key] = n.fields[key].plain()
		}
		return m
	case listNode:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.plain()
		}
		return list
	default:
		return n.scalar
	}
}

func itoa(i int) string { return strconv.Itoa(i) }
