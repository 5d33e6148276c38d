package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is a line of "go test -json"; see "go doc test2json" and, for the build
// events, "go help buildjson".
type event struct {
	Time        time.Time
	Action      string
	Package     string
	Test        string
	Elapsed     float64 // seconds
	Output      string
	ImportPath  string // of build events, which have no Package
	FailedBuild string // ImportPath of the build that a failed package died of
}

// pkgRun is one run of the tests of one package. The same package may run again
// in a later "go test" of the same stream.
type pkgRun struct {
	output                  map[string][]string // by test; "" is the package's own
	order                   []string            // tests in the order of their first output
	passed, failed, skipped int
}

type totals struct {
	tests   int
	seconds float64
}

// summary adds events up. It is not safe for concurrent use.
type summary struct {
	w       io.Writer
	modules []string // longest first, so that the first prefix that fits is the right one

	running                 map[string]*pkgRun
	build                   map[string][]string // compiler output by import path
	byModule                map[string]*totals
	skips                   []string
	failures                []string
	passed, failed, skipped int
	first, last             time.Time
}

func newSummary(w io.Writer, modules []string) *summary {
	modules = slices.Clone(modules)
	slices.SortFunc(modules, func(a, b string) int { return len(b) - len(a) })
	return &summary{
		w:        w,
		modules:  modules,
		running:  map[string]*pkgRun{},
		build:    map[string][]string{},
		byModule: map[string]*totals{},
	}
}

// read takes events until r ends. Lines that are not events are passed through.
func (s *summary) read(r io.Reader) error {
	// A Reader and not a Scanner: a line has no upper length.
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if line[0] != '{' || json.Unmarshal(line, &e) != nil {
				fmt.Fprint(s.w, string(line))
			} else {
				s.add(&e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) add(e *event) {
	if !e.Time.IsZero() {
		if s.first.IsZero() {
			s.first = e.Time
		}
		s.last = e.Time
	}
	switch e.Action {
	case "build-output":
		s.build[e.ImportPath] = append(s.build[e.ImportPath], e.Output)
		return
	case "build-fail":
		fmt.Fprintf(s.w, "--- does not build: %s\n%s", e.ImportPath, strings.Join(s.build[e.ImportPath], ""))
		return
	}
	if e.Package == "" {
		return
	}
	run := s.running[e.Package]
	if run == nil {
		run = &pkgRun{output: map[string][]string{}}
		s.running[e.Package] = run
	}
	switch {
	case e.Action == "output":
		if _, seen := run.output[e.Test]; !seen {
			run.order = append(run.order, e.Test)
		}
		run.output[e.Test] = append(run.output[e.Test], e.Output)
	case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		// start, run, pause, cont, bench, attr: nothing to add up.
	case e.Test == "":
		s.endPackage(run, e)
	default:
		s.endTest(run, e)
	}
}

func (s *summary) endTest(run *pkgRun, e *event) {
	out := run.output[e.Test]
	delete(run.output, e.Test)
	switch e.Action {
	case "pass":
		run.passed++
	case "skip":
		run.skipped++
		s.skips = append(s.skips, e.Package+" "+e.Test+": "+reason(out))
	case "fail":
		run.failed++
		s.failures = append(s.failures, e.Package+" "+e.Test)
		fmt.Fprintf(s.w, "--- failed: %s %s\n%s", e.Package, e.Test, strings.Join(out, ""))
	}
}

// reason finds what a test said when it skipped itself.
func reason(out []string) string {
	for _, line := range out {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return "no reason given"
}

func (s *summary) endPackage(run *pkgRun, e *event) {
	delete(s.running, e.Package)
	tests := run.passed + run.failed + run.skipped
	switch e.Action {
	case "fail":
		// What is left belongs to the package itself and to tests that a panic,
		// a timeout or os.Exit kept from ending: all of it is the failure.
		for _, test := range run.order {
			fmt.Fprint(s.w, strings.Join(run.output[test], ""))
		}
		if run.failed == 0 {
			run.failed, tests = 1, tests+1
			why := "failed outside its tests"
			if e.FailedBuild != "" {
				why = "does not build"
			}
			s.failures = append(s.failures, e.Package+" "+why)
		}
		fmt.Fprintf(s.w, "FAIL %s\t%d tests\t%d failed\t%.2fs\n", e.Package, tests, run.failed, e.Elapsed)
	case "pass":
		fmt.Fprintf(s.w, "ok   %s\t%d tests\t%.2fs\n", e.Package, tests, e.Elapsed)
	case "skip":
		fmt.Fprintf(s.w, "?    %s\tno test files\n", e.Package)
	}
	s.passed += run.passed
	s.failed += run.failed
	s.skipped += run.skipped

	module := s.moduleOf(e.Package)
	t := s.byModule[module]
	if t == nil {
		t = &totals{}
		s.byModule[module] = t
	}
	t.tests += tests
	t.seconds += e.Elapsed
}

func (s *summary) moduleOf(pkg string) string {
	for _, m := range s.modules {
		if pkg == m || strings.HasPrefix(pkg, m+"/") {
			return m
		}
	}
	return "other packages"
}

// finish writes the totals and returns the last line of them.
func (s *summary) finish() string {
	// A package without an end: "go test" itself was killed.
	for _, pkg := range slices.Sorted(maps.Keys(s.running)) {
		fmt.Fprintf(s.w, "--- never ended: %s\n", pkg)
		s.endPackage(s.running[pkg], &event{Action: "fail", Package: pkg})
	}
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(s.w, "\n%s:\n  %s\n", title, strings.Join(lines, "\n  "))
		}
	}
	list("skipped", s.skips)
	list("failed", s.failures)

	fmt.Fprintf(s.w, "\n%8s  %8s  module (seconds add up packages that ran side by side)\n", "tests", "seconds")
	for _, m := range slices.Sorted(maps.Keys(s.byModule)) {
		fmt.Fprintf(s.w, "%8d  %8.2f  %s\n", s.byModule[m].tests, s.byModule[m].seconds, m)
	}
	fmt.Fprintf(s.w, "\nDONE %d tests in %.1fs\n", s.passed+s.failed+s.skipped, s.last.Sub(s.first).Seconds())
	line := fmt.Sprintf("%d passed, %d failed, %d skipped", s.passed, s.failed, s.skipped)
	fmt.Fprintln(s.w, line)
	return line
}

func (s *summary) verdict() error {
	switch {
	case s.failed > 0:
		return fmt.Errorf("%d failed", s.failed)
	case s.passed == 0:
		return errors.New("no test ran")
	}
	return nil
}
