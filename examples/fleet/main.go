// Command fleet simulates thousands of clients of one dependency with a finite capacity,
// each behind a pipeline of its own, in virtual time: behaviour at a scale that no test
// machine has. It prints a table for each of four questions, the same one each time.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// names are the scenarios, in their order.
var names = []string{"metastable", "recovery", "shared", "flapping"}

func main() {
	log.SetFlags(0)
	// The heap is small and lives shortly: a busier collector would only cost time.
	debug.SetGCPercent(400)
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		log.Fatal("fleet: ", err)
	}
}

func run(args []string, out, errOut io.Writer) error {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(errOut)
	o := options{}
	flags.IntVar(&o.clients, "clients", 2000, "number of clients, each with one call per second, from 100 to 10000")
	flags.DurationVar(&o.length, "for", 10*time.Minute, "longest run, in virtual time, from 3m to 1h")
	flags.Uint64Var(&o.seed, "seed", 1, "decides what is left to chance")
	only := flags.String("only", strings.Join(names, ","), "which scenarios to run")
	lines := flags.String("lines", "", "a file to write what tools/pictures draws to, as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q: want flags only", flags.Arg(0))
	case o.clients < 100 || o.clients > 10000:
		return fmt.Errorf("-clients %d: want 100 to 10000", o.clients)
	case o.length < 3*time.Minute || o.length > time.Hour:
		return fmt.Errorf("-for %v: want 3m to 1h", o.length)
	}
	var pictures []picture
	for name := range strings.SplitSeq(*only, ",") {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only %s: want some of %s", name, strings.Join(names, ","))
		}
		s := o.scenario(name)
		list, err := s.run()
		if err != nil {
			return err
		}
		for _, r := range list {
			fmt.Fprintf(errOut, "%s, %s: %v of %d clients in %v\n", name, r.variant, r.length, r.clients, r.took.Round(100*time.Millisecond))
		}
		pictures = append(pictures, s.picture(list))
		if err := s.write(out, list); err != nil {
			return err
		}
	}
	if *lines == "" {
		return nil
	}
	data, err := json.Marshal(map[string]any{"pictures": pictures})
	if err != nil {
		return err
	}
	return os.WriteFile(*lines, data, 0o644)
}

func (o options) scenario(name string) scenario {
	return map[string]func(options) scenario{
		"metastable": metastable, "recovery": recovery, "shared": sharedLimit, "flapping": flapping,
	}[name](o)
}
