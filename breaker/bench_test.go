package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/breaker"
	"github.com/breakwater-go/breakwater/policy"
)

func benchBreaker(b *testing.B, opened bool) *breaker.Breaker {
	b.Helper()
	br, err := breaker.New("", breaker.Config{SlowAfter: time.Second, MinCalls: 20, OpenFor: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for range 20 {
		if opened {
			permit, _ := br.Acquire()
			permit.Done(policy.Failure)
		}
	}
	return br
}

func BenchmarkAdmitted(b *testing.B) {
	b.ReportAllocs()
	br := benchBreaker(b, false)
	for b.Loop() {
		permit, _ := br.Acquire()
		permit.Done(policy.Success)
	}
}

func BenchmarkAdmittedParallel(b *testing.B) {
	b.ReportAllocs()
	br := benchBreaker(b, false)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			permit, _ := br.Acquire()
			permit.Done(policy.Success)
		}
	})
}

func BenchmarkRefused(b *testing.B) {
	b.ReportAllocs()
	br := benchBreaker(b, true)
	for b.Loop() {
		if _, err := br.Acquire(); err == nil {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkRefusedParallel(b *testing.B) {
	b.ReportAllocs()
	br := benchBreaker(b, true)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := br.Acquire(); err == nil {
				b.Error("admitted")
			}
		}
	})
}

func benchPipeline(b *testing.B) *policy.Pipeline {
	b.Helper()
	b.ReportAllocs()
	p, err := policy.New("bench", benchBreaker(b, false))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func identity(_ context.Context, v int) (int, error) { return v, nil }

func BenchmarkPipelineDoWith(b *testing.B) {
	p := benchPipeline(b)
	for b.Loop() {
		_, _ = policy.DoWith(b.Context(), p, 1, identity)
	}
}

// 32 goroutines for each processor.
func BenchmarkPipelineDoWithParallel(b *testing.B) {
	p := benchPipeline(b)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = policy.DoWith(b.Context(), p, 1, identity)
		}
	})
}
