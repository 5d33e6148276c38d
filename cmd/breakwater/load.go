package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/load"
)

type loadCommand struct {
	URL string `name:"url" required:"" placeholder:"URL" help:"Where to send the requests."`

	Burst  int           `placeholder:"N" help:"So many requests at once."`
	Rate   string        `placeholder:"RATE" help:"So many requests per time, such as 20/s, 2.5/s or 600/m; with --for."`
	Ramp   string        `placeholder:"A..B" help:"From one rate per second to another, such as 50..1000; with --for."`
	For    time.Duration `placeholder:"DURATION" help:"How long the rate or the ramp lasts."`
	Stages string        `type:"path" placeholder:"FILE" help:"A YAML file with bursts, pauses, rates and ramps, one after the other."`

	Method      string        `help:"GET by default, POST with a body."`
	Header      []string      `short:"H" sep:"none" placeholder:"NAME: VALUE" help:"A header to send; may be given again."`
	Body        string        `type:"path" placeholder:"FILE" help:"A file whose content is the body of each request."`
	Timeout     time.Duration `default:"10s" help:"How long an answer is waited for."`
	Concurrency int           `default:"1000" help:"Most requests on their way at once. Others go late, which the report says."`
	Redirects   int           `default:"0" help:"How many redirects are followed, within the target. With 0 the redirect is the answer."`
	Insecure    bool          `help:"Do not verify the certificate of the target."`

	IOwnThisTarget bool `name:"i-own-this-target" help:"Send to a target that is not on loopback. Say so only of your own."`

	JSON bool   `name:"json" help:"Print the result as JSON."`
	HTML string `name:"html" type:"path" placeholder:"FILE" help:"Write a plot as a page."`
	CSV  string `name:"csv" type:"path" placeholder:"FILE" help:"Write the steps of the load in the form that breakwater size --csv reads."`
}

// Help is the part of the help text below the flags' description.
func (loadCommand) Help() string {
	return `Sends requests at their due times, whether or not earlier ones have been answered, and prints per second what came back: passed (2xx, 3xx), 429, other answers, errors; the admitted rate; latencies, counted from the due time; and what Retry-After said.

Targets have to be on loopback, unless --i-own-this-target is given. Connections go only to the addresses that the name had at the beginning, and never through a proxy.

Ctrl-C ends the load and prints what there is (exit status 130). Without a single answer the exit status is 1.`
}

// Validate is called by the parser.
func (c loadCommand) Validate() error {
	kinds := []string{}
	for _, k := range []struct {
		flag  string
		given bool
	}{{"--burst", c.Burst != 0}, {"--rate", c.Rate != ""}, {"--ramp", c.Ramp != ""}, {"--stages", c.Stages != ""}} {
		if k.given {
			kinds = append(kinds, k.flag)
		}
	}
	switch {
	case len(kinds) == 0:
		return errors.New("want a load: one of --burst, --rate, --ramp and --stages")
	case len(kinds) > 1:
		return fmt.Errorf("%s: want one of them; a file of --stages can have all", strings.Join(kinds, " and "))
	case (c.Rate != "" || c.Ramp != "") && c.For == 0:
		return fmt.Errorf("%s without --for: want how long it lasts, such as --for 10s", kinds[0])
	case (c.Burst != 0 || c.Stages != "") && c.For != 0:
		return fmt.Errorf("%s with --for: it goes with --rate and --ramp", kinds[0])
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout %v: want more than 0", c.Timeout)
	case c.CSV != "" && c.Burst != 0:
		return errors.New("--csv with --burst: a burst takes no time, so it has no throughput; use --rate, --ramp or --stages")
	}
	if c.Stages == "" {
		if _, err := c.schedule(); err != nil {
			return err
		}
	}
	return nil
}

// schedule returns what the flags ask for.
func (c loadCommand) schedule() (*load.Schedule, error) {
	s := load.Stage{Burst: c.Burst, For: c.For}
	var err error
	switch {
	case c.Stages != "":
		data, err := os.ReadFile(c.Stages)
		if err != nil {
			return nil, err
		}
		return load.ReadStages(c.Stages, data)
	case c.Rate != "":
		if s.From, err = load.ParseRate(c.Rate); err != nil {
			return nil, fmt.Errorf("--rate: %w", err)
		}
		s.To = s.From
	case c.Ramp != "":
		if s.From, s.To, err = load.ParseRamp(c.Ramp); err != nil {
			return nil, fmt.Errorf("--ramp: %w", err)
		}
	}
	return load.NewSchedule(s)
}

// config returns what is to be sent.
func (c loadCommand) config(ctx context.Context) (cfg load.Config, err error) {
	cfg = load.Config{
		Method: strings.ToUpper(c.Method), Header: http.Header{}, Timeout: c.Timeout,
		Concurrency: c.Concurrency, Redirects: c.Redirects,
		TLS: &tls.Config{InsecureSkipVerify: c.Insecure, MinVersion: tls.VersionTLS12}, // it is asked for
	}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return cfg, fmt.Errorf("load: --header %q: want a name, a colon and a value", h)
		}
		cfg.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if c.Body != "" {
		if cfg.Body, err = os.ReadFile(c.Body); err != nil {
			return cfg, err
		}
	}
	if cfg.Schedule, err = c.schedule(); err != nil {
		return cfg, err
	}
	if c.CSV != "" && !cfg.Schedule.Lasts() {
		return cfg, errors.New("load: --csv: the stages have bursts only, which take no time: want a rate or a ramp among them")
	}
	if cfg.Target, err = load.NewTarget(ctx, c.URL, c.IOwnThisTarget, net.DefaultResolver); err != nil {
		return cfg, fmt.Errorf("load: %w", err)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, fmt.Errorf("load: %w", err)
	}
	return cfg, nil
}

// Run sends the load.
func (c loadCommand) Run(ctx context.Context, out output) (err error) {
	cfg, err := c.config(ctx)
	if err != nil {
		return err
	}
	// Before the load rather than after it, when it would be lost.
	files := []struct {
		name  string
		write func(io.Writer, *load.Report) error
		file  *os.File
	}{{name: c.HTML, write: load.WriteHTML}, {name: c.CSV, write: load.WriteCSV}}
	for i := range files {
		if files[i].name == "" {
			continue
		}
		if files[i].file, err = os.Create(files[i].name); err != nil {
			return err
		}
		defer files[i].file.Close()
	}
	fmt.Fprintf(out.Err, "load: %s to %s: %d requests\n", cfg.Schedule, cfg.Target, cfg.Schedule.Requests())
	var watch func(load.Progress)
	if isTerminal(out.Err) {
		watch = func(p load.Progress) { fmt.Fprintf(out.Err, "\r\x1b[K%s", load.Bar(p)) }
	}
	report, err := load.Run(ctx, cfg, watch)
	if watch != nil {
		fmt.Fprint(out.Err, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	write := load.WriteText
	if c.JSON {
		write = load.WriteJSON
	}
	errs := []error{write(out.Out, report)}
	for _, f := range files {
		if f.file != nil {
			errs = append(errs, f.write(f.file, report), f.file.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("load: writing the result: %w", err)
	}
	switch {
	case report.Interrupted:
		return errInterrupted
	case report.Errors == report.Sent:
		return fmt.Errorf("load: there was not a single answer from %s", report.Target)
	}
	return nil
}
