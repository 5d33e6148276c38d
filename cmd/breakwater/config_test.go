package main

import (
	"bytes"
	"encoding/json"
	"flag"
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
	short := filepath.Join(t.TempDir(), "short.csv")
	require.NoError(t, os.WriteFile(short, []byte("concurrency,throughput,latency_ms\n100,1000,100\n200,2000,100\n"), 0o600))
	for _, tt := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"--rate=10", "--latency=800ms"}, exitOK, "bulkhead: {Limit: 15}", ""},
		{[]string{"--csv", csv, "--wait=500ms"}, exitOK, "pool: {Workers: 200, Queue: 1000, MaxWait: 500ms}", ""},
		{[]string{"--csv", short}, exitOK, "pool: {Workers: 200, Queue: none}", "the last step has the highest throughput"},
		{nil, exitError, "", "at least one of --rate"},
		{[]string{"--rate=600/m", "--latency=800ms"}, exitOK, "bulkhead: {Limit: 15}", ""},
		{[]string{"--quota=100/s", "--latency=1s"}, exitOK, "80 per second", ""},
		{[]string{"--rate=ten"}, exitUsage, "", `"ten" is no rate: want one such as 10/s, 600/m or 10`},
		{[]string{"--rate=10"}, exitError, "", "size.Latency"},
		{[]string{"--rate=-1"}, exitError, "", "size.Rate: -1"},
		{[]string{"--rate=10", "--latency=1s", "--nodes=0"}, exitError, "", "--nodes 0: want at least 1"},
		{[]string{"--quota=100", "--latency=1s", "--nodes=4"}, exitOK, "# - redis: {Limits: [{Rate: 80/s, Burst: 80}], Settings: {Nodes: 4}}", ""},
		{[]string{"--csv", csv + "x"}, exitError, "", "no such file"},
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, tt.code, run(t.Context(), append([]string{"size"}, tt.args...), output{&out, &errs}), errs.String())
		assert.Contains(t, out.String(), tt.out)
		assert.Contains(t, errs.String(), tt.err)
	}
}

// update makes a test write what it compares with (make schema).
var update = flag.Bool("update", false, "write what is compared with")

// The committed schema, for editors, is the one that the command prints: that of all kinds.
func TestSchema(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"schema"}, output{&out, &errs}))
	assert.True(t, json.Valid(out.Bytes()))
	if *update {
		require.NoError(t, os.WriteFile("breakwater.schema.json", out.Bytes(), 0o600))
	}
	committed, err := os.ReadFile("breakwater.schema.json")
	require.NoError(t, err)
	assert.Equal(t, string(committed), out.String(), "run make schema")
}

// A file may have policies of other modules: lint and config show know them without their
// clients.
func TestSharedLimits(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	require.Equal(t, exitError, run(t.Context(), []string{"lint", "../../config/testdata/lint/BW016-bad.yaml"}, output{&out, &errs}), errs.String())
	assert.Contains(t, out.String(), "[BW016]")
	out.Reset()
	require.Equal(t, exitOK, run(t.Context(), []string{"config", "show", "--set", "answers.redis.Settings.Nodes=5", "../../config/testdata/lint/BW016-good.yaml"}, output{&out, &errs}), errs.String())
	assert.Regexp(t, `answers.redis.Limits\[0\].Rule +sliding_window +file`, out.String())
	assert.Regexp(t, `answers.redis.Settings.Nodes +5 +flags`, out.String())
}
