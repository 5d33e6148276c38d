package bench_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/bench"
)

// Each call succeeds, at its second attempt or beside no hedge.
func TestRecoveryCasesMeasureWhatTheySay(t *testing.T) {
	cases, err := bench.RecoveryCases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, s := range c.Subjects {
			if got := s.Ran(); got != 100 {
				t.Errorf("%s/%s: %d of 100 calls succeeded", c.Name, s.Name, got)
			}
		}
	}
}
