package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkText checks a page of the given text against the standard library.
func checkText(t *testing.T, text string) []fault {
	t.Helper()
	c := &checker{root: ".", known: map[string]string{"errors": "errors", "context": "context", "time": "time", "net/http": "net/http", "rand": "crypto/rand", "nothing": "example.com/nothing"}}
	p := parsePage("p.md", text)
	var list []snippet
	for _, b := range p.blocks {
		list = append(list, snippet{page: p, block: b})
	}
	faults, err := c.check(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

func TestMain(m *testing.M) {
	// The prelude of the project needs its packages, which these tests are not about.
	commonPrelude = "package snippet\n\nvar shared, other int\n\ntype thing struct{}\n\nfunc (thing) m() {}\n"
	os.Exit(m.Run())
}

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, prelude, block string
		want                 string // part of the only fault, or "" for none
	}{
		{name: "statements", block: "x := 1\nif shared > 0 {\n\treturn errors.New(\"a\")\n}\n"},
		{name: "an unused variable is let pass", block: "x, y := 1, 2\n"},
		{name: "an unknown name", block: "x := 1\n\ny := missing + x\n", want: "p.md:5: undefined: missing"},
		{name: "a wrong type", block: "var s string = shared\n", want: "p.md:3: cannot use shared"},
		{name: "a wrong call", block: "errors.New(1, 2)\n", want: "too many arguments"},
		{name: "an unknown field", block: "time.Time{Hour: 3}\n", want: "unknown field Hour"},
		{name: "an expression", block: "thing{}\n"},
		{name: "several results", block: "if shared > 0 {\n\treturn 1, \"a\", nil\n}\nreturn 2, \"b\", errors.New(\"a\")\n"},
		{name: "a plain return", block: "if shared > 0 {\n\treturn\n}\n"},
		{name: "returns of a closure do not count", block: "f := func() (int, error) { return 1, nil }\nreturn nil\n"},
		{name: "declarations", block: "func f(d time.Duration) error { return errors.New(d.String()) }\n"},
		{name: "a missing return", block: "func f() int {\n}\n", want: "missing return"},
		{name: "an unused variable of a whole function", block: "func f() {\n\tx := 1\n}\n", want: "declared and not used: x"},
		{name: "own names come before those of the prelude", block: "var shared = \"text\"\n\nvar n = len(shared)\n"},
		{name: "and so do types and methods", block: "type thing struct{ n int }\n\nfunc (thing) m() int { return other }\n"},
		{name: "a type of one's own keeps other methods", block: "type thing struct{ n int }\n\nfunc f() { thing{}.m() }\n"},
		{name: "a local name hides a package", block: "time := thing{}\ntime.m()\n"},
		{name: "a file", block: "package main\n\nimport \"errors\"\n\nvar err = errors.New(\"a\")\n"},
		{name: "a file has no prelude", block: "package main\n\nvar x = shared\n", want: "undefined: shared"},
		{name: "a file imports what it uses", block: "package main\n\nvar x = time.Second\n", want: "undefined: time"},
		{name: "a file uses what it imports", block: "package main\n\nimport \"time\"\n", want: "imported and not used"},
		{name: "imports alone", block: "import (\n\t\"errors\"\n\t\"time\"\n)\n"},
		{name: "imports alone that are not there", block: "import \"example.com/nothing\"\n", want: "import example.com/nothing:"},
		{name: "two files of a package", block: "package main\n\nvar a = b\n```\n\nand\n\n```go\npackage main\n\nvar b = 1\n"},
		{name: "a fault in the second file", block: "package main\n\nvar a = b\n```\n```go\npackage main\n\nvar b = c\n", want: "p.md:10: undefined: c"},
		{name: "two packages", block: "package main\n\nvar a = b\n```\n```go\npackage other\n\nvar b = 1\n", want: "undefined: b"},
		{name: "imports in front of statements", block: "import \"math/rand/v2\"\n\nx := rand.N(10)\n"},
		{name: "the prelude of the page", prelude: "var mine = time.Second", block: "x := mine.String()\n"},
		{name: "imports of the page's prelude", prelude: "import \"math/rand/v2\"", block: "x := rand.N(10)\n"},
		{name: "a fault of the prelude", prelude: "var mine int = \"a\"", block: "x := 1\n", want: "p.md:2: cannot use"},
		{name: "an import that is not there", block: "x := nothing.F()\n", want: "import example.com/nothing:"},
		{name: "syntax", block: "x := 1\ny := := 2\n", want: "p.md:4: syntax:"},
		{name: "syntax of a function", block: "func f() {\n\tx := := 2\n}\n", want: "p.md:4: syntax:"},
		{name: "format", block: "x := 1\ny  := 2\n", want: `p.md:4: not formatted: gofmt wants "y := 2"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := "\n"
			if tt.prelude != "" {
				text = "<!-- snippet-prelude\n" + tt.prelude + "\n-->\n"
			}
			faults := checkText(t, text+"```go\n"+tt.block+"```\n")
			switch {
			case tt.want == "" && len(faults) > 0:
				t.Errorf("got %v, want none", faults)
			case tt.want != "" && (len(faults) != 1 || !strings.Contains(faults[0].String(), tt.want)):
				t.Errorf("got %v, want one with %q", faults, tt.want)
			}
		})
	}
}

// The whole program, on a workspace of its own.
func TestRun(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("go.work", "go 1.26\n\nuse .\n")
	write("pkg/pkg.go", "package pkg\n\nconst N = 1\n")
	write("pkg/pkg_test.go", "package pkg\n\nfunc TestCaseB01(t *testing.T) {}\n")
	write("internal/hidden/hidden.go", "package hidden\n\nconst N = 1\n")
	write("docs/README.md", "[cases](explanation/cases.md)\n")
	write(casesPage, "| B01 | it | |\n")
	write("README.md", "```go\nx := pkg.N\ny := hidden.N\n```\n[docs](docs/README.md)\n<!-- embed: pkg/pkg.go -->\n```go\npackage pkg\n```\n")
	write(".tmp/ignored.md", "[no](no.md)\n")

	faults, _, err := run(t.Context(), root, false)
	if err != nil {
		t.Fatal(err)
	}
	same(t, faults,
		"README.md:3: undefined: hidden",
		"README.md:8: the block differs from pkg/pkg.go: run make docs-write",
		casesPage+":1: the tests of B01 are not as listed: run make docs-write")

	faults, summary, err := run(t.Context(), root, true)
	if err != nil {
		t.Fatal(err)
	}
	same(t, faults, "README.md:3: undefined: hidden")
	if summary != "docs: 3 pages, 2 Go blocks, 2 links, 1 faults" {
		t.Error(summary)
	}
}
