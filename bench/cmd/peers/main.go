// Command peers measures every case of package bench, ours and the peers' in turn,
// several rounds of it, and prints the medians: a table for people, then lines for
// programs:
//
//	ratio <case>/<peer> <our time / the peer's time>
//	allocs <case> <our allocations per call>
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/breakwater-go/breakwater/bench"
)

func main() {
	testing.Init()
	rounds := flag.Int("rounds", 10, "number of interleaved rounds")
	each := flag.Duration("each", 150*time.Millisecond, "time to measure each subject in a round")
	name := flag.String("run", "", "regular expression for the names of the cases to measure")
	flag.Parse()
	only, err := regexp.Compile(*name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := run(*rounds, *each, only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rounds int, each time.Duration, only *regexp.Regexp) error {
	if err := flag.Set("test.benchtime", each.String()); err != nil {
		return err
	}
	cases, err := bench.AllCases()
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c bench.Case) bool { return !only.MatchString(c.Name) })
	if len(cases) == 0 {
		return fmt.Errorf("no case is called like %s", only)
	}
	type sample struct{ ns, allocs []float64 }
	samples := map[string]*sample{}
	for range rounds {
		// Interleaved, so that whatever else the machine does meets all of them.
		for _, c := range cases {
			for _, s := range c.Subjects {
				key := c.Name + "/" + s.Name
				if samples[key] == nil {
					samples[key] = &sample{}
				}
				r := testing.Benchmark(s.Run)
				if r.N == 0 {
					return fmt.Errorf("%s did not run", key)
				}
				samples[key].ns = append(samples[key].ns, float64(r.T.Nanoseconds())/float64(r.N))
				samples[key].allocs = append(samples[key].allocs, float64(r.MemAllocs)/float64(r.N))
			}
		}
	}

	fmt.Printf("medians of %d interleaved runs, %s %s/%s, %d processors\n\n",
		rounds, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\tlibrary\tns/op\tallocs/op\tours / theirs\t")
	var lines []string
	for _, c := range cases {
		ours := samples[c.Name+"/"+c.Subjects[0].Name]
		for i, s := range c.Subjects {
			got := samples[c.Name+"/"+s.Name]
			if i == 0 {
				fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t\t\n", c.Name, s.Name, median(got.ns), median(got.allocs))
				lines = append(lines, fmt.Sprintf("allocs %s %.0f", c.Name, median(got.allocs)))
				continue
			}
			ratio := median(ours.ns) / median(got.ns)
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.3f\t\n", c.Name, s.Name, median(got.ns), median(got.allocs), ratio)
			lines = append(lines, fmt.Sprintf("ratio %s/%s %.3f", c.Name, s.Name, ratio))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println()
	for _, l := range lines {
		fmt.Println(l)
	}
	return nil
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
