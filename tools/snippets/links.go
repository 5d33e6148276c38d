package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"
)

// checkLinks looks for the files and headings that a page refers to. It does not
// look at addresses outside of the repository.
func checkLinks(fsys fs.FS, pages map[string]*page, p *page) []fault {
	var faults []fault
	for _, l := range p.links {
		if text := checkLink(fsys, pages, p, l.target); text != "" {
			faults = append(faults, fault{p.path, l.line, fmt.Sprintf("link to %s: %s", l.target, text)})
		}
	}
	return faults
}

func checkLink(fsys fs.FS, pages map[string]*page, p *page, target string) string {
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return err.Error()
	case u.Scheme != "" || u.Host != "":
		return ""
	case strings.HasPrefix(u.Path, "/"):
		return "begins at the root of a server; write it relative to the page"
	}
	file := p.path
	if u.Path != "" {
		file = path.Join(path.Dir(p.path), u.Path)
		if !fs.ValidPath(file) {
			return "leads out of the repository"
		}
		if _, err := fs.Stat(fsys, file); err != nil {
			return "there is no such file"
		}
	}
	if u.Fragment == "" {
		return ""
	}
	to, ok := pages[file]
	if !ok {
		return "" // a line of a source file, say
	}
	if !to.anchors[u.Fragment] {
		return fmt.Sprintf("%s has no heading for #%s", file, u.Fragment)
	}
	return ""
}

// checkIndex looks whether the index lists every page below docs. A README.md that it
// lists may list others in its place.
func checkIndex(pages map[string]*page) []fault {
	index, ok := pages[indexPage]
	if !ok {
		return nil
	}
	listed := map[string]bool{indexPage: true}
	list := func(p *page, dir string) {
		for _, l := range p.links {
			target, _, _ := strings.Cut(l.target, "#")
			listed[path.Join(dir, target)] = true
		}
	}
	list(index, docsDir)
	for _, file := range sortedKeys(pages) {
		if listed[file] && path.Base(file) == "README.md" && strings.HasPrefix(file, docsDir+"/") {
			list(pages[file], path.Dir(file))
		}
	}
	var faults []fault
	for _, file := range sortedKeys(pages) {
		if strings.HasPrefix(file, docsDir+"/") && !listed[file] {
			faults = append(faults, fault{indexPage, 0, file + " is not listed"})
		}
	}
	return faults
}
