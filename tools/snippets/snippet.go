package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
)

// A snippet is a Go block of a page.
type snippet struct {
	page  *page
	block block
}

// form is what a block consists of.
type form int

const (
	formFile       form = iota // a file with a package clause
	formDecls                  // declarations
	formStatements             // statements, or an expression
)

// A parsed snippet is a package of its own, all but for imports.
type parsed struct {
	form form
	file *ast.File

	// Files to check along with it: preludes, less what the block declares itself.
	preludes []*ast.File

	// Imports of the page's prelude, by name.
	imports map[string]string
}

var leadingImports = regexp.MustCompile(`^(?:\s*(?://[^\n]*\n)*import\s+(?:\((?s:.*?)\)|(?:\w+\s+)?"[^"\n]*")[^\n]*\n)+`)

// parse makes a package of a block. The faults are those of syntax and format.
func (s snippet) parse(fset *token.FileSet, commonPrelude string) (parsed, []fault) {
	var p parsed
	var err error
	if p.form, p.file, err = s.parseBlock(fset); err != nil {
		return p, s.syntax(err)
	}
	var faults []fault
	if f := s.unformatted(); f != nil {
		faults = append(faults, *f)
	}
	if p.form == formFile {
		return p, faults
	}
	own := declared(p.file)
	page, err := parser.ParseFile(fset, "prelude", "package snippet;\n"+lineOf(s.page.path, s.page.prelude.line)+s.page.prelude.text, parser.SkipObjectResolution)
	if err != nil {
		return p, append(faults, s.syntax(err)...)
	}
	p.imports = importsOf(page)
	drop(page, own)
	for name := range declared(page) {
		own[name] = true
	}
	common, err := parser.ParseFile(fset, "prelude.go.txt", commonPrelude, parser.SkipObjectResolution)
	if err != nil {
		return p, append(faults, s.syntax(err)...)
	}
	drop(common, own)
	p.preludes = []*ast.File{page, common}
	return p, faults
}

// parseBlock finds out the form of the block.
func (s snippet) parseBlock(fset *token.FileSet) (form, *ast.File, error) {
	text, line := s.block.text, lineOf(s.page.path, s.block.line)
	const mode = parser.SkipObjectResolution | parser.ParseComments
	if _, err := parser.ParseFile(token.NewFileSet(), "", text, parser.PackageClauseOnly); err == nil {
		f, err := parser.ParseFile(fset, "block", line+text, mode)
		return formFile, f, err
	}
	f, declErr := parser.ParseFile(fset, "block", "package snippet;\n"+line+text, mode)
	if declErr == nil {
		return formDecls, f, nil
	}
	// Imports may stand in front of statements, as they do in many a tutorial.
	imports := leadingImports.FindString(text)
	rest := text[len(imports):]
	restLine := lineOf(s.page.path, s.block.line+strings.Count(imports, "\n"))
	source := func(results int) string {
		list := strings.Repeat("_ any, ", max(results-1, 0)) + "_ error"
		return "package snippet;\n" + line + imports + "func _() (" + list + ") {\n" + restLine + rest + "\npanic(0)\n}\n"
	}
	f, err := parser.ParseFile(token.NewFileSet(), "block", source(1), mode)
	if err != nil {
		if imports == "" && strings.HasPrefix(strings.TrimSpace(text), "func ") {
			err = declErr
		}
		return formStatements, nil, err
	}
	f, err = parser.ParseFile(fset, "block", source(results(f)), mode)
	if err != nil {
		return formStatements, nil, err
	}
	useExpressions(f)
	return formStatements, f, nil
}

// lineOf makes the compiler count lines as the page does.
func lineOf(path string, line int) string {
	return fmt.Sprintf("//line %s:%d\n", path, max(line, 1))
}

// body returns the statements around which a function was put.
func body(f *ast.File) *ast.BlockStmt {
	return f.Decls[len(f.Decls)-1].(*ast.FuncDecl).Body
}

// results returns how many values the statements return.
func results(f *ast.File) int {
	n := 0
	ast.Inspect(body(f), func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			n = max(n, len(node.Results))
		}
		return true
	})
	return n
}

// useExpressions makes assignments of expressions that stand alone, such as that of
// a Config.
func useExpressions(f *ast.File) {
	list := body(f).List
	for i, st := range list {
		e, ok := st.(*ast.ExprStmt)
		if !ok {
			continue
		}
		if _, call := e.X.(*ast.CallExpr); call {
			continue
		}
		if u, ok := e.X.(*ast.UnaryExpr); ok && u.Op == token.ARROW {
			continue
		}
		list[i] = &ast.AssignStmt{
			Lhs: []ast.Expr{&ast.Ident{Name: "_", NamePos: e.Pos()}},
			Tok: token.ASSIGN, TokPos: e.Pos(),
			Rhs: []ast.Expr{e.X},
		}
	}
}

// syntax makes faults of the errors of the parser.
func (s snippet) syntax(err error) []fault {
	list, ok := errors.AsType[scanner.ErrorList](err)
	if !ok {
		return []fault{{s.page.path, s.block.line, err.Error()}}
	}
	e := list[0] // the others mostly follow from the first
	return []fault{{s.page.path, e.Pos.Line, "syntax: " + e.Msg}}
}

// unformatted returns a fault if gofmt would change the block.
func (s snippet) unformatted() *fault {
	out, err := format.Source([]byte(s.block.text))
	if err != nil || string(out) == s.block.text {
		return nil // statements behind imports cannot be formatted as a whole
	}
	have, want := strings.Split(s.block.text, "\n"), strings.Split(string(out), "\n")
	i := 0
	for i < len(have) && i < len(want) && have[i] == want[i] {
		i++
	}
	line := ""
	if i < len(want) {
		line = want[i]
	}
	return &fault{s.page.path, s.block.line + i, fmt.Sprintf("not formatted: gofmt wants %q", line)}
}

// declared returns the names that a file declares for its package, methods as
// "Type.Method".
func declared(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[funcName(d)] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	delete(names, "_")
	return names
}

// drop takes the declarations of the given names out of a file. Names of a list of
// variables become blank.
func drop(f *ast.File, names map[string]bool) {
	var decls []ast.Decl
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if names[funcName(d)] {
				continue
			}
		case *ast.GenDecl:
			var specs []ast.Spec
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if names[s.Name.Name] {
						continue
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if names[n.Name] {
							n.Name = "_"
						}
					}
				}
				specs = append(specs, s)
			}
			if d.Specs = specs; len(specs) == 0 {
				continue
			}
		}
		decls = append(decls, d)
	}
	f.Decls = decls
}

// funcName returns the name of a function, or "Type.Method".
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}
