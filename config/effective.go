package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/policy"
)

// layerDefault is the layer of what nobody has set.
const layerDefault = "default"

// effective lists the settings of a policy: those that were made, and the defaults of the
// others.
func (p *Policy) effective() (list []policy.EffectiveSetting) {
	made := map[string]bool{}
	for _, v := range p.Values {
		made[v.Path] = true
		list = append(list, policy.EffectiveSetting{
			Policy: p.Name, Kind: p.Kind, Field: v.Path, Value: v.Text, Layer: v.Origin.Layer.String(), Origin: v.Origin.String(),
		})
	}
	for _, f := range p.defaults() {
		if !made[f.path] {
			list = append(list, policy.EffectiveSetting{Policy: p.Name, Kind: p.Kind, Field: f.path, Value: f.text, Layer: layerDefault})
		}
	}
	slices.SortStableFunc(list, func(a, b policy.EffectiveSetting) int { return strings.Compare(a.Field, b.Field) })
	return list
}

// flatField is a field of a configuration, as text.
type flatField struct{ path, text string }

// defaults returns all fields of a policy with their defaults filled in. Those of kinds of
// other packages are not known: to ask them could mean to connect somewhere.
func (p *Policy) defaults() []flatField {
	i := slices.IndexFunc(kinds, func(k kindOf) bool { return k.spec == reflect.TypeOf(p.Spec) })
	if i < 0 {
		return nil
	}
	return fieldsOf(reflect.ValueOf(filledIn(p.Spec)), "")
}

// filledIn returns what a live policy made of a spec says is its configuration: the spec
// with its defaults. One that has none to say is as it is.
func filledIn(spec policy.Policy) any {
	part, err := spec.BuildPolicy()
	if err != nil {
		return spec
	}
	for _, live := range []any{part.Gate, part.Runner, part.Retry, part.Hedge} {
		m := reflect.ValueOf(live)
		if !m.IsValid() {
			continue
		}
		if m = m.MethodByName("Config"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 && m.Type().Out(0) == reflect.TypeOf(spec) {
			return m.Call(nil)[0].Interface()
		}
	}
	return spec
}

// fieldsOf lists the fields of a configuration that a file can set.
func fieldsOf(v reflect.Value, path string) (list []flatField) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			return fieldsOf(v.Elem(), path)
		}
	case reflect.Struct:
		if text, ok := leaf(v); ok {
			return []flatField{{path, text}}
		}
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.IsExported() && !f.Anonymous && f.Name != keyName {
				list = append(list, fieldsOf(v.FieldByIndex(f.Index), join(path, f.Name))...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			list = append(list, fieldsOf(v.Index(i), path+"["+strconv.Itoa(i)+"]")...)
		}
	default:
		if text, ok := leaf(v); ok {
			return []flatField{{path, text}}
		}
	}
	return list
}

// leaf writes a value as a file would. It reports false for what no file can say.
func leaf(v reflect.Value) (string, bool) {
	if s, ok := reflect.TypeAssert[fmt.Stringer](v); ok {
		if d, isTime := s.(time.Duration); isTime && d < 0 {
			return "off", true
		}
		return s.String(), true
	}
	switch v.Kind() {
	case reflect.Bool, reflect.String:
		return fmt.Sprint(v.Interface()), true
	case reflect.Int, reflect.Int32, reflect.Int64:
		if v.Int() == -1 {
			return "off", true
		}
		return strconv.FormatInt(v.Int(), 10), true
	case reflect.Float64:
		if v.Float() == -1 {
			return "off", true
		}
		return strconv.FormatFloat(v.Float(), 'g', -1, 64), true
	case reflect.Uint8, reflect.Int8:
		return fmt.Sprint(v.Interface()), true
	default:
		return "", false
	}
}
