package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestParsePageBlocks(t *testing.T) {
	t.Parallel()
	p := parsePage("p.md", strings.Join([]string{
		/* 1 */ "# Title",
		/* 2 */ "```go",
		/* 3 */ "a := 1",
		/* 4 */ "",
		/* 5 */ "```",
		/* 6 */ "- item",
		/* 7 */ "  ```go title=x",
		/* 8 */ "  if a {",
		/* 9 */ "  \tb()",
		/* 10 */ "  }",
		/* 11 */ "  ```",
		/* 12 */ "````text",
		/* 13 */ "```go",
		/* 14 */ "not a block of its own",
		/* 15 */ "```",
		/* 16 */ "````",
		/* 17 */ "~~~",
		/* 18 */ "~~~",
		/* 19 */ "<!-- embed: x/main.go#part -->",
		/* 20 */ "",
		/* 21 */ "```go",
		/* 22 */ "c()",
		/* 23 */ "```",
	}, "\n"))
	want := []block{
		{lang: "go", line: 3, text: "a := 1\n\n"},
		{lang: "go", line: 8, text: "if a {\n\tb()\n}\n"},
		{lang: "text", line: 13, text: "```go\nnot a block of its own\n```\n"},
		{line: 18},
		{lang: "go", line: 22, text: "c()\n", embed: "x/main.go#part"},
	}
	if !slices.Equal(p.blocks, want) {
		t.Errorf("got  %+v\nwant %+v", p.blocks, want)
	}
	if len(p.faults) > 0 {
		t.Errorf("faults: %v", p.faults)
	}
}

func TestParsePageFaults(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"open block", "a\n```go\nb\n", "p.md:2: the block is not closed"},
		{"embed without a block", "<!-- embed: a.go -->\ntext\n", "p.md:1: no block follows the embed comment"},
		{"embed at the end", "\n<!-- embed: a.go -->\n", "p.md:2: no block follows the embed comment"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := parsePage("p.md", tt.text)
			if len(p.faults) != 1 || p.faults[0].String() != tt.want {
				t.Errorf("got %v, want %s", p.faults, tt.want)
			}
		})
	}
}

func TestParsePagePrelude(t *testing.T) {
	t.Parallel()
	p := parsePage("p.md", "x\n<!-- snippet-prelude\nvar a int\n\nvar b int\n-->\n# After\n")
	if p.prelude.line != 2 || strings.TrimSpace(p.prelude.text) != "var a int\n\nvar b int" {
		t.Errorf("got line %d, %q", p.prelude.line, p.prelude.text)
	}
	if !p.anchors["after"] {
		t.Error("what follows the comment was lost")
	}
	// The compiler must count the lines of the prelude as the page does.
	if before, _, _ := strings.Cut(p.prelude.text, "var a"); strings.Count(before, "\n") != 1 {
		t.Errorf("a declaration on line 3 would be reported on line %d", p.prelude.line+strings.Count(before, "\n"))
	}
}

func TestParsePageLinks(t *testing.T) {
	t.Parallel()
	p := parsePage("p.md", strings.Join([]string{
		/* 1 */ "[a](a.md) and [two",
		/* 2 */ "lines](b.md#c \"title\"), `[code](no.md)`, ``[more `code`](no.md)``",
		/* 3 */ "![image](i.png) <!-- [comment](no.md) -->",
		/* 4 */ "```",
		/* 5 */ "[block](no.md)",
		/* 6 */ "```",
		/* 7 */ "[ref]: d.md",
		/* 8 */ "[spaces in text](<e.md>)",
	}, "\n"))
	want := []link{{1, "a.md"}, {2, "b.md#c"}, {3, "i.png"}, {8, "e.md"}, {7, "d.md"}}
	if !slices.Equal(p.links, want) {
		t.Errorf("got  %v\nwant %v", p.links, want)
	}
}

func TestParsePageAnchors(t *testing.T) {
	t.Parallel()
	p := parsePage("p.md", "# A [link](x.md)\n## Don't / do\n## `code_x`, and: more?\n### Same\n### Same ###\n<a id=\"own\"></a>\n```\n# comment\n```\n")
	want := []string{"a-link", "code_x-and-more", "dont--do", "own", "same", "same-1"}
	if got := slices.Sorted(maps.Keys(p.anchors)); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
