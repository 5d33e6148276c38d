package main

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// checkEmbeds compares the embedded blocks of a page to the files they come from.
func checkEmbeds(fsys fs.FS, p *page) []fault {
	var faults []fault
	for _, b := range p.blocks {
		if b.embed == "" {
			continue
		}
		want, err := embedded(fsys, b.embed)
		switch {
		case err != nil:
			faults = append(faults, fault{p.path, b.line, err.Error()})
		case want != b.text:
			faults = append(faults, fault{p.path, b.line, fmt.Sprintf("the block differs from %s: run make docs-write", b.embed)})
		}
	}
	return faults
}

// writeEmbeds returns the text of a page with its embedded blocks made anew.
func writeEmbeds(fsys fs.FS, p *page, text string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	var out strings.Builder
	done := 0
	for _, b := range p.blocks {
		if b.embed == "" {
			continue
		}
		want, err := embedded(fsys, b.embed)
		if err != nil {
			return "", fmt.Errorf("%s:%d: %w", p.path, b.line, err)
		}
		begin := b.line - 1
		out.WriteString(strings.Join(lines[done:begin], ""))
		out.WriteString(want)
		done = begin + strings.Count(b.text, "\n")
	}
	out.WriteString(strings.Join(lines[done:], ""))
	return out.String(), nil
}

// embedded returns what an embed comment refers to: a file from the root, without
// the lines that mark regions, or a region of it, less its indentation and the empty
// lines at its ends.
func embedded(fsys fs.FS, ref string) (string, error) {
	name, region, _ := strings.Cut(ref, "#")
	if !fs.ValidPath(name) || path.IsAbs(name) {
		return "", fmt.Errorf("embed %s: want a path from the root of the repository", ref)
	}
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return "", fmt.Errorf("embed %s: %w", ref, err)
	}
	var (
		out   []string
		open  string
		found bool
	)
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		mark := strings.TrimSpace(line)
		if begun, ok := strings.CutPrefix(mark, "// region "); ok {
			if open != "" {
				return "", fmt.Errorf("embed %s: region %s begins inside region %s", ref, begun, open)
			}
			open = begun
			found = found || begun == region
			continue
		}
		if mark == "// endregion" {
			open = ""
			continue
		}
		if region == "" || open == region {
			out = append(out, line)
		}
	}
	switch {
	case region != "" && !found:
		return "", fmt.Errorf("embed %s: the file has no such region", ref)
	case open != "":
		return "", fmt.Errorf("embed %s: region %s does not end", ref, open)
	}
	return strings.Join(outdent(trim(out)), "\n") + "\n", nil
}

// trim takes away empty lines at both ends: gofmt wants them between the mark of a
// region and a doc comment.
func trim(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// outdent takes away the tabs that all lines begin with.
func outdent(lines []string) []string {
	least := -1
	for _, l := range lines {
		if l == "" {
			continue
		}
		n := len(l) - len(strings.TrimLeft(l, "\t"))
		if least < 0 || n < least {
			least = n
		}
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l[min(max(least, 0), len(l)):]
	}
	return out
}
