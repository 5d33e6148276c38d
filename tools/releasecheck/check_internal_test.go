package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestReleasedGoMod(t *testing.T) {
	t.Parallel()
	ours := map[string]bool{"example.com/r": true, "example.com/r/cmd": true, "example.com/r/bench": false}
	tests := []struct {
		name, in, want, err string
	}{
		{
			name: "requires and replaces the root",
			in: "module example.com/r/cmd\n\ngo 1.26.0\n\nrequire (\n\texample.com/r v0.0.0\n\tother.org/x v1.2.3\n)\n\n" +
				"replace example.com/r => ../\n",
			want: "module example.com/r/cmd\n\ngo 1.26.0\n\nrequire (\n\texample.com/r v0.1.0\n\tother.org/x v1.2.3\n)\n",
		},
		{
			name: "keeps the mark of an indirect requirement",
			in:   "module example.com/r/cmd\n\nrequire example.com/r v0.0.0 // indirect\n",
			want: "module example.com/r/cmd\n\nrequire example.com/r v0.1.0 // indirect\n",
		},
		{
			name: "has nothing of ours",
			in:   "module example.com/r\n\nrequire other.org/x v1.2.3\n",
			want: "module example.com/r\n\nrequire other.org/x v1.2.3\n",
		},
		{
			name: "replaces somebody else's",
			in:   "module example.com/r\n\nreplace other.org/x => ../x\n",
			err:  "replaces other.org/x",
		},
		{
			name: "requires what is never released",
			in:   "module example.com/r\n\nrequire example.com/r/bench v0.0.0\n",
			err:  "example.com/r/bench, which is never released",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := releasedGoMod([]byte(tt.in), "v0.1.0", ours)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// tree is a repository in small: two modules that are released, one of them
// with a command, and one that is not.
var tree = map[string]string{
	"go.work":              "go 1.26.0\n\nuse (\n\t.\n\t./bench\n\t./cmd/hello\n)\n",
	"LICENSE":              "as you like\n",
	"go.mod":               "module example.com/r\n\ngo 1.26.0\n",
	"greet/greet.go":       "package greet\n\nconst Hello = \"hello\"\n",
	"telemetry/tele.go":    "package telemetry\n",
	"bench/go.mod":         "module example.com/r/bench\n\ngo 1.26.0\n",
	"bench/bench.go":       "package bench\n",
	"cmd/hello/go.mod":     "module example.com/r/cmd/hello\n\ngo 1.26.0\n\nrequire example.com/r v0.0.0\n\nreplace example.com/r => ../../\n",
	"cmd/hello/main.go":    "package main\n\nimport \"example.com/r/greet\"\n\nfunc main() { println(greet.Hello) }\n",
	"untracked/untracked":  "",
	"greet/untracked.go":   "package notgreet\n",
	"cmd/hello/untracked2": "",
}

func TestCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go command a dozen times")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git:", err)
	}
	// Nothing may be asked of the network: the tree requires nothing.
	t.Setenv("GOPROXY", "off")
	root := t.TempDir()
	for name, text := range tree {
		name = filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", ".", ":!untracked", ":!greet/untracked.go", ":!cmd/hello/untracked2"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	const imports = "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/r/greet\"\n)\n\nfunc main() { fmt.Println(greet.Hello) }\n"
	tests := []struct {
		name     string
		consumer string
		banned   []string
		err      string
		shows    []string
	}{
		{
			name:     "good",
			consumer: imports,
			banned:   []string{"example.com/r/telemetry"},
			shows: []string{
				"ran        hello\n",
				"compiled   2 packages",
				"downloaded example.com/r@v0.1.0-check",
				"built      example.com/r/...\n",
				"installed  example.com/r/cmd/hello@v0.1.0-check",
				"release-check: passed",
			},
		},
		{
			name:     "compiles what it should not",
			consumer: strings.Replace(imports, "\"fmt\"\n", "\"fmt\"\n\n\t_ \"example.com/r/telemetry\"\n", 1),
			banned:   []string{"example.com/r/telemetry"},
			err:      "consumer: compiles example.com/r/telemetry",
		},
		{
			name:     "does not build",
			consumer: strings.Replace(imports, "greet.Hello", "greet.Bye", 1),
			err:      "undefined: greet.Bye",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			c := &check{
				out:      &out,
				root:     root,
				tmp:      t.TempDir(),
				version:  "v0.1.0-check",
				skip:     []string{"bench"},
				consumer: tt.consumer,
				banned:   tt.banned,
			}
			err := c.run(t.Context())
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for _, want := range tt.shows {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q", want)
				}
			}
			if strings.Contains(out.String(), "example.com/r/bench") {
				t.Error("bench was packed")
			}
			t.Logf("\n%s", out.String())
		})
	}
}
