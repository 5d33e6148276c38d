package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A caseTest is a test that is named for a case.
type caseTest struct {
	id   string // B03
	name string // TestCaseB03…
	dir  string // where it is, from the root
}

func (t caseTest) String() string { return "`" + path.Base(t.dir) + "." + t.name + "`" }

var (
	caseFunc = regexp.MustCompile(`(?m)^func (TestCase(B\d+)\w*)\(`)
	caseRow  = regexp.MustCompile(`^\| (B\d+) \|`)
)

// later begins what a row says, behind its tests, of what does not hold yet.
const later = "later:"

// caseTests finds the tests that are named for a case, in the order of the table.
func caseTests(fsys fs.FS, files []string) ([]caseTest, error) {
	var tests []caseTest
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, err
		}
		for _, m := range caseFunc.FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, caseTest{id: m[2], name: m[1], dir: path.Dir(file)})
		}
	}
	slices.SortFunc(tests, func(a, b caseTest) int {
		return cmp.Or(strings.Compare(a.id, b.id), strings.Compare(a.dir, b.dir), strings.Compare(a.name, b.name))
	})
	return slices.Compact(tests), nil
}

// checkCases compares the table of cases to the tests there are.
func checkCases(p *page, tests []caseTest) []fault {
	var faults []fault
	rows := map[string]bool{}
	for _, row := range p.cases {
		rows[row.id] = true
		want, ok := row.with(tests)
		switch {
		case !ok:
			faults = append(faults, fault{p.path, row.line, fmt.Sprintf("%s has neither a test nor a word on when it will (%q)", row.id, later)})
		case want != row.text:
			faults = append(faults, fault{p.path, row.line, fmt.Sprintf("the tests of %s are not as listed: run make docs-write", row.id)})
		}
	}
	for _, t := range tests {
		if !rows[t.id] {
			faults = append(faults, fault{p.path, 0, fmt.Sprintf("%s.%s: there is no row for %s", t.dir, t.name, t.id)})
			rows[t.id] = true
		}
	}
	return faults
}

// writeCases returns the page with the tests of each row made anew.
func writeCases(text string, tests []caseTest) string {
	lines := strings.Split(text, "\n")
	for _, row := range parsePage("", text).cases {
		lines[row.line-1], _ = row.with(tests)
	}
	return strings.Join(lines, "\n")
}

// A tableRow is a row of the table of cases; the last of its columns lists tests.
type tableRow struct {
	id   string
	line int
	text string
}

// with returns the row with the tests of its case, and whether it then says
// anything. What follows the word later stays.
func (r tableRow) with(tests []caseTest) (string, bool) {
	body := strings.TrimSuffix(strings.TrimRight(r.text, " "), "|")
	i := strings.LastIndex(body, "|")
	head, cell := body[:i+1], strings.TrimSpace(body[i+1:])
	var parts []string
	for _, t := range tests {
		if t.id == r.id {
			parts = append(parts, t.String())
		}
	}
	if at := strings.Index(cell, later); at >= 0 {
		parts = append(parts, cell[at:])
	}
	return head + " " + strings.Join(parts, "<br>") + " |", len(parts) > 0
}
