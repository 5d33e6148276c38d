// Package reload helps live policies to say which of their settings they can take over.
package reload

import (
	"fmt"
	"reflect"
	"slices"
)

// Fixed compares two configurations of one type, with their defaults filled in. It reports
// the first field in which they differ that is none of those which can be moved.
func Fixed(now, next any, movable ...string) error {
	a, b := reflect.ValueOf(now), reflect.ValueOf(next)
	if a.Type() != b.Type() {
		return fmt.Errorf("it would become a %s", b.Type())
	}
	for _, f := range reflect.VisibleFields(a.Type()) {
		if len(f.Index) > 1 || !f.IsExported() || slices.Contains(movable, f.Name) {
			continue
		}
		x, y := a.FieldByIndex(f.Index).Interface(), b.FieldByIndex(f.Index).Interface()
		if !reflect.DeepEqual(x, y) {
			return fmt.Errorf("%s cannot be changed in place", f.Name)
		}
	}
	return nil
}
