package main

import (
	"bytes"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
)

// apiDir has a file for each public package, as make api writes it.
const apiDir = "api"

// rootAPI is the file of the package in the root.
const rootAPI = apiDir + "/breakwater.txt"

// checkExamples looks whether every public package has an example that is run, by which
// pkg.go.dev shows how it is used. Packages that hold no code need none.
func checkExamples(fsys fs.FS, files []string) ([]fault, error) {
	tests := map[string][]string{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			tests[path.Dir(f)] = append(tests[path.Dir(f)], f)
		}
	}
	var faults []fault
	for _, f := range files {
		if !strings.HasPrefix(f, apiDir+"/") || !strings.HasSuffix(f, ".txt") || f == rootAPI {
			continue
		}
		text, err := fs.ReadFile(fsys, f)
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(text, []byte("\nFUNCTIONS\n")) && !bytes.Contains(text, []byte("\nTYPES\n")) {
			continue
		}
		dir := strings.TrimSuffix(strings.TrimPrefix(f, apiDir+"/"), ".txt")
		ok, err := hasExample(fsys, tests[dir])
		if err != nil {
			return nil, err
		}
		if !ok {
			faults = append(faults, fault{dir, 0, "the package has no example with an output"})
		}
	}
	return faults, nil
}

// hasExample reports whether one of the files has an example whose output is compared.
func hasExample(fsys fs.FS, names []string) (bool, error) {
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return false, err
		}
		if !bytes.Contains(text, []byte("\nfunc Example")) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
		if err != nil {
			return false, err
		}
		for _, e := range doc.Examples(f) {
			if e.Output != "" || e.EmptyOutput {
				return true, nil
			}
		}
	}
	return false, nil
}
