package bulkhead_test

import (
	"runtime"
	"testing"

	"github.com/breakwater-go/breakwater/bulkhead"
	"github.com/breakwater-go/breakwater/policy"
)

func benchPermits(b *testing.B, limit int) *bulkhead.Permits {
	b.Helper()
	p, err := bulkhead.New("", bulkhead.Semaphore{Limit: limit})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func BenchmarkAdmitted(b *testing.B) {
	p := benchPermits(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		if p.TryAcquire() {
			p.Release()
		}
	}
}

func BenchmarkAdmittedParallel(b *testing.B) {
	p := benchPermits(b, 100)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if p.TryAcquire() {
				p.Release()
			}
		}
	})
}

// 64 goroutines on the processors there are: the time of an operation is to be at
// most twice that of one goroutine.
func BenchmarkAdmitted64(b *testing.B) {
	p := benchPermits(b, 100)
	b.ReportAllocs()
	b.SetParallelism(max(64/runtime.GOMAXPROCS(0), 1))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if p.TryAcquire() {
				p.Release()
			}
		}
	})
}

// As a gate, with a reserve, which asks for the priority.
func BenchmarkAdmittedGate(b *testing.B) {
	ctx := b.Context()
	p, err := policy.New("dependency", bulkhead.Semaphore{Limit: 100, Reserve: 10})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.DoWith(ctx, p, 1, one); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	p := benchPermits(b, 1)
	p.TryAcquire()
	b.ReportAllocs()
	for b.Loop() {
		if p.TryAcquire() {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkRefusedError(b *testing.B) {
	p := benchPermits(b, 1)
	p.TryAcquire()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if p.Acquire(ctx) == nil {
			b.Fatal("admitted")
		}
	}
}

// One permit among as many callers as there are processors: half of the calls queue,
// and every permit is handed over.
func BenchmarkHandOver(b *testing.B) {
	p, err := bulkhead.New("", bulkhead.Semaphore{Limit: 1, MaxWait: 1 << 40, MaxWaiters: 1000})
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if p.Acquire(ctx) == nil {
				p.Release()
			}
		}
	})
}
