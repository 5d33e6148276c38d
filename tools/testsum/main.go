// Command testsum reads what one or several runs of "go test -json" print and
// writes what a person wants to know of it: a line for each package, the output
// of whatever failed in full, why tests were skipped, and totals for each module.
//
//	{ go test -json -race ./...; go test -json -run '^TestAlloc' ./...; } | testsum
//
// It exits with 1 when something failed, and also when no test ran at all: a
// green run of nothing is a mistake in the command line.
//
// Subtests, examples and the seeds of fuzz tests count as tests, as they do in
// "go test -v". A package that fails without a failing test (it does not compile,
// or it leaks a goroutine after its last test) counts as one failure.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	modules := flag.String("modules", "", "module paths, separated by blanks, to add the totals up for")
	last := flag.String("o", "", "file to write the last line to as well")
	flag.Parse()

	s := newSummary(os.Stdout, strings.Fields(*modules))
	err := s.read(os.Stdin)
	line := s.finish()
	if *last != "" {
		if werr := os.WriteFile(*last, []byte(line+"\n"), 0o600); err == nil {
			err = werr
		}
	}
	if err == nil {
		err = s.verdict()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}
