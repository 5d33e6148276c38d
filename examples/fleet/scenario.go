package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// options are the flags.
type options struct {
	clients int
	length  time.Duration // of the longest run
	seed    uint64
}

// scenario is a question, asked of several fleets.
type scenario struct {
	name, title string
	variants    []variant
	figures     func(*world) []figure
	lines       []line // of the picture
}

type variant struct {
	name  string
	fleet fleet
}

// figure is what a run came to.
type figure struct {
	name   string
	value  float64
	format string
}

func (f figure) String() string {
	if f.value < 0 {
		return "never"
	}
	return fmt.Sprintf(f.format, f.value)
}

func percent(name string, n, of int) figure {
	return figure{name, 100 * float64(n) / float64(max(of, 1)), "%.1f %%"}
}

// line is one of the lines of a picture.
type line struct {
	name string
	y    func(w *world, second int) float64
}

var (
	offered  = line{"calls of users", func(w *world, i int) float64 { return float64(w.seconds[i].calls) }}
	load     = line{"load on the dependency", func(w *world, i int) float64 { return float64(w.seconds[i].attempts) }}
	answered = line{"answered", func(w *world, i int) float64 { return float64(w.seconds[i].good) }}
	capacity = line{"capacity", func(w *world, i int) float64 { return w.capacity(time.Duration(i) * time.Second) }}
)

// sum adds up the seconds from one time to another.
func (w *world) sum(from, to time.Duration) (s second) {
	for t := from; t < to; t += time.Second {
		x := w.at(t)
		s.calls += x.calls
		s.attempts += x.attempts
		s.good += x.good
		s.failed += x.failed
		s.wasted += x.wasted
		s.opened += x.opened
		s.trips += x.trips
		s.waited += x.waited
	}
	return s
}

// wellAfter is how long after a time 95 % of the calls are answered for ten seconds in a
// row, or -1.
func (w *world) wellAfter(from time.Duration) figure {
	f := figure{"well again after", -1, "%.0f s"}
	row := 0
	for t := from; t < w.length; t += time.Second {
		if s := w.at(t); float64(s.good) < 0.95*float64(s.calls) {
			row = 0
		} else if row++; row == 10 {
			f.value = (t - 9*time.Second - from).Seconds()
			break
		}
	}
	return f
}

// outcome is a variant that has been run.
type outcome struct {
	*world

	variant string
	figures []figure
	took    time.Duration
}

// run runs all variants, one after the other.
func (s *scenario) run() ([]outcome, error) {
	list := make([]outcome, 0, len(s.variants))
	for _, v := range s.variants {
		began := time.Now()
		w, err := v.fleet.run()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.name, v.name, err)
		}
		list = append(list, outcome{w, v.name, s.figures(w), time.Since(began)})
	}
	return list, nil
}

// write writes the outcomes as a table.
func (s *scenario) write(w io.Writer, list []outcome) error {
	fmt.Fprintf(w, "%s\n\n", s.title)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for i, o := range list {
		if i == 0 {
			fmt.Fprint(t, "  ")
			for _, f := range o.figures {
				fmt.Fprintf(t, "\t%s", f.name)
			}
			fmt.Fprintln(t)
		}
		fmt.Fprintf(t, "  %s", o.variant)
		for _, f := range o.figures {
			fmt.Fprintf(t, "\t%v", f)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// picture is what tools/pictures draws.
type picture struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	Title string  `json:"title"`
	Unit  string  `json:"unit"`
	Lines []curve `json:"lines"`
}

type curve struct {
	Name string    `json:"name"`
	Y    []float64 `json:"y"` // one value for each second
}

func (s *scenario) picture(list []outcome) picture {
	p := picture{Name: "fleet-" + s.name, Title: s.title}
	for _, o := range list {
		pl := panel{Title: o.variant, Unit: "calls per second"}
		for _, l := range s.lines {
			c := curve{Name: l.name}
			for i := range int(min(o.length, 5*time.Minute) / time.Second) {
				c.Y = append(c.Y, l.y(o.world, i))
			}
			pl.Lines = append(pl.Lines, c)
		}
		p.Panels = append(p.Panels, pl)
	}
	return p
}
