package config

import "reflect"

// specialWords are how values below zero that have a name are written.
const specialWords = `^(off|none|unlimited|empty)$`

// object is a part of a JSON Schema.
type object = map[string]any

func text(pattern string) object { return object{"type": "string", "pattern": pattern} }

func anyOf(list ...any) object { return object{"anyOf": list} }

// leafSchema returns how settings of a type are written that have no settings of their own,
// nil for those that have.
func leafSchema(t reflect.Type) object {
	switch t {
	case durationType:
		return anyOf(text(`^[-+]?([0-9.]+(ns|us|µs|ms|s|m|h))+$`), text(specialWords), object{"const": 0})
	case rateType:
		return anyOf(text(`^\s*[-+0-9.eE]+\s*/\s*[0-9a-zµ.]+\s*$`), text(`^unlimited$`))
	case policyType:
		return object{"$ref": "#/$defs/policy"}
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return anyOf(object{"type": "integer"}, text(`^[-+]?[0-9]+\s*(k|M|G|Ki|Mi|Gi)?$`), text(specialWords))
	case reflect.Float64:
		return anyOf(object{"type": "number"}, text(`^[-+0-9.eE]+\s*%?$`), text(specialWords))
	case reflect.Uint8, reflect.Int8:
		var names []string
		for _, w := range words(t) {
			names = append(names, w.name)
		}
		return object{"type": "string", "enum": names}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	default:
		return nil
	}
}

// shapeOf returns the JSON Schema of settings, with descriptions by their paths.
func shapeOf(t reflect.Type, descriptions map[string]string, path string) object {
	s := leafSchema(t)
	switch {
	case s != nil:
	case t == budgetType:
		list := []any{object{"type": "string", "description": "none, or the name of one of " + keyBudgets}}
		for _, b := range budgets {
			list = append(list, shapeOf(b, descriptions, path))
		}
		return anyOf(list...)
	case t.Kind() == reflect.Slice:
		s = object{"type": "array", "items": shapeOf(t.Elem(), descriptions, path)}
	case t.Kind() == reflect.Map:
		s = object{"type": "object", "additionalProperties": shapeOf(t.Elem(), descriptions, path)}
	case t.Kind() == reflect.Struct:
		fields := object{}
		for _, f := range reflect.VisibleFields(t) {
			if settable(f) {
				own := shapeOf(f.Type, descriptions, join(path, f.Name))
				if about := descriptions[join(path, f.Name)]; about != "" {
					own["description"] = about
				}
				fields[f.Name] = own
			}
		}
		s = object{"type": "object", "additionalProperties": false, "properties": fields}
	default:
		s = object{}
	}
	return s
}
