package bench_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/bench"
)

// TestCasesMeasureWhatTheySay keeps the cases honest: a refused case refuses, and no
// other does.
func TestCasesMeasureWhatTheySay(t *testing.T) {
	cases, err := bench.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, s := range c.Subjects {
			got := s.Ran()
			// go-zero's breaker drops a share of the calls, never all.
			if c.Name == "refused" && got > 0 && s.Name != "gozero" {
				t.Errorf("%s/%s ran %d calls", c.Name, s.Name, got)
			}
			if c.Name != "refused" && got != 100 {
				t.Errorf("%s/%s ran %d of 100 calls", c.Name, s.Name, got)
			}
		}
	}
}

// BenchmarkCases runs every case once, for profiles; `make bench-peers` compares.
func BenchmarkCases(b *testing.B) {
	cases, err := bench.Cases()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range cases {
		for _, s := range c.Subjects {
			b.Run(c.Name+"/"+s.Name, s.Run)
		}
	}
}
