package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/breakwater-go/breakwater/examples/incidents"
)

type incidentCommand struct {
	Name string `arg:"" optional:"" help:"The incident: captcha, aggregator, ask, orders or ocr."`
	All  bool   `help:"Play all of them, and print a line for each."`
	JSON bool   `name:"json" help:"Print the result as JSON, with what the pictures show."`

	Live bool          `help:"Run it on real time, on loopback, with a dashboard and the servers it needs. The captcha runs until Ctrl-C or --for."`
	For  time.Duration `placeholder:"DURATION" help:"How long the live captcha runs. Without it, until Ctrl-C."`
	Addr string        `placeholder:"HOST:PORT" help:"Where the live captcha serves the page behind the pipeline. Port 0 is any free one."`
	Set  []string      `placeholder:"KEY=VALUE" help:"A change to the breakwater.yaml of the live captcha, such as captcha.ratelimit.Rate=1/s; may be given again."`
}

// Help is the part of the help text below the flags' description.
func (incidentCommand) Help() string {
	return `Plays what happened with the code as it was, and with a pipeline that is set up by the breakwater.yaml beside it, and prints the figures of both and what they should be. Minutes take milliseconds: the time is virtual, and the figures are the same each time.

With --live the dependencies answer over HTTP on loopback, and limits, queries and queues are those of a redis-server, a PostgreSQL and a RabbitMQ that are started for it, where Debian's packages of them are installed. Figures then have a tolerance, and need a machine that does nothing else.

It exits with 1 when a figure is not as it should be.`
}

// Validate is called by the parser.
func (c incidentCommand) Validate() error {
	if c.All != (c.Name == "") {
		return errors.New("want the name of an incident, or --all")
	}
	if c.Live && c.All {
		return errors.New("want --live with the name of an incident")
	}
	if !c.Live && (c.For != 0 || c.Addr != "" || len(c.Set) > 0) {
		return errors.New("--for, --addr and --set are for --live")
	}
	if c.For < 0 {
		return fmt.Errorf("--for %s: want more than 0", c.For)
	}
	return nil
}

// Run plays incidents.
func (c incidentCommand) Run(ctx context.Context, out output) error {
	if c.Live {
		return c.runLive(ctx, out)
	}
	play := incidents.All()
	if !c.All {
		i, err := incidents.Find(c.Name)
		if err != nil {
			return err
		}
		play = []incidents.Incident{i}
	}
	var results []*incidents.Result
	for _, i := range play {
		r, err := i.Play()
		if err != nil {
			return fmt.Errorf("%s: %w", i.Name, err)
		}
		results = append(results, r)
	}
	return c.show(out, play, results)
}

// show prints results, and fails when a figure is not as it should be.
func (c incidentCommand) show(out output, played []incidents.Incident, results []*incidents.Result) error {
	if err := c.write(out, played, results); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	for _, r := range results {
		if !r.OK() {
			return errFound
		}
	}
	return nil
}

func (c incidentCommand) write(out output, played []incidents.Incident, results []*incidents.Result) error {
	if c.JSON {
		enc := json.NewEncoder(out.Out)
		enc.SetIndent("", "  ")
		if c.All {
			return enc.Encode(results)
		}
		return enc.Encode(results[0])
	}
	if c.All {
		return incidents.WriteSummary(out.Out, results)
	}
	r := results[0]
	fmt.Fprintf(out.Out, "%s: %s\n\n", r.Incident, played[0].Story)
	if err := r.WriteText(out.Out); err != nil {
		return err
	}
	verdict := "all inside"
	if n := len(r.Out()); n > 0 {
		verdict = fmt.Sprintf("%d OUT", n)
	}
	_, err := fmt.Fprintf(out.Out, "\n%d figures, %s\n", len(r.Rows), verdict)
	return err
}
