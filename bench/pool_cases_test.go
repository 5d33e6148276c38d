package bench_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/bench"
)

// TestPoolCasesMeasureWhatTheySay keeps the cases honest: every call runs its
// function.
func TestPoolCasesMeasureWhatTheySay(t *testing.T) {
	cases, err := bench.PoolCases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, s := range c.Subjects {
			if got := s.Ran(); got != 100 {
				t.Errorf("%s/%s ran %d of 100 calls", c.Name, s.Name, got)
			}
		}
	}
}

// BenchmarkPoolCases runs every case of package bulkhead once.
func BenchmarkPoolCases(b *testing.B) {
	cases, err := bench.PoolCases()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range cases {
		for _, s := range c.Subjects {
			b.Run(c.Name+"/"+s.Name, s.Run)
		}
	}
}
