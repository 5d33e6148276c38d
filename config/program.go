package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// Program is what a program has at hand for files to refer to. It stands among the sources
// of a [Load] or a [Manager], and holds no settings itself. Nothing in it may change once it
// was handed over.
type Program struct {
	// Kinds are kinds of policies of other packages, such as that of
	// config/redisconfig.
	Kinds []Kind

	// Policies are those that a file refers to by these names ("Use"), since they are
	// code: fallbacks, stale caches, deferrals, maps of errors and classifiers. Several
	// dependencies may use one, and a reload may bring one back: they stay the caller's, and
	// no pipeline closes them.
	Policies map[string]policy.Policy

	// AnyName takes names in the file as they are: for tools that look at it without the
	// program that it belongs to. No pipeline can be made of policies that are not here.
	AnyName bool

	once  sync.Once
	found map[string]*handed
	errs  []error
}

// Kind is a kind of policy that another package adds to those of this one.
type Kind struct {
	// Name is what stands in the file: the kind of the policies as metrics and errors
	// have it, in lower case.
	Name string

	// Settings is the zero value of a struct. Its exported fields are the settings, as
	// for the kinds of this package: durations, rates, numbers, texts, truth values,
	// small numbers with a String method, and structs, lists and maps of such.
	Settings any

	// Make returns the policy of a dependency that settings describe, which are of the
	// type of Settings. Everything that is wrong with them it returns as joined
	// [*policy.ConfigError], by whose Field the place in the file is found. It is
	// called at each load, from one goroutine at a time.
	Make func(dependency string, settings any) (policy.Policy, error)

	// About returns what [Lint] is to know of a policy. Nil means nothing.
	About func(settings any) About

	// Descriptions say in the JSON Schema what the settings are, by their paths, such as
	// "Limits.Rate"; the one of the policy itself has the empty path.
	Descriptions map[string]string
}

// About is what [Lint] is to know of a policy of a [Kind].
type About struct {
	// Limits are its limits on calls per time.
	Limits []AboutLimit

	// MaxWait and MaxWaiters are for how long calls wait in it, and how many of them.
	MaxWait    time.Duration
	MaxWaiters int

	// Timeout is how long a call waits for a store that the policy asks. Zero means that
	// there is none, or that no call waits for it.
	Timeout time.Duration

	// NoStandIn says that calls are refused while the store cannot be asked.
	NoStandIn bool

	// Within is the path of the setting that has MaxWait, MaxWaiters, Timeout and StandIn
	// in it, such as "Settings". Empty means the policy itself.
	Within string
}

// AboutLimit is a limit on calls per time.
type AboutLimit struct {
	Path      string  // of the limit within the policy, such as "Limits[0]"
	PerSecond float64 // that this process may make; its share of a limit that several have
	Burst     int     // that may come at once from this process
	Field     string  // the setting that Burst is, such as "Burst" or "Limit"
	Keyed     bool    // for each key
	Bucket    bool    // what is not used is saved up
}

// Layer implements [Source].
func (*Program) Layer() Layer { return LayerBuiltIn }

// Read implements [Source]. The error says what is wrong with the program's kinds and
// policies.
func (p *Program) Read(context.Context) (Content, error) {
	c := Content{Name: "program", program: p}
	p.once.Do(func() { p.found, p.errs = p.handedOver() })
	names := basic.kindNames()
	errs := slices.Clone(p.errs)
	for i, k := range p.Kinds {
		fail := func(field string, value any, want string) {
			errs = append(errs, &policy.ConfigError{Policy: "config", Field: fmt.Sprintf("Kinds[%d].%s", i, field), Value: value, Want: want})
		}
		switch {
		case k.Name == "":
			fail("Name", nil, "want the kind of the policies")
		case slices.Contains(names, k.Name):
			fail("Name", k.Name, "want a name that no other kind has")
		}
		names = append(names, k.Name)
		if t := reflect.TypeOf(k.Settings); t == nil || t.Kind() != reflect.Struct {
			fail("Settings", k.Settings, "want a struct")
		}
		if k.Make == nil {
			fail("Make", nil, "want a function")
		}
	}
	return c, errors.Join(errs...)
}

// vocabulary is what the settings of a load may speak of.
type vocabulary struct {
	kinds    []kindOf
	policies map[string]*handed
	anyName  bool
}

// basic is the vocabulary of this package alone.
var basic = vocabularyOf(nil)

// vocabularyOf returns what all programs among the contents have to say.
func vocabularyOf(list []content) *vocabulary {
	v := &vocabulary{kinds: slices.Clip(kinds), policies: map[string]*handed{}}
	added := v.programKinds()
	for _, c := range list {
		if c.program != nil {
			added = append(added, c.program.Kinds...)
			maps.Copy(v.policies, c.program.found)
			v.anyName = v.anyName || c.program.AnyName
		}
	}
	for _, k := range added {
		if t := reflect.TypeOf(k.Settings); k.Name != "" && k.Make != nil && t != nil && t.Kind() == reflect.Struct {
			v.kinds = append(v.kinds, kindOf{k.Name, t, &k})
		}
	}
	return v
}

func (v *vocabulary) kindNamed(name string) (kindOf, bool) {
	for _, k := range v.kinds {
		if k.name == name {
			return k, true
		}
	}
	return kindOf{}, false
}

// kindNames lists the kinds, those of this package in the order of a pipeline, outermost
// first.
func (v *vocabulary) kindNames() []string { return kindNames(v.kinds) }

// limits notes what a policy of another package says of itself.
func (d *dependency) limits(p *Policy, a About) {
	within := a.Within
	if within != "" {
		within += "."
	}
	for _, l := range a.Limits {
		path := l.Path
		if path != "" {
			path += "."
		}
		d.rates = append(d.rates, rate{p, path, l.PerSecond, l.Burst, path + cmp.Or(l.Field, "Burst"), l.Keyed, l.Bucket})
	}
	leave := 0.0 // those that wait for one of several limits leave as the slowest lets them
	for _, l := range a.Limits {
		if leave == 0 || l.PerSecond < leave {
			leave = l.PerSecond
		}
		if l.Keyed {
			leave = 0
			break
		}
	}
	d.wait(p, within, a.MaxWait, a.MaxWaiters, leave)
	if a.Timeout > 0 || a.NoStandIn {
		d.stores = append(d.stores, store{p, within, a.Timeout, a.NoStandIn})
	}
}

// store is a place that calls ask before they may run.
type store struct {
	at        *Policy
	path      string // of the fields, with a dot at its end; empty for the policy itself
	timeout   time.Duration
	noStandIn bool
}
