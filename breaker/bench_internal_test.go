package breaker

import (
	"strconv"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
	"github.com/breakwater-go/breakwater/policy"
)

// Admission and record of a success without the clock: what a breaker adds to a
// call in a pipeline.
func BenchmarkEnterLeave(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	br, _ := newAt(now, "", Config{SlowAfter: time.Second})
	for b.Loop() {
		word, _ := br.enter(now)
		br.leave(word, 0, now, policy.Outcome{Kind: policy.Success, Duration: time.Millisecond})
	}
}

func BenchmarkEnterLeaveParallel(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	br, _ := newAt(now, "", Config{SlowAfter: time.Second})
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		stripe := window.Stripe()
		for pb.Next() {
			word, _ := br.enter(now)
			br.leave(word, stripe, now, policy.Outcome{Kind: policy.Success, Duration: time.Millisecond})
		}
	})
}

// The length of a window and its buckets do not show in the cost of a call, nor does
// it show whether the window is one of time or of calls. The clock moves 100 µs with
// each.
func BenchmarkWindows(b *testing.B) {
	for _, bb := range []struct {
		name string
		cfg  Config
	}{
		{"1s of 10 buckets", Config{Window: time.Second, Buckets: 10}},
		{"10s of 100 buckets", Config{Window: 10 * time.Second, Buckets: 100}},
		{"100 calls", Config{LastCalls: 100}},
		{"10000 calls", Config{LastCalls: 10_000}},
	} {
		for _, rate := range []struct {
			name string
			each int // one of so many calls fails
		}{{"ok", 0}, {"5 percent fail", 20}} {
			b.Run(bb.name+"/"+rate.name, func(b *testing.B) {
				b.ReportAllocs()
				now := time.Now()
				br, err := newAt(now, "", bb.cfg)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for b.Loop() {
					o := policy.Outcome{Kind: policy.Success, Duration: time.Millisecond}
					if n++; n == rate.each {
						n, o.Kind = 0, policy.Failure
					}
					now = now.Add(100 * time.Microsecond)
					word, _ := br.enter(now)
					br.leave(word, 0, now, o)
				}
			})
		}
	}
}

func BenchmarkEnterLeaveEveryRule(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	br, _ := newAt(now, "", Config{SlowAfter: time.Second, FailureCount: 100, ConsecutiveFailures: 5, LastCalls: 1000})
	for b.Loop() {
		word, _ := br.enter(now)
		br.leave(word, 0, now, policy.Outcome{Kind: policy.Success, Duration: time.Millisecond})
	}
}

func BenchmarkThrottle(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	th, _ := newThrottleAt(now, "", Throttle{})
	for b.Loop() {
		th.enter(now, policy.PriorityNormal)
		th.leave(0, now, policy.Outcome{Kind: policy.Success})
	}
}

// Half of the requests are not accepted, and a few are refused.
func BenchmarkThrottleThrottling(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	th, _ := newThrottleAt(now, "", Throttle{})
	n := 0
	for b.Loop() {
		if !th.enter(now, policy.PriorityNormal) {
			continue
		}
		o := policy.Outcome{Kind: policy.Success}
		if n++; n%2 == 0 {
			o.Kind = policy.Throttled
		}
		th.leave(0, now, o)
	}
}

func BenchmarkKeyed(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	k, _ := newKeyedAt(now, "", Keyed{})
	keys := make([]string, 256)
	for i := range keys {
		keys[i] = "inventory-" + strconv.Itoa(i) + ".example.com:443"
	}
	i := 0
	for b.Loop() {
		br := k.get(keys[i&255], now)
		i++
		word, _ := br.enter(now)
		br.leave(word, 0, now, policy.Outcome{Kind: policy.Success})
	}
}

// A table that is full, and keys that never come again.
func BenchmarkKeyedNewKeys(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	k, _ := newKeyedAt(now, "", Keyed{})
	i := 0
	for b.Loop() {
		i++
		br := k.get(strconv.Itoa(i), now)
		word, _ := br.enter(now)
		br.leave(word, 0, now, policy.Outcome{Kind: policy.Success})
	}
}

func BenchmarkEnterLeaveFailed(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	br, _ := newAt(now, "", Config{MinCalls: 1 << 30})
	for b.Loop() {
		word, _ := br.enter(now)
		br.leave(word, 0, now, policy.Outcome{Kind: policy.Failure, Duration: time.Millisecond})
	}
}

func BenchmarkEnterRefused(b *testing.B) {
	b.ReportAllocs()
	now := time.Now()
	br, _ := newAt(now, "", Config{MinCalls: 1})
	br.leave(wordOf(1), 0, now, policy.Outcome{Kind: policy.Failure})
	for b.Loop() {
		if _, refused := br.enter(now); refused == nil {
			b.Fatal("admitted")
		}
	}
}
