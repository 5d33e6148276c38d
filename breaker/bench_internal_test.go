package breaker

import (
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
