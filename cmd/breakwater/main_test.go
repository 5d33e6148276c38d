package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

// runsMain is set in the environment of a process that is to be the command itself.
const runsMain = "BREAKWATER_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runsMain) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

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
		{"no command", nil, exitUsage, "", "--help"},
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
