package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

func files(m map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range m {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// same compares faults to their texts.
func same(t *testing.T, got []fault, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != "["+strings.Join(want, " ")+"]" {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCheckLinks(t *testing.T) {
	t.Parallel()
	fsys := files(map[string]string{"README.md": "", "docs/a.md": "", "docs/b/c.md": "", "pkg/x.go": ""})
	pages := map[string]*page{
		"README.md":   parsePage("README.md", "# Top\n"),
		"docs/b/c.md": parsePage("docs/b/c.md", "# One\n"),
	}
	tests := []struct{ target, want string }{
		{"a.md", ""},
		{"b/c.md#one", ""},
		{"b", ""},
		{"#here", ""},
		{"../README.md#top", ""},
		{"../pkg/x.go#L10", ""},
		{"https://example.com/no.md", ""},
		{"mailto:a@example.com", ""},
		{"no.md", "there is no such file"},
		{"b/c.md#two", "docs/b/c.md has no heading for #two"},
		{"#there", "docs/a.md has no heading for #there"},
		{"../../a.md", "leads out of the repository"},
		{"/README.md", "begins at the root of a server; write it relative to the page"},
	}
	for _, tt := range tests {
		p := parsePage("docs/a.md", "# Here\n["+tt.target+"]("+tt.target+")\n")
		pages["docs/a.md"] = p
		var want []string
		if tt.want != "" {
			want = []string{"docs/a.md:2: link to " + tt.target + ": " + tt.want}
		}
		same(t, checkLinks(fsys, pages, p), want...)
	}
}

func TestCheckIndex(t *testing.T) {
	t.Parallel()
	pages := map[string]*page{"README.md": {}, "docs/x/a.md": {}, "docs/x/b.md": {}}
	same(t, checkIndex(pages)) // there is no index
	pages[indexPage] = parsePage(indexPage, "[a](x/a.md#there)\n")
	same(t, checkIndex(pages), "docs/README.md: docs/x/b.md is not listed")

	pages["docs/x/y/README.md"] = parsePage("docs/x/y/README.md", "[b](../b.md)\n[c](c.md)\n")
	pages["docs/x/y/c.md"] = &page{}
	same(t, checkIndex(pages), "docs/README.md: docs/x/b.md is not listed", "docs/README.md: docs/x/y/README.md is not listed", "docs/README.md: docs/x/y/c.md is not listed")
	pages[indexPage] = parsePage(indexPage, "[a](x/a.md)\n[y](x/y/README.md)\n")
	same(t, checkIndex(pages))
}

const program = "package main\n\nfunc main() {\n\t// region part\n\ta()\n\n\tif b {\n\t\tc()\n\t}\n\t// endregion\n}\n"

func TestEmbed(t *testing.T) {
	t.Parallel()
	fsys := files(map[string]string{
		"x/main.go": program,
		"x/decl.go": "package x\n\n// region decl\n\n// A is a doc comment.\nvar A int\n\nvar B int\n\n// endregion\n",
		"x/open.go": "// region a\n",
		"x/two.go":  "// region a\n// region b\n// endregion\n",
		"plain.txt": "text\n",
	})
	tests := []struct{ ref, want, err string }{
		{ref: "plain.txt", want: "text\n"},
		{ref: "x/main.go", want: "package main\n\nfunc main() {\n\ta()\n\n\tif b {\n\t\tc()\n\t}\n}\n"},
		{ref: "x/main.go#part", want: "a()\n\nif b {\n\tc()\n}\n"},
		{ref: "x/decl.go#decl", want: "// A is a doc comment.\nvar A int\n\nvar B int\n"},
		{ref: "x/main.go#other", err: "has no such region"},
		{ref: "x/no.go", err: "does not exist"},
		{ref: "x/open.go", err: "does not end"},
		{ref: "x/two.go#a", err: "begins inside region a"},
		{ref: "../x/main.go", err: "want a path from the root"},
	}
	for _, tt := range tests {
		got, err := embedded(fsys, tt.ref)
		switch {
		case tt.err == "" && err != nil, tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%s: got error %v, want %q", tt.ref, err, tt.err)
		case got != tt.want:
			t.Errorf("%s: got %q, want %q", tt.ref, got, tt.want)
		}
	}
}

func TestEmbedsAreKept(t *testing.T) {
	t.Parallel()
	fsys := files(map[string]string{"x/main.go": program})
	const stale = "before\n<!-- embed: x/main.go#part -->\n```go\nold()\nolder()\n```\nbetween\n```go\nmine()\n```\n<!-- embed: x/main.go#part -->\n```go\n```\nafter\n"
	p := parsePage("p.md", stale)
	same(t, checkEmbeds(fsys, p),
		"p.md:4: the block differs from x/main.go#part: run make docs-write",
		"p.md:13: the block differs from x/main.go#part: run make docs-write")
	fresh, err := writeEmbeds(fsys, p, stale)
	if err != nil {
		t.Fatal(err)
	}
	const part = "a()\n\nif b {\n\tc()\n}\n"
	want := "before\n<!-- embed: x/main.go#part -->\n```go\n" + part + "```\nbetween\n```go\nmine()\n```\n<!-- embed: x/main.go#part -->\n```go\n" + part + "```\nafter\n"
	if fresh != want {
		t.Errorf("got %q\nwant %q", fresh, want)
	}
	p = parsePage("p.md", fresh)
	same(t, checkEmbeds(fsys, p))
	if again, err := writeEmbeds(fsys, p, fresh); err != nil || again != fresh {
		t.Errorf("a second write changed the page: %q, %v", again, err)
	}
}

func TestCases(t *testing.T) {
	t.Parallel()
	fsys := files(map[string]string{
		"breaker/a_test.go":         "func TestCaseB28Probes(t *testing.T) {\n}\n\nfunc TestCaseB28(t *testing.T) {}\n// func TestCaseB99(t) is only mentioned\n",
		"internal/window/w_test.go": "func TestCaseB37(t *testing.T) {}\n",
		"breaker/a.go":              "func TestCaseB01() {}\n",
		"breaker/b_test.go":         "func TestOther(t *testing.T) {}\n",
	})
	list, err := listFiles(fsys)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := caseTests(fsys, list)
	if err != nil {
		t.Fatal(err)
	}
	const stale = "| id | what holds | tests |\n|---|---|---|\n| B28 | probes | `breaker.TestCaseB28Gone`<br>later: `grpcx` |\n| B22 | keys | later: `redislimit` |\n| B23 | scripts | |\n"
	p := parsePage(casesPage, stale)
	same(t, checkCases(p, tests),
		casesPage+":3: the tests of B28 are not as listed: run make docs-write",
		casesPage+`:5: B23 has neither a test nor a word on when it will ("later:")`,
		casesPage+": internal/window.TestCaseB37: there is no row for B37")
	fresh := writeCases(stale, tests)
	want := "| id | what holds | tests |\n|---|---|---|\n| B28 | probes | `breaker.TestCaseB28`<br>`breaker.TestCaseB28Probes`<br>later: `grpcx` |\n| B22 | keys | later: `redislimit` |\n| B23 | scripts |  |\n"
	if fresh != want {
		t.Errorf("got %q\nwant %q", fresh, want)
	}
	if again := writeCases(fresh, tests); again != fresh {
		t.Errorf("a second write changed the page: %q", again)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	names, err := metricNames(files(map[string]string{
		metricsSource: "d.a = pipeline(\"calls_total\", \"…\", \"outcome\")\nd.b = of(\"state\", \"…\")\nd.c = metric(\"duration_seconds\", \"…\")\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	const text = "`breakwater_calls_total`, breakwater_state{x=\"y\"}\nrate(breakwater_duration_seconds_bucket[5m])\nbreakwater_call_total and breakwater_*\njob:breakwater_call:rate5m\n"
	same(t, checkMetrics(names, parsePage("p.md", text), text), "p.md:3: there is no metric breakwater_call_total")

	if names, err := metricNames(files(nil)); names != nil || err != nil {
		t.Errorf("without a source: %v, %v", names, err)
	}
	if _, err := metricNames(files(map[string]string{metricsSource: "package otelx"})); err == nil {
		t.Error("a source without metrics went unnoticed")
	}
}
