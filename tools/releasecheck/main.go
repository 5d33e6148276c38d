// Command releasecheck tries a release out before there is one. go.work and the
// replace lines of nested modules make everything build in the checkout; neither
// counts for those who download the modules. So it packs every releasable module
// of go.work, from its tracked files, into a module proxy of its own and then
// does, from an empty module cache, what users do:
//
//   - build and run a program that imports only policy and breaker, and see that
//     it compiles no telemetry and no gRPC;
//   - build the packages of every module that is a library;
//   - go install every command.
//
// Run it in the root of the checkout; "make release-check" does.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

// consumer is the program of somebody who wants a breaker and nothing else.
//
//go:embed testdata/consumer.go.txt
var consumer string

func main() {
	skip := flag.String("skip", "bench,otelx/grafana,tools", "modules of go.work that are never released, as directories")
	version := flag.String("version", "v0.0.0-check", "version to pack the modules as")
	keep := flag.Bool("keep", false, "keep the temporary directory")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *version, strings.Split(*skip, ","), *keep); err != nil {
		fmt.Fprintln(os.Stderr, "releasecheck:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, version string, skip []string, keep bool) (err error) {
	tmp, err := os.MkdirTemp("", "breakwater-release-")
	if err != nil {
		return err
	}
	if keep {
		fmt.Println("working in", tmp)
	} else {
		defer os.RemoveAll(tmp)
	}
	c := &check{
		out:      os.Stdout,
		root:     ".",
		tmp:      tmp,
		version:  version,
		skip:     skip,
		consumer: consumer,
		banned:   []string{"google.golang.org/grpc", "github.com/prometheus", "go.opentelemetry.io"},
	}
	return c.run(ctx)
}
