package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

const referenceDir = docsDir + "/reference"

// Packages whose reference page has another name than they.
var referencePages = map[string]string{"otelx": "telemetry", "amqpconsume": "consume", "kafkaconsume": "consume"}

// Reference pages of packages that have a second one.
var secondPages = map[string]string{"fallback": "defer", "httpx": "httpx-server", "retry": "hedge"}

// Directories without packages that users configure.
var noReference = []string{"bench", "cmd", "examples", "tools", "internal"}

// A spec is an exported struct that users fill in.
type spec struct {
	dir, name string
	fields    []string
	in        string // the struct that it is a field of, if that is all it is for
}

func (s spec) page() string {
	base := path.Base(s.dir)
	return path.Join(referenceDir, cmp.Or(referencePages[base], base)+".md")
}

// specs returns the structs that users fill in, in order: those that have a method
// Validate or BuildPolicy or a name that ends in Config, and those that are the type
// of one of their fields, unless there is a function that makes them. Structs without
// exported fields are none.
func specs(fsys fs.FS, files []string) ([]spec, error) {
	dirs := map[string][]string{}
	for _, file := range files {
		dir := path.Dir(file)
		outside := slices.ContainsFunc(strings.Split(dir, "/"), func(part string) bool { return slices.Contains(noReference, part) })
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") && !outside {
			dirs[dir] = append(dirs[dir], file)
		}
	}
	var all []spec
	for _, dir := range sortedKeys(dirs) {
		list, err := packageSpecs(fsys, dir, dirs[dir])
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

func packageSpecs(fsys fs.FS, dir string, files []string) ([]spec, error) {
	structs := map[string]*ast.StructType{}
	filled := map[string]bool{}
	made := map[string]bool{}
	for _, file := range files {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				switch {
				case d.Recv == nil && d.Name.IsExported() && d.Type.Results != nil:
					made[typeName(d.Type.Results.List[0].Type)] = true
				case d.Recv != nil && (d.Name.Name == "Validate" || d.Name.Name == "BuildPolicy"):
					filled[typeName(d.Recv.List[0].Type)] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && s.Name.IsExported() {
						if st, ok := s.Type.(*ast.StructType); ok {
							structs[s.Name.Name] = st
						}
					}
				}
			}
		}
	}
	for name := range structs {
		if strings.HasSuffix(name, "Config") {
			filled[name] = true
		}
	}
	var list []spec
	todo := make([]spec, 0, len(filled))
	for _, name := range sortedKeys(filled) {
		todo = append(todo, spec{dir: dir, name: name})
	}
	for ; len(todo) > 0; todo = todo[1:] {
		s := todo[0]
		st := structs[s.name]
		if st == nil || s.in != "" && (filled[s.name] || made[s.name]) {
			continue
		}
		filled[s.name] = true
		for _, f := range st.Fields.List {
			for _, id := range f.Names {
				if id.IsExported() {
					s.fields = append(s.fields, id.Name)
					todo = append(todo, spec{dir: dir, name: typeName(f.Type), in: s.name})
				}
			}
		}
		if len(s.fields) > 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b spec) int { return cmp.Compare(a.name, b.name) })
	return list, nil
}

// typeName returns the name of a type of the same package, through pointers, slices
// and type arguments, or "".
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.ArrayType:
		return typeName(e.Elt)
	case *ast.IndexExpr:
		return typeName(e.X)
	}
	return ""
}

var (
	firstCell = regexp.MustCompile(`^\|([^|]*)\|`)
	inCode    = regexp.MustCompile("`([^`]+)`")
	word      = regexp.MustCompile(`\w+`)
)

// checkFields looks whether the reference page of each package has every field of
// the structs that users fill in, in the first column of a table. The tables of a
// struct are those under a heading or after text that names it, until others are
// named; a page with one struct need not name it.
func checkFields(pages map[string]*page, all []spec) []fault {
	byPage := map[string][]spec{}
	for _, s := range all {
		byPage[s.page()] = append(byPage[s.page()], s)
	}
	var faults []fault
	for _, name := range sortedKeys(byPage) {
		list := byPage[name]
		p, ok := pages[name]
		if !ok {
			faults = append(faults, fault{name, 0, fmt.Sprintf("there is no such page, and %s.%s has fields", path.Base(list[0].dir), list[0].name)})
			continue
		}
		rows := p.fieldRows(list)
		if second, ok := pages[path.Join(referenceDir, secondPages[path.Base(list[0].dir)]+".md")]; ok {
			for s, more := range second.fieldRows(list) {
				maps.Copy(rows[s], more)
			}
		}
		for _, s := range list {
			missing := slices.DeleteFunc(slices.Clone(s.fields), func(f string) bool {
				return rows[s.name][f] || s.in != "" && rows[s.in][f]
			})
			if len(missing) > 0 {
				faults = append(faults, fault{name, 0, fmt.Sprintf("no table of %s.%s has %s", path.Base(s.dir), s.name, strings.Join(missing, ", "))})
			}
		}
	}
	return faults
}

// fieldRows returns the words of the first column of the tables of each struct.
func (p *page) fieldRows(list []spec) map[string]map[string]bool {
	rows := map[string]map[string]bool{}
	for _, s := range list {
		rows[s.name] = map[string]bool{}
	}
	current := map[string]bool{} // structs named since the last table
	if len(list) == 1 {
		current[list[0].name] = true
	}
	table := false
	for _, line := range p.prose {
		if cell := firstCell.FindStringSubmatch(line); cell != nil {
			table = true
			for s := range current {
				for _, w := range wordsInCode(cell[1]) {
					rows[s][w] = true
				}
			}
			continue
		}
		words := wordsInCode(line)
		if strings.HasPrefix(line, "#") {
			words = word.FindAllString(line, -1)
		}
		for _, w := range words {
			if rows[w] == nil {
				continue
			}
			if table && len(list) > 1 {
				clear(current)
			}
			table = false
			current[w] = true
		}
	}
	return rows
}

func wordsInCode(text string) []string {
	var words []string
	for _, code := range inCode.FindAllStringSubmatch(text, -1) {
		words = append(words, word.FindAllString(code[1], -1)...)
	}
	return words
}
