package redisconfig

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// update makes the test write the descriptions (make schema).
var update = flag.Bool("update", false, "write descriptions.json")

// described collects the comments of the fields of a struct, and of those within it.
func described(r *jsonschema.Reflector, t reflect.Type, path string, to map[string]string) {
	for t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), "github.com/breakwater-go/") || t.Name() == "Rate" {
		return
	}
	oneLine := strings.NewReplacer("[", "", "]", "")
	for f := range t.Fields() {
		at := f.Name
		if path != "" {
			at = path + "." + f.Name
		}
		if comment := r.CommentMap[t.PkgPath()+"."+t.Name()+"."+f.Name]; comment != "" {
			to[at] = oneLine.Replace(strings.Join(strings.Fields(comment), " "))
		}
		described(r, f.Type, at, to)
	}
}

// The descriptions are the comments of the types.
func TestDescriptionsAreTheComments(t *testing.T) { //nolint:paralleltest // it changes the directory
	dir, err := os.Getwd()
	require.NoError(t, err)
	r := &jsonschema.Reflector{}
	t.Chdir("../..") // paths of the comments are relative to the root of the project
	for _, pkg := range []string{"config/redisconfig", "ratelimit/sharedlimit"} {
		require.NoError(t, r.AddGoComments("github.com/breakwater-go/breakwater", "./"+pkg, jsonschema.WithFullComment()))
	}
	made := map[string]string{"": "A limit that processes share, kept in Redis or Valkey."}
	described(r, reflect.TypeFor[Settings](), "", made)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	require.NoError(t, enc.Encode(made))
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "descriptions.json"), b.Bytes(), 0o600))
		return
	}
	assert.Equal(t, b.String(), string(descriptions), "run make schema")
	for _, want := range []string{"Client", "Limits.Rule", "Settings.StandIn"} {
		assert.NotEmpty(t, made[want], want)
	}
}
