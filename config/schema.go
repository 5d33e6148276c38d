package config

import (
	"bytes"
	_ "embed" // for the schema
	"encoding/json"
	"reflect"
)

//go:embed breakwater.schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of the file, made of the Go types and their
// comments: editors that know it complete and check breakwater.yaml while it is written.
// Kinds are those of other packages that the file may have. The caller may change the
// result.
func Schema(kinds ...Kind) []byte {
	if len(kinds) == 0 {
		return append([]byte(nil), schema...)
	}
	var root struct {
		Schema      string                     `json:"$schema"`
		ID          string                     `json:"$id"`
		Defs        map[string]json.RawMessage `json:"$defs"`
		Properties  map[string]any             `json:"properties"`
		Additional  bool                       `json:"additionalProperties"`
		Type        string                     `json:"type"`
		Title       string                     `json:"title"`
		Description string                     `json:"description"`
	}
	var policies struct {
		AnyOf []map[string]any `json:"anyOf"`
	}
	_ = json.Unmarshal(schema, &root) // a test reads it
	_ = json.Unmarshal(root.Defs["policy"], &policies)
	defaults, _ := root.Properties[keyDefaults].(map[string]any)["properties"].(map[string]any)
	names := policies.AnyOf[len(policies.AnyOf)-1] // of the policies that stand without settings
	list, _ := names["enum"].([]any)
	for _, k := range kinds {
		ref := map[string]any{"$ref": "#/$defs/" + k.Name}
		own := shapeOf(reflect.TypeOf(k.Settings), k.Descriptions, "")
		if about := k.Descriptions[""]; about != "" {
			own["description"] = about
		}
		root.Defs[k.Name], _ = json.Marshal(own)
		defaults[k.Name] = ref
		list = append(list, k.Name)
		policies.AnyOf = append(policies.AnyOf, map[string]any{
			"type": "object", "additionalProperties": false, "required": []string{k.Name},
			"properties": map[string]any{k.Name: map[string]any{"anyOf": []any{ref, map[string]any{"type": "string", "pattern": "^off$"}, map[string]any{"type": "null"}}}},
		})
	}
	names["enum"] = list
	root.Defs["policy"], _ = json.Marshal(policies)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(root) // nothing in it can fail
	return b.Bytes()
}
