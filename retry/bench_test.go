package retry_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/policy"
	"github.com/breakwater-go/breakwater/retry"
)

func BenchmarkFirst(b *testing.B) {
	r := newRetrier(b, retry.Config{})
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		retry.FirstAt(r, now)
	}
}

func BenchmarkFirstParallel(b *testing.B) {
	r := newRetrier(b, retry.Config{})
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			retry.FirstAt(r, now)
		}
	})
}

func benchDecide(b *testing.B, want policy.Stop, budget retry.BudgetSource) {
	b.Helper()
	r := newRetrier(b, retry.Config{Budget: budget})
	now := time.Now()
	s := policy.RetryState{Now: now, Started: now, Attempt: 1, Outcome: policy.Outcome{Kind: policy.Failure}}
	b.ReportAllocs()
	for b.Loop() {
		if d := r.Decide(s); d.Stop != want {
			b.Fatalf("stop is %s, want %s", d.Stop, want)
		}
		if want == policy.StopNone {
			r.Undo(now)
		}
	}
}

func BenchmarkDecideAllowedAndUndone(b *testing.B) {
	benchDecide(b, policy.StopNone, retry.BudgetConfig{})
}

func BenchmarkDecideRefused(b *testing.B) {
	benchDecide(b, policy.StopBudget, retry.BudgetConfig{MinPerSecond: retry.Off})
}

func BenchmarkDecideWithoutBudget(b *testing.B) {
	benchDecide(b, policy.StopNone, retry.NoBudget{})
}
