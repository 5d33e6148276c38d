package config

import _ "embed" // for the schema

//go:embed breakwater.schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of the file, made of the Go types and their
// comments: editors that know it complete and check breakwater.yaml while it is written.
// The caller may change the result.
func Schema() []byte { return append([]byte(nil), schema...) }
