package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/breakwater-go/breakwater/cmd/breakwater/internal/load"
	"github.com/breakwater-go/breakwater/config"
)

type sizeCommand struct {
	Rate      perSecond     `placeholder:"RATE" help:"Calls in the busiest hour, from one process: 10/s, 600/m, or 10 for one per second."`
	Latency   time.Duration `help:"Mean time of a call."`
	P99       time.Duration `name:"p99" help:"Time that one call in a hundred exceeds."`
	Quota     perSecond     `placeholder:"RATE" help:"Calls per second that the dependency allows all processes together."`
	NodeLimit perSecond     `placeholder:"RATE" help:"Calls per second that one process may be sent, as a load test has found."`
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
	set(&m.Rate, float64(c.Rate))
	set(&m.Latency, c.Latency)
	set(&m.P99, c.P99)
	set(&m.Best, c.Best)
	m.Quota, m.NodeLimit, m.Nodes, m.Wait, m.Refused = float64(c.Quota), float64(c.NodeLimit), c.Nodes, c.Wait, c.Refused
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

// perSecond is a rate, written as in a file and as load takes it: 10/s, 600/m, or 10 for one
// per second. Whether it makes sense is for [config.Size] to say.
type perSecond float64

// UnmarshalText reads a rate.
func (r *perSecond) UnmarshalText(text []byte) (err error) {
	var v float64
	if strings.Contains(string(text), "/") {
		v, err = load.ParseRate(string(text))
	} else if v, err = strconv.ParseFloat(string(text), 64); err != nil {
		err = fmt.Errorf("%q is no rate: want one such as 10/s, 600/m or 10", text)
	}
	*r = perSecond(v)
	return err
}

// set takes over a figure that was given.
func set[T comparable](to *T, from T) {
	if from != *new(T) {
		*to = from
	}
}
