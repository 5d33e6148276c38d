package window_test

import (
	"testing"
	"time"

	"github.com/breakwater-go/breakwater/internal/window"
)

func BenchmarkAdd(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	for b.Loop() {
		w.Add(base, window.Stripe())
	}
}

func BenchmarkAddMovingOn(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	now := base
	for b.Loop() {
		now = now.Add(time.Microsecond)
		w.Add(now, 0)
	}
}

func BenchmarkAddParallel(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.Add(base, window.Stripe())
		}
	})
}

// Every goroutine writes to the same counter.
func BenchmarkAddOneStripeParallel(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w.Add(base, 0)
		}
	})
}

func BenchmarkLastAdd(b *testing.B) {
	b.ReportAllocs()
	l := window.NewLast(100)
	for b.Loop() {
		l.Add(base, window.Stripe())
	}
}

func BenchmarkLastRecord(b *testing.B) {
	b.ReportAllocs()
	l := window.NewLast(100)
	for b.Loop() {
		l.Record(base, failed)
	}
}

func BenchmarkRecord(b *testing.B) {
	b.ReportAllocs()
	w := window.New(base, 10*time.Second, 10)
	for b.Loop() {
		w.Record(base, failed)
	}
}
