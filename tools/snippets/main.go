// Command snippets checks the documentation of the workspace it is run in:
//
//   - every Go block of a Markdown file is formatted and type-checks against the
//     real packages;
//   - a block behind <!-- embed: path --> or <!-- embed: path#region --> is what the
//     file holds, whole or between "// region name" and "// endregion";
//   - relative links lead to a file, and to a heading that is there;
//   - every metric that is named is there;
//   - every field of a struct that users fill in is in a table of its package's
//     reference page;
//   - every page below docs is listed in docs/README.md;
//   - every public package, of which there is a file in api/, has an example whose output is
//     compared;
//   - the table of cases names every test called TestCaseB… and no other.
//
// With -w it writes embedded blocks and the names of tests in place.
//
// # Blocks
//
// A block is a whole file (it begins with a package clause), declarations,
// statements, or one expression. All but whole files may use the common prelude
// (prelude.go.txt) and that of their page, which is an HTML comment of imports and
// declarations:
//
//	<!-- snippet-prelude
//	var cache map[string]Stock
//	-->
//
// Imports are added for the packages of the workspace and for a table of others;
// the imports of a page's prelude and of the block itself come first. In statements
// unused variables are let pass, and so is the lack of a return; imports that stand
// alone need not be used. Whole files of one package that follow each other on a page,
// with nothing but other text between them, are one package. A block that is not meant
// to be checked is no Go block: call it text.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	write := flag.Bool("w", false, "write embedded blocks and the table of cases in place")
	root := flag.String("root", ".", "root of the workspace")
	flag.Parse()

	faults, summary, err := run(context.Background(), *root, *write)
	if err != nil {
		fmt.Fprintln(os.Stderr, "snippets:", err)
		os.Exit(2)
	}
	for _, f := range faults {
		fmt.Fprintln(os.Stderr, f)
	}
	fmt.Println(summary)
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// A fault is something that is wrong in a page.
type fault struct {
	path string // slash-separated, from the root
	line int    // 0 when it is about the whole page
	text string
}

func (f fault) String() string {
	if f.line == 0 {
		return f.path + ": " + f.text
	}
	return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text)
}

// The pages with a meaning of their own.
const (
	docsDir   = "docs"
	indexPage = "docs/README.md"
	casesPage = "docs/explanation/cases.md"
)

// run checks the workspace at root.
func run(ctx context.Context, root string, write bool) (faults []fault, summary string, err error) {
	fsys := os.DirFS(root)
	files, err := listFiles(fsys)
	if err != nil {
		return nil, "", err
	}
	metrics, err := metricNames(fsys)
	if err != nil {
		return nil, "", err
	}
	pages := map[string]*page{}
	for _, path := range files {
		if !strings.HasSuffix(path, ".md") {
			continue
		}
		text, err := fs.ReadFile(fsys, path)
		if err != nil {
			return nil, "", err
		}
		fixed := string(text)
		if write {
			if fixed, err = rewrite(fsys, files, path, fixed); err != nil {
				return nil, "", err
			}
			if fixed != string(text) {
				if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(path)), []byte(fixed), 0o644); err != nil {
					return nil, "", err
				}
			}
		}
		pages[path] = parsePage(path, fixed)
		faults = append(faults, checkMetrics(metrics, pages[path], fixed)...)
	}

	var blocks []snippet
	links := 0
	for _, path := range sortedKeys(pages) {
		p := pages[path]
		faults = append(faults, p.faults...)
		faults = append(faults, checkEmbeds(fsys, p)...)
		faults = append(faults, checkLinks(fsys, pages, p)...)
		links += len(p.links)
		for _, b := range p.blocks {
			if b.lang == "go" {
				blocks = append(blocks, snippet{page: p, block: b})
			}
		}
	}
	faults = append(faults, checkIndex(pages)...)
	fields, err := specs(fsys, files)
	if err != nil {
		return nil, "", err
	}
	faults = append(faults, checkFields(pages, fields)...)
	more, err := checkExamples(fsys, files)
	if err != nil {
		return nil, "", err
	}
	faults = append(faults, more...)
	if p, ok := pages[casesPage]; ok {
		tests, err := caseTests(fsys, files)
		if err != nil {
			return nil, "", err
		}
		faults = append(faults, checkCases(p, tests)...)
	}
	c, err := newChecker(ctx, root)
	if err != nil {
		return nil, "", err
	}
	if more, err = c.check(ctx, blocks); err != nil {
		return nil, "", err
	}
	faults = append(faults, more...)
	slices.SortStableFunc(faults, func(a, b fault) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		return a.line - b.line
	})
	return faults, fmt.Sprintf("docs: %d pages, %d Go blocks, %d links, %d faults", len(pages), len(blocks), links, len(faults)), nil
}

// rewrite returns the text of a page with everything in it that is made by machine
// made anew.
func rewrite(fsys fs.FS, files []string, path, text string) (string, error) {
	text, err := writeEmbeds(fsys, parsePage(path, text), text)
	if err != nil || path != casesPage {
		return text, err
	}
	tests, err := caseTests(fsys, files)
	if err != nil {
		return "", err
	}
	return writeCases(text, tests), nil
}

// listFiles returns all files below the root but those of hidden directories, test
// data and packages of other languages.
func listFiles(fsys fs.FS) ([]string, error) {
	var files []string
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			files = append(files, path)
		case path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		}
		return nil
	})
	return files, err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
