package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed prelude.go.txt
var commonPrelude string

// Packages that blocks may use without an import, besides those of the workspace. A
// page that means another of the same name imports it in its prelude.
var commonImports = []string{
	"bytes", "cmp", "context", "encoding/json", "errors", "fmt", "io", "io/fs", "log", "log/slog", "maps", "math", "net",
	"net/http", "net/http/httptest", "os", "os/signal", "runtime", "slices", "strconv", "strings", "sync",
	"sync/atomic", "testing", "testing/synctest", "time",
	"github.com/prometheus/client_golang/prometheus",
	"github.com/prometheus/client_golang/prometheus/promhttp",
	"github.com/stretchr/testify/assert",
	"github.com/stretchr/testify/require",
}

// A checker type-checks snippets against the packages of a workspace.
type checker struct {
	root  string
	known map[string]string // import paths by package name
}

// newChecker asks the go command for the packages of the workspace at root.
func newChecker(ctx context.Context, root string) (*checker, error) {
	c := &checker{root: root, known: map[string]string{}}
	for _, p := range commonImports {
		c.known[path.Base(p)] = p
	}
	dirs, err := c.goCommand(ctx, "list", "-m", "-f", "{{.Dir}}/...")
	if err != nil {
		return nil, err
	}
	list, err := c.goCommand(ctx, append([]string{"list", "-e", "-f", "{{.Name}} {{.ImportPath}}"}, strings.Fields(string(dirs))...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(list)) {
		name, p, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && name != "main" && !slices.Contains(strings.Split(p, "/"), "internal") {
			c.known[name] = p
		}
	}
	return c, nil
}

func (c *checker) goCommand(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.String())
	}
	return out, nil
}

// check parses and type-checks snippets.
func (c *checker) check(ctx context.Context, snippets []snippet) ([]fault, error) {
	var (
		faults []fault
		fset   = token.NewFileSet()
		todo   []unit
		wanted = map[string]bool{}
	)
	for _, s := range snippets {
		p, fs := s.parse(fset, commonPrelude)
		faults = append(faults, fs...)
		if p.file == nil || (p.form != formFile && p.preludes == nil) {
			continue
		}
		u := unit{snippet: s, parsed: p}
		u.addImports(c.known)
		if n := len(todo); u.form == formFile && n > 0 && todo[n-1].samePackage(u) {
			todo[n-1].preludes = append(todo[n-1].preludes, u.file)
			u = todo[n-1]
		} else {
			todo = append(todo, u)
		}
		for _, f := range u.files() {
			for _, path := range importsOf(f) {
				wanted[path] = true
			}
		}
	}
	imp, missing, err := c.importer(ctx, fset, sortedKeys(wanted))
	if err != nil {
		return nil, err
	}
	for _, u := range todo {
		faults = append(faults, u.check(fset, imp, missing)...)
	}
	return faults, nil
}

// importer returns an importer for the given packages, and for those that it cannot
// import the reason.
func (c *checker) importer(ctx context.Context, fset *token.FileSet, paths []string) (types.Importer, map[string]string, error) {
	missing := map[string]string{}
	exports := map[string]string{}
	if len(paths) > 0 {
		out, err := c.goCommand(ctx, append([]string{"list", "-e", "-export", "-deps", "-json=ImportPath,Export,Error", "--"}, paths...)...)
		if err != nil {
			return nil, nil, err
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath, Export string
				Error              *struct{ Err string }
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, nil, err
			}
			exports[p.ImportPath] = p.Export
			switch {
			case p.Error != nil:
				missing[p.ImportPath] = p.Error.Err
			case p.Export == "" && p.ImportPath != "unsafe":
				missing[p.ImportPath] = "cannot be built"
			}
		}
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		file := exports[path]
		if file == "" {
			return nil, errors.New("cannot be built")
		}
		return os.Open(file)
	}), missing, nil
}

// A unit is a snippet that is ready to be checked.
type unit struct {
	snippet
	parsed
}

// samePackage says whether a file belongs to the package of u: it is on the same
// page, and no other block but files of that package between them.
func (u *unit) samePackage(v unit) bool {
	return u.form == formFile && v.form == formFile && u.page == v.page && u.file.Name.Name == v.file.Name.Name
}

func (u *unit) files() []*ast.File { return append([]*ast.File{u.file}, u.preludes...) }

// addImports adds imports for the packages that each file uses.
func (u *unit) addImports(known map[string]string) {
	if u.form == formFile {
		return
	}
	taken := map[string]bool{}
	for _, f := range u.files() {
		for name := range declared(f) {
			taken[name] = true
		}
	}
	for _, f := range u.files() {
		have := importsOf(f)
		if f != u.file {
			// An import of the page's prelude is for the blocks as much as for the
			// prelude, and none of them has to use it.
			f.Decls = slices.DeleteFunc(f.Decls, isImport)
			have = nil
		}
		for _, name := range sortedKeys(packagesUsed(f)) {
			p := cmp.Or(u.imports[name], known[name])
			if p == "" || taken[name] || have[name] != "" {
				continue
			}
			spec := &ast.ImportSpec{
				Name: &ast.Ident{Name: name, NamePos: f.Name.End()},
				Path: &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(p), ValuePos: f.Name.End()},
			}
			f.Decls = append([]ast.Decl{&ast.GenDecl{Tok: token.IMPORT, TokPos: f.Name.End(), Specs: []ast.Spec{spec}}}, f.Decls...)
		}
	}
}

func isImport(d ast.Decl) bool {
	g, ok := d.(*ast.GenDecl)
	return ok && g.Tok == token.IMPORT
}

func notImport(d ast.Decl) bool { return !isImport(d) }

// importsOf returns the import paths of a file by the names they have in it.
func importsOf(f *ast.File) map[string]string {
	m := map[string]string{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.IMPORT {
			continue
		}
		for _, s := range g.Specs {
			s, ok := s.(*ast.ImportSpec)
			if !ok {
				continue
			}
			p, err := strconv.Unquote(s.Path.Value)
			if err != nil {
				continue
			}
			if s.Name != nil {
				m[s.Name.Name] = p
			} else {
				m[packageName(p)] = p
			}
		}
	}
	return m
}

// packageName guesses the name of a package from its path.
func packageName(p string) string {
	base := path.Base(p)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(p))
	}
	return base
}

// packagesUsed returns the names in front of a dot in a file: packages among them.
func packagesUsed(f *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				names[id.Name] = true
			}
		}
		return true
	})
	return names
}

// maxErrors bounds the faults that one block reports.
const maxErrors = 5

// check type-checks the snippet.
func (u *unit) check(fset *token.FileSet, imp types.Importer, missing map[string]string) []fault {
	var faults []fault
	cannot := false
	for _, f := range u.files() {
		for _, p := range sortedKeys(invert(importsOf(f))) {
			why, ok := missing[p]
			cannot = cannot || ok
			if ok && why != "" {
				missing[p] = "" // once is enough, for whatever pages follow
				faults = append(faults, fault{u.page.path, u.block.line, fmt.Sprintf("import %s: %s", p, strings.TrimSpace(why))})
			}
		}
	}
	if cannot {
		return faults
	}
	lenient := u.form == formStatements || (u.form == formDecls && !slices.ContainsFunc(u.file.Decls, notImport))
	conf := types.Config{
		Importer: imp,
		Error: func(err error) {
			te, ok := errors.AsType[types.Error](err)
			if !ok || (te.Soft && lenient) || len(faults) >= maxErrors {
				return
			}
			pos := te.Fset.Position(te.Pos)
			file, line := pos.Filename, pos.Line
			if file != u.page.path {
				file, line = u.page.path, u.block.line
			}
			faults = append(faults, fault{file, line, te.Msg})
		},
	}
	_, err := conf.Check("snippet", fset, u.files(), nil)
	if err != nil && len(faults) == 0 && !lenient {
		faults = append(faults, fault{u.page.path, u.block.line, err.Error()})
	}
	return faults
}

func invert(m map[string]string) map[string]bool {
	out := map[string]bool{}
	for _, v := range m {
		out[v] = true
	}
	return out
}
