package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// required are the settings without which a kind cannot be made, and so cannot say what its
// defaults are. Kinds that are empty here have none of their own: a name, or a list.
var required = map[string]string{
	"ratelimit": "{Rate: 77/s}", "pacer": "{Rate: 77/s}", "warm_up": "{Rate: 77/s}", "keyed": "{Rate: 77/s}",
	"fixed_window": "{Limit: 77, Window: 77s}", "sliding_window": "{Limit: 77, Window: 77s}",
	"lanes": "{Lanes: [{Name: a, Rate: 77/s}]}", "feedback": "{Ceiling: 77/s}", "timeout": "{Total: 77s}",
	"all": "", "fallback": "", "stale": "", "defer": "", "errormap": "", "classify": "",
}

// stated finds the default that a comment states as a plain value. One that depends on other
// settings is not such a value, and left to the words.
var stated = regexp.MustCompile(`(?:Zero|Empty) means "?([0-9][0-9.,]*(?: ?(?:µs|ms|s|m|h)\b)?|[a-z_]+)"?`)

// addDefaults puts the defaults of a kind into the schema of its settings: those that the
// comments state as a value, provided that a policy that is made without the setting has it.
func addDefaults(t *testing.T, kind string, s *jsonschema.Schema) {
	t.Helper()
	settings, listed := required[kind]
	switch {
	case !listed:
		settings = "{}"
	case settings == "":
		return
	}
	loaded, err := Load(t.Context(), Bytes("b.yaml", LayerFile, []byte("dependencies: {x: {policies: ["+kind+": "+settings+"]}}")))
	require.NoError(t, err, kind)
	made := &loaded.Dependencies[0].Policies[0]
	for _, f := range append(made.defaults(), flatField{keyName, made.Name}) {
		p := propertyAt(s, f.path)
		if p == nil {
			continue
		}
		m := stated.FindStringSubmatch(p.Description)
		if m == nil || strings.Contains(m[1], "..") {
			continue
		}
		want := strings.TrimRight(strings.NewReplacer(",", "", " ", "").Replace(m[1]), ".")
		if d, err := time.ParseDuration(want); err == nil && d.String() == f.text {
			p.Default = want
		} else if want == f.text {
			p.Default = valueOf(p, want)
		}
	}
}

// propertyAt finds the schema of a setting by its path, nil where there is none.
func propertyAt(s *jsonschema.Schema, path string) *jsonschema.Schema {
	for name := range strings.SplitSeq(path, ".") {
		name, index, inList := strings.Cut(name, "[")
		if s.Properties == nil {
			return nil
		}
		next, ok := s.Properties.Get(name)
		if !ok {
			return nil
		}
		if s = next; inList && index == "0]" && s.Items != nil {
			s = s.Items
		}
	}
	return s
}

// valueOf is a number where the setting can be one.
func valueOf(p *jsonschema.Schema, text string) any {
	for _, way := range p.AnyOf {
		switch way.Type {
		case "integer":
			if n, err := strconv.Atoi(text); err == nil {
				return n
			}
		case "number":
			if n, err := strconv.ParseFloat(text, 64); err == nil {
				return n
			}
		}
	}
	return text
}

// The schema says what a setting is when nobody has set it, and what it says can be written.
func TestSchemaHasDefaults(t *testing.T) {
	t.Parallel()
	var doc struct {
		Defs map[string]struct {
			Properties map[string]struct{ Default any }
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(Schema(), &doc))
	for _, tt := range []struct {
		kind, field string
		want        any
	}{
		{"breaker", "FailureRatio", 0.5},
		{"breaker", "MinCalls", 20.0},
		{"breaker", "OpenFor", "5s"},
		{"breaker", "Name", "breaker"},
		{"breaker", "MaxOpenFor", nil}, // as OpenFor
		{"bulkhead", "Limit", 100.0},
		{"pool", "MaxWait", "500ms"},
		{"retry", "MaxAttempts", 3.0},
		{"ratelimit", "Rate", nil}, // required
	} {
		assert.Equal(t, tt.want, doc.Defs[tt.kind].Properties[tt.field].Default, "%s.%s", tt.kind, tt.field)
	}
	check := schemaCheck(t)
	for kind, def := range doc.Defs {
		for field, p := range def.Properties {
			if p.Default != nil {
				text, err := json.Marshal(p.Default)
				require.NoError(t, err)
				file := fmt.Appendf(nil, "dependencies: {a: {policies: [%s: {%s: %s}]}}", kind, field, text)
				assert.NoError(t, check(file), "%s", file)
			}
		}
	}
}
