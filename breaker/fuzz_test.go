package breaker_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

// New never panics, agrees with Validate, reports faults of one type, and what it
// accepts opens on failures or on slow calls.
func FuzzConfig(f *testing.F) {
	f.Add(0.0, int64(0), 0.0, int64(0), 0, 0, int64(0), 0, int64(0))
	f.Add(0.5, int64(500*ms), 0.5, int64(time.Second), 10, 5, int64(5*time.Second), 3, int64(time.Second))
	f.Add(math.NaN(), int64(-1), math.Inf(1), int64(-1), -1, -1, int64(-1), -1, int64(-1))
	f.Add(-1.0, int64(1), -1.0, int64(1), 1, 1, int64(1), 1, int64(1))
	f.Add(5e-324, int64(math.MaxInt64), 1.0, int64(math.MaxInt64), 1000, math.MaxInt, int64(math.MaxInt64), 1000, int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, failureRatio float64, slowAfter int64, slowRatio float64, window int64, buckets, minCalls int,
		openFor int64, probes int, probeTimeout int64,
	) {
		cfg := breaker.Config{
			FailureRatio: failureRatio, SlowAfter: time.Duration(slowAfter), SlowRatio: slowRatio,
			Window: time.Duration(window), Buckets: buckets, MinCalls: minCalls,
			OpenFor: time.Duration(openFor), Probes: probes, ProbeTimeout: time.Duration(probeTimeout),
		}
		b, err := breaker.New("fuzz", cfg)
		if valid := cfg.Validate(); (valid == nil) != (err == nil) {
			t.Fatalf("Validate says %v, New %v", valid, err)
		}
		if err != nil {
			if _, ok := errors.AsType[*policy.ConfigError](err); !ok {
				t.Fatalf("%v is no ConfigError", err)
			}
			return
		}
		eff := b.Config()
		if err := eff.Validate(); err != nil {
			t.Fatalf("the effective values of %+v are invalid: %v", cfg, err)
		}
		if eff.MinCalls > 2000 || eff.Window < time.Minute || eff.FailureRatio == breaker.Off {
			return
		}
		for range eff.MinCalls {
			if b.State() != breaker.Closed {
				t.Fatalf("%+v opened too early", eff)
			}
			permit, err := b.Acquire()
			if err != nil {
				t.Fatal(err)
			}
			permit.Done(policy.Failure)
		}
		if b.State() == breaker.Closed {
			t.Fatalf("%+v is closed after %d failures", eff, eff.MinCalls)
		}
	})
}
