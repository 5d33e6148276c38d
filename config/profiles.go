package config

import (
	_ "embed"
	"fmt"
	"sync"
)

// profilesYAML holds the profiles in the form of a user's templates.
//
//go:embed profiles.yaml
var profilesYAML []byte

// profiles returns the built-in profiles, by name.
var profiles = sync.OnceValue(func() map[string]*node {
	n, err := parse("profiles.yaml", profilesYAML)
	d := &decoder{words: basic}
	if err == nil {
		n = d.normal(n)
	}
	if err != nil || len(d.errs) > 0 {
		panic(fmt.Sprint("config: the profiles do not read: ", err, d.errs)) //nolint:forbidigo // they are part of this package
	}
	return n.builtIn().field(keyTemplates).fields
})

// builtIn returns the tree as one of the lowest layer.
func (n *node) builtIn() *node {
	c := *n
	c.origin.Layer = LayerBuiltIn
	c.fields = make(map[string]*node, len(n.fields))
	c.names = make(map[string]Origin, len(n.names))
	for key, f := range n.fields {
		c.fields[key] = f.builtIn()
		at := n.names[key]
		at.Layer = LayerBuiltIn
		c.names[key] = at
	}
	c.items = make([]*node, len(n.items))
	for i, item := range n.items {
		c.items[i] = item.builtIn()
	}
	return &c
}
