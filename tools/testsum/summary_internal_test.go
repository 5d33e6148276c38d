package main

import (
	"bytes"
	"strings"
	"testing"
)

const start = `{"Time":"2026-01-02T03:04:05Z","Action":"start","Package":"m/a"}` + "\n"

func TestSummary(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		in    string
		line  string
		fails bool
		shows []string // substrings of the output
		hides []string
	}{
		{
			name: "pass, skip and subtests",
			in: start +
				`{"Action":"output","Package":"m/a","Test":"TestA","Output":"quiet please\n"}
{"Action":"pass","Package":"m/a","Test":"TestA/sub"}
{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"m/a","Test":"TestB","Output":"    a_test.go:9: needs redis-server\n"}
{"Action":"skip","Package":"m/a","Test":"TestB"}
{"Time":"2026-01-02T03:04:07Z","Action":"pass","Package":"m/a","Elapsed":1.5}
{"Action":"skip","Package":"m/b"}
`,
			line:  "2 passed, 0 failed, 1 skipped",
			shows: []string{"ok   m/a\t3 tests\t1.50s", "m/a TestB: a_test.go:9: needs redis-server", "?    m/b", "DONE 3 tests in 2.0s"},
			hides: []string{"quiet please"},
		},
		{
			name: "a failing test is shown whole",
			in: start +
				`{"Action":"output","Package":"m/a","Test":"TestA","Output":"line 1\n"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"line 2\n"}
{"Action":"fail","Package":"m/a","Test":"TestA"}
{"Action":"fail","Package":"m/a","Elapsed":0.1}
`,
			line:  "0 passed, 1 failed, 0 skipped",
			fails: true,
			shows: []string{"--- failed: m/a TestA\nline 1\nline 2\n", "FAIL m/a"},
		},
		{
			name: "a panic ends the package before its test ends",
			in: start +
				`{"Action":"output","Package":"m/a","Test":"TestA","Output":"panic: oh\n"}
{"Action":"fail","Package":"m/a","Elapsed":0.1}
`,
			line:  "0 passed, 1 failed, 0 skipped",
			fails: true,
			shows: []string{"panic: oh", "m/a failed outside its tests"},
		},
		{
			name: "passing tests in a package that fails after them",
			in: start +
				`{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Output":"goleak: found unexpected goroutines\n"}
{"Action":"fail","Package":"m/a","Elapsed":0.1}
`,
			line:  "1 passed, 1 failed, 0 skipped",
			fails: true,
			shows: []string{"goleak: found"},
		},
		{
			name: "does not build",
			in: `{"ImportPath":"m/a [m/a.test]","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"m/a [m/a.test]","Action":"build-fail"}
` + start + `{"Action":"fail","Package":"m/a","Elapsed":0,"FailedBuild":"m/a [m/a.test]"}
`,
			line:  "0 passed, 1 failed, 0 skipped",
			fails: true,
			shows: []string{"undefined: x", "m/a does not build"},
		},
		{
			name:  "cut off",
			in:    start + `{"Action":"output","Package":"m/a","Test":"TestA","Output":"so far\n"}`,
			line:  "0 passed, 1 failed, 0 skipped",
			fails: true,
			shows: []string{"never ended: m/a", "so far"},
		},
		{
			name:  "no test ran",
			in:    "warning: no packages\n",
			line:  "0 passed, 0 failed, 0 skipped",
			fails: true,
			shows: []string{"warning: no packages"},
		},
		{
			name: "two runs of a package add up",
			in: start + `{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"pass","Package":"m/a","Elapsed":1}
` + start + `{"Action":"pass","Package":"m/a","Test":"TestAllocA"}
{"Action":"pass","Package":"m/a","Elapsed":1}
`,
			line:  "2 passed, 0 failed, 0 skipped",
			shows: []string{"       2      2.00  m\n"},
		},
		{
			name: "the longest module path wins",
			in: `{"Action":"pass","Package":"m/tools/x","Test":"TestA"}
{"Action":"pass","Package":"m/tools/x","Elapsed":1}
`,
			line:  "1 passed, 0 failed, 0 skipped",
			shows: []string{"1.00  m/tools\n"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := newSummary(&out, []string{"m", "m/tools"})
			if err := s.read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if got := s.finish(); got != tt.line {
				t.Errorf("last line %q, want %q", got, tt.line)
			}
			if err := s.verdict(); (err != nil) != tt.fails {
				t.Errorf("verdict %v, want a failure: %t", err, tt.fails)
			}
			for _, want := range tt.shows {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
			for _, not := range tt.hides {
				if strings.Contains(out.String(), not) {
					t.Errorf("output has %q:\n%s", not, out.String())
				}
			}
		})
	}
}
