package config

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on a file, far above what a configuration needs: aliases could make a small one
// stand for a very large one, and the time to parse grows with the square of the values and
// of the depth.
const (
	maxBytes  = 1 << 20
	maxValues = 20_000 // lines, items and brackets, as they are counted before parsing
	maxOpen   = 1_000  // brackets at a time
	maxDepth  = 64
	maxNodes  = 200_000 // with those that aliases stand for
)

// outsized says what makes a file too large to be parsed; nothing for one that is not.
func outsized(data []byte) string {
	if len(data) > maxBytes {
		return fmt.Sprintf("%d bytes: want at most %d", len(data), maxBytes)
	}
	values, open := 0, 0
	for i, c := range data {
		switch c {
		case '\n', ',':
			values++
		case '[', '{':
			values++
			open++
		case ']', '}':
			open = max(open-1, 0)
		case '-', '?', '&', '!', ':':
			// A mark of its own, of which several may stand in a row: "- - - a".
			if i+1 < len(data) && data[i+1] == ' ' && (i == 0 || data[i-1] == ' ') {
				values++
				open++
			}
		}
		if c == '\n' {
			open = 0 // no text and no path goes on for so many lines
		}
		if values > maxValues {
			return fmt.Sprintf("more than %d lines, items and brackets", maxValues)
		}
		if open > maxOpen {
			return fmt.Sprintf("more than %d brackets that are not closed", maxOpen)
		}
	}
	return ""
}

// parse reads one YAML document. Beside errors about single places it returns what else is
// there, so that all faults can be reported at once; of what is no YAML it returns nil.
func parse(name string, data []byte) (*node, error) {
	at := Origin{Layer: LayerFile, Source: name}
	if problem := outsized(data); problem != "" {
		return nil, &Error{Origin: at, Problem: problem}
	}
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(at, err)
	}
	if len(file.Docs) > 1 && file.Docs[1].Body != nil {
		return nil, &Error{Origin: at.of(file.Docs[1].Body), Problem: "a second document: want one to a file"}
	}
	r := reader{at: at, anchors: map[string]anchor{}}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return newMapping(at), nil
	}
	n := r.read(file.Docs[0].Body, 0)
	if n.kind == scalarNode && n.scalar == nil {
		n = newMapping(at)
	}
	if n.kind != mappingNode && len(r.errs) == 0 {
		r.fail(n.origin, "%s: want a mapping with dependencies", n.what())
	}
	return n, errors.Join(r.errs...)
}

// syntaxError gives an error of the parser its place.
func syntaxError(at Origin, err error) error {
	if syntax, ok := errors.AsType[yaml.Error](err); ok {
		if t := syntax.GetToken(); t != nil && t.Position != nil {
			at.Line, at.Column = t.Position.Line, t.Position.Column
		}
		return &Error{Origin: at, Problem: syntax.GetMessage()}
	}
	return &Error{Origin: at, Problem: err.Error()}
}

// of returns the place of a node in the file.
func (o Origin) of(n ast.Node) Origin { return o.ofToken(n.GetToken()) }

func (o Origin) ofToken(t *token.Token) Origin {
	if t != nil && t.Position != nil {
		o.Line, o.Column = t.Position.Line, t.Position.Column
	}
	return o
}

// reader makes nodes of a syntax tree.
type reader struct {
	at      Origin // of the file
	anchors map[string]anchor
	count   int
	errs    []error
}

// anchor is a value with a name, and the number of values it consists of, those behind
// aliases included.
type anchor struct {
	node *node
	size int
}

func (r *reader) fail(at Origin, format string, args ...any) {
	if len(r.errs) >= maxFaults {
		return
	}
	r.errs = append(r.errs, &Error{Origin: at, Problem: fmt.Sprintf(format, args...)})
}

func (r *reader) read(n ast.Node, depth int) *node {
	at := r.at.of(n)
	r.count++
	if depth > maxDepth || r.count > maxNodes {
		if r.count <= maxNodes+1 || depth == maxDepth+1 {
			r.fail(at, "nested deeper than %d, or more than %d values", maxDepth, maxNodes)
		}
		return newScalar(nil, at)
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(n.Values, at, depth)
	case *ast.MappingValueNode:
		return r.mapping([]*ast.MappingValueNode{n}, at, depth)
	case *ast.SequenceNode:
		list := &node{kind: listNode, origin: at}
		for _, item := range n.Values {
			list.items = append(list.items, r.read(item, depth+1))
		}
		return list
	case *ast.AnchorNode:
		before := r.count
		v := r.read(n.Value, depth+1)
		r.anchors[n.Name.GetToken().Value] = anchor{v, r.count - before}
		return v
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		a, ok := r.anchors[name]
		if !ok {
			r.fail(at, "*%s: there is no &%s before it", name, name)
			return newScalar(nil, at)
		}
		if r.count += a.size; r.count > maxNodes {
			r.fail(at, "*%s: the aliases stand for more than %d values", name, maxNodes)
			return newScalar(nil, at)
		}
		return a.node
	case *ast.TagNode:
		r.fail(at, "%s: tags are not supported", n.GetToken().Value)
		return newScalar(nil, at)
	case *ast.NullNode:
		return newScalar(nil, at)
	case *ast.InfinityNode:
		return newScalar(n.Value, at)
	case *ast.NanNode:
		return newScalar(n.GetValue(), at)
	case *ast.LiteralNode:
		return newScalar(n.Value.Value, at)
	case ast.ScalarNode:
		return newScalar(n.GetValue(), at)
	default:
		r.fail(at, "%s: want a mapping, a list or a value", n.Type())
		return newScalar(nil, at)
	}
}

func (r *reader) mapping(values []*ast.MappingValueNode, at Origin, depth int) *node {
	m := newMapping(at)
	var merged *node
	for _, v := range values {
		where := r.at.of(v.Key)
		if v.Key.IsMergeKey() {
			merged = over(merged, r.merge(v.Value, depth))
			continue
		}
		key, ok := keyOf(v.Key)
		if !ok {
			r.fail(where, "%s: want a name as the key", v.Key.GetToken().Value)
			continue
		}
		if _, dup := m.fields[key]; dup {
			r.fail(where, "%s is here for the second time, first in line %d", key, m.names[key].Line)
			continue
		}
		m.set(key, where, r.read(v.Value, depth+1))
	}
	out := over(merged, m)
	if merged != nil {
		out.origin = at
	}
	return out
}

// merge reads what a merge key (<<) stands for: a mapping, or several, of which the
// first come first.
func (r *reader) merge(v ast.Node, depth int) *node {
	n := r.read(v, depth+1)
	if n.kind == mappingNode {
		return n
	}
	var out *node
	for _, item := range n.items {
		if item.kind != mappingNode {
			r.fail(item.origin, "%s: want a mapping to merge", item.what())
			continue
		}
		out = over(item, out)
	}
	if n.kind == scalarNode {
		r.fail(n.origin, "%s: want a mapping to merge", n.what())
	}
	return out
}

// keyOf returns the text of a key. Numbers and words such as "off" are names here.
func keyOf(k ast.MapKeyNode) (string, bool) {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value, true
	}
	if _, ok := k.(ast.ScalarNode); ok {
		return k.GetToken().Value, true
	}
	return "", false
}
