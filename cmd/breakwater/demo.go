package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo"
	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/demo/script"
	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/view"
)

type demoCommand struct {
	For         time.Duration `default:"20s" help:"How long the load lasts, at least 6s. The incident takes 40 % of it, at most 11s."`
	JSON        bool          `name:"json" help:"Print the result as JSON, and nothing else, on standard output."`
	Seed        uint64        `default:"1" help:"Decides the order of the requests, the same one for both worlds."`
	Spans       bool          `help:"Print example traces of the protected world at the end; with --json on standard error."`
	Hold        bool          `help:"Keep serving the dashboard and the metrics when the run is over, until Ctrl-C."`
	MetricsAddr string        `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where to serve /metrics and the dashboard during the demo. Port 0 is any free one; the addresses are printed on standard error."`
}

// Help is the part of the help text below the flags' description.
func (demoCommand) Help() string {
	return `Starts two equal worlds on loopback. In each a small service with 200 handler slots calls two HTTP dependencies: one of limited capacity, which becomes slow, fails, and recovers; and a healthy neighbour. The same 240 requests per second go to both services. One calls through a plain client with three tries, the other through pipelines.

At the end both are shown side by side: real answers, latencies, fallbacks, the load on the dependency, the neighbour, goroutines, and what the breaker did. Ctrl-C ends the demo early and prints what there is.`
}

// Validate is called by the parser.
func (c demoCommand) Validate() error {
	if c.For < script.Shortest {
		return fmt.Errorf("--for %s is too short: want at least %s", c.For, script.Shortest)
	}
	return nil
}

// Run runs the demo.
func (c demoCommand) Run(ctx context.Context, out output) (err error) {
	d, err := demo.New(ctx, demo.Config{For: c.For, Seed: c.Seed, Spans: c.Spans, MetricsAddr: c.MetricsAddr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(ctx)) }()
	fmt.Fprintf(out.Err, "dashboard: %s\nmetrics: %s\n", d.DashboardURL(), d.MetricsURL())

	watch, text := func(demo.Frame) {}, out.Err
	if !c.JSON {
		watch, text = view.NewLive(out.Out, isTerminal(out.Out)).Show, out.Out
	}
	report, err := d.Run(ctx, watch)
	if err != nil {
		return err
	}
	if c.JSON {
		enc := json.NewEncoder(out.Out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(report); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	} else {
		view.Result(text, report)
	}
	view.Traces(text, d.Traces())
	if report.Interrupted {
		return errInterrupted
	}
	if c.Hold {
		fmt.Fprintf(out.Err, "the run is over; the dashboard stays at %s until Ctrl-C\n", d.DashboardURL())
		<-ctx.Done()
	}
	return nil
}

// isTerminal reports whether a table can be redrawn on w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	width, _, err := term.GetSize(int(f.Fd())) // an error where it is no terminal
	return err == nil && width >= view.MinWidth
}
