package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "breakwater.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLint(t *testing.T) {
	t.Parallel()
	bad := write(t, "dependencies: {a: {policies: [breaker: {MinCalls: 1}]}}")
	good := write(t, "dependencies: {a: {policies: [breaker: {MinCalls: 9}]}}")
	empty := write(t, "templates: {a: {policies: [breaker: {}]}}")
	broken := write(t, "dependencies: {a: {policies: [braker: {}]}}")
	for _, tt := range []struct {
		name string
		args []string
		code int
		out  string
		err  string
	}{
		{"something", []string{"lint", bad}, exitError, "[BW024]", ""},
		{"nothing", []string{"lint", good}, exitOK, "0 errors, 0 warnings", ""},
		{"nothing as bad", []string{"lint", "--fail-on", "error", bad}, exitOK, "[BW024]", ""},
		{"set by a flag", []string{"lint", bad, "--set", "a.breaker.MinCalls=5"}, exitOK, "0 errors", ""},
		{"as json", []string{"lint", "--format=json", bad}, exitError, `"rule": "BW024"`, ""},
		{"as sarif", []string{"lint", "--format=sarif", bad}, exitError, `"ruleId": "BW024"`, ""},
		{"a file that does not load", []string{"lint", broken}, exitError, "", `did you mean "breaker"`},
		{"a file that is not there", []string{"lint", good + "x"}, exitError, "", "no such file"},
		{"a file without a dependency", []string{"lint", empty}, exitError, "", "no dependencies"},
		{"the same, to look at", []string{"config", "show", empty}, exitError, "", "no dependencies"},
		{"no file", []string{"lint"}, exitUsage, "", "file"},
		{"another format", []string{"lint", "--format=xml", bad}, exitUsage, "", "xml"},
		{"settings", []string{"config", "show", bad}, exitOK, "a.breaker.MinCalls  1  file  " + bad + ":1:", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			assert.Equal(t, tt.code, run(t.Context(), tt.args, output{&out, &errs}), errs.String())
			assert.Contains(t, out.String(), tt.out)
			assert.Contains(t, errs.String(), tt.err)
		})
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	csv := filepath.Join(t.TempDir(), "load.csv")
	require.NoError(t, os.WriteFile(csv, []byte("concurrency,throughput,latency_ms\n100,1000,100\n200,2000,100\n400,2010,200\n"), 0o600))
	for _, tt := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"--rate=10", "--latency=800ms"}, exitOK, "bulkhead: {Limit: 15}", ""},
		{[]string{"--csv", csv, "--wait=500ms"}, exitOK, "pool: {Workers: 200, Queue: 1000, MaxWait: 500ms}", ""},
		{nil, exitError, "", "at least one of --rate"},
		{[]string{"--rate=10"}, exitError, "", "size.Latency"},
		{[]string{"--rate=-1"}, exitError, "", "size.Rate: -1"},
		{[]string{"--csv", csv + "x"}, exitError, "", "no such file"},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, tt.code, run(t.Context(), append([]string{"size"}, tt.args...), output{&out, &errs}), errs.String())
		assert.Contains(t, out.String(), tt.out)
		assert.Contains(t, errs.String(), tt.err)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"schema"}, output{&out, &errs}))
	assert.True(t, json.Valid(out.Bytes()))
}
