package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/knadh/koanf/v2"
)

// Source is where settings come from. File, Bytes, Environment, Flags, Values and
// Provider make one; anything else can be one with Read.
type Source interface {
	// Layer says how settings of this source stand to those of others. Within a
	// layer the later source wins.
	Layer() Layer

	// Read returns the settings as they are now, in the form of the file: as YAML, or
	// as what YAML would have been parsed to. It may be called again at any time. What
	// comes with an error is looked at as well, for faults of its own.
	Read(ctx context.Context) (Content, error)
}

// Content is what a [Source] has read. One of YAML, Tree and Set is set; none is an empty
// file.
type Content struct {
	// Name says where it was read, for errors: the name of a file, or of a key.
	Name string

	// YAML is a document in the form of the file.
	YAML []byte

	// Tree is the same, parsed: mappings as map[string]any, lists as []any.
	Tree map[string]any

	// Set are single settings, such as {"inventory.breaker.OpenFor", "5s"}. They can
	// change what a file has set up, and cannot add policies.
	Set []Setting

	program *Program
	file    bool // it is that of a file
}

// Setting is a single setting.
type Setting struct {
	Name string // where it stands, for errors, such as the name of a variable
	Path string // the dependency, the policy and the field, such as inventory.breaker.OpenFor
	Text string // the value, as in the file
}

type source struct {
	layer Layer
	read  func(ctx context.Context) (Content, error)
}

func (s source) Layer() Layer                              { return s.layer }
func (s source) Read(ctx context.Context) (Content, error) { return s.read(ctx) }

// File reads a YAML file. One that is not there is an error.
func File(path string) Source { return fileSource{path} }

type fileSource struct{ path string }

func (fileSource) Layer() Layer { return LayerFile }

func (f fileSource) Read(context.Context) (Content, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return Content{}, fmt.Errorf("config: %w", err)
	}
	return Content{Name: f.path, YAML: data, file: true}, nil
}

// Bytes is a YAML document that the program has at hand, as a layer of its choice, such
// as [LayerDefaults].
func Bytes(name string, layer Layer, data []byte) Source {
	return source{layer, func(context.Context) (Content, error) { return Content{Name: name, YAML: data}, nil }}
}

// Provider reads from any provider of koanf, such as that of Consul, Vault or S3. A nil
// parser is for providers that return values; with others the bytes are parsed.
// One that has the methods Watch and Unwatch, as many do, is [Watchable].
func Provider(name string, p koanf.Provider, parser koanf.Parser) Source {
	src := providerSource(name, p, parser)
	if w, ok := p.(providerWatcher); ok {
		return watchedProvider{src, w}
	}
	return src
}

func providerSource(name string, p koanf.Provider, parser koanf.Parser) Source {
	return source{LayerFile, func(context.Context) (Content, error) {
		if parser == nil {
			tree, err := p.Read()
			if err != nil {
				return Content{}, fmt.Errorf("config: %s: %w", name, err)
			}
			return Content{Name: name, Tree: tree}, nil
		}
		data, err := p.ReadBytes()
		if err != nil {
			return Content{}, fmt.Errorf("config: %s: %w", name, err)
		}
		tree, err := parser.Unmarshal(data)
		if err != nil {
			return Content{}, fmt.Errorf("config: %s: %w", name, err)
		}
		return Content{Name: name, Tree: tree}, nil
	}}
}

// Environment reads variables with a prefix, such as BREAKWATER_, followed by the names of
// the dependency, the policy and the field, with two underscores between them:
// BREAKWATER_INVENTORY__BREAKER__OPENFOR=3s. Letters of either case will do, and any
// other sign of a name is an underscore. Environ is in the form of [os.Environ]; nil
// means that of the process.
func Environment(prefix string, environ []string) Source {
	return source{LayerEnvironment, func(context.Context) (Content, error) {
		list := environ
		if list == nil {
			list = os.Environ()
		}
		c := Content{Name: "environment"}
		for _, entry := range list {
			name, value, ok := strings.Cut(entry, "=")
			path, found := strings.CutPrefix(name, prefix)
			if !ok || !found || !strings.Contains(path, "__") {
				continue
			}
			c.Set = append(c.Set, Setting{Name: name, Path: strings.ReplaceAll(path, "__", "."), Text: value})
		}
		return c, nil
	}}
}

// Flags are settings from the command line, each in the form
// inventory.breaker.OpenFor=3s.
func Flags(settings ...string) Source { return assignments(LayerFlags, "flag", settings) }

// Pinned are settings that the program insists on, whatever files and the environment
// say, each in the form inventory.breaker.OpenFor=3s.
func Pinned(settings ...string) Source { return assignments(LayerPinned, "pinned", settings) }

func assignments(layer Layer, what string, settings []string) Source {
	return source{layer, func(context.Context) (Content, error) {
		c := Content{Name: what}
		var errs []error
		for _, s := range settings {
			path, value, ok := strings.Cut(s, "=")
			if !ok {
				errs = append(errs, &Error{Origin: Origin{Layer: layer, Source: what + " " + s}, Problem: "want dependency.policy.Field=value"})
				continue
			}
			c.Set = append(c.Set, Setting{Name: what + " " + path, Path: path, Text: value})
		}
		return c, errors.Join(errs...) // what is well formed is looked at as well
	}}
}

// providerWatcher is what many providers of koanf can do beside reading.
type providerWatcher interface {
	Watch(cb func(event any, err error)) error
	Unwatch() error
}

type watchedProvider struct {
	Source

	p providerWatcher
}

// Watch implements [Watchable].
func (w watchedProvider) Watch(ctx context.Context, changed func()) error {
	if err := w.p.Watch(func(_ any, err error) {
		if err == nil && ctx.Err() == nil {
			changed()
		}
	}); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	<-ctx.Done()
	return w.p.Unwatch()
}
