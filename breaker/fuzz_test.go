package breaker_test

import (
	"context"
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
	type d = int64
	add := func(c breaker.Config) {
		f.Add(c.FailureRatio, d(c.SlowAfter), c.SlowRatio, c.FailureCount, c.ConsecutiveFailures,
			d(c.Window), c.Buckets, c.LastCalls, c.MinCalls,
			d(c.OpenFor), d(c.MaxOpenFor), uint8(c.OpenGrowth), d(c.ForgetAfter), c.OpenJitter, d(c.MaxRetryAfter),
			c.Probes, c.Successes, d(c.ProbeTimeout), d(c.RampFor), c.RampStart)
	}
	add(breaker.Config{})
	add(breaker.Config{
		FailureRatio: 0.5, SlowAfter: 500 * ms, SlowRatio: 0.5, Window: time.Second, Buckets: 10, MinCalls: 5,
		OpenFor: 5 * time.Second, Probes: 3, ProbeTimeout: time.Second,
	})
	add(breaker.Config{
		FailureRatio: math.NaN(), SlowAfter: -1, SlowRatio: math.Inf(1), FailureCount: -1, ConsecutiveFailures: -1,
		Window: -1, Buckets: -1, LastCalls: -1, MinCalls: -1, OpenFor: -1, MaxOpenFor: -1, OpenGrowth: 9, ForgetAfter: -1,
		OpenJitter: math.NaN(), MaxRetryAfter: -2, Probes: -1, Successes: -1, ProbeTimeout: -1, RampFor: -1, RampStart: math.NaN(),
	})
	add(breaker.Config{FailureRatio: breaker.Off, ConsecutiveFailures: 3, LastCalls: 5, RampFor: time.Second, RampStart: 0.5})
	add(breaker.Config{
		FailureRatio: 5e-324, SlowAfter: math.MaxInt64, SlowRatio: 1, Window: math.MaxInt64, Buckets: 1000, MinCalls: math.MaxInt,
		OpenFor: math.MaxInt64, MaxOpenFor: math.MaxInt64, OpenJitter: 0.999, Probes: 1000, ProbeTimeout: math.MaxInt64, RampFor: math.MaxInt64,
	})
	f.Fuzz(func(t *testing.T, failureRatio float64, slowAfter d, slowRatio float64, count, row int,
		window d, buckets, lastCalls, minCalls int,
		openFor, maxOpenFor d, growth uint8, forgetAfter d, jitter float64, maxRetryAfter d,
		probes, successes int, probeTimeout, rampFor d, rampStart float64,
	) {
		cfg := breaker.Config{
			FailureRatio: failureRatio, SlowAfter: time.Duration(slowAfter), SlowRatio: slowRatio,
			FailureCount: count, ConsecutiveFailures: row,
			Window: time.Duration(window), Buckets: buckets, LastCalls: lastCalls, MinCalls: minCalls,
			OpenFor: time.Duration(openFor), MaxOpenFor: time.Duration(maxOpenFor), OpenGrowth: breaker.Growth(growth),
			ForgetAfter: time.Duration(forgetAfter), OpenJitter: jitter, MaxRetryAfter: time.Duration(maxRetryAfter),
			Probes: probes, Successes: successes, ProbeTimeout: time.Duration(probeTimeout),
			RampFor: time.Duration(rampFor), RampStart: rampStart,
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
		enough := eff.MinCalls // failures
		if eff.FailureRatio == breaker.Off {
			enough = math.MaxInt
		}
		for _, n := range []int{eff.FailureCount, eff.ConsecutiveFailures} {
			if n > 0 {
				enough = min(enough, n)
			}
		}
		if enough > 2000 || eff.LastCalls == 0 && eff.Window < time.Minute {
			return
		}
		for range enough {
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
			t.Fatalf("%+v is closed after %d failures", eff, enough)
		}
		inWindow := enough
		if eff.LastCalls > 0 {
			inWindow = min(enough, eff.LastCalls)
		}
		if eff.OpenFor < time.Minute {
			return // a probe may be due by now
		}
		s := b.Snapshot(time.Now()).Breaker
		if s.Opened != 1 || s.Failures != uint64(inWindow) || s.RetryAfter > max(eff.MaxOpenFor, 0) {
			t.Fatalf("%+v after %d failures: %+v", eff, enough, s)
		}
	})
}

// The same of the throttle: what it accepts lets calls through that are accepted, and
// some of those that are not.
func FuzzThrottleConfig(f *testing.F) {
	f.Add(0.0, int64(0), 0, 0, 0.0, false)
	f.Add(2.0, int64(time.Minute), 40, 1, 1.0, true)
	f.Add(math.NaN(), int64(-1), -1, -1, math.NaN(), false)
	f.Add(1.0, int64(math.MaxInt64), 1000, math.MaxInt, 5e-324, false)
	f.Fuzz(func(t *testing.T, k float64, window int64, buckets, minCalls int, maxRejection float64, ignore bool) {
		cfg := breaker.Throttle{
			K: k, Window: time.Duration(window), Buckets: buckets, MinCalls: minCalls, MaxRejection: maxRejection, IgnoreRefusals: ignore,
		}
		th, err := breaker.NewThrottle("fuzz", cfg)
		if valid := cfg.Validate(); (valid == nil) != (err == nil) {
			t.Fatalf("Validate says %v, New %v", valid, err)
		}
		if err != nil {
			if _, ok := errors.AsType[*policy.ConfigError](err); !ok {
				t.Fatalf("%v is no ConfigError", err)
			}
			return
		}
		if err := th.Config().Validate(); err != nil {
			t.Fatalf("the effective values of %+v are invalid: %v", cfg, err)
		}
		p, err := policy.New("fuzz", th)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if _, err := policy.Do(t.Context(), p, func(context.Context) (int, error) { return i, nil }); err != nil {
				t.Fatalf("%+v refused a call although all were accepted: %v", cfg, err)
			}
		}
		for i := range 200 {
			_, _ = policy.Do(t.Context(), p, func(context.Context) (int, error) { return i, errDown })
		}
		if s := th.Snapshot(time.Now()).Breaker; !(s.Share >= 0 && s.Share <= 1) || s.Failures > s.Calls {
			t.Fatalf("%+v: %+v", cfg, s)
		}
	})
}

// The same of the keyed breaker: what it accepts is bounded.
func FuzzKeyedConfig(f *testing.F) {
	f.Add(0, int64(0), 0.0, int64(0))
	f.Add(3, int64(time.Minute), 0.5, int64(time.Second))
	f.Add(-1, int64(-1), math.NaN(), int64(-1))
	f.Add(100_000, int64(math.MaxInt64), 5e-324, int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, maxKeys int, ttl int64, share float64, window int64) {
		cfg := breaker.Keyed{
			Config:  breaker.Config{Window: time.Duration(window), ConsecutiveFailures: 1},
			MaxKeys: maxKeys, TTL: time.Duration(ttl), MaxOpenShare: share,
		}
		k, err := breaker.NewKeyed("fuzz", cfg)
		if valid := cfg.Validate(); (valid == nil) != (err == nil) {
			t.Fatalf("Validate says %v, New %v", valid, err)
		}
		if err != nil {
			return
		}
		if err := k.Config().Validate(); err != nil {
			t.Fatalf("the effective values of %+v are invalid: %v", cfg, err)
		}
		for i := range 20 {
			permit, err := k.Get(string(rune('a' + i))).Acquire()
			if err != nil {
				t.Fatal(err)
			}
			permit.Done(policy.Failure)
			s := k.Snapshot(time.Now()).Breaker
			if s.Keys > s.MaxKeys || s.OpenKeys > max(s.MaxOpenKeys, 1) && s.Evicted == 0 || s.OpenKeys == 0 {
				t.Fatalf("%+v: %+v", cfg, s)
			}
		}
	})
}
