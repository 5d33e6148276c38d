package policy

import "reflect"

// specOf returns what a policy is to be compared by. Of a pointer to a configuration that
// is what it points to now, and of maps and slices what they hold now: the one who has them
// may change them.
func specOf(p Policy) Policy {
	v := reflect.ValueOf(p)
	if v.Kind() == reflect.Pointer && v.Type().Elem().Implements(reflect.TypeFor[Policy]()) {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return v.Interface().(Policy) // as it was, or as was just asked
	}
	spec := reflect.New(v.Type()).Elem()
	spec.Set(v)
	for _, f := range spec.Fields() {
		if f.CanSet() {
			f.Set(copied(f))
		}
	}
	return spec.Interface().(Policy) // of the same type
}

// copied returns a copy of a map or a slice, and anything else as it is.
func copied(v reflect.Value) reflect.Value {
	switch {
	case v.Kind() == reflect.Map && !v.IsNil():
		m := reflect.MakeMapWithSize(v.Type(), v.Len())
		for _, key := range v.MapKeys() {
			m.SetMapIndex(key, v.MapIndex(key))
		}
		return m
	case v.Kind() == reflect.Slice && !v.IsNil():
		return reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v)
	default:
		return v
	}
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
