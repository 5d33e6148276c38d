package bulkhead_test

import (
	"testing"

	"github.com/breakwater-go/breakwater/bulkhead"
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
