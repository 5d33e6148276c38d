package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		args   []string
		code   int
		out    string // is on standard output
		errOut string // is on standard error
	}{
		{"help", []string{"--help"}, exitOK, "demo [flags]", ""},
		{"help on the demo", []string{"demo", "--help"}, exitOK, "How long the load lasts, at least 6s.", ""},
		{"no command", nil, exitUsage, "", "breakwater demo --help"},
		{"an unknown command", []string{"swim"}, exitUsage, "", "swim"},
		{"an unknown flag", []string{"demo", "--fast"}, exitUsage, "", "--fast"},
		{"too short", []string{"demo", "--for", "5999ms"}, exitUsage, "", "want at least 6s"},
		{"no duration", []string{"demo", "--for", "20"}, exitUsage, "", "--for"},
		{"a negative seed", []string{"demo", "--seed=-1"}, exitUsage, "", "--seed"},
		{"no address", []string{"demo", "--metrics-addr", "127.0.0.1:port"}, exitError, "", "breakwater: demo: listen tcp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			code := run(t.Context(), tt.args, output{Out: &out, Err: &errOut})
			assert.Equal(t, tt.code, code)
			assert.Contains(t, out.String(), tt.out)
			assert.Contains(t, errOut.String(), tt.errOut)
			if tt.code == exitOK {
				assert.Empty(t, errOut.String())
			} else {
				assert.Empty(t, out.String())
			}
		})
	}
}

// interruptedSoon returns a context that ends as one that Ctrl-C ends, after the load
// has begun.
func interruptedSoon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDemoInterruptedPrintsWhatItHas(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	code := run(interruptedSoon(t), []string{"demo", "--for", "1h", "--spans"}, output{Out: &out, Err: &errOut})
	assert.Equal(t, exitInterrupted, code)
	assert.Regexp(t, `^metrics: http://127\.0\.0\.1:\d+/metrics\n$`, errOut.String())
	assert.Contains(t, out.String(), "time phase", "lines where there is no terminal")
	assert.Contains(t, out.String(), "at 240 requests per second, interrupted")
	assert.Contains(t, out.String(), "GET /price")
}

func TestDemoJSONIsAllThereIsOnStandardOutput(t *testing.T) {
	t.Parallel()
	var out, errOut bytes.Buffer
	code := run(interruptedSoon(t), []string{"demo", "--json", "--seed", "7"}, output{Out: &out, Err: &errOut})
	assert.Equal(t, exitInterrupted, code)
	var r demo.Report
	dec := json.NewDecoder(&out)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	assert.False(t, dec.More())
	assert.True(t, r.Interrupted)
	assert.EqualValues(t, 7, r.Seed)
	assert.GreaterOrEqual(t, r.Rate, 200)
	assert.Positive(t, r.Protected.Real)
}
