package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// update makes the test write the schema (make schema).
var update = flag.Bool("update", false, "write breakwater.schema.json")

const schemaFile = "breakwater.schema.json"

// commented are the packages whose comments describe the settings.
var commented = []string{"breaker", "bulkhead", "policy", "ratelimit", "retry", "config"}

func textOf(typ, pattern, description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: typ, Pattern: pattern, Description: description}
}

func oneOf(list ...*jsonschema.Schema) *jsonschema.Schema { return &jsonschema.Schema{AnyOf: list} }

// schemaOf returns how settings of a type are written, nil for those that have settings of
// their own.
func schemaOf(t *testing.T, r *jsonschema.Reflector, typ reflect.Type) *jsonschema.Schema {
	t.Helper()
	if typ == budgetType {
		list := []*jsonschema.Schema{textOf("string", "", "none, or the name of one of "+keyBudgets)}
		for _, b := range budgets {
			list = append(list, inline(t, r, b))
		}
		return oneOf(list...)
	}
	leaf := leafSchema(typ)
	if leaf == nil {
		return nil
	}
	raw, err := json.Marshal(leaf)
	require.NoError(t, err)
	s := &jsonschema.Schema{}
	require.NoError(t, json.Unmarshal(raw, s))
	return s
}

// inline returns the schema of a struct's settings, without references.
func inline(t *testing.T, r *jsonschema.Reflector, typ reflect.Type) *jsonschema.Schema {
	t.Helper()
	s := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	for _, f := range reflect.VisibleFields(typ) {
		if !settable(f) {
			continue
		}
		p := property(t, r, f.Type)
		owner := typ
		if len(f.Index) > 1 { // of an embedded struct
			owner = typ.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		c := *p
		c.Description = oneLine(r.CommentMap[owner.PkgPath()+"."+owner.Name()+"."+f.Name])
		s.Properties.Set(f.Name, &c)
	}
	return s
}

func property(t *testing.T, r *jsonschema.Reflector, typ reflect.Type) *jsonschema.Schema {
	t.Helper()
	if s := schemaOf(t, r, typ); s != nil {
		return s
	}
	switch typ.Kind() {
	case reflect.Struct:
		return inline(t, r, typ)
	case reflect.Slice:
		return &jsonschema.Schema{Type: "array", Items: property(t, r, typ.Elem())}
	case reflect.Map:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: property(t, r, typ.Elem())}
	default:
		return &jsonschema.Schema{}
	}
}

// oneLine writes a comment without its line breaks and links.
func oneLine(s string) string {
	return strings.NewReplacer("[", "", "]", "").Replace(strings.Join(strings.Fields(s), " "))
}

func objectOf(description string, pairs ...any) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Description: description, Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	for i := 0; i < len(pairs); i += 2 {
		s.Properties.Set(pairs[i].(string), pairs[i+1].(*jsonschema.Schema)) //nolint:forcetypeassert // pairs of these
	}
	return s
}

func mapOf(description string, of *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Description: description, AdditionalProperties: of}
}

// makeSchema makes the schema of the Go types and their comments.
func makeSchema(t *testing.T) []byte {
	t.Helper()
	r := &jsonschema.Reflector{}
	t.Chdir("..") // paths of the comments are relative to the root of the project
	for _, pkg := range commented {
		require.NoError(t, r.AddGoComments("github.com/breakwater-go/breakwater", "./"+pkg, jsonschema.WithFullComment()))
	}
	off := textOf("string", `^off$`, "takes away the policy that a template has")
	var entries []*jsonschema.Schema
	defaults := objectOf("Settings by kind of policy, of those that do not say otherwise.")
	var names []any
	for _, k := range basic.kinds {
		settings := inline(t, r, k.spec)
		settings.Description = oneLine(r.CommentMap[k.spec.PkgPath()+"."+k.spec.Name()])
		defs := "#/$defs/" + k.name
		names = append(names, k.name)
		entry := objectOf("", k.name, oneOf(&jsonschema.Schema{Ref: defs}, off, &jsonschema.Schema{Type: "null"}))
		entry.Required = []string{k.name}
		entries = append(entries, entry)
		defaults.Properties.Set(k.name, &jsonschema.Schema{Ref: defs})
	}
	entries = append(entries, &jsonschema.Schema{Type: "string", Enum: names})
	list := &jsonschema.Schema{Type: "array", Description: "The policies, each as its kind and its settings.", Items: &jsonschema.Schema{Ref: "#/$defs/policy"}}
	facts := inline(t, r, reflect.TypeFor[Facts]())
	facts.Description = oneLine(r.CommentMap["github.com/breakwater-go/breakwater/config.Facts"])
	dep := oneOf(objectOf("",
		keyLike, textOf("string", "", "The template or profile that this is like."),
		keyOrdered, &jsonschema.Schema{Type: "boolean", Description: "Keep the order of the gates as they are listed, outermost first."},
		keyFacts, facts,
		keyPolicies, list,
	), &jsonschema.Schema{Type: "null"})
	var shared []*jsonschema.Schema
	for _, b := range budgets {
		shared = append(shared, inline(t, r, b))
	}
	root := objectOf("Policies of dependencies.",
		keyBudgets, mapOf("Budgets that retries and hedges of several dependencies are paid from, by name.", oneOf(append(shared, &jsonschema.Schema{Type: "null"})...)),
		keyDefaults, defaults,
		keyTemplates, mapOf("What dependencies may be like, by name.", &jsonschema.Schema{Ref: "#/$defs/dependency"}),
		keyDependencies, mapOf("The dependencies, by name.", &jsonschema.Schema{Ref: "#/$defs/dependency"}),
	)
	root.Version = jsonschema.Version
	root.ID = "https://github.com/breakwater-go/breakwater/config/breakwater.schema.json"
	root.Title = "breakwater.yaml"
	root.Definitions = jsonschema.Definitions{"policy": {AnyOf: entries}, "dependency": dep}
	for _, k := range basic.kinds {
		s := inline(t, r, k.spec)
		s.Description = oneLine(r.CommentMap[k.spec.PkgPath()+"."+k.spec.Name()])
		addDefaults(t, k.name, s)
		root.Definitions[k.name] = s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	require.NoError(t, enc.Encode(root))
	return b.Bytes()
}

// The committed schema is that of the types.
func TestSchemaIsThatOfTheTypes(t *testing.T) { //nolint:paralleltest // it changes the directory
	dir, err := os.Getwd()
	require.NoError(t, err)
	made := makeSchema(t)
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(dir, schemaFile), made, 0o644))
		return
	}
	assert.Equal(t, string(made), string(Schema()), "run make schema")
	assert.NotContains(t, string(Schema()), `"description": ""`)
}

// schemaCheck returns a function that says what of a file does not fit the schema.
func schemaCheck(t *testing.T) func(data []byte) error {
	t.Helper()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	c := validator.NewCompiler()
	require.NoError(t, c.AddResource(schemaFile, doc))
	s, err := c.Compile(schemaFile)
	require.NoError(t, err)
	return func(data []byte) error {
		raw, err := yaml.YAMLToJSON(data)
		require.NoError(t, err)
		v, err := validator.UnmarshalJSON(bytes.NewReader(raw))
		require.NoError(t, err)
		return s.Validate(v)
	}
}

// What the loader accepts fits the schema, and misspelt names do not.
func TestSchemaFits(t *testing.T) {
	t.Parallel()
	check := schemaCheck(t)
	files, err := filepath.Glob("testdata/lint/*.yaml")
	require.NoError(t, err)
	for _, f := range append(files, "profiles.yaml") {
		if strings.Contains(f, "BW016") {
			continue // of another kind, with a schema of its own
		}
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		assert.NoError(t, check(data), f)
	}
	for _, bad := range []string{
		"dependencies: {a: {polices: []}}", "dependencies: {a: {policies: [braker: {}]}}",
		"dependencies: {a: {policies: [breaker: {OpenFro: 5s}]}}", "dependencies: {a: {policies: [breaker: {OpenFor: 5}]}}",
		"dependencies: {a: {policies: [ratelimit: {Rate: fast}]}}", "dependencies: {a: {policies: [retry: {Jitter: ful}]}}",
		"dependences: {}", "dependencies: {a: {facts: {Rat: 1/s}}}",
	} {
		require.Error(t, check([]byte(bad)), bad)
	}
}
