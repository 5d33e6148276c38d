package bench_test

import (
	"strings"
	"testing"

	"github.com/breakwater-go/breakwater/bench"
)

// TestLimitCasesMeasureWhatTheySay keeps the cases honest: what is to be refused is, and
// nothing else.
func TestLimitCasesMeasureWhatTheySay(t *testing.T) {
	limits, err := bench.LimitCases()
	if err != nil {
		t.Fatal(err)
	}
	breakers, err := bench.BreakerCases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(limits, breakers...) {
		want := 100
		if strings.HasPrefix(c.Name, "limit_refused") {
			want = 0
		}
		for _, s := range c.Subjects {
			if got := s.Ran(); got != want {
				t.Errorf("%s/%s ran %d of 100 calls, want %d", c.Name, s.Name, got, want)
			}
		}
	}
}

// BenchmarkLimitCases runs every case of packages ratelimit and breaker once.
func BenchmarkLimitCases(b *testing.B) {
	limits, err := bench.LimitCases()
	if err != nil {
		b.Fatal(err)
	}
	breakers, err := bench.BreakerCases()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range append(limits, breakers...) {
		for _, s := range c.Subjects {
			b.Run(c.Name+"/"+s.Name, s.Run)
		}
	}
}
