package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/breakwater-go/breakwater/policy"
)

// codeOnly are the settings that no file can hold.
var codeOnly = map[string]bool{
	"breaker.OnStateChange": true, "keyed_breaker.OnStateChange": true, "keyed_breaker.Config": true,
	"system.CPU": true, "system.Delay": true,
}

func TestEveryFieldOfEveryKindCanBeRead(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		_, ok := reflect.TypeAssert[policy.Policy](reflect.New(k.spec).Elem())
		require.True(t, ok, "%s is a policy", k.name)
		var walk func(typ reflect.Type, path string)
		walk = func(typ reflect.Type, path string) {
			for _, f := range reflect.VisibleFields(typ) {
				at := join(path, f.Name)
				if !f.IsExported() || codeOnly[at] {
					continue
				}
				if !assert.True(t, settable(f), at) {
					continue
				}
				for elem := f.Type; ; elem = elem.Elem() {
					if elem.Kind() == reflect.Slice || elem.Kind() == reflect.Map {
						continue
					}
					switch {
					case elem == durationType, elem == rateType, elem == budgetType, elem == policyType:
					case elem.Kind() == reflect.Struct:
						walk(elem, at)
					case elem.Kind() == reflect.Uint8, elem.Kind() == reflect.Int8:
						assert.Greater(t, len(words(elem)), 1, "%s: its values have names", at)
						assert.Less(t, len(words(elem)), 20, "%s: only those that exist", at)
					default:
						assert.Contains(t, []reflect.Kind{reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64, reflect.String}, elem.Kind(), at)
					}
					break
				}
			}
		}
		walk(k.spec, k.name)
	}
}

func TestProfilesAreValid(t *testing.T) {
	t.Parallel()
	for name := range profiles() {
		s, err := Load(t.Context(), Bytes("b.yaml", LayerFile, []byte("dependencies: {x: {like: "+name+"}}")))
		require.NoError(t, err)
		p, err := policy.New("x", s.Dependencies[0].Specs()...)
		require.NoError(t, err)
		assert.Empty(t, p.Warnings())
	}
}

// adversarial are small files that would stand for very large ones, or take very long.
func adversarial() map[string]string {
	list := func(of string, n int) string { return "[" + strings.Repeat(of+", ", n-1) + of + "]" }
	var bomb, merge, chain, keys strings.Builder
	bomb.WriteString("a0: &a0 " + list("x", 9) + "\n")
	merge.WriteString("m0: &m0 {a: b}\n")
	chain.WriteString("templates:\n  t0: {}\n")
	keys.WriteString("dependencies:\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d %s\n", i, i, list(fmt.Sprintf("*a%d", i-1), 9))
		fmt.Fprintf(&merge, "m%d: &m%d {<<: [*m%d, *m%d], k%d: v}\n", i, i, i-1, i-1, i)
		fmt.Fprintf(&chain, "  t%d: {like: t%d}\n", i, i-1)
	}
	for i := range 300 {
		fmt.Fprintf(&keys, "  d%d: {like: t%d}\n", i, i)
	}
	return map[string]string{
		"the aliases stand for more than 200000 values": bomb.String() + merge.String(),
		"want fewer":              chain.String(),
		"more than 200 faults":    keys.String(),
		"more than 20000 lines":   strings.Repeat("a: b\n", 20_001),
		"more than 1000 brackets": strings.Repeat("{a: ", 2000),
		"nested deeper than 64":   "a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"want at most 1048576":    "a: " + strings.Repeat("x", 1<<20),
		"a.ratelimit.Rate":        "dependencies: {a: {policies: [ratelimit: {Rate: " + strings.Repeat("9", 10_000) + "/s}]}}",
	}
}

// A file that would take very long to read is refused, and says why.
func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	for want, text := range adversarial() {
		_, err := Load(t.Context(), Bytes("b.yaml", LayerFile, []byte(text)))
		require.ErrorContains(t, err, want)
		assert.Less(t, len(err.Error()), 1<<17, want)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("dependencies: {x: {like: database, policies: [breaker: {OpenFor: 5s}]}}"), "x.breaker.OpenFor=3s")
	f.Add([]byte("a: &a [*a, *a]"), "x")
	f.Add([]byte("x: &a {b: c}\ny: {<<: *a}\ndefaults: {retry: {Budget: none}}"), "=")
	f.Add([]byte("dependencies: {x: {policies: [lanes: {Lanes: [{Name: a, Rate: 1/s}]}, all: {Limits: [keyed: {Rate: 1/s, Exceptions: {k: {Rate: 2/s}}}]}]}}"), "x.all.Name=y")
	f.Add([]byte("templates: {a: {like: a}}\ndependencies: {x: {like: a, ordered: yes}}"), "x.lanes.Lanes=[]")
	f.Add([]byte("budgets: {s: {Ratio: 10%}}\ndependencies: {x: {policies: [retry: {Budget: s}, fallback: {Value: {a: [1, b, .nan]}}, errormap: {Use: y}]}}"), "budgets.s.Ratio=1")
	f.Add([]byte("dependencies: {x: {policies: [fallback: {Response: {Status: 200, Header: {a: b}, Body: c}}]}}"), "x.fallback.Response.Status=3")
	for _, text := range adversarial() {
		if len(text) > 1<<16 { // to change it takes longer than to read it
			continue
		}
		f.Add([]byte(text), "x.breaker.OpenFor=1s")
	}
	f.Fuzz(func(t *testing.T, data []byte, flag string) {
		s, err := Load(t.Context(), Bytes("b.yaml", LayerFile, data), Flags(flag))
		if err != nil {
			assert.NotEmpty(t, err.Error())
			return
		}
		for _, d := range s.Dependencies {
			if p, err := policy.New(d.Name, d.Specs()...); err == nil {
				_ = p.Close(t.Context())
			}
		}
	})
}
