package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/breakwater-go/breakwater/config"
)

type sizeCommand struct {
	Rate      float64       `placeholder:"N" help:"Calls per second in the busiest hour, from one process."`
	Latency   time.Duration `help:"Mean time of a call."`
	P99       time.Duration `name:"p99" help:"Time that one call in a hundred exceeds."`
	Quota     float64       `placeholder:"N" help:"Calls per second that the dependency allows all processes together."`
	NodeLimit float64       `placeholder:"N" help:"Calls per second that one process may be sent, as a load test has found."`
	Nodes     int           `placeholder:"N" help:"Number of processes." default:"1"`
	Wait      time.Duration `help:"Longest acceptable wait in a queue; 0 for none."`
	Best      int           `placeholder:"N" help:"Concurrency of the highest throughput in a load test."`
	Refused   float64       `placeholder:"N" help:"Share of calls that may be refused because calls come at random." default:"0.01"`

	CSV        string `help:"A load test: concurrency, throughput and, if known, latency_ms, p99_ms, errors." name:"csv" placeholder:"FILE"`
	Prometheus string `help:"The answer of Prometheus to a query, as JSON: a vector with the label fact (rate, latency, p99)." placeholder:"FILE"`
}

// Help is shown by breakwater size --help.
func (sizeCommand) Help() string {
	return "Figures on the command line win over those of files. The arithmetic is described in docs/howto/size-from-figures.md."
}

// Run reckons limits from measured figures.
func (c sizeCommand) Run(out output) error {
	if c.Nodes == 0 {
		return errors.New("size: --nodes 0: want at least 1")
	}
	m := config.Measured{}
	if c.Prometheus != "" {
		f, err := os.Open(c.Prometheus)
		if err != nil {
			return err
		}
		defer f.Close()
		if m, err = config.ReadPrometheus(f); err != nil {
			return err
		}
	}
	if c.CSV != "" {
		f, err := os.Open(c.CSV)
		if err != nil {
			return err
		}
		defer f.Close()
		steps, err := config.ReadLoadTest(f)
		if err != nil {
			return err
		}
		best := config.BestConcurrency(steps)
		m.Best, m.Latency, m.P99 = best.Concurrency, best.Latency, best.P99
		if config.Rising(steps) && c.Best == 0 {
			fmt.Fprintf(out.Err, "size: %s: the last step has the highest throughput, so the dependency may bear more, and the limits below may be too low: raise the load until the throughput stays\n", c.CSV)
		}
	}
	set(&m.Rate, c.Rate)
	set(&m.Latency, c.Latency)
	set(&m.P99, c.P99)
	set(&m.Best, c.Best)
	m.Quota, m.NodeLimit, m.Nodes, m.Wait, m.Refused = c.Quota, c.NodeLimit, c.Nodes, c.Wait, c.Refused
	if m.Rate == 0 && m.Quota == 0 && m.NodeLimit == 0 && m.Best == 0 {
		return errors.New("size: want figures: at least one of --rate, --quota, --node-limit, --best, --csv and --prometheus")
	}
	s, err := config.Size(m)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out.Out, 0, 4, 2, ' ', 0)
	for _, f := range s.Figures {
		unit := ""
		if f.Unit != "" {
			unit = " " + f.Unit
		}
		fmt.Fprintf(w, "%s\t%.4g%s\t%s\n", f.Name, f.Value, unit, f.How)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out.Out, "\n%s", s.Policies)
	return err
}

// set takes over a figure that was given.
func set[T comparable](to *T, from T) {
	if from != *new(T) {
		*to = from
	}
}
