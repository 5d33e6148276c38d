package policy

import "reflect"

// specOf returns what a policy is to be compared by. Of a pointer to a configuration that
// is what it points to now: the one who has the pointer may change that.
func specOf(p Policy) Policy {
	v := reflect.ValueOf(p)
	if v.Kind() == reflect.Pointer && v.Type().Elem().Implements(reflect.TypeFor[Policy]()) {
		return v.Elem().Interface().(Policy) // as was just asked
	}
	return p
}

// alike reports whether two specs say the same. Live objects, which their specs refer to, are
// alike if they are one: what is in them is theirs to look at. Functions never are.
func alike(a, b Policy) bool { return alikeValues(reflect.ValueOf(a), reflect.ValueOf(b), 0) }

// deepest is how far alike looks into a configuration, which may refer to itself.
const deepest = 100

func alikeValues(a, b reflect.Value, depth int) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() || depth > deepest {
		return false
	}
	depth++
	switch a.Kind() {
	case reflect.Interface:
		return alikeValues(a.Elem(), b.Elem(), depth)
	case reflect.Pointer:
		return a.Equal(b) || isPlain(a.Type().Elem()) && alikeValues(a.Elem(), b.Elem(), depth)
	case reflect.Struct:
		for i := range a.NumField() {
			if !alikeValues(a.Field(i), b.Field(i), depth) {
				return false
			}
		}
		return true
	case reflect.Slice, reflect.Array:
		if a.Kind() == reflect.Slice && a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !alikeValues(a.Index(i), b.Index(i), depth) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		for _, key := range a.MapKeys() {
			if !alikeValues(a.MapIndex(key), b.MapIndex(key), depth) {
				return false
			}
		}
		return true
	case reflect.Func:
		return a.IsNil() && b.IsNil()
	default:
		return a.Equal(b)
	}
}

// isPlain reports whether all of a type is for everybody to read.
func isPlain(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return true
	}
	for f := range t.Fields() {
		if !f.IsExported() {
			return false
		}
	}
	return true
}
