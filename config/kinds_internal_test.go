package config

import (
	"reflect"
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

func FuzzLoad(f *testing.F) {
	f.Add([]byte("dependencies: {x: {like: database, policies: [breaker: {OpenFor: 5s}]}}"), "x.breaker.OpenFor=3s")
	f.Add([]byte("a: &a [*a, *a]"), "x")
	f.Add([]byte("x: &a {b: c}\ny: {<<: *a}\ndefaults: {retry: {Budget: none}}"), "=")
	f.Add([]byte("dependencies: {x: {policies: [lanes: {Lanes: [{Name: a, Rate: 1/s}]}, all: {Limits: [keyed: {Rate: 1/s, Exceptions: {k: {Rate: 2/s}}}]}]}}"), "x.all.Name=y")
	f.Add([]byte("templates: {a: {like: a}}\ndependencies: {x: {like: a, ordered: yes}}"), "x.lanes.Lanes=[]")
	f.Fuzz(func(t *testing.T, data []byte, flag string) {
		s, err := Load(t.Context(), Bytes("b.yaml", LayerFile, data), Flags(flag))
		if err != nil {
			assert.NotEmpty(t, err.Error())
			return
		}
		for _, d := range s.Dependencies {
			_, _ = policy.New(d.Name, d.Specs()...)
		}
	})
}
